// compact.cpp: checks one rank's program on its own and makes it compact (compact_program).
//
// Checks that everything a step names exists and lies within its buffer, that the operands of a
// step cover the same places, that the user's input is never written, that exposable slots are used
// as such, and that there are no races. Cost: O(ranges).
#include <fmt/core.h>

#include "base/index.hpp"
#include "verify/world.hpp"

namespace sennit::verifier {
namespace {

class Compactor {
 public:
  Compactor(World& world, int position, const Program& program)
      : world_(world),
        position_(position),
        program_(program),
        out_(world.programs[index(position)]) {}

  std::string run() {
    for (size_t i = 0; i < program_.slots.size() && error_.empty(); i++) add_slot(i);
    std::vector<uint32_t> sent(index(world_.layout.ranks), 0), received = sent;
    for (size_t i = 0; i < program_.steps.size() && error_.empty(); i++)
      add_step(i, sent, received);
    if (error_.empty()) find_exposable();
    if (error_.empty()) find_whole();
    if (error_.empty()) check_races();
    return error_;
  }

 private:
  void fail(size_t step, const std::string& what) {
    if (error_.empty()) error_ = step_text(world_, position_, step) + ": " + what;
  }

  // The list of these ranges as runs of places; neighbours that follow one another become one run.
  // Operands that share ranges, and most others that are alike, come one after another.
  uint32_t list_of(uint32_t first_range, uint32_t count, uint64_t blocks, std::string& what) {
    if (last_list_ != kNone && first_range == last_first_range_ && count == last_ranges_ &&
        blocks == last_blocks_)
      return last_list_;
    if (!runs_of({program_.ranges.data() + first_range, count}, blocks, what)) return kNone;
    last_first_range_ = first_range;
    last_ranges_ = count;
    last_blocks_ = blocks;
    return last_list_ = world_.lists.intern(runs_);
  }

  bool runs_of(std::span<const Range> ranges, uint64_t blocks, std::string& what) {
    runs_.clear();
    for (const Range& r : ranges) {
      const uint64_t begin = r.block * kUnits + r.begin, end = r.block * kUnits + r.end;
      if (r.begin >= kUnits || r.end <= r.begin)
        what = fmt::format("range {} [{}, {}) is empty or does not begin in its block", r.block,
                           r.begin, r.end);
      else if (r.block >= blocks || r.end > (blocks - r.block) * kUnits)
        what = fmt::format("range {} is out of bounds: there are {} blocks", place_text(begin, end),
                           blocks);
      if (!what.empty()) return false;
      if (!runs_.empty() && runs_.back().end == begin)
        runs_.back().end = end;
      else
        runs_.push_back({begin, end});
    }
    return true;
  }

  void add_slot(size_t index) {
    const Slot& slot = program_.slots[index];
    std::string what;
    uint32_t list = kNone;
    if (slot.first_range + size_t{slot.ranges} > program_.ranges.size())
      what = "names ranges beyond the program's";
    else
      list = list_of(slot.first_range, slot.ranges, world_.layout.slot_blocks, what);
    if (what.empty() && !world_.layout.fixed_places())
      for (const Stretch& run : world_.lists.runs(list))
        for (uint64_t block = run.begin / kUnits; what.empty() && block * kUnits < run.end; block++)
          if (!world_.layout.slot_block_known(position_, block))
            what = fmt::format("block {} has a length that this rank does not know", block);
    if (what.empty()) {
      slots_.push_back(list);
      if (!world_.lists.disjoint(slots_.back())) what = "holds the same place twice";
    }
    if (!what.empty()) error_ = fmt::format("position {}, slot {}: {}", position_, index, what);
  }

  // Within one run of the outer list each: what a slot packs without a seam, and buffers as a
  // whole.
  static bool contains(std::span<const Stretch> outer, std::span<const Stretch> inner,
                       Stretch* culprit) {
    auto at = outer.begin();
    for (const Stretch& run : inner) {
      if (at == outer.end() || run.begin < at->begin || run.begin >= at->end)
        at = std::upper_bound(outer.begin(), outer.end(), run.begin,
                              [](uint64_t place, const Stretch& r) { return place < r.end; });
      if (at == outer.end() || run.begin < at->begin || run.end > at->end) {
        *culprit = run;
        return false;
      }
    }
    return true;
  }

  static bool within(const Stretch& whole, std::span<const Stretch> sorted) {
    return sorted.empty() ||
           (sorted.front().begin >= whole.begin && sorted.back().end <= whole.end);
  }

