// spare_descriptor.hpp: a descriptor that is kept for the moment when there are no others: for one
// last connection, to tell that there are none, to be told the end of a start, or to ask whether a
// rank lives. Control thread only.
#pragma once

#include <utility>

#include "base/net/socket.hpp"
#include "base/process/descriptors.hpp"
#include "control/poller.hpp"

namespace sennit::control {

class SpareDescriptor {
 public:
  explicit SpareDescriptor(const Poller& poller) : poller_(poller) {}  // which is open by hold()
  ~SpareDescriptor() { close_socket(fd_); }
  SpareDescriptor(const SpareDescriptor&) = delete;
  SpareDescriptor& operator=(const SpareDescriptor&) = delete;

  bool held() const { return fd_ >= 0; }
  // Takes one, if none is held. False: errno says why there is none.
  bool hold() {
    if (fd_ < 0) fd_ = poller_.spare_descriptor();
    return fd_ >= 0;
  }
  // Makes room for one connection. False: it is given already, or others are left.
  bool give() {
    if (fd_ < 0 || descriptors_left() > 0) return false;
    close_socket(std::exchange(fd_, -1));
    return true;
  }

 private:
  const Poller& poller_;
  int fd_ = -1;
};

}  // namespace sennit::control
