// loopback.cpp: the transport between ranks that are threads of one process.
//
// A send is a ticket in the receiver's inbox; the receiver copies straight out of the sender's
// segments, or exposes them if there is one and it may, and puts the ticket into the sender's
// inbox. Nothing is buffered, so memory is bounded without credits. A ticket has one atomic state;
// whoever moves it out of `pending` decides: the receiver by taking it, the sender by cancelling.
// Same-process is proven by process id, a random number of the process and the endpoint's presence
// in a process-wide table. Threads: each instance under its own rank's lock; between instances only
// inboxes (a mutex each) and tickets. Cost: two uncontended locks and one copy per message.
#include <thread>
#include <utility>

#include <fmt/core.h>

#include "base/clock.hpp"
#include "transports/cancelled.hpp"
#include "transports/loopback_endpoint.hpp"
#include "transports/matcher.hpp"
#include "transports/peer_exports.hpp"
#include "transports/returns.hpp"
#include "transports/segments.hpp"
#include "transports/transport.hpp"

namespace sennit {
namespace {

using namespace loopback;

class Loopback final : public Transport {
 public:
  explicit Loopback(const TransportContext& context)
      : rank_(context.rank),
        peers_(static_cast<size_t>(context.size)),
        self_(std::make_shared<Endpoint>()) {
    address_ = Hub::instance().enter(self_);
  }

  ~Loopback() override {
    Hub::instance().leave(address_);
    const std::vector<std::weak_ptr<Endpoint>> linked = self_->close();
    for (Ticket& ticket : self_->tickets) withdraw(ticket);
    for (const std::weak_ptr<Endpoint>& weak : linked)
      if (const std::shared_ptr<Endpoint> other = weak.lock())
        other->push({NoticeKind::closed, rank_, nullptr, nullptr});
  }

  std::string_view name() const override { return "loopback"; }

  std::vector<std::byte> address() const override {
    std::vector<std::byte> out(sizeof(EndpointAddress));
    std::memcpy(out.data(), &address_, sizeof(EndpointAddress));
    return out;
  }

  Reach reach(int, std::span<const std::byte> address) override {
    return Hub::instance().find(address) ? Reach::same_process : Reach::none;
  }

  Status add_peer(int peer, std::span<const std::byte> address) override {
    // if it is gone: an event at first use
    peers_[static_cast<size_t>(peer)].endpoint = Hub::instance().find(address);
    return {};
  }

  void send(SendRequest& request) override {
    ThreadPeer& peer = link(request.peer);
    if (const Status* refused = refusal(request)) {
      returns_.add(request, *refused);
      return;
    }
    Ticket& ticket = new_ticket();
    ticket.state.store(TicketState::pending, std::memory_order_relaxed);
    ticket.request = &request;
    ticket.key = request.key;
    ticket.signature = request.signature;
    ticket.bytes = request.bytes;
    ticket.segments = request.segments;
    ticket.exported = request.exported;
    ticket.status = Status();
    if (peer.endpoint) peer.endpoint->push({NoticeKind::sent, rank_, &ticket, self_});
    messages_++;
  }

  void recv(RecvRequest& request) override {
    link(request.peer);
    if (const Status* refused = refusal(request)) {
      returns_.add(request, *refused);
      return;
    }
    while (Arrival* arrival = matcher_.post(request)) {
      if (deliver(request, take_ticket(arrival))) return;  // else the sender has withdrawn it
    }
  }

  bool has_come(int peer, const Key& key) override {
    link(peer);
    return matcher_.find_arrival(peer, key) != nullptr;
  }

  void release(RecvRequest& request) override {
    if (!request.exposed) return;
    auto* ticket = reinterpret_cast<Ticket*>(request.scratch[0]);
    finish(*ticket, request.peer);
    request.exposed = nullptr;
  }

