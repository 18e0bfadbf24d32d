// world.hpp: what the verifier's stages share: the layout of a collective's data, and all ranks'
// programs in compact form (operands name interned range lists; about 60 bytes a step).
//
// Stages: compact_program (one rank alone: structure, bounds, races) -> build_order (messages
// match, no deadlock, an order to run in) -> check_flow or, of a collective that moves no data,
// check_barrier (what ends up where). Each returns an empty string or what is wrong, and is in the
// file that is called after it.
#pragma once

#include <string>

#include "verify/intervals.hpp"
#include "verify/verify.hpp"

namespace sennit::verifier {

inline constexpr uint32_t kNone = 0xffffffffu;

// Which places exist on a rank, by collective. Places of input and output: block * kUnits + unit.
struct DataLayout {
  DataLayout(const TierTree& tree, const Request& request);
  Stretch input(int position) const;  // empty: this rank has no such buffer
  Stretch output(int position) const;
  // Whether the number of elements in a place depends on its block, so that data must stay in
  // place.
  bool fixed_places() const { return collective != Collective::all_to_all; }
  // Relays' slots of all-to-all: block i*n + j is what i sends to j.
  bool slot_block_known(int position, uint64_t block) const;

  int ranks;
  Collective collective;
  bool reduces, in_place, vector_variant;
  int root;
  uint64_t blocks;       // of the larger of input and output
  uint64_t slot_blocks;  // blocks that slots may name
};

// An operand as the number of a range list in a space of the rank.
struct CompactOperand {
  uint32_t space = 0;  // index into a rank's spaces: see space_of
  uint32_t list = kNone;
};
inline constexpr uint32_t kInputSpace = 0, kOutputSpace = 1, kFirstSlotSpace = 2;

// A Step (schedule/program.hpp) with operands of that form; sources and deps are runs of the
// program's `operands` and `deps`.
struct CompactStep {
  StepKind kind = StepKind::copy;
  bool finish = false;
  int32_t peer = -1;
  CompactOperand target;
  uint32_t first_source = 0, sources = 0;
  uint32_t first_dep = 0, deps = 0;
  uint32_t partner = kNone;  // send, recv: number of the matching step in Order
};

// One rank's program, as compact_program() leaves it.
struct CompactProgram {
  std::vector<CompactStep> steps;
  std::vector<CompactOperand> operands;
  std::vector<uint32_t> deps;
  // by slot: the receive that may be replaced by exposure, or kNone
  std::vector<uint32_t> exposable;
  std::vector<uint32_t> whole;  // by space: the list of a slot whose operands all name it, or kNone
  bool is_whole(const CompactOperand& o) const { return whole[o.space] != kNone; }
};

// All that the stages know: compact_program() fills it in, rank after rank. Tree and request must
// outlive it.
struct World {
  World(const TierTree& t, const Request& r) : tree(t), request(r), layout(t, r) {}
  const TierTree& tree;
  const Request& request;
  DataLayout layout;
  RangeLists lists;
  std::vector<CompactProgram> programs;  // by position
  uint64_t written_runs = 0;             // of all steps: how many pieces of memory there may be
};

// All steps are numbered rank after rank.
struct Order {
  std::vector<uint32_t> first_step;  // by position; one more at the end
  // steps in an order that satisfies everything; a message once, its send
  std::vector<uint32_t> sequence;
  uint64_t rounds = 0;
  int position_of(uint32_t step) const;
};

// The stages. Each takes what those above it left.
std::string compact_program(World& world, int position, const Program& program);
// The first step that touches memory of an earlier one, and does not wait for it.
struct Race {
  uint32_t step = kNone, earlier = kNone;
};
Race find_race(const World& world, const CompactProgram& program);
std::string build_order(World& world, Order& order);
std::string check_flow(const World& world, const Order& order);
std::string check_barrier(const World& world, const Order& order);

// "position 3, step 7 (recv from 2)" and "block 1 [1/4, 1/2)" for messages.
std::string step_text(const World& world, int position, size_t step);
std::string place_text(uint64_t begin, uint64_t end);

// Whether data of list `from` may go to list `to`, piece by piece: same length and, unless blocks
// may be renamed, the same places.
std::string check_pairing(const World& world, uint32_t from, uint32_t to);

}  // namespace sennit::verifier
