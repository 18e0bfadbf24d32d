// sockets.hpp: the sockets of one rank's control plane without its plane: poller, switchboard and
// entrance, on the loopback, and an owner that only writes down what it is told.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <optional>
#include <vector>

#include "control/entrance.hpp"
#include "control/poller.hpp"
#include "control/switchboard.hpp"
#include "tests/control/fake_network.hpp"

namespace sennit::control::test {

// One rank's sockets, and what their owner was told. The test's thread is the control thread:
// nothing moves but in round().
struct Sockets final : Channels::Owner {
  Self self;
  Poller poller;
  Switchboard switchboard{self, poller};
  Entrance entrance{self, poller, switchboard};

  std::vector<int> proven;  // ranks
  std::vector<Said> heard;  // from whom, and what
  std::vector<Ending> endings;
  int dropped_channels = 0, times_without_descriptors = 0;
  int64_t later_ms = 0;            // added to the clock
  std::optional<Role> settles_as;  // strangers, as soon as they have said anything

  explicit Sockets(const BootstrapOptions& options) : self(options, {}) {
    self.phase = Phase::running;
    self.now_ms = now_ms();
    switchboard.set_owner(this);
    EXPECT_TRUE(poller.open());
  }
  explicit Sockets(int rank) : Sockets(options_of(rank, 4)) {}

  void listen() { EXPECT_TRUE(entrance.open(*parse_address("127.0.0.1", 0)).ok()); }
  Channel* connect(const Sockets& to, Role role = Role::parent) {
    int error = 0;
    return switchboard.connect(to.entrance.address(), role, to.self.rank, &error);
  }
  // One round of the control thread.
  void round(int64_t wait_ms) {
    switchboard.watch();
    const std::vector<uint64_t> ready = poller.wait(wait_ms);
    self.now_ms = now_ms() + later_ms;
    for (const uint64_t id : ready) {
      if (id == Entrance::kId)
        entrance.serve();
      else
        switchboard.serve(id);
    }
    switchboard.tick();
    entrance.tick();
  }

  // Channels::Owner
  void opened(Channel& channel) override { proven.push_back(channel.rank); }
  void arrived(Channel& channel, const ReceivedFrame& frame) override {
    heard.push_back({channel.rank, frame});
    if (settles_as && channel.role == Role::stranger)
      switchboard.settle(channel, *settles_as, channel.rank);
  }
  void dropped(const Channel&) override { dropped_channels++; }
  void ended(const Ending& ending) override { endings.push_back(ending); }
  void out_of_descriptors() override { times_without_descriptors++; }
};

// Rounds of all of them until `condition` holds. False: it did not within 20 s.
inline bool run_until(const std::vector<Sockets*>& all, const std::function<bool()>& condition) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    for (Sockets* const one : all) one->round(1);
  }
  return true;
}

}  // namespace sennit::control::test
