// program.cpp: ProgramBuilder and the text form of a Program.
//
// finish() replays the steps in order over the spaces: the user's memory (input and output, one
// space when they may alias) and each slot. Every space is a list of cells, each with {last writer,
// readers since}; a read depends on the last writer, a write on the readers since, or on the last
// writer where nobody read. Cost: O(ranges log ranges) plus one visit per cell that a step touches.
#include "schedule/program.hpp"

#include <algorithm>
#include <map>
#include <numeric>

#include <fmt/core.h>

#include "base/sort_stretches.hpp"

namespace sennit {
namespace {

// Where a unit lies among those of all blocks, as one number. Relays of all-to-all use n*n blocks,
// which overflow 64 bits when counted in units.
using GlobalUnit = unsigned __int128;
GlobalUnit global_unit(uint64_t block, uint64_t units) {
  return GlobalUnit{block} * kUnits + units;
}

constexpr uint32_t kNobody = 0xffffffffu;

// One space, cut into cells wherever some write begins or ends, so that a write covers whole cells.
// Reads of what nobody writes need no record; a read of a part of a cell conflicts with every write
// of the cell.
class Space {
 public:
  // First all writes are announced, then close(), then read and write in the order of the steps.
  void will_write(GlobalUnit begin, GlobalUnit end) {
    cuts_.push_back(begin);
    cuts_.push_back(end);
    writes_left_++;
  }
  void close() {
    sort_stretches(cuts_);
    cuts_.erase(std::unique(cuts_.begin(), cuts_.end()), cuts_.end());
    cells_.resize(cuts_.empty() ? 0 : cuts_.size() - 1);
  }

  // Calls depend_on(step) for everything that `step` must wait for.
  template <typename F>
  void read(GlobalUnit begin, GlobalUnit end, uint32_t step, F&& depend_on) {
    for (size_t c = cell_at(begin); c < cells_.size() && cuts_[c] < end; c++) {
      Cell& cell = cells_[c];
      if (cell.writer != kNobody) depend_on(cell.writer);
      if (writes_left_ == 0) continue;  // nobody will ask who read
      if (cell.last_read != kNobody && reads_[cell.last_read].step == step) continue;
      reads_.push_back({step, cell.last_read});
      cell.last_read = static_cast<uint32_t>(reads_.size()) - 1;
    }
  }

  template <typename F>
  void write(GlobalUnit begin, GlobalUnit end, uint32_t step, F&& depend_on) {
    writes_left_--;
    for (size_t c = cell_at(begin); c < cells_.size() && cuts_[c] < end; c++) {
      Cell& cell = cells_[c];
      // Readers wait for the writer themselves. The step itself may be a reader (a reduce onto its
      // source); where it is the only one, the writer is known to it already.
      if (cell.last_read == kNobody && cell.writer != kNobody) depend_on(cell.writer);
      for (uint32_t r = cell.last_read; r != kNobody; r = reads_[r].before)
        depend_on(reads_[r].step);
      cell = {step, kNobody};
    }
  }

 private:
  struct Cell {
    uint32_t writer = kNobody;
    uint32_t last_read = kNobody;  // since that write; index into reads_
  };
  struct Read {
    uint32_t step, before;
  };

  // The cell that holds `at`, or the first one after it. Ranges mostly come in ascending order: it
  // looks first near where it was.
  size_t cell_at(GlobalUnit at) {
    auto low = cuts_.begin();
    auto high = cuts_.end();
    if (near_ < cuts_.size() && cuts_[near_] <= at) {
      low += static_cast<ptrdiff_t>(near_);
      for (ptrdiff_t stride = 1; stride < high - low; stride *= 2) {
        if (*(low + stride) > at) {
          high = low + stride;
          break;
        }
        low += stride;
      }
    }
    const auto after = std::upper_bound(low, high, at);
    near_ = after == cuts_.begin() ? 0 : static_cast<size_t>(after - cuts_.begin()) - 1;
    return near_;
  }

