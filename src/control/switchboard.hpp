// switchboard.hpp: all sockets of one rank's control plane: connections by number, the one it
// listens on, strangers who have not proved themselves yet, and a descriptor kept for when there
// are no others. Control thread only, but for the counters.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "control/connection.hpp"
#include "control/network.hpp"
#include "control/poller.hpp"
#include "control/self.hpp"

namespace sennit::control {

// At once; a rank is one until it has said what it wants.
inline constexpr size_t kMostStrangers = 256;

class Switchboard final : public Network, public Door {
 public:
  Switchboard(Self& self, Poller& poller) : self_(self), poller_(poller) {}
  ~Switchboard() override;
  void set_owner(Owner* owner) { owner_ = owner; }

  // Network
  Link* find(uint64_t id) override { return connection(id); }
  void for_each(const std::function<void(Link&)>& visit) override;
  Link* connect(const Address& address, Role role, int rank, int* error) override;
  void send(Link& link, const Buffer& frame) override;
  void shut(Link& link) override;
  void settle(Link& link, Role role, int rank) override;
  void drop(uint64_t id) override;
  void lost(uint64_t id, End end, const std::string& reason) override;
  Address near_end(const Link& link) const override;
  Address far_end(const Link& link) const override;
  bool has_spare_descriptor() const override { return spare_fd_ >= 0; }

  // Door
  Status open(const Address& address) override;
  void take_over(int listening_fd) override;
  bool is_open() const override { return listener_ >= 0; }
  Address address() const override { return local_address(listener_); }
  uint16_t port() const override { return listener_port_; }
  Status move() override;
  void close() override;

  // For the loop.
  bool hold_spare_descriptor();  // false: errno says why there is none
  void serve(uint64_t id);       // something is ready: poller's id
  void tick();                   // time-outs of strangers and of connection attempts
  void watch();                  // tells the poller what each connection waits for
  void excuse(int64_t gap_ms);   // this process did not run for so long
  bool empty() const { return connections_.empty(); }
  void clear() { connections_.clear(); }
  std::string statistics() const;  // any thread

 private:
  Connection* connection(uint64_t id) const;
  static Connection& connection(Link& link) { return static_cast<Connection&>(link); }
  Connection& add(int fd, Handshake handshake, Role role, int rank, bool connecting);
  void drive(uint64_t id);
  HandshakeConfig handshake_config() const;
  bool give_spare_descriptor();
  uint64_t stranger_to_evict() const;
  void accept_all();
  bool evict(const char* reason);
  bool wait_for_descriptors();
  void pause(bool paused);
  void log_stranger(const Link& link, const std::string& reason);

  static constexpr uint64_t kListenerId = 1;
  static constexpr uint64_t kFirstConnectionId = 16;

  Self& self_;
  Poller& poller_;
  Owner* owner_ = nullptr;
  uint64_t next_id_ = kFirstConnectionId;
  std::map<uint64_t, std::unique_ptr<Connection>> connections_;
  std::set<uint64_t> strangers_;  // and visitors
  int listener_ = -1;
  int former_listener_ = -1;  // bound, but does not listen any more
  bool paused_ = false;
  uint16_t listener_port_ = 0;
  int spare_fd_ = -1;  // given up for one last connection when there are no descriptors left
  int64_t stranger_log_ms_ = 0, descriptor_log_ms_ = INT64_MIN / 2;
  uint64_t strangers_unlogged_ = 0;
  struct Counters {
    std::atomic<uint64_t> frames_out = 0, frames_in = 0, start_frames = 0, connections = 0,
                          refused = 0;
  } counters_;
};

}  // namespace sennit::control
