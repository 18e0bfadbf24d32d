// device_stream.hpp: the stream that a communicator's calls on device memory go into, and whether a
// call is one of them.
//
// Whose memory a call is on is asked of the device at each call. What lies in the host's own memory
// is called on as without a stream, once the stream has come to its end. Any thread; the lock is
// held for no question to the device.
#pragma once

#include <atomic>

#include "accelerator/accelerator.hpp"
#include "api/call/call.hpp"
#include "api/call/stream_calls.hpp"
#include "base/mutex.hpp"
#include "base/status.hpp"

namespace sennit {

class DeviceStream {
 public:
  // `rank`: this one's in the communicator.
  explicit DeviceStream(int rank) : rank_(rank) {}
  DeviceStream(const DeviceStream&) = delete;
  DeviceStream& operator=(const DeviceStream&) = delete;

  bool is_set() const { return is_set_; }
  // Calls that come go into this one. Of one device at any time: SENNIT_INVALID_ARGUMENT for a
  // stream of another device than before.
  Status set(Accelerator* device, void* stream) SENNIT_EXCLUDES(mutex_);

  // Where the call goes: no accelerator means that it is on the host's memory, and waits for
  // nothing in the stream any more. An error where its memory is not there, or not all of a kind.
  Result<StreamTarget> target_of(const Call& call) const SENNIT_EXCLUDES(mutex_);
  // Whose memory the scalar of an op is in, which is to be read in the stream's order.
  Result<MemoryKind> kind_of_scalar(const void* scalar) const SENNIT_EXCLUDES(mutex_);

 private:
  StreamTarget target() const SENNIT_EXCLUDES(mutex_);

  const int rank_;
  std::atomic<bool> is_set_{false};
  mutable Mutex mutex_;
  StreamTarget target_ SENNIT_GUARDED_BY(mutex_);
};

}  // namespace sennit
