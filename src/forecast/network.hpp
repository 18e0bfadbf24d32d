// network.hpp: a mesh laid on a tier tree: what its groups put on every boundary of the fabric when
// all groups of a dimension communicate at once, and the least time that this takes.
//
// For one group of d members of which m are inside of a boundary, an all-gather of M bytes brings
// in (1 - m/d)M and takes out m/d M; a reduce-scatter the reverse; both are the least that any
// schedule moves. Loads of all groups add up, so times are bounds of the *set* of groups that run
// at once, not of one group alone. What a message takes beside its bytes is what planner and
// simulator take for GPUs (cost/rates.hpp). Cost: O(GPUs * depth) for each dimension.
#pragma once

#include <string>
#include <vector>

#include "base/index.hpp"
#include "forecast/mesh.hpp"
#include "topology/fabric/tier_tree.hpp"

namespace sennit::forecast {

// Which positions of the tree the job takes; by the job's GPU number.
struct Places {
  std::string name;  // "packed", "even"
  std::vector<int> positions;
};
// The first so many positions; and, where it is another placement, the same share of every group
// below the root, in whole hosts. Empty where the tree has too few.
std::vector<Places> placements(const TierTree& tree, int gpus);

// Bytes over each group's boundary for one byte of M, of all groups at once; by group of the tree.
struct Load {
  std::vector<double> in, out;
};

// What bounds a set of transfers.
struct SetBound {
  double seconds = 0;
  int group = -1;                    // of the tree, that binds; -1: nothing moves
  std::vector<double> tier_seconds;  // by tier of the tree
};

// How members of one group are spread: over how many of a tier's groups, the least and the most of
// any group.
struct Spread {
  int tier = 0;
  int least = 0, most = 0;
};

// A tier tree as what groups of GPUs can move over it. Immutable; rates in bytes/s.
class GpuFabric {
 public:
  // `scale_up_bytes_per_s` stands in for the boundary of a GPU within its host where the tree knows
  // more (a NIC counted in) or nothing. The tree is kept by reference.
  GpuFabric(const TierTree& tree, double scale_up_bytes_per_s);

  Load gather_load(const Groups& groups, const std::vector<int>& positions) const;
  // Every member sends to the next of its group, the last to the first.
  Load ring_load(const Groups& groups, const std::vector<int>& positions) const;
  // The least time for bytes_in and bytes_out times the load, over capacity * efficiency.
  SetBound bound(const Load& load, double bytes_in, double bytes_out) const;
  SetBound bound(const Load& load, double bytes_in, double bytes_out, double within_host,
                 double between_hosts) const;
  // To post a message and its latency, between the farthest two members that are neighbours in the
  // tree's order, the longest of all groups.
  double message_s(const Groups& groups, const std::vector<int>& positions) const;
  std::vector<Spread> spread(const Groups& groups, const std::vector<int>& positions) const;

  bool within_host(int group) const { return within_host_[index(group)]; }
  const TierTree& tree() const { return tree_; }

 private:
  const TierTree& tree_;
  std::vector<bool> within_host_;         // the group's boundary is inside of a host
  std::vector<double> egress_, ingress_;  // bytes/s
  std::vector<double> message_s_;         // between two children of a group
};

// Tiers between hosts whose groups have no known capacity: "rack, pod"; empty where all is known.
std::string unknown_tiers(const TierTree& tree);
// What is assumed of latencies that the tree does not declare: "3.4us within a host, 14us over
// RDMA"; empty where all are declared.
std::string assumed_latencies(const TierTree& tree);

}  // namespace sennit::forecast
