// verify.cpp: puts the verifier's stages together and counts the units over every group boundary.
#include "verify/verify.hpp"

#include <deque>
#include <future>
#include <thread>

#include <fmt/core.h>

#include "base/index.hpp"
#include "verify/world.hpp"

namespace sennit {
namespace verifier {
namespace {

uint64_t add_saturating(uint64_t a, uint64_t b) {
  return a > ~uint64_t{0} - b ? ~uint64_t{0} : a + b;
}

// Units over the boundaries that lie between the two, from the leaf outwards.
void count_crossings(const TierTree& tree, int from, int to, uint64_t units,
                     std::vector<uint64_t>& counted) {
  int group = tree.leaf_of_position[index(from)];
  for (;;) {
    const Group& g = tree.groups[index(group)];
    if (g.parent < 0 || (to >= g.first && to < g.first + g.size)) return;
    uint64_t& count = counted[index(group)];
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
  if (DataLayout(tree, request).slot_blocks > ~uint64_t{0} / kUnits)
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
  world.programs.resize(index(tree.ranks()));
  ProgramSource programs(blueprint, tree.ranks());
  for (int p = 0; p < tree.ranks(); p++) {
    const Program program = programs.next();
    verdict.steps += program.steps.size();
    verdict.max_steps = std::max<uint64_t>(verdict.max_steps, program.steps.size());
    if (std::string error = compact_program(world, p, program); !error.empty()) return error;
    const CompactProgram& compact = world.programs[index(p)];
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