  CompactOperand operand(size_t step, const Operand& o, bool target) {
    CompactOperand compact;
    if (o.first_range + size_t{o.ranges} > program_.ranges.size()) {
      fail(step, "an operand names ranges beyond the program's");
      return compact;
    }
    std::string what;
    const bool slot = o.buffer == Buffer::slot;
    if (slot && o.slot >= slots_.size()) {
      fail(step, fmt::format("slot {} is not declared", o.slot));
      return compact;
    }
    compact.list = list_of(o.first_range, o.ranges,
                           slot ? world_.layout.slot_blocks : world_.layout.blocks, what);
    if (!what.empty()) {
      fail(step, what);
      return compact;
    }
    Stretch culprit;
    if (slot) {
      compact.space = kFirstSlotSpace + o.slot;
      if (compact.list != slots_[o.slot] &&
          !contains(world_.lists.sorted(slots_[o.slot]), world_.lists.runs(compact.list), &culprit))
        fail(step,
             fmt::format("slot {} has no {}", o.slot, place_text(culprit.begin, culprit.end)));
    } else {
      compact.space = o.buffer == Buffer::input ? kInputSpace : kOutputSpace;
      const Stretch whole = o.buffer == Buffer::input ? world_.layout.input(position_)
                                                      : world_.layout.output(position_);
      if (!within(whole, world_.lists.sorted(compact.list)) &&
          !contains({&whole, 1}, world_.lists.runs(compact.list), &culprit))
        fail(step,
             fmt::format("this rank's {} has no {}", o.buffer == Buffer::input ? "input" : "output",
                         place_text(culprit.begin, culprit.end)));
    }
    if (target && o.buffer == Buffer::input) fail(step, "writes into the user's input");
    if (target && !world_.lists.disjoint(compact.list)) fail(step, "writes the same place twice");
    return compact;
  }

  void add_step(size_t i, std::vector<uint32_t>& sent, std::vector<uint32_t>& received) {
    const Step& step = program_.steps[i];
    CompactStep compact;
    compact.kind = step.kind;
    compact.finish = step.finish;
    compact.peer = step.peer;
    out_.steps.push_back(compact);  // first, so that texts can name it
    const bool message = step.kind == StepKind::send || step.kind == StepKind::recv;
    if (step.kind > StepKind::copy) return fail(i, "unknown kind of step");
    if (step.first_source + size_t{step.sources} > program_.operands.size())
      return fail(i, "names operands beyond the program's");
    if (step.first_dep + size_t{step.deps} > program_.deps.size())
      return fail(i, "names dependencies beyond the program's");
    const bool one = step.kind == StepKind::send || step.kind == StepKind::copy;
    if (one ? step.sources != 1
            : (step.kind == StepKind::recv ? step.sources != 0 : step.sources == 0))
      return fail(i, fmt::format("has {} sources", step.sources));
    if (message) check_message(i, step, sent, received);
    compact.first_source = static_cast<uint32_t>(out_.operands.size());
    compact.sources = step.sources;
    for (const Operand& source : program_.sources_of(step))
      out_.operands.push_back(operand(i, source, false));
    if (step.kind != StepKind::send) compact.target = operand(i, step.target, true);
    compact.first_dep = static_cast<uint32_t>(out_.deps.size());
    compact.deps = step.deps;
    for (const uint32_t dep : program_.deps_of(step)) {
      if (dep >= i) return fail(i, fmt::format("depends on step {}, which is not earlier", dep));
      out_.deps.push_back(dep);
    }
    if (error_.empty() && !message) check_operands(i, compact);
    out_.steps.back() = compact;
  }

  void check_message(size_t i, const Step& step, std::vector<uint32_t>& sent,
                     std::vector<uint32_t>& received) {
    if (step.peer < 0 || step.peer >= world_.layout.ranks || step.peer == position_)
      return fail(i, fmt::format("position {} is no peer of this rank", step.peer));
    uint32_t& next = (step.kind == StepKind::send ? sent : received)[index(step.peer)];
    if (step.tag != next)
      fail(i, fmt::format("has tag {}, but is message {} between the two", step.tag, next));
    next++;
    const int tier = world_.tree.crossing_tier(position_, step.peer);
    if (step.tier != tier)
      fail(i, fmt::format("says tier {}, but crosses tier {}", step.tier, tier));
  }

