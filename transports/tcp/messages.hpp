// messages.hpp: what messages over tcp mean: posted receives, early ones, announcements, grants.
//
// A small (eager) message goes at once as long as the window of its (communicator, peer) lasts; the
// receiver keeps it until it is asked for. Any other message moves when its receiver is ready: a
// posted receive of a large message says so to the peer by itself, so usually the sender finds the
// grant when it comes; otherwise the send is announced and answered. Payload of large messages goes
// from segments to segments without a copy of ours. Grants, announcements and early messages are
// found by (peer, Key), so the order of posting means nothing. Memory: a window per (communicator,
// peer). Threads: the engine's lock.
#pragma once

#include <memory>
#include <set>
#include <vector>

#include "transports/cancelled.hpp"
#include "transports/matcher.hpp"
#include "transports/returns.hpp"
#include "transports/tcp/peer_connection.hpp"

namespace sennit::tcp {

class Messages final : public MessageHandler {
 public:
  // Messages of more than eager_bytes wait for their receiver. What ends goes to `returns`.
  Messages(size_t eager_bytes, Returns& returns) : eager_bytes_(eager_bytes), returns_(returns) {}

  // To and from the peer of `peer_connection`; whether something is now to be written there.
  void send(PeerConnection& connection, SendRequest& request);
  bool recv(PeerConnection& connection, RecvRequest& request);

  bool has_come(int peer, const Key& key) const {
    return matcher_.find_arrival(peer, key) != nullptr;
  }

  // The status that requests of a communicator end with at once, or nullptr.
  const Status* cancelled(uint32_t comm) const { return cancelled_.find(comm); }
  void cancel(uint32_t comm, const Status& status) { cancelled_.add(comm, status); }
  // Ends what `which` holds for, but for what the connections have.
  template <typename Which>
  void hand_back(Which which, const Status& status) {
    const auto back = [&](auto& request) { returns_.add(request, status); };
    waiting_.remove_if(which, back);
    matcher_.take_receives_if(which, back);
    matcher_.drop_arrivals_if(which);
    grants_.remove_if(which, [this](Grant& grant) { free_grants_.push_back(&grant); });
  }
  void forget(const std::function<bool(uint32_t comm)>& over);
  // Peers that something is awaited from: a message, or leave to send one.
  std::set<int> awaited() const;
  uint64_t sent() const { return sent_; }

  Status on_message(PeerConnection& connection, const WireHeader& header,
                    std::span<const std::byte> bytes) override;
  RecvRequest* on_first_piece(PeerConnection& connection, const WireHeader& header) override;
  void on_received(RecvRequest& request) override { returns_.add(request); }
  // It stays pending until its communicator is cancelled here as well.
  void on_given_up(PeerConnection& connection, RecvRequest& request) override;
  void on_sent(SendRequest& request) override { returns_.add(request); }

 private:
  struct Grant {  // a ready that came before its send
    int peer = -1;
    Key key;
    uint64_t signature = 0;
    size_t bytes = 0;
    uint64_t came_ns = 0;
  };

  // A send meets what its receiver expects.
  void match_send(PeerConnection& connection, SendRequest& request, uint64_t signature,
                  size_t bytes, uint64_t ready_ns);
  void take_arrival(PeerConnection& connection, RecvRequest& request, Arrival& arrival);
  Status on_eager(PeerConnection& connection, const WireHeader& header,
                  std::span<const std::byte> bytes);
  void on_announce(PeerConnection& connection, const WireHeader& header);
  void on_ready(PeerConnection& connection, const WireHeader& header);
  void on_refuse(PeerConnection& connection, const WireHeader& header);

  const size_t eager_bytes_;
  Returns& returns_;
  Matcher matcher_;
  KeyTable<SendRequest> waiting_;  // sends that have been announced
  KeyTable<Grant> grants_;
  std::vector<std::unique_ptr<Grant>> grant_pool_;
  std::vector<Grant*> free_grants_;
  Cancelled cancelled_;
  uint64_t sent_ = 0;
};

}  // namespace sennit::tcp
