// kernel_view.hpp: what the kernel knows of this rank's tcp connections: TCP_INFO of each socket.
//
// Unlike the rest of this transport it has a lock of its own, which is held while a socket is added
// or taken out, and for one question to the kernel at a time. So whoever asks neither waits for the
// engine nor keeps it waiting, and never asks about a descriptor that is somebody else's by then.
#pragma once

#include <map>
#include <vector>

#include "base/mutex.hpp"
#include "record/connections.hpp"

namespace sennit::tcp {

// By peer, the sockets that the kernel may be asked about. Any thread.
class KernelView {
 public:
  // The peer's connection is this socket, until remove(), which comes before it is closed.
  void add(int peer, int fd) SENNIT_EXCLUDES(mutex_);
  void remove(int peer) SENNIT_EXCLUDES(mutex_);
  // Of all, by peer. Any thread. Costs about a microsecond a connection.
  std::vector<ConnectionStatistics> read() const SENNIT_EXCLUDES(mutex_);

 private:
  mutable Mutex mutex_;
  std::map<int, int> sockets_ SENNIT_GUARDED_BY(mutex_);  // by peer
};

// Of one socket. Segments are counted in 32 bits, and begin again from 0. What an older kernel does
// not tell is 0. Nothing but the peer where it is none of TCP, or is not connected.
ConnectionStatistics kernel_statistics(int peer, int fd);

}  // namespace sennit::tcp