  bool progress(Completions& completions) override {
    bool moved = false;
    if (self_->take_all(taken_)) {
      for (Notice& notice : taken_) handle(notice);
      moved = !taken_.empty();
      taken_.clear();
    }
    moved |= returns_.hand_over(completions);
    return moved;
  }

  void fail_peer(int peer, const Status& status) override {
    peers_[static_cast<size_t>(peer)].failed = status;
    hand_back([peer](const MessageRequest& request) { return request.peer == peer; }, status);
    matcher_.take_arrivals_if([peer](const Arrival& arrival) { return arrival.peer == peer; },
                              [this](Arrival& arrival) { drop(&arrival); });
  }

  void cancel(uint32_t comm, const Status& status) override {
    cancelled_.add(comm, status);
    hand_back([comm](const MessageRequest& request) { return request.key.comm == comm; }, status);
    matcher_.take_arrivals_if([comm](const Arrival& arrival) { return arrival.key.comm == comm; },
                              [this](Arrival& arrival) { drop(&arrival); });
  }

  void forget(const std::function<bool(uint32_t comm)>& over) override {
    cancelled_.forget(over);
    for (ThreadPeer& p : peers_) p.exports.forget(over);
    matcher_.take_arrivals_if([&](const Arrival& arrival) { return over(arrival.key.comm); },
                              [this](Arrival& arrival) { drop(&arrival); });
  }

  bool exposes_own_process() const override { return true; }

  bool exposes_devices(int peer) override {
    const ThreadPeer& p = peers_[static_cast<size_t>(peer)];
    return p.endpoint && p.exports.may_read();
  }
  bool reads_devices(int peer) const override {
    return peers_[static_cast<size_t>(peer)].exports.some_is_here();
  }
  bool is_mapped(int peer, uint32_t comm, const ExportedMemory& memory) override {
    ThreadPeer& p = link(peer);
    if (p.endpoint && !p.exports.was_told(memory)) {
      p.exports.told(memory);
      p.endpoint->push({NoticeKind::exported, rank_, nullptr, nullptr,
                        std::make_shared<const ExportedMemory>(memory)});
    }
    return p.exports.reads(memory, comm);
  }
  void takes_exported(int peer, uint32_t comm) override {
    ThreadPeer& p = peers_[static_cast<size_t>(peer)];
    if (!p.endpoint || !p.exports.has_to_tell(comm)) return;
    p.exports.told_takes(comm);
    p.endpoint->push({NoticeKind::takes, rank_, nullptr, nullptr, nullptr, comm});
  }
  std::vector<PeerMemory> unanswered() const override {
    std::vector<PeerMemory> all;
    if (unanswered_ == 0) return all;
    for (size_t peer = 0; peer < peers_.size(); peer++)
      peers_[peer].exports.append_unanswered(static_cast<int>(peer), &all);
    return all;
  }
  bool answer(const PeerMemory& memory, std::byte* here) override {
    ThreadPeer& p = peers_[static_cast<size_t>(memory.peer)];
    if (!p.exports.answer(memory.memory, here)) return false;
    unanswered_--;
    if (here && p.endpoint)
      p.endpoint->push({NoticeKind::mapped, rank_, nullptr, nullptr,
                        std::make_shared<const ExportedMemory>(memory.memory)});
    return true;
  }

  int event_fd() const override { return self_->event_fd; }

  bool prepare_wait() override {
    if (!returns_.empty()) return false;
    return self_->prepare_wait();
  }

  std::string statistics() const override {
    return fmt::format(
        "messages sent {}, bytes received {}, of them exposed {}; messages exposed, of devices {}",
        messages_, bytes_received_, bytes_exposed_, exposed_of_devices_);
  }

 private:
  struct ThreadPeer {
    std::shared_ptr<Endpoint> endpoint;
    bool linked = false;
    bool reported = false;
    Status failed;
    PeerExports exports;
  };

