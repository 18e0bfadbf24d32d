// common.hpp: what the simple algorithms share: ranges of blocks, blueprints, and the sums of an
// estimate.
//
// Load adds up the bytes over every group boundary, message by message or in closed form, and turns
// them into the time of each tier's busiest boundary. A message is noted where it begins, where it
// ends, and at the group within which it stays: sums over the groups' subtrees are then what
// crosses their boundaries. Unknown figures are those that cost/rates.hpp plans with. Pure.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "base/arithmetic.hpp"
#include "base/index.hpp"
#include "collectives/algorithm.hpp"
#include "collectives/visits.hpp"
#include "cost/rates.hpp"

namespace sennit {

// Blocks [begin, end) as one range.
inline Range block_range(uint64_t begin, uint64_t end) {
  return {begin, 0, (end - begin) * kUnits};
}
// Shares [begin, end) of block 0 cut into `shares`.
inline Range share_range(uint64_t begin, uint64_t end, uint64_t shares) {
  return {0, kUnits * begin / shares, kUnits * end / shares};
}

// Copies between input and output, left out where both are the same memory.
void copy_own(ProgramBuilder& builder, const Request& request, Range range);
// A reduction, or a plain copy where there is one source.
void combine(ProgramBuilder& builder, Operand target, std::span<const Operand> sources,
             bool finish);

// A blueprint that is this function, which keeps what it needs. Any thread may call it. `turns`:
// those that turn the tree, where this takes any rank's program to any other's.
std::unique_ptr<Blueprint> make_blueprint(std::function<Program(int position)> program,
                                          std::optional<Visits> turns = std::nullopt);

// Whether every rank knows the number of elements of every block (not so in all-to-all-v).
inline bool knows_counts(const Request& request) {
  return !request.vector_variant || !request.counts.empty();
}

// Of one block; where counts differ, of this one.
uint64_t block_bytes(const Request& request, int block);
// Bytes of blocks [0, i), i = 0 ... n.
std::vector<uint64_t> block_offsets(const Request& request, int ranks);
// Bytes of the vector, or of all blocks together.
uint64_t total_bytes(const Request& request, int ranks);

// The group between whose children a message's latency is longest. O(groups).
int slowest_group(const TierTree& tree, const CostModel& cost);
// The same of those around this position. O(depth).
int slowest_group(const TierTree& tree, int position, const CostModel& cost);
// The position that is reached last.
int farthest(const std::vector<uint64_t>& reached_ns);
// Adds so many messages of so many bytes between children of a group, one after the other, to an
// estimate's critical path.
void add_latency(const TierTree& tree, int group, uint64_t messages, uint64_t bytes,
                 const CostModel& cost, Estimate* estimate);
// The same of so many messages from every position but the last to the one behind it. O(groups).
void add_latency_of_neighbours(const TierTree& tree, uint64_t messages, uint64_t bytes,
                               const CostModel& cost, Estimate* estimate);

// Over the narrowest boundary between two positions, alone.
uint64_t message_ns(const TierTree& tree, const GroupRates& rates, int a, int b, uint64_t bytes);

// Sets what reductions read, in messages of so many bytes: the busiest rank, and all ranks on the
// longest way, one after the other.
void set_readings(uint64_t busiest, uint64_t all, uint64_t bytes, Estimate* estimate);

// What crosses the boundaries of a tree's groups: either messages, or in closed form.
class Load {
 public:
  struct Way {
    Wide bytes = 0;  // of all ranks' whole vectors to all, more than a 64-bit number holds
    uint64_t messages = 0;
  };
  explicit Load(const TierTree& tree) : tree_(tree), crossed_(tree.groups.size()) {}
  // Messages from one position to another, over every boundary between them.
  void add(int from, int to, uint64_t bytes, uint64_t messages = 1) {
    add_within(tree_.common_group(from, to), from, to, bytes, messages);
  }
  // The same where it is known which is the smallest group that holds both. O(1).
  void add_within(int group, int from, int to, uint64_t bytes, uint64_t messages = 1);
  // In closed form: what crosses the boundary of one group.
  void add_boundary(size_t group, Way out, Way in) {
    crossed_[group] += {out.bytes, in.bytes, out.messages, in.messages};
  }

  // When all is added:
  // Estimate::tier_ns, of the group that takes longest, and Estimate::headers_ns.
  void set_times(const CostModel& cost, Estimate* estimate);
  uint64_t way_ns(const CostModel& cost);  // SharedCoresEstimate::way_ns
  std::vector<uint64_t> tier_bytes();      // by tier: out of all its groups

 private:
  // Of one group. Numbers wrap around, and come right as they are added up.
  struct Boundary {
    Wide out_bytes = 0, in_bytes = 0;
    uint64_t out_messages = 0, in_messages = 0;
    void operator+=(const Boundary& other);
    void operator-=(const Boundary& other);
    // In the direction that takes longer.
    uint64_t ns(uint64_t egress, uint64_t ingress, uint64_t message_bytes) const;
  };
  const std::vector<Boundary>& sums();  // by group: what crosses it

  const TierTree& tree_;
  // By group: what crosses it; where messages were noted, beyond what crosses its children.
  std::vector<Boundary> crossed_;
  bool noted_ = false;
};

}  // namespace sennit
