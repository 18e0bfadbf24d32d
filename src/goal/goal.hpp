// goal.hpp: a schedule as GOAL text (group operation assembly language: Hoefler, Siebert,
// Lumsdaine, ICPP 2009), which LogGOPSim and ATLAHS read, and back.
//
// One line an operation: `l3: send 1024b to 7 tag 5`, `l4: recv 1024b from 2 tag 0`, `l5: calc 300`
// (ns), and one line a dependency: `l5 requires l4` (after its end), `l5 irequires l4` (after its
// start). Pipeline chunks are written out, with the executor's limit of chunks at the same time;
// reductions and copies are calc. Memory: O(operations), of which there may be kMaxGoalOperations.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/algorithm.hpp"

namespace sennit {

// of all ranks; about a gigabyte of text
inline constexpr uint64_t kMaxGoalOperations = 10'000'000;
inline constexpr int32_t kAnyRank = -1;
inline constexpr uint32_t kAnyTag = ~uint32_t{0};

// What an operation does; calc takes time and moves nothing.
enum class OperationKind : uint8_t { send, recv, calc };

// A schedule of all ranks as LogGOPSim reads it: operations and what waits for what.
struct Goal {
  struct Operation {
    uint64_t amount = 0;  // bytes; of calc: ns
    int32_t peer = 0;     // rank; of recv also kAnyRank
    uint32_t tag = 0;     // of recv also kAnyTag
    OperationKind kind = OperationKind::calc;
    uint8_t cpu = 0, nic = 0;
    bool operator==(const Operation&) const = default;
  };
  struct Dependency {  // between operations of a rank, by index
    uint32_t operation = 0, on = 0;
    bool on_start = false;  // irequires
    bool operator==(const Dependency&) const = default;
  };
  struct Rank {
    std::vector<Operation> operations;
    std::vector<Dependency> dependencies;
    bool operator==(const Rank&) const = default;
  };
  std::vector<Rank> ranks;

  uint64_t operations() const;
  std::string to_text() const;
  bool operator==(const Goal&) const = default;
};

// The programs of all ranks, under the numbers that the user gave them. A message without data (a
// barrier's) is one of a byte, because LogGOPSim counts from the second byte on; an empty piece of
// a pipeline is a calc of nothing, as the executor leaves it out. Errors: too many operations.
Result<Goal> make_goal(const TierTree& tree, const Request& request, const Blueprint& blueprint,
                       uint32_t chunks, const CostModel& cost);

// Errors say file:line:column, what was expected and what is there. Ranks come in order, labels are
// known when a dependency names them.
Result<Goal> parse_goal(std::string_view text, std::string_view file);

// What a checked schedule comes to.
struct GoalFacts {
  uint64_t messages = 0, bytes = 0;
  uint64_t rounds = 0;  // messages in the longest chain
};
// Every send has its receive, of the same tag and length, in the same order where there are
// several; and no operation waits for itself, though every message waits for its receive to be
// posted.
Result<GoalFacts> check_goal(const Goal& goal);

// That `goal` carries between every two ranks what the programs do, counted from the programs anew.
Status check_bytes(const Goal& goal, const TierTree& tree, const Request& request,
                   const Blueprint& blueprint, uint32_t chunks);

}  // namespace sennit
