// barrier.cpp: the check of a collective that moves no data (check_barrier).
//
// Every rank's end must be behind every rank's start, which is followed as sets of positions known
// to have started (runs, interned). Cost: O(steps + dependencies), and the runs of the sets.
#include <algorithm>

#include <fmt/core.h>

#include "base/index.hpp"
#include "verify/world.hpp"

namespace sennit::verifier {
namespace {

// Sets of positions, each stored once and named by a number; kNone is the empty one.
class Knowledge {
 public:
  uint32_t of(Stretch run) { return pool_.intern({&run, 1}); }
  uint32_t unite(uint32_t a, uint32_t b) {
    if (a == b || b == kNone) return a;
    if (a == kNone) return b;
    std::vector<Stretch> all(pool_[a].begin(), pool_[a].end()), united;
    all.insert(all.end(), pool_[b].begin(), pool_[b].end());
    std::sort(all.begin(), all.end(),
              [](const Stretch& x, const Stretch& y) { return x.begin < y.begin; });
    for (const Stretch& run : all) {
      if (!united.empty() && run.begin <= united.back().end)
        united.back().end = std::max(united.back().end, run.end);
      else
        united.push_back(run);
    }
    return pool_.intern(united);
  }

 private:
  SequencePool<Stretch> pool_;
};

}  // namespace

std::string check_barrier(const World& world, const Order& order) {
  Knowledge knowledge;
  std::vector<uint32_t> known(order.first_step.back(), kNone);
  const auto before = [&](int position, uint32_t number) {
    const CompactProgram& program = world.programs[index(position)];
    const uint32_t base = order.first_step[index(position)];
    const CompactStep& step = program.steps[number - base];
    uint32_t set =
        knowledge.of({static_cast<uint64_t>(position), static_cast<uint64_t>(position) + 1});
    for (uint32_t d = 0; d < step.deps; d++)
      set = knowledge.unite(set, known[base + program.deps[step.first_dep + d]]);
    return set;
  };
  for (const uint32_t number : order.sequence) {
    const int position = order.position_of(number);
    const CompactStep& step =
        world.programs[index(position)].steps[number - order.first_step[index(position)]];
    known[number] = before(position, number);
    if (step.kind == StepKind::send)  // a send may complete before the receiver comes
      known[step.partner] = knowledge.unite(known[number], before(step.peer, step.partner));
  }
  const uint32_t everyone = knowledge.of({0, static_cast<uint64_t>(world.layout.ranks)});
  for (int p = 0; p < world.layout.ranks; p++) {
    uint32_t set = knowledge.of({static_cast<uint64_t>(p), static_cast<uint64_t>(p) + 1});
    for (uint32_t i = order.first_step[index(p)]; i < order.first_step[index(p) + 1]; i++)
      set = knowledge.unite(set, known[i]);
    if (set != everyone)
      return fmt::format(
          "position {}: leaves the barrier without knowing that all others have entered it", p);
  }
  return {};
}

}  // namespace sennit::verifier
