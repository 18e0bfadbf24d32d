// switchboard.hpp: all connections of one rank's control plane, by number, strangers who have not
// proved themselves among them, and a descriptor kept for when there are no others. Control thread
// only, but for the counters.
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

class Switchboard final : public Network {
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

  // For the entrance (control/entrance.hpp).
  Owner& owner() { return *owner_; }
  void take_in(int fd, const Address& from);  // a stranger
  // The oldest one that may go, so that others get a turn; 0: all have to be borne with yet.
  uint64_t stranger_to_evict() const;
  size_t strangers() const { return strangers_.size(); }
  bool give_spare_descriptor();  // false: it is given, or not needed

  // For the loop.
  bool hold_spare_descriptor();  // false: errno says why there is none
  void serve(uint64_t id);       // something is ready
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
  HandshakeConfig handshake_config() const;
  void log_stranger(const Link& link, const std::string& reason);

  static constexpr uint64_t kFirstConnectionId = 16;  // smaller ones: the bell and the entrance

  Self& self_;
  Poller& poller_;
  Owner* owner_ = nullptr;
  uint64_t next_id_ = kFirstConnectionId;
  std::map<uint64_t, std::unique_ptr<Connection>> connections_;
  std::set<uint64_t> strangers_;  // and visitors
  int spare_fd_ = -1;  // given up for one last connection when there are no descriptors left
  int64_t stranger_log_ms_ = 0;
  uint64_t strangers_unlogged_ = 0;
  struct Counters {
    std::atomic<uint64_t> frames_out = 0, frames_in = 0, start_frames = 0, connections = 0,
                          refused = 0;
  } counters_;
};

}  // namespace sennit::control