  // At first use of a peer: asks to hear of its closing.
  ThreadPeer& link(int rank) {
    ThreadPeer& peer = peers_[static_cast<size_t>(rank)];
    if (peer.linked) return peer;
    peer.linked = true;
    if (!peer.endpoint || !peer.endpoint->tell_when_closed(self_)) report_closed(rank);
    return peer;
  }

  void report_closed(int rank) {
    ThreadPeer& peer = peers_[static_cast<size_t>(rank)];
    if (peer.reported) return;
    peer.reported = true;
    returns_.add_event(
        rank, Status(SENNIT_PEER_FAILED, fmt::format("rank {} closed its endpoint", rank)));
  }

  const Status* refusal(const MessageRequest& request) const {
    const ThreadPeer& peer = peers_[static_cast<size_t>(request.peer)];
    if (!peer.failed.ok()) return &peer.failed;
    return cancelled_.find(request.key.comm);
  }

  Ticket& new_ticket() {
    if (!free_tickets_.empty()) {
      Ticket* ticket = free_tickets_.back();
      free_tickets_.pop_back();
      return *ticket;
    }
    return self_->tickets.emplace_back();
  }

  void handle(Notice& notice) {
    switch (notice.kind) {
      case NoticeKind::closed:
        report_closed(notice.from);
        break;
      case NoticeKind::exported:
        peers_[static_cast<size_t>(notice.from)].exports.add(*notice.memory);
        unanswered_++;
        break;
      case NoticeKind::mapped:
        peers_[static_cast<size_t>(notice.from)].exports.mapped(notice.memory->begin);
        break;
      case NoticeKind::takes:
        peers_[static_cast<size_t>(notice.from)].exports.takes(notice.comm);
        break;
      case NoticeKind::finished: {
        Ticket& ticket = *notice.ticket;
        if (SendRequest* request = std::exchange(ticket.request, nullptr)) {
          request->ready_ns = request->first_ns = ticket.taken_ns;
          returns_.add(*request, std::move(ticket.status));
        }
        free_tickets_.push_back(&ticket);
        break;
      }
      case NoticeKind::sent: {
        Ticket& ticket = *notice.ticket;
        ThreadPeer& peer = peers_[static_cast<size_t>(notice.from)];
        // it closed before add_peer()
        if (!peer.endpoint) peer.endpoint = std::move(notice.source);
        if (RecvRequest* request = matcher_.take_receive(notice.from, ticket.key)) {
          if (!deliver(*request, ticket)) recv(*request);  // withdrawn: post again
          break;
        }
        if (!peer.failed.ok() || cancelled_.find(ticket.key.comm) != nullptr) {
          forget(ticket, notice.from);
          break;
        }
        Arrival* arrival = matcher_.keep(notice.from, ticket.key, ticket.signature, ticket.bytes);
        SENNIT_CHECK(arrival);  // the same key sent twice
        arrival->handle[0] = reinterpret_cast<uint64_t>(&ticket);
        break;
      }
    }
  }

  Ticket& take_ticket(Arrival* arrival) {
    auto* ticket = reinterpret_cast<Ticket*>(arrival->handle[0]);
    matcher_.recycle(arrival);
    return *ticket;
  }

  void give_back(Ticket& ticket, int peer) {
    peers_[static_cast<size_t>(peer)].endpoint->push(
        {NoticeKind::finished, rank_, &ticket, nullptr});
  }

