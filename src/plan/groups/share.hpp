// share.hpp: what a process group may count on where others use the same boundaries: of every
// capacity the part that what it must carry has in what all must carry.
//
// So a group whose uplink is shared by eight plans with an eighth of it, and the scarcer tier gets
// the chunks and the radices that suit it. Cost: O(members * depth).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/index.hpp"
#include "base/status.hpp"
#include "plan/bound_cuts.hpp"
#include "plan/groups/member_tree.hpp"
#include "schedule/request.hpp"

namespace sennit {

// One collective of several groups of ranks, all at once.
struct ConcurrentCall {
  // Of each group; `root` and `counts` by the members' places in fabric order.
  Request request;
  // positions of the tree, in any order; a group of one does nothing
  std::vector<std::vector<int>> groups;
};

// The groups of a tree that hold members of one process group at a time. The tree must outlive it.
class Held {
 public:
  explicit Held(const TierTree& tree) : tree_(tree), share_(tree.groups.size()) {}

  // Takes the place of the process group before. Members ascending.
  cuts::Whole take(const Request& request, std::span<const int> members);
  const std::vector<int>& groups() const { return groups_; }
  const cuts::Share& share(int group) const { return share_[index(group)]; }
  // f(group, need) for each group with members on both sides of its boundary.
  template <typename F>
  void each_boundary(const cuts::Whole& all, F&& f) const {
    for (const int g : groups_)
      if (share(g).members != all.members) f(g, need(all, share(g)));
  }

 private:
  const TierTree& tree_;
  std::vector<int> groups_;
  std::vector<cuts::Share> share_;  // by group
};

// The tree with every capacity divided among the groups that use it. Keeps a copy of it, to which
// one of its own members refers: it stays where it was made.
class SharedTree {
 public:
  SharedTree(const SharedTree&) = delete;
  SharedTree& operator=(const SharedTree&) = delete;
  // Every group of the calls stands for so many like it.
  SharedTree(const TierTree& tree, std::span<const ConcurrentCall> calls, uint64_t times = 1);
  // member_tree() with the group's part of each capacity.
  MemberTree of(const Request& request, std::vector<int> positions);

 private:
  TierTree tree_;  // with the capacities of one process group at a time
  Held held_;
  std::vector<cuts::Need> all_;  // by group: what all process groups must carry
};

// What a process group is taken to share its boundaries with, at the same time.
struct Concurrency {
  // with all groups that were made together with it; else with so many groups like itself,
  // itself among them
  bool siblings = true;
  int groups = 1;
  bool operator==(const Concurrency&) const = default;
};
// "siblings", "alone" or a number of groups.
Result<Concurrency> parse_concurrency(std::string_view text);

// The tree of groups[own], one of several that were made together, which do the same at the same
// time as `concurrency` says. Groups are of ranks of the tree; the i-th of a group becomes its rank
// i. What they do matters little to the part that each gets: an all-reduce stands for all.
TierTree tree_of_group(const TierTree& tree, const std::vector<std::vector<int>>& groups,
                       size_t own, Concurrency concurrency = {});

}  // namespace sennit