  std::vector<GlobalUnit> cuts_;  // cell i is [cuts_[i], cuts_[i + 1])
  std::vector<Cell> cells_;
  std::vector<Read> reads_;
  size_t near_ = 0;
  size_t writes_left_ = 0;
};

uint64_t length(std::span<const Range> ranges) {
  uint64_t units = 0;
  for (const Range& r : ranges) units += r.end - r.begin;
  return units;
}

// Derives Program::deps of all steps.
class DependencyTracker {
 public:
  DependencyTracker(Program& program, bool one_space)
      : program_(program),
        one_space_(one_space),
        slots_(program.slots.size()),
        seen_(program.steps.size(), kNobody) {}

  void run() {
    find_atoms();
    for (const Step& step : program_.steps)
      if (step.kind != StepKind::send)
        visit(step.target,
              [&](GlobalUnit begin, GlobalUnit end) { space(step.target).will_write(begin, end); });
    input_.close();
    output_.close();
    for (Space& slot : slots_) slot.close();
    for (uint32_t i = 0; i < program_.steps.size(); i++) {
      Step& step = program_.steps[i];
      step.first_dep = static_cast<uint32_t>(program_.deps.size());
      const auto depend_on = [&](uint32_t earlier) {
        if (earlier == i || seen_[earlier] == i) return;
        seen_[earlier] = i;
        program_.deps.push_back(earlier);
      };
      for (const Operand& source : program_.sources_of(step))
        visit(source, [&](GlobalUnit begin, GlobalUnit end) {
          space(source).read(begin, end, i, depend_on);
        });
      if (step.kind != StepKind::send)
        visit(step.target, [&](GlobalUnit begin, GlobalUnit end) {
          space(step.target).write(begin, end, i, depend_on);
        });
      std::sort(program_.deps.begin() + step.first_dep, program_.deps.end());
      step.deps = static_cast<uint32_t>(program_.deps.size()) - step.first_dep;
    }
  }

 private:
  Space& space(const Operand& o) {
    if (o.buffer == Buffer::slot) return slots_[o.slot];
    return o.buffer == Buffer::input && !one_space_ ? input_ : output_;
  }

  // Slots that are only touched as a whole: by operands that share the same ranges.
  void find_atoms() {
    atoms_.assign(slots_.size(), kUntouched);
    const auto look = [&](const Operand& o) {
      if (o.buffer != Buffer::slot || o.ranges == 0) return;
      uint32_t& first_range = atoms_[o.slot];
      if (first_range == kUntouched) first_range = o.first_range;
      if (first_range != o.first_range || program_.slots[o.slot].ranges != o.ranges)
        first_range = kParts;
    };
    for (const Step& step : program_.steps) {
      if (step.kind != StepKind::send) look(step.target);
      for (const Operand& source : program_.sources_of(step)) look(source);
    }
  }

  // f(begin, end) for the ranges of an operand; a slot that is touched as a whole is a single unit.
  template <typename F>
  void visit(const Operand& o, F&& f) const {
    if (o.buffer == Buffer::slot && o.ranges > 0 && atoms_[o.slot] != kParts) return f(0, 1);
    for (const Range& r : program_.ranges_of(o))
      f(global_unit(r.block, r.begin), global_unit(r.block, r.end));
  }

  // In atoms_, for a slot that nothing has touched yet, and one that is touched in parts.
  static constexpr uint32_t kUntouched = 0xffffffffu;
  static constexpr uint32_t kParts = 0xfffffffeu;