  // False if the sender has withdrawn the message.
  bool deliver(RecvRequest& request, Ticket& ticket) {
    TicketState state = TicketState::pending;
    if (!ticket.state.compare_exchange_strong(state, TicketState::copying,
                                              std::memory_order_acq_rel)) {
      give_back(ticket, request.peer);
      return false;
    }
    ticket.taken_ns = request.ready_ns = request.first_ns = now_ns();
    bytes_received_ += ticket.bytes;
    request.exposed = nullptr;
    returns_.add_checked(request);
    if (!check_match(request, ticket.signature, ticket.bytes)) {
      ticket.status = Status(SENNIT_MISMATCH,
                             fmt::format("rank {} made a different call (communicator {}, call {})",
                                         rank_, ticket.key.comm, ticket.key.seq));
      finish(ticket, request.peer);
    } else if (ticket.exported) {
      const std::byte* const here = imported(request.peer, ticket);
      request.status = here && request.may_import ? Status() : not_imported(request.peer);
      if (request.status.ok())
        expose(request, ticket, here);
      else
        finish(ticket, request.peer);
    } else if (request.may_expose && ticket.segments.size() == 1 && ticket.bytes > 0) {
      request.status = Status();
      expose(request, ticket, ticket.segments[0].data);
    } else {
      request.status = Status();
      copy_segments(request.segments, ticket.segments);
      finish(ticket, request.peer);
    }
    return true;
  }

  const std::byte* imported(int peer, const Ticket& ticket) const {
    const Segment& segment = ticket.segments[0];
    return peers_[static_cast<size_t>(peer)].exports.find(reinterpret_cast<uint64_t>(segment.data),
                                                          segment.bytes);
  }

  void expose(RecvRequest& request, Ticket& ticket, const std::byte* data) {
    request.exposed = data;
    request.scratch[0] = reinterpret_cast<uint64_t>(&ticket);
    bytes_exposed_ += ticket.bytes;
    if (ticket.exported) exposed_of_devices_++;
    ticket.state.store(TicketState::exposed, std::memory_order_release);
  }

  void finish(Ticket& ticket, int peer) {
    ticket.state.store(TicketState::finished, std::memory_order_release);
    give_back(ticket, peer);
  }

  void forget(Ticket& ticket, int peer) {
    TicketState state = TicketState::pending;
    if (!ticket.state.compare_exchange_strong(state, TicketState::dropped,
                                              std::memory_order_acq_rel))
      give_back(ticket, peer);
  }

  void drop(Arrival* arrival) {
    const int peer = arrival->peer;
    forget(take_ticket(arrival), peer);
  }

  // Takes a send back. False if the receiver has it (then it comes back by itself: at once, or
  // after release()).
  bool withdraw(Ticket& ticket) {
    TicketState state = TicketState::pending;
    if (ticket.state.compare_exchange_strong(state, TicketState::cancelled,
                                             std::memory_order_acq_rel))
      return true;
    if (state == TicketState::dropped) {
      free_tickets_.push_back(&ticket);
      return true;
    }
    while (ticket.state.load(std::memory_order_acquire) == TicketState::copying)
      std::this_thread::yield();
    return false;
  }

  template <typename Which>
  void hand_back(Which which, const Status& status) {
    for (Ticket& ticket : self_->tickets) {
      if (!ticket.request || !which(*ticket.request) || !withdraw(ticket)) continue;
      returns_.add(*std::exchange(ticket.request, nullptr), status);
    }
    matcher_.take_receives_if(which, [&](RecvRequest& request) { returns_.add(request, status); });
  }

  const int rank_;
  std::vector<ThreadPeer> peers_;
  std::shared_ptr<Endpoint> self_;
  EndpointAddress address_;
  Matcher matcher_;
  std::vector<Notice> taken_;
  std::vector<Ticket*> free_tickets_;
  Cancelled cancelled_;
  Returns returns_;
  size_t unanswered_ = 0;  // imports, of all peers
  uint64_t messages_ = 0, bytes_received_ = 0, bytes_exposed_ = 0, exposed_of_devices_ = 0;
};

}  // namespace

SENNIT_TRANSPORT_ENTRY(loopback, 100, Reach::same_process,
                       [](const TransportContext& context) -> Result<std::unique_ptr<Transport>> {
                         return std::unique_ptr<Transport>(std::make_unique<Loopback>(context));
                       })

}  // namespace sennit
