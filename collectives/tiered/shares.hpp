// shares.hpp: how much of the data every child of a group takes on, so that the busiest pipe is
// least busy.
//
// In an all-reduce each child of a group *owns* a share of the data: the others send it their
// partial sums of that share, and it sends the result round. In an all-gather each child
// *distributes* a share of what passes through the group: some of the group's own data, and some of
// what comes from outside. Whoever takes on more sends more over the pipe that leads out of it. The
// shares are ours to choose, so they follow what each pipe can carry.
//
// What one of n children sends, in parts of all data (kAllData):
//   all-reduce, of which it owns a share f:  1 + (n - 2 + E) f
//     The partial sums of what others own, 1 - f; then its own share f to the n - 1 others, and E f
//     outwards, where E is what the group sends outwards. All children: 2 (n - 1) + E.
//   all-gather, of which it has the data w:  w + (n - 2 + k) d + O f
//     Its data once; what it distributes of the group's own data, d, to n - 2 more children and k
//     times outwards; and its share f of O, all copies of outside data that the children and outer
//     groups are sent. All children: (n - 1) + X, where X is what the group sends outwards.
//
// These sums do not depend on the shares. So within a time t a group can send outwards what its own
// pipe carries, but no more than what its children can send within t, less what goes from child to
// child: 2 (n - 1) in an all-reduce, n - 1 in an all-gather. This says from the leaves upwards
// whether t is enough, and bisection finds the least t that is: in an all-reduce for each group by
// itself, in an all-gather for the whole tree. The shares are then in proportion to what each child
// can send in that time beyond what it must.
//
// A child of an all-gather distributes its own data itself (d = w) unless its pipe would then take
// longer than the least time. What is too much for it goes to children that have room (Relay).
//
// Arithmetic is in integers alone, and equal subtrees get exactly equal shares. Time: O(distinct
// subtrees * depth), times the 50 rounds of a bisection.
#pragma once

#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "collectives/tiered/tree.hpp"
#include "schedule/program.hpp"

namespace sennit::tiered {

inline constexpr uint64_t kAllData = 8 * kUnits;  // all data, in the fixed point of loads

// A part of one child's own data that another child distributes: units [begin, end) out of kUnits
// of every run.
struct Relay {
  uint32_t from = 0, to = 0;  // child indices
  uint64_t begin = 0, end = 0;
};

// A subtree in its surroundings: same shape and same outward load mean the same node.
struct Node {
  uint32_t shape = 0;
  int32_t example = 0;             // a stage node that it describes
  std::vector<uint32_t> children;  // node of each child
  std::vector<uint64_t> share;     // prefix sums of the children's shares, kUnits in all
  std::vector<Relay> relays;       // by `from`, then by `begin`; all-gather only
  uint64_t out_load = 0;           // what it sends outwards, in parts of kAllData
  uint64_t in_load = 0;
};

// The shares of all groups of a tree, which must outlive it. Immutable.
class Shares {
 public:
  enum class Pattern : uint8_t { all_reduce, all_gather };
  Shares(const StageTree& tree, Pattern pattern);

  std::span<const Node> nodes() const { return nodes_; }  // children before parents
  const Node& node(uint32_t index) const { return nodes_[index]; }
  uint32_t root() const { return static_cast<uint32_t>(nodes_.size()) - 1; }

 private:
  using Signed = __int128;
  // What a group's own data and the data that it passes on make it send outwards.
  struct Outward {
    uint64_t own = 0, passed = 0;
  };
  struct Split {                   // of a group's work over its children
    std::vector<uint64_t> by;      // shares of data from outside are proportional to this
    std::vector<Outward> outward;  // by child
    std::vector<Relay> relays;
  };

  uint64_t must_send(uint32_t shape) const;
  // the most it can send within t, below 0 if not even inside
  Signed limit(uint32_t shape, uint64_t t) const;
  // the same, at least must_send; remembered for one t
  uint64_t most(uint32_t shape, uint64_t t) const;
  Signed sum_of_children(uint32_t shape, uint64_t t) const;
  bool feasible(uint64_t t) const;  // all-gather
  template <typename F>
  uint64_t least(F&& enough) const;

  uint32_t resolve(int32_t stage_node, Outward outward);
  std::vector<uint32_t> child_shapes(uint32_t shape) const;
  Split split_all_reduce(uint32_t shape, Outward outward) const;
  Split split_all_gather(uint32_t shape, Outward outward) const;

  const StageTree& tree_;
  const Pattern pattern_;
  uint64_t reference_rate_ = 1;
  uint64_t time_ = 0;  // all-gather: the least time of the whole tree
  std::vector<Node> nodes_;
  std::map<std::tuple<uint32_t, uint64_t, uint64_t>, uint32_t> known_;
  mutable std::vector<uint64_t> most_;  // by shape; valid where most_at_ is the time asked for
  mutable std::vector<uint64_t> most_at_;
};

}  // namespace sennit::tiered
