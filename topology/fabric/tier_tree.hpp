// tier_tree.hpp: the fabric contracted to nested groups of ranks: rank < NUMA/NVLink < host < rack
// < pod < root.
//
// Any depth, groups of unequal size. *Position* is a rank's index in fabric order: every group is a
// contiguous run of positions. Algorithms think in positions; `rank_of_position` leads back to the
// user's ranks. Groups with a single child are contracted into it (capacity: the smaller), so a
// host with one rank *is* that rank's leaf. Immutable after construction, free to share between
// threads. Memory: O(ranks).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sennit {

// Where a figure comes from. Unknown is a value: a capacity of 0 bytes/s with provenance unknown.
enum class Provenance : uint8_t { unknown, assumed, declared, measured };
const char* name(Provenance provenance);

// A rate in bytes/s, and who stands behind it.
struct Capacity {
  uint64_t bytes_per_s = 0;  // 0: unknown
  Provenance provenance = Provenance::unknown;
  uint64_t burst_bytes = 0;  // pass at once before the rate holds: a shaper's bucket
  bool known() const { return bytes_per_s != 0; }
};

// What hosts are joined by, where that is known; of several the slowest counts. RoCE is Ethernet
// whose NICs do RDMA.
enum class Wire : uint8_t { unknown, infiniband, roce, ethernet };
const char* name(Wire wire);  // "infiniband"; "" where unknown
inline constexpr const char* kWires = "infiniband, roce or ethernet";
Wire wire_called(std::string_view name);  // unknown: there is none
inline Wire slower(Wire a, Wire b) { return a < b ? b : a; }

// Ranks that one boundary holds; its children are consecutive.
struct Group {
  int32_t parent = -1;       // index into TierTree::groups; -1 for the root
  int32_t first_child = -1;  // children are consecutive; -1 for a leaf (a rank)
  int32_t children = 0;
  int32_t first = 0;   // first position
  int32_t size = 1;    // positions
  uint8_t tier = 0;    // index into TierTree::tiers; a child's tier is below its parent's
  uint8_t planes = 1;  // parallel rails of the egress; a rank's home plane is TierTree::home_plane
  // Its boundary is so many cables, of which all messages between two ranks take one (ECMP).
  uint16_t cables = 1;
  Capacity egress;  // to the outside of the group, all planes together; root: none
  Capacity ingress;
  uint64_t latency_ns = 0;    // of one message between two children of this group; 0: unknown
  uint8_t switches = 0;       // the most that it passes there; 0: none, or unknown
  Wire wire = Wire::unknown;  // of its hosts
  // Of what the latency within the group around it is made, so that a part of the ranks can have
  // its own (plan/groups/member_tree.hpp): the way from the top of this group, or from a rank's
  // device, to the top of that one, and what links between switches of one level add where these
  // join its children. All 0: nobody said.
  uint64_t up_ns = 0, across_ns = 0;
  bool up_declared = false;  // some of it by a link between hosts
  std::string name;          // "rack1", "h3"; may be empty

  // What an undeclared latency comes from, as one number: groups are alike only where it is.
  uint64_t wiring() const { return static_cast<uint64_t>(wire) << 8 | switches; }
};

// A level of the tree.
struct Tier {
  std::string name;  // "rank", "numa", "host", "rack", "pod", "root"
  // Its ranks can share memory.
  bool is_host() const { return name == "host"; }
};

// A fabric as planner and algorithms see it. Filled in, then finish()ed; from then on read only,
// and free to share between threads.
class TierTree {
 public:
  std::vector<Group> groups;              // breadth first; groups[0] is the root
  std::vector<Tier> tiers;                // tiers[0] are the ranks
  std::vector<int32_t> rank_of_position;  // fabric order -> user's rank
  std::vector<int32_t> position_of_rank;
  std::vector<int32_t> leaf_of_position;  // index of the rank's own group
  std::vector<uint8_t> home_plane;        // by position; empty: one plane everywhere

  int ranks() const { return static_cast<int>(rank_of_position.size()); }
  const Group& root() const { return groups[0]; }
  bool is_leaf(int group) const { return groups[static_cast<size_t>(group)].children == 0; }
  // The child of `group` that holds `position`. O(log children).
  int child_at(int group, int position) const;
  // The smallest group that holds both positions.
  int common_group(int a, int b) const;
  // Tier a message between the two crosses: the tier of the children of their common group. Wider
  // is larger.
  int crossing_tier(int a, int b) const;
  // Sum of the children's egress / own egress; 0 where a capacity is unknown.
  double oversubscription(int group) const;
  bool capacities_known() const;  // of every group but the root
  bool is_uniform() const;        // groups of a tier are alike, but for their names
  uint64_t fingerprint() const;   // of shape, capacities and latencies, not of names or rank order
  std::string to_text() const;    // an indented listing, for people and tests

  // n ranks in one flat group, capacities unknown.
  static TierTree flat(int ranks);
  // Balanced or not: sizes by nested counts, for tests. fanouts from the root inwards, e.g. {2, 4};
  // egress by tier from the widest inwards, bytes/s (may be empty).
  static TierTree uniform(const std::vector<int>& fanouts,
                          const std::vector<uint64_t>& egress = {});
  // Checks the invariants above; empty when they hold, else what is wrong.
  std::string check() const;
  // Completes leaf_of_position, position_of_rank, first/size from children; call after filling
  // groups.
  void finish();
};

}  // namespace sennit
