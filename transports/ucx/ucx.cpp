// ucx.cpp: the ucx transport: messages, matching, windows. See transports/ucx/ucx.hpp.
#include "transports/ucx/ucx.hpp"

#include <algorithm>
#include <utility>

#include <fmt/core.h>

#include "base/clock.hpp"
#include "base/log.hpp"
#include "base/process/descriptors.hpp"
#include "base/process/forked.hpp"
#include "transports/segments.hpp"
#include "transports/ucx/rdma.hpp"

namespace sennit::ucx {
namespace {

constexpr int kProgressRounds = 16;
// devices, event loops, shared memory; UCX 1.13 takes 25 at least
constexpr size_t kOwnDescriptors = 64;
// without RDMA: sockets, two where both sides connect at once
constexpr size_t kDescriptorsPerPeer = 2;
constexpr size_t kDescriptorsToConnect = 8;  // at the least

}  // namespace

// ---- start, peers and end ----

Result<std::unique_ptr<Transport>> UcxTransport::make(const TransportContext& context) {
  const bool rdma = has_rdma();
  // Not even started where it would not be used, or not with too few descriptors: UCX ends the
  // process when it runs out of them.
  if (!context.asked_for && !rdma)
    return Status(SENNIT_UNSUPPORTED,
                  "ucx: no RDMA device here that is up and that this process may open; name it in "
                  "SENNIT_TRANSPORTS on all ranks to use it all the same");
  // In a child UCX takes its parent's thread for alive, and adds to the set of descriptors that
  // they share.
  static const Origin first_use;
  if (first_use.forked())
    return Status(
        SENNIT_UNSUPPORTED,
        "ucx: this process was made by fork() from one that uses UCX, which works in one of them "
        "only; exec a program first, or use SENNIT_TRANSPORTS=shm,tcp");
  if (!Library::get().usable())
    return Status(SENNIT_UNSUPPORTED, "ucx: " + Library::get().why_not());
  const size_t needed =
      kOwnDescriptors + (rdma ? 0 : kDescriptorsPerPeer * static_cast<size_t>(context.size));
  if (const size_t left = reserve_descriptors(needed); left < needed)
    return Status(SENNIT_OUT_OF_RESOURCES, "ucx: " + descriptors_lacking("UCX", needed, left));
  std::unique_ptr<UcxTransport> transport(new UcxTransport(context, rdma));
  SENNIT_RETURN_IF_ERROR(transport->start());
  return std::unique_ptr<Transport>(std::move(transport));
}

Status UcxTransport::start() {
  ucp_am_handler_param_t handler{};
  handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                       UCP_AM_HANDLER_PARAM_FIELD_ARG;
  handler.id = kActiveMessageId;
  handler.cb = on_message;
  handler.arg = this;
  return worker_.start(context_, handler);
}

UcxTransport::~UcxTransport() {
  if (!worker_.started()) return;
  worker_.flush();  // then nothing is waited for
  worker_.settle_connections(gave_up_);
  std::vector<RemoteWorker*> known_now;  // to close one may make more known
  for (auto& [rank, p] : peers_) known_now.push_back(p.get());
  for (RemoteWorker* const p : known_now) close(*p);
  // Only now: before, it would tell the senders that all is well.
  matcher_.take_arrivals_if([](const Arrival&) { return true; },
                            [&](Arrival& arrival) { drop(arrival); });
}

std::vector<std::byte> UcxTransport::address() const {
  const std::span<const std::byte> of_worker = worker_.address();
  std::vector<std::byte> bytes(sizeof head_ + of_worker.size());
  std::memcpy(bytes.data(), &head_, sizeof head_);
  std::memcpy(bytes.data() + sizeof head_, of_worker.data(), of_worker.size());
  return bytes;
}

Reach UcxTransport::reach(int, std::span<const std::byte> address) {
  return both_use_ucx(head_, address) ? Reach::network : Reach::none;
}

Status UcxTransport::add_peer(int rank, std::span<const std::byte> address) {
  if (address.size() <= sizeof(AddressHead))
    return {SENNIT_LINK_FAILED, fmt::format("ucx: rank {} has no address", rank)};
  RemoteWorker& p = known(rank);
  if (!p.worker_address.empty()) return {};
  const auto worker_address = address.subspan(sizeof(AddressHead));
  p.worker_address.assign(worker_address.begin(), worker_address.end());
  return {};
}

Status UcxTransport::connect(RemoteWorker& p) {
  if (p.endpoint || p.broken) return {};
  if (const size_t left = descriptors_left(); left < kDescriptorsToConnect)
    return {SENNIT_OUT_OF_RESOURCES,
            "ucx: " + descriptors_lacking(fmt::format("a connection to rank {}", p.rank),
                                          kDescriptorsToConnect, left)};
  // A peer that has died refuses: whether that is so, or only this way to it is broken, the control
  // plane finds out.
  if (const ucs_status_t status = worker_.connect(p.worker_address, on_error, &p, &p.endpoint);
      status != UCS_OK) {
    p.endpoint = nullptr;
    p.broken = true;
    returns_.add_event(
        p.rank,
        {SENNIT_LINK_FAILED,
         fmt::format(
             "ucx: cannot connect to rank {}: {} (UCX_TLS and UCX_NET_DEVICES restrict what it "
             "uses; SENNIT_TRANSPORTS=shm,tcp goes without it)",
             p.rank, worker_.text(status))});
    return {};
  }
  connections_++;
  control(p, MessageKind::hello, 0, 0);
  return {};
}

void UcxTransport::close(RemoteWorker& p) {
  if (!p.endpoint) return;
  const ucp_ep_h endpoint = std::exchange(p.endpoint, nullptr);
  if (!worker_.close(endpoint))
    log(LogLevel::warn, "ucx: the endpoint to rank {} does not close", p.rank);
}

// ---- messages ----

RemoteWorker& UcxTransport::peer(int rank) {
  const auto entry = peers_.find(rank);
  SENNIT_CHECK(entry != peers_.end());
  return *entry->second;
}

RemoteWorker& UcxTransport::known(int rank) {
  std::unique_ptr<RemoteWorker>& p = peers_[rank];
  if (p) return *p;
  p = std::make_unique<RemoteWorker>();
  p->transport = this;
  p->rank = rank;
  return *p;
}

// The status that requests of this peer and communicator end with at once, or nullptr.
const Status* UcxTransport::refused(const RemoteWorker& p, uint32_t comm) const {
  if (!p.failed.ok()) return &p.failed;
  return cancelled_.find(comm);
}

void UcxTransport::control(RemoteWorker& p, MessageKind kind, uint32_t comm, uint64_t bytes) {
  if (!p.failed.ok() || !connect(p).ok() || p.broken) return;
  PendingOperation& operation = operations_.begin(p);
  operation.header = {kind, context_.rank, {comm, 0, 0, 0}, 0, bytes};
  operations_.send(operation, p.endpoint, {}, /*eager=*/true);
}

void UcxTransport::on_ended(PendingOperation& operation, ucs_status_t status) {
  RemoteWorker& p = *operation.peer;
  const auto conclude = [&](auto* request, auto& orphans) {
    if (!request) return;
    if (!operation.doomed.ok())
      returns_.add(*request, std::move(operation.doomed));
    else if (status == UCS_OK)
      returns_.add(*request, Status());
    else
      orphans.push_back(request);
  };
  conclude(operation.send, p.orphan_sends);
  conclude(operation.recv, p.orphan_receives);
  if (status != UCS_OK) broke(p, status);
}

void UcxTransport::broke(RemoteWorker& p, ucs_status_t status) {
  if (p.broken || !p.failed.ok()) return;
  p.broken = true;
  returns_.add_event(p.rank, {SENNIT_LINK_FAILED, fmt::format("ucx: connection to rank {}: {}",
                                                              p.rank, worker_.text(status))});
}

void UcxTransport::on_error(void* peer, ucp_ep_h, ucs_status_t status) {
  auto& p = *static_cast<RemoteWorker*>(peer);
  p.transport->broke(p, status);
}

void UcxTransport::send(SendRequest& request) {
  RemoteWorker& p = peer(request.peer);
  request.status = Status();
  request.ready_ns = request.first_ns = 0;
  if (const Status* status = refused(p, request.key.comm)) return returns_.add(request, *status);
  if (Status status = connect(p); !status.ok()) return returns_.add(request, std::move(status));
  if (p.broken) return p.orphan_sends.push_back(&request);
  PendingOperation& operation = operations_.begin(p);
  operation.send = &request;
  operation.header = {MessageKind::message, context_.rank, request.key, request.signature,
                      request.bytes};
  const bool eager =
      request.bytes <= context_.eager_bytes && p.credit.spend(request.key.comm, request.bytes);
  (eager ? eager_ : rendezvous_)++;
  operations_.send(operation, p.endpoint, request.segments, eager);
}

void UcxTransport::recv(RecvRequest& request) {
  RemoteWorker& p = peer(request.peer);
  request.status = Status();
  request.ready_ns = request.first_ns = 0;
  request.exposed = nullptr;
  if (const Status* status = refused(p, request.key.comm)) return returns_.add(request, *status);
  Arrival* early = matcher_.post(request);
  // Connected both ways, a peer's death is seen here too.
  if (!early) {
    if (Status status = connect(p); !status.ok()) {
      matcher_.take_receive(request.peer, request.key);
      returns_.add(request, std::move(status));
    }
    return;
  }
  request.ready_ns = early->arrived_ns;
  const bool matches = check_match(request, early->signature, early->bytes);
  if (void* descriptor = reinterpret_cast<void*>(early->handle[0])) {
    if (matches) {
      fetch(request, descriptor);
    } else {
      worker_.release(descriptor);
      returns_.add_checked(request);
    }
  } else {
    request.first_ns = early->arrived_ns;
    if (matches) SegmentCursor(request.segments).put(early->data.data(), early->bytes);
    consumed(p, request.key.comm, early->bytes);
    returns_.add_checked(request);
  }
  matcher_.recycle(early);
}

// Starts a rendezvous of which both sides are known.
void UcxTransport::fetch(RecvRequest& request, void* descriptor) {
  request.first_ns = now_ns();
  if (request.bytes == 0) {  // to receive nothing would leak the descriptor (UCX 1.13)
    worker_.release(descriptor);
    return returns_.add(request, Status());
  }
  PendingOperation& operation = operations_.begin(peer(request.peer));
  operation.recv = &request;
  operations_.receive(operation, request.segments, descriptor);
}

// The peer may have its window back, sooner or later.
void UcxTransport::consumed(RemoteWorker& p, uint32_t comm, size_t bytes) {
  if (const uint64_t returned = p.credit.consumed(comm, bytes); returned > 0)
    control(p, MessageKind::credit, comm, returned);
}

ucs_status_t UcxTransport::on_message(void* self, const void* header, size_t header_bytes,
                                      void* data, size_t bytes, const ucp_am_recv_param_t* param) {
  Header copy;
  if (header_bytes != sizeof copy) return UCS_OK;
  std::memcpy(&copy, header, sizeof copy);
  return static_cast<UcxTransport*>(self)->arrived(copy, data, bytes,
                                                   param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV);
}

// UCS_INPROGRESS: the descriptor of a rendezvous is kept. UCS_OK lets go of it, and its sender is
// done.
ucs_status_t UcxTransport::arrived(const Header& header, void* data, size_t bytes,
                                   bool rendezvous) {
  if (header.from < 0 || header.from >= context_.size) return UCS_OK;  // a stranger
  // Who may be quicker than this rank, which has nothing for it yet.
  RemoteWorker& p = known(header.from);
  const uint32_t comm = header.key.comm;
  switch (header.kind) {
    case MessageKind::hello:
      return UCS_OK;
    case MessageKind::credit:
      p.credit.take_back(comm, header.bytes);
      return UCS_OK;
    case MessageKind::withdraw:
      matcher_.take_arrivals_if(
          [&](const Arrival& a) { return a.peer == p.rank && a.key.comm == comm && a.handle[0]; },
          [&](Arrival& a) { drop(a); });
      return UCS_OK;
    case MessageKind::message:
      break;
  }
  if (bytes != header.bytes) return UCS_OK;
  if (RecvRequest* request = matcher_.take_receive(p.rank, header.key)) {
    request->ready_ns = now_ns();
    if (rendezvous && check_match(*request, header.signature, bytes)) {
      to_fetch_.push_back({request, data});
      return UCS_INPROGRESS;
    }
    if (!rendezvous) {
      request->first_ns = request->ready_ns;
      if (check_match(*request, header.signature, bytes))
        SegmentCursor(request->segments).put(static_cast<const std::byte*>(data), bytes);
      consumed(p, comm, bytes);
    }
    returns_.add_checked(*request);
    return UCS_OK;
  }
  if (refused(p, comm)) return UCS_OK;
  Arrival* early = matcher_.keep(p.rank, header.key, header.signature, bytes);
  if (!early) return UCS_OK;  // twice the same key: only a broken peer does that
  early->arrived_ns = now_ns();
  early_++;
  if (rendezvous) {
    early->handle[0] = reinterpret_cast<uint64_t>(data);
    return UCS_INPROGRESS;
  }
  const auto* first = static_cast<const std::byte*>(data);
  early->data.assign(first, first + bytes);
  return UCS_OK;
}

void UcxTransport::drop(Arrival& arrival) {
  if (arrival.handle[0]) worker_.release(reinterpret_cast<void*>(arrival.handle[0]));
  matcher_.recycle(&arrival);
}

bool UcxTransport::progress(Completions& completions) {
  bool moved = false;
  for (int i = 0; i < kProgressRounds && worker_.progress(); i++) moved = true;
  for (size_t i = 0; i < to_fetch_.size(); i++) fetch(*to_fetch_[i].first, to_fetch_[i].second);
  to_fetch_.clear();
  moved |= returns_.hand_over(completions);
  return moved;
}

bool UcxTransport::prepare_wait() {
  if (!returns_.empty()) return false;
  return worker_.arm();
}

// Ends the requests that `which` holds for; those that UCX has in its hands end when it lets go.
template <typename Which>
void UcxTransport::hand_back(Which which, const Status& status) {
  operations_.doom(which, status);
  matcher_.take_receives_if(which, [&](RecvRequest& request) { returns_.add(request, status); });
  std::erase_if(to_fetch_, [&](const auto& entry) {
    if (!which(*entry.first)) return false;
    worker_.release(entry.second);
    returns_.add(*entry.first, status);
    return true;
  });
  const auto take = [&](auto& list) {
    std::erase_if(list, [&](auto* request) {
      if (!which(*request)) return false;
      returns_.add(*request, status);
      return true;
    });
  };
  for (auto& entry : peers_) {
    take(entry.second->orphan_sends);
    take(entry.second->orphan_receives);
  }
}

void UcxTransport::cancel(uint32_t comm, const Status& status) {
  if (!cancelled_.add(comm, status)) return;
  gave_up_ = true;
  const auto of_comm = [comm](const auto& message) { return message.key.comm == comm; };
  // Peers that have been offered a message of this communicator let go of it when they hear.
  for (auto& [rank, p] : peers_)
    if (operations_.any_send(*p, of_comm)) control(*p, MessageKind::withdraw, comm, 0);
  hand_back(of_comm, status);
  matcher_.take_arrivals_if(of_comm, [&](Arrival& arrival) { drop(arrival); });
  for (auto& [rank, p] : peers_) p->credit.forget([comm](uint32_t other) { return other == comm; });
}

void UcxTransport::forget(const std::function<bool(uint32_t comm)>& over) {
  cancelled_.forget(over);
  matcher_.take_arrivals_if([&](const Arrival& arrival) { return over(arrival.key.comm); },
                            [&](Arrival& arrival) { drop(arrival); });
  for (auto& [rank, p] : peers_) p->credit.forget(over);
}

void UcxTransport::fail_peer(int rank, const Status& status) {
  const auto entry = peers_.find(rank);
  if (entry == peers_.end()) return;
  RemoteWorker& p = *entry->second;
  if (!p.failed.ok()) return;
  p.failed = status;
  const auto of_peer = [rank](const auto& message) { return message.peer == rank; };
  hand_back(of_peer, status);
  matcher_.take_arrivals_if(of_peer, [&](Arrival& arrival) { drop(arrival); });
  close(p);
}

std::string UcxTransport::statistics() const {
  return fmt::format("connections {}, eager messages {}, rendezvous {}, early {}", connections_,
                     eager_, rendezvous_, early_);
}

}  // namespace sennit::ucx

namespace sennit {
SENNIT_TRANSPORT_ENTRY(ucx, 40, Reach::network, ucx::UcxTransport::make, /*keeps_secrets=*/false,
                       /*works_after_fork=*/false)
}
