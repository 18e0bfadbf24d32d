// common.hpp: what the simple algorithms share: ranges of blocks, blueprints, and the sums of an
// estimate.
//
// Load adds up the bytes over every group boundary, message by message or in closed form, and turns
// them into the time of each tier's busiest boundary. Unknown figures are those that cost/rates.hpp
// plans with. Pure.
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

// Of one message between two positions, declared or assumed.
uint64_t message_latency_ns(const TierTree& tree, int a, int b, const CostModel& cost);
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

// Over the narrowest boundary between two positions, alone.
uint64_t message_ns(const TierTree& tree, const GroupRates& rates, int a, int b, uint64_t bytes);

// Sets what reductions read, in messages of so many bytes: the busiest rank, and all ranks on the
// longest way, one after the other.
void set_readings(uint64_t busiest, uint64_t all, uint64_t bytes, Estimate* estimate);

// What crosses the boundaries of a tree's groups.
class Load {
 public:
  struct Way {
    Wide bytes = 0;  // of all ranks' whole vectors to all, more than a 64-bit number holds
    uint64_t messages = 0;
    void operator+=(const Way& other) {
      bytes += other.bytes;
      messages += other.messages;
    }
  };
  explicit Load(const TierTree& tree)
      : tree_(tree), out_(tree.groups.size()), in_(tree.groups.size()) {}
  // Messages from one position to another, over every boundary between them. O(depth).
  void add(int from, int to, uint64_t bytes, uint64_t messages = 1);
  // One message there and one back, in one walk.
  void add_both(int a, int b, uint64_t there, uint64_t back);
  // In closed form: what crosses the boundary of one group.
  void add_boundary(size_t group, Way out, Way in) {
    out_[group] += out;
    in_[group] += in;
  }
  // By tier, of the group that takes longest.
  std::vector<uint64_t> tier_ns(const CostModel& cost) const;
  // SharedCoresEstimate::way_ns.
  uint64_t way_ns(const CostModel& cost) const;
  std::vector<uint64_t> tier_bytes() const;  // by tier: out of all its groups

 private:
  // By group: how long what crosses its boundary takes, in the direction that takes longer.
  std::vector<uint64_t> boundary_ns(const CostModel& cost) const;

  const TierTree& tree_;
  std::vector<Way> out_, in_;  // by group
};

}  // namespace sennit
