// eager_credit.hpp: how much may go early to one peer, and come early from it: a window for each
// communicator, which comes back by the quarter.
//
// Not thread-safe. Cost: a walk over the communicators that have exchanged anything with the peer.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace sennit::ucx {

class EagerCredit {
 public:
  static constexpr uint64_t kWindowBytes = 64 << 10;
  static constexpr uint64_t kOverheadBytes = 128;  // what a message counts besides its bytes

  // As the sender of a message of `bytes`: whether there is room for it, which it takes.
  bool spend(uint32_t comm, size_t bytes) {
    CommWindow& window = at(comm);
    if (window.in_flight + bytes + kOverheadBytes > kWindowBytes) return false;
    window.in_flight += bytes + kOverheadBytes;
    return true;
  }
  // As a sender: so much comes back.
  void take_back(uint32_t comm, uint64_t returned) {
    CommWindow& window = at(comm);
    window.in_flight -= std::min(window.in_flight, returned);
  }
  // As the receiver of a message of `bytes`, which is consumed: what is to be returned to the peer
  // now; mostly nothing.
  uint64_t consumed(uint32_t comm, size_t bytes) {
    CommWindow& window = at(comm);
    window.to_return += bytes + kOverheadBytes;
    if (window.to_return < kWindowBytes / 4) return 0;
    return std::exchange(window.to_return, 0);
  }
  // Gives back what is kept of communicators that `over(comm)` holds for.
  template <typename Over>
  void forget(Over over) {
    std::erase_if(windows_, [&](const CommWindow& window) { return over(window.comm); });
  }

 private:
  struct CommWindow {
    uint32_t comm = 0;
    uint64_t in_flight = 0;  // sent and not returned by the peer
    uint64_t to_return = 0;  // of the peer, consumed here
  };
  CommWindow& at(uint32_t comm) {
    for (CommWindow& window : windows_)
      if (window.comm == comm) return window;
    windows_.push_back({comm, 0, 0});
    return windows_.back();
  }

  std::vector<CommWindow> windows_;
};

}  // namespace sennit::ucx
