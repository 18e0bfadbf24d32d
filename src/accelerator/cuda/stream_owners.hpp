// stream_owners.hpp: which rank has calls out in a stream.
//
// Two ranks of a job that share a process cannot share a stream: a call of the first waits for the
// second's, which waits behind it. The same holds where one is in the default stream and the other
// in a stream that blocks, since CUDA has these two wait for one another.
#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "accelerator/accelerator.hpp"
#include "accelerator/cuda/stream_names.hpp"
#include "base/mutex.hpp"
#include "base/status.hpp"

namespace sennit::cuda {

// What a stream waits for although nobody has said so.
enum class StreamOrder : uint8_t {
  free,      // nothing
  blocking,  // for the default stream, as that does for it
  legacy,    // it is the default stream
};

// A stream that calls go into.
struct SharedStream {
  const void* name = nullptr;  // name_of()
  // The number of what it is being captured into; 0: nothing. A graph is ordered by itself alone,
  // and its streams count for nothing once it is made.
  uint64_t capture = 0;
  StreamOrder order = StreamOrder::free;
};

// Any thread.
class StreamOwners {
 public:
  // A call of `owner` is to go into the stream; an error where another rank of its job has one out
  // there, or where one of the two streams waits for the other.
  Status enter(const SharedStream& stream, const StreamOwner& owner) SENNIT_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    UsesOfJob& uses = jobs_[owner.job];
    for (const auto& [key, use] : uses) {
      if (use.rank == owner.rank) continue;
      if (key == key_of(stream)) return same_stream(stream, owner, use.rank);
      if (wait_for_one_another(stream.order, use.order))
        return streams_that_wait(stream, key.first, owner, use.rank);
    }
    Use& use = uses.try_emplace(key_of(stream), Use{owner.rank, stream.order}).first->second;
    use.calls++;
    return {};
  }
  // One of the owner's calls there is over.
  void leave(const SharedStream& stream, const StreamOwner& owner) SENNIT_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    const auto job = jobs_.find(owner.job);
    if (job == jobs_.end()) return;
    const auto use = job->second.find(key_of(stream));
    if (use == job->second.end() || --use->second.calls > 0) return;
    job->second.erase(use);
    if (job->second.empty()) jobs_.erase(job);
  }

 private:
  struct Use {
    int rank;
    StreamOrder order;
    uint64_t calls = 0;
  };
  using Key = std::pair<const void*, uint64_t>;  // a stream's name, and its capture
  using UsesOfJob = std::map<Key, Use>;          // no two of its ranks are in one stream

  static Key key_of(const SharedStream& stream) { return {stream.name, stream.capture}; }
  static bool wait_for_one_another(StreamOrder a, StreamOrder b) {
    return a != b && a != StreamOrder::free && b != StreamOrder::free;
  }
  static std::string text_of(const void* name) {
    if (!name) return "the default stream";
    if (is_thread_name(name)) return "its thread's own stream";
    return fmt::format("the stream at {}", name);
  }
  static Status same_stream(const SharedStream& stream, const StreamOwner& owner, int other) {
    return {SENNIT_INVALID_ARGUMENT,
            fmt::format("rank {} makes a call in {}, in which rank {} of the same job has one out: "
                        "ranks that share a process have streams of their own",
                        owner.rank, text_of(stream.name), other)};
  }
  static Status streams_that_wait(const SharedStream& stream, const void* others_name,
                                  const StreamOwner& owner, int other) {
    return {SENNIT_INVALID_ARGUMENT,
            fmt::format("rank {} makes a call in {}, and rank {} of the same job has one out in "
                        "{}; CUDA has these two wait for one another: ranks that share a process "
                        "have streams of their own, created with CU_STREAM_NON_BLOCKING",
                        owner.rank, text_of(stream.name), other, text_of(others_name))};
  }

  Mutex mutex_;
  std::map<uint64_t, UsesOfJob> jobs_ SENNIT_GUARDED_BY(mutex_);
};

}  // namespace sennit::cuda
