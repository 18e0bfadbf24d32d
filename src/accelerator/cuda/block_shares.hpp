// block_shares.hpp: how many blocks of the device each call takes, so that the kernels of all calls
// that may wait for one another find room on it.
//
// A kernel that stays holds what its blocks hold. Were all of that held by kernels that wait for
// one which has not begun, none would end. So half of the device is for kernels of one block, which
// every call gets; of the other half a stream gets half of what others have left, or all where
// there are none. Of a rank's calls in one stream only the first is on the device. Several ranks
// that use a stream capture in it one after the other (stream_owners.hpp), and launch side by side
// what they have captured.
#pragma once

#include <algorithm>
#include <map>
#include <tuple>

#include "accelerator/accelerator.hpp"
#include "base/mutex.hpp"

namespace sennit::cuda {

// Any thread.
class BlockShares {
 public:
  // Of a device on which so many blocks find room at once.
  explicit BlockShares(unsigned room) : room_(room) {}

  // A call of `owner` in the stream of this name (name_of()) that would use so many; returns how
  // many it takes, at least one.
  unsigned take(const void* stream, const StreamOwner& owner, unsigned wanted)
      SENNIT_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    Use& use = uses_[{stream, owner.job, owner.rank}];
    const unsigned others = out_ - use.blocks;
    const unsigned left = room_ / 2 > others ? room_ / 2 - others : 0;
    const unsigned most = std::max(1u, others == 0 ? left : left / 2);
    const unsigned blocks = std::clamp(wanted, 1u, most);
    use.calls++;
    out_ += std::max(use.blocks, blocks) - use.blocks;
    use.blocks = std::max(use.blocks, blocks);
    return blocks;
  }
  // One of its calls is over.
  void give_back(const void* stream, const StreamOwner& owner) SENNIT_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    const auto use = uses_.find({stream, owner.job, owner.rank});
    if (use == uses_.end() || --use->second.calls > 0) return;
    out_ -= use->second.blocks;
    uses_.erase(use);
  }

 private:
  struct Use {
    unsigned calls = 0, blocks = 0;
  };
  const unsigned room_;
  Mutex mutex_;
  using Key = std::tuple<const void*, uint64_t, int>;  // a stream's name; a job, and a rank of it
  std::map<Key, Use> uses_ SENNIT_GUARDED_BY(mutex_);
  unsigned out_ SENNIT_GUARDED_BY(mutex_) = 0;  // of all streams
};

}  // namespace sennit::cuda
