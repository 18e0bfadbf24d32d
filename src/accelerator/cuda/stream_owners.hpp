// stream_owners.hpp: which rank has calls out in a stream.
//
// Two ranks of a job that share a process cannot share a stream: a call of the first waits for the
// second's, which waits behind it.
#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <map>

#include "accelerator/accelerator.hpp"
#include "base/mutex.hpp"
#include "base/status.hpp"

namespace sennit::cuda {

// Any thread.
class StreamOwners {
 public:
  // A call of `owner` is to go into the stream; an error where another rank of its job has one out.
  Status enter(const void* stream, const StreamOwner& owner) SENNIT_EXCLUDES(mutex_) {
    if (reinterpret_cast<uintptr_t>(stream) == kPerThread) return {};  // as many as threads
    const MutexLock lock(mutex_);
    const auto [at, first] = uses_.try_emplace(name(stream), Use{owner, 0});
    Use& use = at->second;
    if (use.owner.job == owner.job && use.owner.rank != owner.rank)
      return {SENNIT_INVALID_ARGUMENT,
              fmt::format("rank {} makes a call in the stream at {}, in which rank {} of the same "
                          "job has one out: ranks that share a process have streams of their own",
                          owner.rank, stream, use.owner.rank)};
    use.calls++;
    return {};
  }
  // One of its calls is over.
  void leave(const void* stream) SENNIT_EXCLUDES(mutex_) {
    if (reinterpret_cast<uintptr_t>(stream) == kPerThread) return;
    const MutexLock lock(mutex_);
    const auto use = uses_.find(name(stream));
    if (use != uses_.end() && --use->second.calls == 0) uses_.erase(use);
  }

 private:
  struct Use {
    StreamOwner owner;
    uint64_t calls = 0;
  };
  static constexpr uintptr_t kLegacy = 1, kPerThread = 2;  // streams that have numbers for names
  static const void* name(const void* stream) {
    return reinterpret_cast<uintptr_t>(stream) == kLegacy ? nullptr : stream;
  }
  Mutex mutex_;
  std::map<const void*, Use> uses_ SENNIT_GUARDED_BY(mutex_);
};

}  // namespace sennit::cuda
