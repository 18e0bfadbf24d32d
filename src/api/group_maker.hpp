// group_maker.hpp: of whom a communicator consists that is made out of another one, by which number
// all its members know it, and the tree that it plans by.
//
// Any thread. The numbers are never those of another communicator, also where several threads, or
// other ranks, make some at the same time.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "api/context.hpp"
#include "api/group_channel.hpp"
#include "api/state/communicator_state.hpp"
#include "base/mutex.hpp"
#include "base/status.hpp"
#include "topology/fabric/tier_tree.hpp"

namespace sennit {

// Of a communicator to be made.
struct NewCommunicator {
  std::vector<int> members;  // world ranks, by rank in it
  uint32_t id = 0;
  TierTree tree;
};

// See above. Of one communicator.
class GroupMaker {
 public:
  // `of`: what the groups are made out of. All of it outlives this, and the tree does not change.
  GroupMaker(Context& context, CommunicatorState& of, const TierTree& tree)
      : context_(context), of_(of), tree_(tree) {}
  GroupMaker(const GroupMaker&) = delete;
  GroupMaker& operator=(const GroupMaker&) = delete;

  // The tree of ranks of the job as though they were alone there.
  static Result<TierTree> tree_of(const Context& context, const std::vector<int>& members);

  // A collective all-gather: `mine` is so many numbers, and `all` has room for those of all ranks.
  using AllGather = std::function<Status(const void* mine, void* all, size_t numbers)>;
  // Collective: those that name the same color are one group. Nothing for SENNIT_NO_COLOR.
  Result<std::optional<NewCommunicator>> split(int color, int key, const AllGather& all_gather);
  // Asked by the members alone; `ranks` and `tag` as GroupChannel has them.
  Result<NewCommunicator> of_ranks(const std::vector<int>& ranks, int tag) SENNIT_EXCLUDES(mutex_);
  // Makes the channel, unless there is one: others that wait for this rank in of_ranks() ask about
  // it, and it is what fails.
  void open_channel() SENNIT_EXCLUDES(mutex_) { channel(); }

 private:
  GroupChannel& channel() SENNIT_EXCLUDES(mutex_);

  Context& context_;
  CommunicatorState& of_;
  const TierTree& tree_;
  std::atomic<uint32_t> splits_ = 0;
  Mutex mutex_;
  std::unique_ptr<GroupChannel> channel_ SENNIT_GUARDED_BY(mutex_);  // once it is asked for
};

}  // namespace sennit
