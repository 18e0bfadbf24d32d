// races.cpp: looks for races within one rank's compact program (find_race).
//
// Any two steps that touch the same memory, one of them writing, must be ordered by dependencies.
// Replays the steps over interval maps of {last writer, readers since}: every step must be behind
// those it conflicts with, which orders all earlier ones by induction. Cost: O(pieces touched),
// plus a walk back over dependencies where the order is not a direct one.
#include "verify/world.hpp"

namespace sennit::verifier {
namespace {

struct History {
  uint32_t writer = kNone;
  uint32_t readers = kNone;  // since the last write: head of a list in RaceCheck::nodes_
  bool operator==(const History&) const = default;
};

class RaceCheck {
 public:
  RaceCheck(const World& world, const CompactProgram& program)
      : world_(world),
        program_(program),
        spaces_(program.whole.size()),
        writes_left_(spaces_.size(), 0),
        needed_(program.steps.size(), kNone),
        reached_(program.steps.size(), kNone) {
    for (const CompactStep& step : program.steps)
      if (step.kind != StepKind::send) writes_left_[space_of(step.target)]++;
  }

  // Returns the earlier step that `step` conflicts with and is not ordered behind, or kNone.
  uint32_t add(uint32_t step) {
    step_ = step;
    needs_.clear();
    const CompactStep& s = program_.steps[step];
    for (uint32_t i = 0; i < s.sources; i++) read(program_.operands[s.first_source + i]);
    if (s.kind != StepKind::send) write(s.target);
    return first_unordered();
  }

 private:
  struct Node {
    uint32_t step, next;
  };
  using Map = IntervalMap<History>;

  // The space that the operand lies in, where input and output may be one.
  uint32_t space_of(const CompactOperand& o) const {
    const bool one_space = world_.layout.in_place && o.space < kFirstSlotSpace;
    return one_space ? 0 : o.space;
  }
  Map& space(const CompactOperand& o) { return spaces_[space_of(o)]; }

  // A slot that every step touches as a whole counts as a single place.
  std::span<const Stretch> runs(const CompactOperand& o) const {
    static constexpr Stretch kAllOfSlot{0, 1};
    if (program_.is_whole(o) && world_.lists.length(o.list) > 0) return {&kAllOfSlot, 1};
    return world_.lists.sorted(o.list);
  }

  void need(uint32_t earlier) {
    if (earlier == kNone || earlier == step_ || needed_[earlier] == step_) return;
    needed_[earlier] = step_;
    needs_.push_back(earlier);
  }

  void read(const CompactOperand& o) {
    if (writes_left_[space_of(o)] == 0)  // nobody will ask who read
      return space(o).visit(runs(o), [&](uint64_t, uint64_t, const History* old) {
        if (old) need(old->writer);
      });
    news_.clear();
    uint32_t old_head = kNone, new_head = kNone;
    space(o).visit(runs(o), [&](uint64_t begin, uint64_t end, const History* old) {
      const History was = old ? *old : History{};
      need(was.writer);
      if (new_head == kNone || was.readers != old_head) {
        old_head = was.readers;
        new_head = static_cast<uint32_t>(nodes_.size());
        nodes_.push_back({step_, was.readers});
      }
      news_.push_back({begin, end, {was.writer, new_head}});
    });
    space(o).replace(news_);
  }

  void write(const CompactOperand& o) {
    writes_left_[space_of(o)]--;
    uint32_t last_head = kNone;
    space(o).visit(runs(o), [&](uint64_t, uint64_t, const History* old) {
      if (!old) return;
      if (old->readers == kNone) need(old->writer);  // else the readers are behind it
      if (old->readers != last_head)
        for (uint32_t node = old->readers; node != kNone; node = nodes_[node].next)
          need(nodes_[node].step);
      last_head = old->readers;
    });
    news_.clear();
    for (const Stretch& run : runs(o)) news_.push_back({run.begin, run.end, {step_, kNone}});
    space(o).replace(news_);
  }

  uint32_t first_unordered() {
    if (needs_.empty()) return kNone;
    std::vector<uint32_t>& stack = stack_;
    stack.clear();
    const CompactStep& s = program_.steps[step_];
    size_t missing = needs_.size();
    const auto reach = [&](const CompactStep& from) {
      for (uint32_t i = 0; i < from.deps; i++) {
        const uint32_t dep = program_.deps[from.first_dep + i];
        if (reached_[dep] == step_) continue;
        reached_[dep] = step_;
        if (needed_[dep] == step_) missing--;
        stack.push_back(dep);
      }
    };
    reach(s);
    const uint32_t earliest = missing == 0 ? 0 : *std::min_element(needs_.begin(), needs_.end());
    while (missing > 0 && !stack.empty()) {
      const uint32_t at = stack.back();
      stack.pop_back();
      if (at > earliest) reach(program_.steps[at]);
    }
    if (missing == 0) return kNone;
    for (const uint32_t earlier : needs_)
      if (reached_[earlier] != step_) return earlier;
    return kNone;
  }

  const World& world_;
  const CompactProgram& program_;
  std::vector<Map> spaces_;
  std::vector<uint32_t> writes_left_;  // by space
  std::vector<Node> nodes_;
  std::vector<uint32_t> needed_, reached_;  // by step: the last step for which it was marked
  std::vector<uint32_t> needs_, stack_;
  std::vector<Map::Piece> news_;
  uint32_t step_ = 0;
};

}  // namespace

Race find_race(const World& world, const CompactProgram& program) {
  RaceCheck check(world, program);
  for (uint32_t step = 0; step < program.steps.size(); step++)
    if (const uint32_t earlier = check.add(step); earlier != kNone) return {step, earlier};
  return {};
}

}  // namespace sennit::verifier
