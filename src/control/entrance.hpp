// entrance.hpp: where one rank's control plane listens, and takes in whoever knocks: not too many
// at once, and as long as there are descriptors and memory. Control thread only.
#pragma once

#include <cstdint>
#include <string>

#include "control/channels.hpp"
#include "control/poller.hpp"
#include "control/self.hpp"
#include "control/switchboard.hpp"

namespace sennit::control {

// At once; a rank is one until it has said what it wants.
inline constexpr size_t kMostStrangers = 256;

class Entrance final : public Door {
 public:
  static constexpr uint64_t kId = 1;  // the poller's

  Entrance(Self& self, Poller& poller, Switchboard& switchboard)
      : self_(self), poller_(poller), switchboard_(switchboard) {}
  ~Entrance() override;

  // Door
  Status open(const Address& address) override;
  void take_over(int listening_fd) override;
  bool is_open() const override { return listener_ >= 0; }
  Address address() const override { return local_address(listener_); }
  uint16_t port() const override { return port_; }
  Status move() override;
  void close() override;

  // For the loop.
  void serve();  // somebody knocks
  void tick();

 private:
  bool evict(const char* reason);
  bool wait_for_descriptors();
  void warn(const std::string& text);
  void pause();
  void resume();

  Self& self_;
  Poller& poller_;
  Switchboard& switchboard_;
  int listener_ = -1;
  int former_listener_ = -1;  // bound, but does not listen any more
  bool paused_ = false;
  int64_t resume_ms_ = 0;          // at the latest, where it is paused
  size_t strangers_at_pause_ = 0;  // one of them less may be all that it takes
  uint16_t port_ = 0;
  int64_t log_ms_ = INT64_MIN / 2;  // of the last warning
};

}  // namespace sennit::control
