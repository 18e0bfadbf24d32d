// kernels_out.hpp: how many kernels of this process are out on a device, or may be, and that none
// begins while the driver is asked for what might wait for them.
#pragma once

#include <cstdint>

#include "base/mutex.hpp"

namespace sennit::cuda {

// Lives as long as the process. Any thread.
class KernelsOut {
 public:
  // One is about to be launched. This and graph_made() wait while the driver is being asked: they
  // are for those who drive no calls.
  void launches() SENNIT_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    while (asking_) asked_.wait(lock);
    out_++;
  }
  // One that a graph launched has begun.
  void began() SENNIT_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    out_++;
  }
  void ended() SENNIT_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    out_--;
    ended_++;
  }
  // Calls in a graph, which may be launched and wait for their stream without anybody's knowing.
  void graph_made() SENNIT_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    while (asking_) asked_.wait(lock);
    graphs_++;
  }
  void graph_over() SENNIT_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    graphs_--;
  }

  bool any() const SENNIT_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return out_ > 0 || graphs_ > 0;
  }
  uint64_t have_ended() const SENNIT_EXCLUDES(mutex_) {  // so far
    const MutexLock lock(mutex_);
    return ended_;
  }
  // Whether none is out and none may begin: then none does before done_asking().
  bool may_ask() SENNIT_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    if (asking_ || out_ > 0 || graphs_ > 0) return false;
    return asking_ = true;
  }
  void done_asking() SENNIT_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    asking_ = false;
    asked_.notify_all();
  }

 private:
  mutable Mutex mutex_;
  Condition asked_;
  uint64_t out_ SENNIT_GUARDED_BY(mutex_) = 0;
  uint64_t graphs_ SENNIT_GUARDED_BY(mutex_) = 0;
  uint64_t ended_ SENNIT_GUARDED_BY(mutex_) = 0;
  bool asking_ SENNIT_GUARDED_BY(mutex_) = false;
};

}  // namespace sennit::cuda
