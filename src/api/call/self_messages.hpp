// self_messages.hpp: sends and receives of a rank to itself, which wait for each other here and are
// copied when both are there. No transport sees them.
//
// A half that is waited for while its other half was not started is withdrawn: where the rank has
// one thread it would wait for ever. Any thread; a copy is made, or put into its stream, behind the
// lock.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <memory>

#include "api/call/call.hpp"
#include "base/mutex.hpp"
#include "base/status.hpp"

namespace sennit {

class SelfMessages {
 public:
  // How far a half has come.
  struct Meeting {
    explicit Meeting(bool handled) : has_handle(handled) {}
    const bool has_handle;            // somebody wants to know when it is copied
    std::atomic<bool> met{false};     // the other half has come
    std::atomic<bool> copied{false};  // and the bytes are where they belong
  };
  using Matched = std::shared_ptr<Meeting>;

  // Starts a half. Halves of one tag meet in the order in which they were started; SENNIT_MISMATCH,
  // as between two ranks, where they differ. `world_rank` and `comm` are for that error. `copy` is
  // for memory of a device: it puts the copy into the stream, and has `copied` called once the
  // stream has come past it. Where neither half has a handle that is empty.
  using Copied = std::function<void()>;
  using Copy = std::function<Status(void* to, const void* from, size_t bytes, Copied copied)>;
  Status start(const Call& call, const Matched& matched, uint32_t comm, int world_rank,
               const Copy& copy) SENNIT_EXCLUDES(mutex_);
  // Gives up one that nothing has come for, and returns the error that its caller gets. Ok where
  // something has: it stays as it is.
  Status withdraw(const Call& call, const Matched& matched) SENNIT_EXCLUDES(mutex_);

 private:
  struct Half {
    Call call;
    Matched matched;
  };
  Mutex mutex_;
  // Without their other half.
  std::deque<Half> sends_ SENNIT_GUARDED_BY(mutex_), receives_ SENNIT_GUARDED_BY(mutex_);
};

}  // namespace sennit
