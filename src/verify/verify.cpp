// verify.cpp: puts the verifier's stages together and counts the units over every group boundary.
//
// A barrier moves no data: there, every rank's end must be behind every rank's start, which is
// followed as sets of positions known to have started (runs, interned). Cost: see the stages.
#include "verify/verify.hpp"

#include <deque>
#include <future>
#include <numeric>
#include <thread>

#include <fmt/format.h>

#include "verify/stages.hpp"

namespace sennit {
namespace verifier {

Layout::Layout(const TierTree& tree, const Request& request)
    : ranks(tree.ranks()),
      collective(request.collective),
      reduces(request.reduces()),
      in_place(request.in_place),
      vector_variant(request.vector_variant || !request.counts.empty()),
      root(request.root) {
  const uint64_t n = static_cast<uint64_t>(ranks);
  const bool one = collective == Collective::all_reduce || collective == Collective::broadcast ||
                   collective == Collective::reduce || collective == Collective::barrier;
  blocks = one ? 1 : n;
  slot_blocks = collective == Collective::all_to_all ? n * n : blocks;
}

Run Layout::input(int position) const {
  const uint64_t p = static_cast<uint64_t>(position);
  switch (collective) {
    case Collective::all_gather:
    case Collective::gather:
      return {p * kUnits, (p + 1) * kUnits};
    case Collective::broadcast:
    case Collective::scatter:
      return position == root ? Run{0, blocks * kUnits} : Run{0, 0};
    default:
      return {0, blocks * kUnits};
  }
}

Run Layout::output(int position) const {
  const uint64_t p = static_cast<uint64_t>(position);
  switch (collective) {
    case Collective::reduce_scatter:
    case Collective::scatter:
      return {p * kUnits, (p + 1) * kUnits};
    case Collective::reduce:
    case Collective::gather:
      return position == root ? Run{0, blocks * kUnits} : Run{0, 0};
    default:
      return {0, blocks * kUnits};
  }
}

bool Layout::slot_block_known(int position, uint64_t block) const {
  if (!vector_variant || collective != Collective::all_to_all) return true;
  const uint64_t n = static_cast<uint64_t>(ranks), p = static_cast<uint64_t>(position);
  return block / n == p || block % n == p;
}

std::string step_text(const World& world, int position, size_t step) {
  const CompactStep& s = world.programs[static_cast<size_t>(position)].steps[step];
  std::string what = s.kind == StepKind::reduce ? "reduce" : "copy";
  if (s.kind == StepKind::send) what = fmt::format("send to {}", s.peer);
  if (s.kind == StepKind::recv) what = fmt::format("recv from {}", s.peer);
  return fmt::format("position {}, step {} ({})", position, step, what);
}

std::string place_text(uint64_t begin, uint64_t end) {
  const auto fraction = [](uint64_t units) {
    const uint64_t divisor = std::gcd(units, kUnits);
    if (units == 0 || divisor == kUnits) return std::to_string(units / kUnits);
    return fmt::format("{}/{}", units / divisor, kUnits / divisor);
  };
  const uint64_t base = begin / kUnits * kUnits;
  return fmt::format("block {} [{}, {})", begin / kUnits, fraction(begin - base),
                     fraction(end - base));
}

namespace {

class Knowledge {
 public:
  uint32_t of(Run run) { return pool_.intern({&run, 1}); }
  uint32_t unite(uint32_t a, uint32_t b) {
    if (a == b || b == kNone) return a;
    if (a == kNone) return b;
    std::vector<Run> all(pool_[a].begin(), pool_[a].end()), united;
    all.insert(all.end(), pool_[b].begin(), pool_[b].end());
    std::sort(all.begin(), all.end(), [](const Run& x, const Run& y) { return x.begin < y.begin; });
    for (const Run& run : all) {
      if (!united.empty() && run.begin <= united.back().end)
        united.back().end = std::max(united.back().end, run.end);
      else
        united.push_back(run);
    }
    return pool_.intern(united);
  }

 private:
  SequencePool<Run> pool_;
};

uint64_t add_saturating(uint64_t a, uint64_t b) {
  return a > ~uint64_t{0} - b ? ~uint64_t{0} : a + b;
}

// Units over the boundaries that lie between the two, from the leaf outwards.
void count_crossings(const TierTree& tree, int from, int to, uint64_t units,
                     std::vector<uint64_t>& counted) {
  int group = tree.leaf_of_position[static_cast<size_t>(from)];
  for (;;) {
    const Group& g = tree.groups[static_cast<size_t>(group)];
    if (g.parent < 0 || (to >= g.first && to < g.first + g.size)) return;
    uint64_t& count = counted[static_cast<size_t>(group)];
    count = add_saturating(count, units);
    group = g.parent;
  }
}

std::string check_request(const TierTree& tree, const Request& request) {
  const uint64_t n = static_cast<uint64_t>(tree.ranks());
  if (n == 0) return "the tree has no ranks";
  if (request.collective == Collective::send_recv)
    return "send and recv have no schedule to verify";
  if (request.root < 0 || request.root >= tree.ranks())
    return fmt::format("root {} is not a position", request.root);
  if (!request.counts.empty() && request.counts.size() != n)
    return fmt::format("{} counts for {} ranks", request.counts.size(), n);
  if (const Status size = check_size(request, tree.ranks()); !size.ok()) return size.text();
  if (Layout(tree, request).slot_blocks > ~uint64_t{0} / kUnits)
    return fmt::format("all-to-all over {} ranks has more places than the verifier can number", n);
  return {};
}

// The programs in order of position; of many ranks they are made ahead by other threads.
class ProgramSource {
 public:
  ProgramSource(const Blueprint& blueprint, int ranks)
      : blueprint_(blueprint),
        ranks_(ranks),
        ahead_(ranks < kManyRanks ? 0 : std::max(2u, std::thread::hardware_concurrency())) {}

