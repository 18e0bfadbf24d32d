// switchboard.hpp: all connections of one rank's control plane, by number, strangers who have not
// proved themselves among them. Control thread only, but for statistics().
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "control/channels.hpp"
#include "control/connection.hpp"
#include "control/poller.hpp"
#include "control/refusal_log.hpp"
#include "control/self.hpp"
#include "control/spare_descriptor.hpp"

namespace sennit::control {

// Owns every connection. set_owner() comes before anything else; the owner is called from within
// the functions for the loop.
class Switchboard final : public Channels {
 public:
  Switchboard(Self& self, Poller& poller) : self_(self), poller_(poller), spare_(poller) {}
  void set_owner(Owner* owner) { owner_ = owner; }

  // Channels
  Channel* find(uint64_t id) override { return connection(id); }
  void for_each(const std::function<void(Channel&)>& visit) override;
  Channel* connect(const Address& address, Role role, int rank, int* error) override;
  void send(Channel& channel, const EncodedFrame& frame) override;
  void shut(Channel& channel) override;
  void settle(Channel& channel, Role role, int rank) override;
  void drop(uint64_t id) override;
  void lost(uint64_t id, End end, const std::string& reason) override;
  Address near_end(const Channel& channel) const override;
  Address far_end(const Channel& channel) const override;
  bool has_spare_descriptor() const override { return spare_.held(); }

  // For the entrance (control/entrance.hpp).
  Owner& owner() { return *owner_; }
  void take_in(int fd, const Address& from);  // a stranger
  // The oldest one that may go, so that others get a turn; 0: all have to be borne with yet.
  uint64_t stranger_to_evict() const;
  size_t strangers() const { return strangers_.size(); }
  SpareDescriptor& spare_descriptor() { return spare_; }

  // For the loop.
  void serve(uint64_t id);      // something is ready
  void tick();                  // time-outs of strangers and of connection attempts
  void watch();                 // tells the poller what each connection waits for
  void excuse(int64_t gap_ms);  // this process did not run for so long
  bool empty() const { return connections_.empty(); }
  void clear() { connections_.clear(); }
  std::string statistics() const;  // any thread

 private:
  Connection* connection(uint64_t id) const;
  static Connection& connection(Channel& channel) { return static_cast<Connection&>(channel); }
  Connection& add(int fd, Handshake handshake, Role role, int rank, bool connecting);
  HandshakeConfig handshake_config() const;

  static constexpr uint64_t kFirstConnectionId = 16;  // smaller ones: the bell and the entrance

  Self& self_;
  Poller& poller_;
  Owner* owner_ = nullptr;
  uint64_t next_id_ = kFirstConnectionId;
  std::map<uint64_t, std::unique_ptr<Connection>> connections_;
  std::set<uint64_t> strangers_;  // and visitors
  SpareDescriptor spare_;
  RefusalLog refusals_;
  // Since the start, over all connections.
  struct Counters {
    std::atomic<uint64_t> frames_out = 0, frames_in = 0, start_frames = 0, connections = 0;
  } counters_;
};

}  // namespace sennit::control