  Program& program_;
  const bool one_space_;
  std::vector<uint32_t> atoms_;  // by slot: the first range of all its operands, or kParts
  Space input_, output_;         // input_ is used only where it is apart from the output
  std::vector<Space> slots_;
  // by step: the last step that depends on it, so that deps have no duplicates
  std::vector<uint32_t> seen_;
};

void number_messages(Program& program) {
  std::map<int32_t, uint32_t> sends, receives;
  for (Step& step : program.steps) {
    if (step.kind == StepKind::send) step.tag = sends[step.peer]++;
    if (step.kind == StepKind::recv) step.tag = receives[step.peer]++;
  }
}

// A slot may be a peer's memory when one receive fills all of it, only reduces read it, and none of
// these is behind one of this rank's sends. The peer's send completes when the slot is read, so two
// ranks whose reduces waited for their own sends would wait for each other.
void mark_exposable(Program& program) {
  std::vector<uint32_t> whole_receives(program.slots.size(), 0);
  std::vector<bool> spoiled(program.slots.size(), false);
  std::vector<bool> behind_send(program.steps.size(), false);
  for (size_t i = 0; i < program.steps.size(); i++) {
    const Step& step = program.steps[i];
    for (const uint32_t dep : program.deps_of(step))
      if (behind_send[dep] || program.steps[dep].kind == StepKind::send) behind_send[i] = true;
    if (step.kind != StepKind::reduce || behind_send[i])
      for (const Operand& source : program.sources_of(step))
        if (source.buffer == Buffer::slot) spoiled[source.slot] = true;
    if (step.kind == StepKind::send || step.target.buffer != Buffer::slot) continue;
    const Slot& slot = program.slots[step.target.slot];
    const std::span<const Range> all{program.ranges.data() + slot.first_range, slot.ranges};
    if (step.kind == StepKind::recv && length(program.ranges_of(step.target)) == length(all))
      whole_receives[step.target.slot]++;
    else
      spoiled[step.target.slot] = true;
  }
  for (size_t i = 0; i < program.slots.size(); i++)
    program.slots[i].may_expose = !spoiled[i] && whole_receives[i] == 1;
}

std::string fraction_text(uint64_t units) {
  const uint64_t divisor = std::gcd(units, kUnits);
  if (divisor == kUnits || units == 0) return std::to_string(units / kUnits);
  return fmt::format("{}/{}", units / divisor, kUnits / divisor);
}

std::string operand_text(const Program& program, const Operand& o) {
  std::string text = o.buffer == Buffer::input    ? std::string("input")
                     : o.buffer == Buffer::output ? std::string("output")
                                                  : fmt::format("slot{}", o.slot);
  for (const Range& r : program.ranges_of(o))
    text += fmt::format(" {}[{},{})", r.block, fraction_text(r.begin), fraction_text(r.end));
  return text;
}

}  // namespace

size_t Program::memory_bytes() const {
  return sizeof(*this) + steps.capacity() * sizeof(Step) + operands.capacity() * sizeof(Operand) +
         ranges.capacity() * sizeof(Range) + deps.capacity() * sizeof(uint32_t) +
         slots.capacity() * sizeof(Slot);
}

std::string Program::to_text() const {
  std::string text;
  for (size_t i = 0; i < steps.size(); i++) {
    const Step& step = steps[i];
    text += fmt::format("{}: ", i);
    switch (step.kind) {
      case StepKind::send:
        text +=
            fmt::format("send {} to {} tag {} tier {}", operand_text(*this, sources_of(step)[0]),
                        step.peer, step.tag, step.tier);
        break;
      case StepKind::recv:
        text += fmt::format("recv {} from {} tag {} tier {}", operand_text(*this, step.target),
                            step.peer, step.tag, step.tier);
        if (step.target.buffer == Buffer::slot && slots[step.target.slot].may_expose)
          text += " exposable";
        break;
      case StepKind::reduce:
      case StepKind::copy:
        text += step.kind == StepKind::reduce ? "reduce " : "copy ";
        text += operand_text(*this, step.target) + " =";
        for (size_t s = 0; s < step.sources; s++)
          text += (s == 0 ? " " : " + ") + operand_text(*this, sources_of(step)[s]);
        if (step.finish) text += ", finish";
        break;
    }
    if (step.deps > 0) {
      text += " after";
      for (const uint32_t dep : deps_of(step)) text += fmt::format(" {}", dep);
    }
    text += '\n';
  }
  return text;
}

Operand ProgramBuilder::add(Buffer buffer, uint32_t slot, std::span<const Range> ranges) {
  Operand o{buffer, slot, static_cast<uint32_t>(program_.ranges.size()), 0};
  GlobalUnit previous_end = 0;
  for (Range r : ranges) {
    SENNIT_CHECK(r.begin <= r.end);
    if (r.begin == r.end) continue;
    const uint64_t skipped = r.begin / kUnits;
    r = {r.block + skipped, r.begin - skipped * kUnits, r.end - skipped * kUnits};
    if (o.ranges > 0 && global_unit(r.block, r.begin) == previous_end) {
      program_.ranges.back().end += r.end - r.begin;  // neighbours become one range
    } else {
      program_.ranges.push_back(r);
      o.ranges++;
    }
    previous_end = global_unit(r.block, r.end);
  }
  // The operands of one step, and messages to several peers, often name the same ranges, which are
  // stored once.
  const auto begin = program_.ranges.begin() + o.first_range;
  const auto end = program_.ranges.end();
  if (o.ranges == last_ranges_ &&
      std::equal(begin, end, program_.ranges.begin() + last_first_range_)) {
    program_.ranges.erase(begin, end);
    o.first_range = last_first_range_;
  }
  last_first_range_ = o.first_range;
  last_ranges_ = o.ranges;
  return o;
}

Operand ProgramBuilder::input(std::span<const Range> ranges) {
  return add(Buffer::input, 0, ranges);
}
Operand ProgramBuilder::output(std::span<const Range> ranges) {
  return add(Buffer::output, 0, ranges);
}

Operand ProgramBuilder::scratch(std::span<const Range> ranges) {
  const Operand o = add(Buffer::slot, static_cast<uint32_t>(program_.slots.size()), ranges);
  program_.slots.push_back({o.first_range, o.ranges, false});
  return o;
}

Operand ProgramBuilder::part(const Operand& slot, std::span<const Range> ranges) {
  SENNIT_CHECK(slot.buffer == Buffer::slot);
  return add(Buffer::slot, slot.slot, ranges);
}

void ProgramBuilder::send(int peer, Operand source, int tier, bool keep_empty) {
  if (source.ranges == 0 && !keep_empty) return;
  Step step;
  step.kind = StepKind::send;
  step.tier = static_cast<uint8_t>(tier);
  step.peer = peer;
  step.first_source = static_cast<uint32_t>(program_.operands.size());
  step.sources = 1;
  program_.operands.push_back(source);
  program_.steps.push_back(step);
}

void ProgramBuilder::recv(int peer, Operand target, int tier, bool keep_empty) {
  if (target.ranges == 0 && !keep_empty) return;
  Step step;
  step.kind = StepKind::recv;
  step.tier = static_cast<uint8_t>(tier);
  step.peer = peer;
  step.target = target;
  program_.steps.push_back(step);
}

void ProgramBuilder::reduce(Operand target, std::span<const Operand> sources, bool finish) {
  SENNIT_CHECK(!sources.empty());
  if (target.ranges == 0) return;
  Step step;
  step.kind = StepKind::reduce;
  step.finish = finish;
  step.target = target;
  step.first_source = static_cast<uint32_t>(program_.operands.size());
  step.sources = static_cast<uint32_t>(sources.size());
  program_.operands.insert(program_.operands.end(), sources.begin(), sources.end());
  program_.steps.push_back(step);
}

void ProgramBuilder::copy(Operand target, Operand source, bool finish) {
  if (target.ranges == 0) return;
  Step step;
  step.kind = StepKind::copy;
  step.finish = finish;
  step.target = target;
  step.first_source = static_cast<uint32_t>(program_.operands.size());
  step.sources = 1;
  program_.operands.push_back(source);
  program_.steps.push_back(step);
}

Program ProgramBuilder::finish() {
  number_messages(program_);
  DependencyTracker(program_, one_space_).run();
  mark_exposable(program_);
  return std::move(program_);
}

}  // namespace sennit