  Program next() {
    if (ahead_ == 0) return blueprint_.program(next_++);
    while (next_ < ranks_ && making_.size() < ahead_)
      making_.push_back(std::async(
          std::launch::async, [this, position = next_++] { return blueprint_.program(position); }));
    Program program = making_.front().get();
    making_.pop_front();
    return program;
  }

 private:
  static constexpr int kManyRanks = 4096;
  const Blueprint& blueprint_;
  const int ranks_;
  const size_t ahead_;
  int next_ = 0;
  std::deque<std::future<Program>> making_;
};

std::string examine(const TierTree& tree, const Request& request, const Blueprint& blueprint,
                    Verdict& verdict) {
  if (std::string error = check_request(tree, request); !error.empty()) return error;
  World world(tree, request);
  world.programs.resize(static_cast<size_t>(tree.ranks()));
  ProgramSource programs(blueprint, tree.ranks());
  for (int p = 0; p < tree.ranks(); p++) {
    const Program program = programs.next();
    verdict.steps += program.steps.size();
    verdict.max_steps = std::max<uint64_t>(verdict.max_steps, program.steps.size());
    if (std::string error = compact_program(world, p, program); !error.empty()) return error;
    const CompactProgram& compact = world.programs[static_cast<size_t>(p)];
    for (const CompactStep& step : compact.steps) {
      if (step.kind != StepKind::send) continue;
      const uint64_t units = world.lists.length(compact.operands[step.first_source].list);
      count_crossings(tree, p, step.peer, units, verdict.egress_units);
      count_crossings(tree, step.peer, p, units, verdict.ingress_units);
    }
    for (const CompactStep& step : compact.steps)
      if (step.kind != StepKind::send)
        world.written_runs +=
            compact.is_whole(step.target) ? 1 : world.lists.sorted(step.target.list).size();
  }
  if (verdict.steps >= kNone) return "more steps than the verifier can number";
  Order order;
  if (std::string error = build_order(world, order); !error.empty()) return error;
  verdict.rounds = order.rounds;
  return request.collective == Collective::barrier ? check_barrier(world, order)
                                                   : check_flow(world, order);
}

}  // namespace

std::string check_barrier(const World& world, const Order& order) {
  Knowledge knowledge;
  std::vector<uint32_t> known(order.first_step.back(), kNone);
  const auto before = [&](int position, uint32_t number) {
    const CompactProgram& program = world.programs[static_cast<size_t>(position)];
    const uint32_t base = order.first_step[static_cast<size_t>(position)];
    const CompactStep& step = program.steps[number - base];
    uint32_t set =
        knowledge.of({static_cast<uint64_t>(position), static_cast<uint64_t>(position) + 1});
    for (uint32_t d = 0; d < step.deps; d++)
      set = knowledge.unite(set, known[base + program.deps[step.first_dep + d]]);
    return set;
  };
  for (const uint32_t number : order.sequence) {
    const int position = order.position_of(number);
    const CompactStep& step = world.programs[static_cast<size_t>(position)]
                                  .steps[number - order.first_step[static_cast<size_t>(position)]];
    known[number] = before(position, number);
    if (step.kind == StepKind::send)  // a send may complete before the receiver comes
      known[step.partner] = knowledge.unite(known[number], before(step.peer, step.partner));
  }
  const uint32_t everyone = knowledge.of({0, static_cast<uint64_t>(world.layout.ranks)});
  for (int p = 0; p < world.layout.ranks; p++) {
    uint32_t set = knowledge.of({static_cast<uint64_t>(p), static_cast<uint64_t>(p) + 1});
    for (uint32_t i = order.first_step[static_cast<size_t>(p)];
         i < order.first_step[static_cast<size_t>(p) + 1]; i++)
      set = knowledge.unite(set, known[i]);
    if (set != everyone)
      return fmt::format(
          "position {}: leaves the barrier without knowing that all others have entered it", p);
  }
  return {};
}

}  // namespace verifier

Verdict verify(const TierTree& tree, const Request& request, const Blueprint& blueprint) {
  Verdict verdict;
  verdict.egress_units.assign(tree.groups.size(), 0);
  verdict.ingress_units.assign(tree.groups.size(), 0);
  verdict.error = verifier::examine(tree, request, blueprint, verdict);
  verdict.correct = verdict.error.empty();
  return verdict;
}

}  // namespace sennit
