// shares.hpp: how much of the data every child of a group takes on, so that the busiest pipe is
// least busy.
//
// Loads are in parts of the total data (kAllData is all of it) that leave a group. With n children:
//   all-reduce    a child that owns share f sends 1 + (n-2+E) f, where E is what its parent sends
//                 outwards; the children of a group send 2(n-1) + E together, whatever the shares
//   all-gather    a child with data w that distributes d of its group's own data and passes on f of
//                 the data from outside sends w + (n-2+k) d + O f, where k counts copies of own
//                 data sent outwards, and O is what the group's children and outer groups need of
//                 outside data; (n-1) + X together, where X is what the group sends outwards
// So the most that a group can send within time t is min(t * rate, sum over children - a(n-1)), a =
// 2 or 1, and a bisection on t finds the least time. Then shares follow what each child can send
// beyond what it must. All-gather relays (d != w) only where without it some pipe would exceed the
// least time. Integer arithmetic only; equal subtrees get equal shares exactly. Time: O(distinct
// subtrees * depth * 48).
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
