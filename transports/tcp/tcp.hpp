// tcp.hpp: the transport between hosts on plain Ethernet: what messages mean, over the connections
// (transports/tcp/peer_connection.hpp) that the manager (transports/tcp/connection_manager.hpp)
// makes. See transports/tcp/tcp.cpp.
#pragma once

#include <memory>
#include <vector>

#include "transports/returns.hpp"
#include "transports/tcp/connection_manager.hpp"
#include "transports/tcp/kernel_view.hpp"
#include "transports/tcp/messages.hpp"

namespace sennit::tcp {

class Tcp final : public Transport, private ConnectionHandler {
 public:
  static Result<std::unique_ptr<Transport>> make(const TransportContext& context);
  ~Tcp() override;

  std::string_view name() const override { return "tcp"; }
  std::vector<std::byte> address() const override { return manager_->address().encode(); }
  Reach reach(int peer, std::span<const std::byte> address) override;
  std::string obstacle() const override;
  Status add_peer(int peer, std::span<const std::byte> address) override;
  void send(SendRequest& request) override;
  void recv(RecvRequest& request) override;
  void release(RecvRequest&) override {}
  bool has_come(int peer, const Key& key) override { return messages_.has_come(peer, key); }
  bool progress(Completions& completions) override;
  void fail_peer(int peer, const Status& status) override;
  void cancel(uint32_t comm, const Status& status) override;
  void forget(const std::function<bool(uint32_t comm)>& over) override;
  std::optional<WireOverhead> wire_overhead(bool in_memory) const override;
  int event_fd() const override { return epoll_fd_; }
  bool prepare_wait() override;
  void stalled() override;
  std::vector<ConnectionStatistics> connections() const override { return kernel_.read(); }
  std::string statistics() const override;

 private:
  struct RemotePeer {
    SocketAddress address;
    std::unique_ptr<PeerConnection> connection;  // made at first use
    bool known = false;                          // has an address
    bool broken = false;                         // its connection failed, which was reported
    bool busy = false;                           // in busy_
    Status failed;                               // by fail_peer()
  };

  explicit Tcp(const TransportContext& context);
  RemotePeer& at(int peer) { return peers_[static_cast<size_t>(peer)]; }
  PeerConnection& connection_to(int peer);
  const Status* refusal(const MessageRequest& request) const;
  void flush(PeerConnection& connection);
  void read(PeerConnection& connection, bool to_the_end);
  void mark_busy(PeerConnection& connection);
  void break_connection(int peer, const Status& status);
  void shut(PeerConnection& connection);
  void linger();

  template <typename Which>
  void hand_back(Which which, const Status& status);

  bool wants_connection(int peer) override;
  void on_connection(int peer, int fd, const Handshake& handshake) override;
  void on_call_failed(int peer, const Status& status) override { break_connection(peer, status); }

  const size_t window_bytes_;
  const bool sealed_;
  const std::string interface_;  // its address, numeric
  int epoll_fd_ = -1;
  std::unique_ptr<ConnectionManager> manager_;
  KernelView kernel_;
  std::vector<RemotePeer> peers_;
  std::vector<int> in_use_;  // peers with a connection
  std::vector<int> busy_;    // connections with more to move than one turn allows
  std::vector<int> turn_;    // the same, while their turn runs
  Returns returns_;
  Messages messages_;
};

}  // namespace sennit::tcp
