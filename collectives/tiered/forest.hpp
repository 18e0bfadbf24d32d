// forest.hpp: for every piece of data a spanning tree over the ranks, in the direction of
// all-gather, and one rank's moves in it, stage by stage.
//
// *Holder*: within every group exactly one rank holds a piece for the group. Data from outside a
// group is held by the group's partition, laid over the line of the data's runs; own data by its
// carrier. At a group with children c, a piece goes from its holder in one child to its holders in
// all others. Where the children's loads differ, a part of a child's data first goes up to another
// child (a *relay*), which distributes it and carries it further out. Run outwards this is
// all-gather, backwards reduce-scatter. All-reduce is data "from outside" of the root, laid over
// the line of the vector itself: whoever holds a piece for the root owns it. Pure and immutable
// after construction. Memory: O(ranks) for shapes that are all alike.
#pragma once

#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "collectives/tiered/partition.hpp"
#include "collectives/tiered/runs.hpp"
#include "collectives/tiered/shares.hpp"
#include "collectives/tiered/tree.hpp"

namespace sennit::tiered {

// What goes to or comes from one peer at one stage.
struct Move {
  int32_t peer = 0;
  uint32_t child = 0;  // the peer's child of the stage's group
  Places places;
};

// Moves of one stage and direction, one for each peer.
class Moves {
 public:
  Places& with(int32_t peer, uint32_t child);
  void arrange();  // once, when all is in
  const std::vector<Move>& all() const { return moves_; }
  bool empty() const { return moves_.empty(); }

 private:
  std::vector<Move> moves_;
  std::unordered_map<int32_t, size_t> by_peer_;
};

// One rank's part in the exchange at one group on its path, in the direction of all-gather.
struct StageMoves {
  int32_t node = 0;    // stage node
  uint32_t child = 0;  // the child of it that holds this rank
  uint32_t fanout = 0;
  Moves relay_in, relay_out;  // before everything else, from near to far
  Moves in, out;              // then from far to near
};

// All groups of a schedule with what they own, hold and pass on. Immutable; tree and request need
// not outlive it.
class Forest {
 public:
  Forest(const TierTree& tree, const Request& request, std::span<const uint16_t> radices,
         Shares::Pattern pattern, const GroupRates& rates);

  const StageTree& tree() const { return tree_; }
  // By stage, from the innermost outwards; without the `outermost` stages at the top.
  std::vector<StageMoves> moves(int position, int outermost = 0) const;
  // Who of a subtree holds a piece of outside data (all-reduce: of the vector).
  const Partition& partition(uint32_t node) const { return partitions_[node]; }
  // The stage nodes on the way from the root to a rank, and what describes them.
  struct Step {
    int32_t stage_node = 0;
    uint32_t node = 0;
  };
  std::vector<Step> path(int position) const;  // the leaf first
  uint32_t node_of(int32_t stage_node) const;
  const Shares& shares() const { return shares_; }

  struct Flow {  // a part of one child's own data, with the child that distributes it
    uint32_t from = 0, to = 0;
    const RunList* runs = nullptr;  // relative to child `from`
  };
  // of its children's data
  std::span<const Flow> flows(uint32_t node) const { return flows_[node]; }

 private:
  void make_partition(uint32_t node);
  void make_flows(uint32_t node);
  void make_runs(uint32_t node);
  int32_t child_first(uint32_t node, uint32_t child) const;  // relative to the node

  // How this rank takes part at one stage: `group` exchanges, `inner` is its child that holds the
  // rank.
  struct Role {
    Step group, inner;
    int32_t position = 0;
  };
  void spread_all(const std::vector<Step>& steps, size_t s, const Role& at,
                  StageMoves& stage) const;
  void spread_vector(const Role& at, StageMoves& stage) const;
  void spread(const RunList& runs, uint64_t offset, const Role& at, StageMoves& stage) const;
  void cross_own(const Flow& flow, const Role& at, StageMoves& stage) const;
  void cross_others(const Flow& flow, const Role& at, StageMoves& stage) const;

  const Shares::Pattern pattern_;
  const StageTree tree_;
  const Shares shares_;
  std::vector<Partition> partitions_;           // by node
  std::vector<std::unique_ptr<RunList>> runs_;  // by node; all-gather only
  std::vector<std::vector<Flow>> flows_;        // by node, ordered by `from`; all-gather only
  std::vector<std::unique_ptr<RunList>> cuts_;  // parts of children's runs that flows point to
};

}  // namespace sennit::tiered