  void check_operands(size_t i, const CompactStep& step) {
    for (uint32_t s = 0; s < step.sources; s++) {
      const CompactOperand& source = out_.operands[step.first_source + s];
      const std::string what = check_pairing(world_, source.list, step.target.list);
      if (!what.empty()) fail(i, what);
      if (source.list == step.target.list) continue;
      const bool same_memory =
          source.space == step.target.space ||
          (world_.layout.in_place && std::max(source.space, step.target.space) < kFirstSlotSpace);
      if (same_memory &&
          intersect(world_.lists.sorted(source.list), world_.lists.sorted(step.target.list)))
        fail(i, "reads and writes the same memory at different places");
    }
  }

  static bool intersect(std::span<const Stretch> a, std::span<const Stretch> b) {
    for (auto x = a.begin(), y = b.begin(); x != a.end() && y != b.end();) {
      if (x->begin < y->end && y->begin < x->end) return true;
      x->end <= y->end ? ++x : ++y;
    }
    return false;
  }

  void find_exposable() {
    out_.exposable.assign(slots_.size(), kNone);
    for (size_t i = 0; i < out_.steps.size(); i++) {
      const CompactStep& step = out_.steps[i];
      for (uint32_t s = 0; s < step.sources; s++) {
        const CompactOperand& source = out_.operands[step.first_source + s];
        if (may_expose(source) && step.kind != StepKind::reduce)
          fail(i, fmt::format("reads exposable slot {}, which only reduces may",
                              source.space - kFirstSlotSpace));
      }
      if (step.kind == StepKind::send || !may_expose(step.target)) continue;
      const uint32_t slot = step.target.space - kFirstSlotSpace;
      if (step.kind != StepKind::recv || step.target.list != slots_[slot] ||
          out_.exposable[slot] != kNone)
        fail(i, fmt::format("exposable slot {} must be filled by one whole receive", slot));
      out_.exposable[slot] = static_cast<uint32_t>(i);
    }
  }
  bool may_expose(const CompactOperand& o) const {
    return o.space >= kFirstSlotSpace && program_.slots[o.space - kFirstSlotSpace].may_expose;
  }

  void find_whole() {
    out_.whole.assign(kFirstSlotSpace, kNone);
    out_.whole.insert(out_.whole.end(), slots_.begin(), slots_.end());
    const auto look = [&](const CompactOperand& o) {
      if (out_.whole[o.space] != o.list) out_.whole[o.space] = kNone;
    };
    for (const CompactStep& step : out_.steps) {
      if (step.kind != StepKind::send) look(step.target);
      for (uint32_t i = 0; i < step.sources; i++) look(out_.operands[step.first_source + i]);
    }
  }

  void check_races() {
    const Race race = find_race(world_, out_);
    if (race.step != kNone)
      fail(race.step,
           fmt::format("race: touches the same memory as step {}, and does not wait for it",
                       race.earlier));
  }

  World& world_;
  const int position_;
  const Program& program_;
  CompactProgram& out_;
  std::vector<uint32_t> slots_;  // range list by slot
  uint32_t last_first_range_ = 0, last_ranges_ = 0, last_list_ = kNone;
  uint64_t last_blocks_ = 0;
  std::vector<Stretch> runs_;
  std::string error_;
};

}  // namespace

std::string compact_program(World& world, int position, const Program& program) {
  return Compactor(world, position, program).run();
}

std::string check_pairing(const World& world, uint32_t from, uint32_t to) {
  if (from == to) return {};
  const RangeLists& lists = world.lists;
  if (lists.length(from) != lists.length(to))
    return fmt::format("lengths differ: {} and {} units", lists.length(from), lists.length(to));
  const std::span<const Stretch> a = lists.runs(from), b = lists.runs(to);
  uint64_t a_done = 0, b_done = 0;  // within the current runs
  for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    const uint64_t x = a[i].begin + a_done, y = b[j].begin + b_done;
    const uint64_t length = std::min(a[i].end - x, b[j].end - y);
    if (world.layout.fixed_places() ? x != y : x % kUnits != y % kUnits)
      return fmt::format("{} would go to {}", place_text(x, x + length), place_text(y, y + length));
    a_done += length;
    b_done += length;
    if (x + length == a[i].end) {
      i++;
      a_done = 0;
    }
    if (y + length == b[j].end) {
      j++;
      b_done = 0;
    }
  }
  return {};
}

}  // namespace sennit::verifier
