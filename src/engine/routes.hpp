// routes.hpp: the transports of a rank, and which of them carries what goes to each peer: the
// first, by falling priority, that reaches it, chosen at first use.
//
// The peer chooses by itself, at its own first use, and the same. So where the one that reaches it
// fails here no other is tried: the peer is unreachable, and the error says why. Peers are world
// ranks. Not thread-safe: all calls are made under the engine's lock.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "transports/transport.hpp"

namespace sennit {

class Routes {
 public:
  // `missing`: what transports that could not be started said, for the error about an unreachable
  // peer.
  void set_transports(std::vector<std::unique_ptr<Transport>> transports, std::string missing);
  // addresses[rank][i] belongs to transport i; empty where that rank lacks it.
  void set_addresses(std::vector<std::vector<std::vector<std::byte>>> addresses);

  std::span<const std::unique_ptr<Transport>> transports() const { return transports_; }
  // Null: none reaches it.
  Transport* to(int peer) {
    const Route& route = routes_[static_cast<size_t>(peer)];
    return route.resolved ? route.transport : resolve(peer);
  }
  bool knows(int peer) const { return static_cast<size_t>(peer) < routes_.size(); }
  // Why no transport reaches the peer, after to() has tried. The control plane knows whether it is
  // dead, has left, or only cannot be reached; it decides.
  Status unreachable(int peer) const;

  // Which transports count: those that carry something for this rank, or those as well that its
  // peers need driven, also while nobody waits here.
  enum class Driven : uint8_t { used, used_or_tended };
  bool progress(Driven which, Completions& completions);
  void stalled();  // tells those in use that nothing has moved for long
  bool tends() const { return tends_; }
  // Whether one in use has a descriptor by which the kernel wakes who waits, and whether all have.
  bool wakes_waiters() const { return wakes_waiters_; }
  bool all_wake() const { return wakes_waiters_ && !some_wake_nobody_; }

  // What to poll before going to sleep.
  enum class Awaited : uint8_t { used, tended };
  struct Descriptors {
    std::array<int, 15> fds;
    size_t count = 0;
    bool all = true;          // false: one that counts has none, so sleep for short only
    bool some_moves = false;  // one has work already: do not sleep
  };
  Descriptors prepare_wait(Awaited which);

 private:
  struct Route {
    Transport* transport = nullptr;
    bool resolved = false;
    std::string trouble;  // what the transports that do not reach it said
    Status failed;        // the error of the one that does
  };
  Transport* resolve(int peer);

  std::vector<std::unique_ptr<Transport>> transports_;
  std::string missing_;
  std::vector<bool> used_;    // by transport: a peer is reached over it
  std::vector<bool> tended_;  // by transport: its peers need it driven, also while nobody waits
  bool tends_ = false;        // one of them is
  bool wakes_waiters_ = false;
  bool some_wake_nobody_ = false;
  std::vector<std::vector<std::vector<std::byte>>> addresses_;
  std::vector<Route> routes_;  // by peer
};

}  // namespace sennit
