// program.hpp: a collective as data: one small program per rank, the same for every pipeline chunk.
//
// Space. Data is addressed in *blocks* of kUnits *units* each; a unit is a fraction of a block, so
// a program does not depend on the message's size. Blocks by collective (n ranks, all in fabric
// order, i.e. by position):
//   all_reduce, broadcast, reduce   one block 0: the vector, the same in input and output
//   all_gather, gather              block i is position i's contribution; a rank's input holds
//                                   its own block only
//   reduce_scatter, scatter         block i goes to position i; a rank's output holds its own
//                                   block only
//   all_to_all                      input block j goes to position j, output block i comes from
//                                   position i; slots of relays use block i*n + j (only where all
//                                   counts are equal)
//   barrier, send_recv              one block 0 of no / count elements
// The executor cuts every block of e elements into C slices (chunks): slice c is [e*c/C,
// e*(c+1)/C). The range [begin, end) of units within a block covers the slice's elements
// [floor(len*begin/kUnits), floor(len*end/kUnits)). Monotone floors make neighbouring ranges meet
// exactly: no overlap, no gap, on any rank, for any count.
//
// Memory. `input` and `output` are the user's buffers. In place they are the same memory: a range
// of input and the same range of output alias (all_to_all in place: the algorithm copies first).
// The input is never a target. `slot`s are scratch, one set per chunk in flight; a slot holds its
// ranges packed in order.
//
// Order. A step may start when all steps in its `deps` (of the same chunk) are done. Between two
// ranks, the k-th send of a program to a peer matches the k-th receive of the peer's program from
// it (`tag` = k).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "schedule/request.hpp"

namespace sennit {

// 2^16 * 3^4 * 5^2 * 7 * 11 * 13: equal shares among most group sizes are exact.
inline constexpr uint64_t kUnits = 65536ull * 81 * 25 * 7 * 11 * 13;

// A stretch of a block, or of several that follow one another.
struct Range {
  uint64_t block = 0;
  uint64_t begin = 0;  // units from the start of `block`; < kUnits
  uint64_t end = 0;    // may exceed kUnits: the range then runs on into the following blocks
  bool operator==(const Range&) const = default;
};

// Which memory an operand lies in.
enum class Buffer : uint8_t { input, output, slot };

// A list of ranges in a buffer, in the order in which they are sent, received or reduced.
struct Operand {
  Buffer buffer = Buffer::input;
  uint32_t slot = 0;         // index into Program::slots when buffer == slot
  uint32_t first_range = 0;  // into Program::ranges; operands may share them
  uint32_t ranges = 0;
};

// What a step does.
enum class StepKind : uint8_t { send, recv, reduce, copy };

// What a rank does at a time; peers are positions.
struct Step {
  StepKind kind = StepKind::copy;
  // tier the message crosses (TierTree::crossing_tier); scarcer tiers are posted first
  uint8_t tier = 0;
  // reduce, copy: the result is final (avg divides here); each output element exactly once
  bool finish = false;
  int32_t peer = -1;  // send, recv: position
  uint32_t tag = 0;   // send, recv
  // recv, reduce, copy: where to. All operands of a step have the same length.
  Operand target;
  // In Program::operands. send, copy: one; reduce: at least one, in the order of the sum.
  uint32_t first_source = 0;
  uint32_t sources = 0;
  // In Program::deps: indices of earlier steps.
  uint32_t first_dep = 0;
  uint32_t deps = 0;
};

// Scratch that holds these ranges, packed in order.
struct Slot {
  uint32_t first_range = 0;  // into Program::ranges
  uint32_t ranges = 0;
  // filled by one whole receive and read by reduces only: may be a peer's memory instead
  bool may_expose = false;
};

// One rank's steps. Value type; immutable once built, and then free to share between threads.
struct Program {
  std::vector<Step> steps;
  std::vector<Operand> operands;
  std::vector<Range> ranges;
  std::vector<uint32_t> deps;
  std::vector<Slot> slots;

  std::span<const Range> ranges_of(const Operand& o) const {
    return {ranges.data() + o.first_range, o.ranges};
  }
  std::span<const Operand> sources_of(const Step& s) const {
    return {operands.data() + s.first_source, s.sources};
  }
  std::span<const uint32_t> deps_of(const Step& s) const {
    return {deps.data() + s.first_dep, s.deps};
  }
  size_t memory_bytes() const;
  std::string to_text() const;  // one step a line, for people and tests
};

// Writes a Program as if it ran step after step; finish() derives the tags and the dependencies
// (read after write, write after read, write after write). Not thread-safe.
class ProgramBuilder {
 public:
  // one_space: input and output may be the same memory. Pass request.in_place to be free of
  // dependencies that hold only in place (an all-to-all out of place then receives while it still
  // sends).
  explicit ProgramBuilder(bool one_space = true) : one_space_(one_space) {}

  // Empty ranges are dropped. scratch() declares a slot that holds these ranges, packed in order;
  // part() names a part of what such a slot holds.
  Operand input(std::span<const Range> ranges);
  Operand output(std::span<const Range> ranges);
  Operand scratch(std::span<const Range> ranges);
  Operand part(const Operand& slot, std::span<const Range> ranges);

  // Steps whose operand has no ranges are dropped, on both sides alike, unless keep_empty
  // (barrier).
  void send(int peer, Operand source, int tier, bool keep_empty = false);
  void recv(int peer, Operand target, int tier, bool keep_empty = false);
  void reduce(Operand target, std::span<const Operand> sources, bool finish);
  void copy(Operand target, Operand source, bool finish = false);
  Program finish();

 private:
  Operand add(Buffer buffer, uint32_t slot, std::span<const Range> ranges);
  Program program_;
  uint32_t last_first_range_ = 0, last_ranges_ = 0;  // of the operand added last
  bool one_space_;
};

}  // namespace sennit
