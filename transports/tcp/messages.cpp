// messages.cpp: what tcp does when a message is posted or a header comes: matching, windows,
// grants. The scheme is told in transports/tcp/tcp.cpp.
#include <utility>

#include <fmt/format.h>

#include "base/trace.hpp"
#include "transports/tcp/tcp.hpp"

namespace sennit::tcp {
namespace {

enum ReceiveScratch { kGranted = 0, kAnnouncedNs = 1 };

}  // namespace

// ---- sending ----

const Status* Tcp::refusal(const MessageRequest& request) const {
  const Peer& peer = peers_[static_cast<size_t>(request.peer)];
  if (!peer.failed.ok()) return &peer.failed;
  return cancelled_.find(request.key.comm);
}

void Tcp::post_control(Link& link, HeaderKind kind, const Key& key, uint64_t signature,
                       size_t bytes) {
  WireHeader header;
  header.kind = kind;
  header.key = key;
  header.signature = signature;
  header.bytes = bytes;
  link.post_control(header);
}

void Tcp::send(SendRequest& request) {
  request.ready_ns = request.first_ns = 0;
  if (const Status* refused = refusal(request)) return returns_.add(request, *refused);
  Link& link = link_to(request.peer);
  messages_++;
  Grant* grant = grants_.size() > 0 ? grants_.remove(request.peer, request.key) : nullptr;
  if (grant) {
    match_send(request, grant->signature, grant->bytes, grant->came_ns);
    free_grants_.push_back(grant);
  } else if (request.bytes <= eager_bytes_ && link.take_window(request.key.comm, request.bytes)) {
    request.ready_ns = now_ns();
    link.post_eager(request);
  } else {
    SENNIT_CHECK(waiting_.insert(&request));  // keys are never reused
    post_control(link, HeaderKind::announce, request.key, request.signature, request.bytes);
  }
  flush(link);
}

void Tcp::match_send(SendRequest& request, uint64_t signature, size_t bytes, uint64_t ready_ns) {
  Link& link = *at(request.peer).link;
  if (signature == request.signature && bytes == request.bytes) {
    request.ready_ns = ready_ns;
    link.post_granted(request);
    return;
  }
  post_control(link, HeaderKind::refuse, request.key, request.signature, request.bytes);
  returns_.add(request, send_mismatch(request, bytes));
}

void Tcp::on_ready(Link& link, const WireHeader& header) {
  if (SendRequest* request = waiting_.remove(link.peer(), header.key))
    return match_send(*request, header.signature, header.bytes, now_ns());
  if (grants_.find(link.peer(), header.key)) return;
  if (free_grants_.empty()) {
    grant_pool_.push_back(std::make_unique<Grant>());
    free_grants_.push_back(grant_pool_.back().get());
  }
  Grant* grant = free_grants_.back();
  free_grants_.pop_back();
  *grant = {link.peer(), header.key, header.signature, header.bytes, now_ns()};
  grants_.insert(grant);
}

// ---- receiving ----

void Tcp::recv(RecvRequest& request) {
  request.exposed = nullptr;
  request.ready_ns = request.first_ns = 0;
  request.scratch[kGranted] = request.scratch[kAnnouncedNs] = 0;
  if (const Status* refused = refusal(request)) return returns_.add(request, *refused);
  Link& link = link_to(request.peer);
  Arrival* arrival = matcher_.post(request);
  if (!arrival) {
    if (request.bytes <= eager_bytes_) return;
    request.scratch[kGranted] = 1;
    post_control(link, HeaderKind::ready, request.key, request.signature, request.bytes);
    return flush(link);
  }
  const bool announced = arrival->handle[0] != 0;
  const bool matches = check_match(request, arrival->signature, arrival->bytes);
  request.ready_ns = arrival->arrived_ns;
  if (announced) {
    // Where it does not match, the answer lets the sender find out, too.
    post_control(link, HeaderKind::ready, request.key, request.signature, request.bytes);
    request.scratch[kGranted] = 1;
    request.scratch[kAnnouncedNs] = arrival->arrived_ns;
    if (!matches) returns_.add_checked(request);
  } else {
    request.first_ns = arrival->arrived_ns;
    link.return_window(request.key.comm, arrival->bytes);
    if (matches) {
      SegmentCursor(request.segments).put(arrival->data.data(), arrival->bytes);
      returns_.add(request);
    } else {
      returns_.add_checked(request);
    }
  }
  matcher_.recycle(arrival);
  if (announced && matches) matcher_.post(request);
  flush(link);
}

Status Tcp::on_message(Link& link, const WireHeader& header, std::span<const std::byte> bytes) {
  const int peer = link.peer();
  const bool dropped = cancelled_.find(header.key.comm) != nullptr;
  switch (header.kind) {
    case HeaderKind::ready:
      if (!dropped) on_ready(link, header);
      return {};
    case HeaderKind::announce:
      if (!dropped) on_announce(link, header);
      return {};
    case HeaderKind::refuse:
      if (RecvRequest* request = matcher_.take_receive(peer, header.key)) {
        if (check_match(*request, header.signature, header.bytes))
          request->status =
              Status(SENNIT_INTERNAL, fmt::format("rank {} refused a matching receive", peer));
        returns_.add_checked(*request);
      }
      return {};
    case HeaderKind::ask:
      link.post_answer(header.bytes);
      return {};
    case HeaderKind::eager:
      break;
    default:
      return {SENNIT_LINK_FAILED,
              fmt::format("connection to rank {}: a message of unknown kind", peer)};
  }
  if (dropped) return {};
  if (!link.hold(header.key.comm, header.bytes))
    return {SENNIT_LINK_FAILED,
            fmt::format("connection to rank {}: more came than the window allows", peer)};
  const uint64_t now = now_ns();
  if (RecvRequest* request = matcher_.take_receive(peer, header.key)) {
    request->ready_ns = request->first_ns = now;
    link.return_window(header.key.comm, header.bytes);
    if (check_match(*request, header.signature, header.bytes)) {
      SegmentCursor(request->segments).put(bytes.data(), bytes.size());
      returns_.add(*request);
    } else {
      returns_.add_checked(*request);
    }
    return {};
  }
  Arrival* arrival = matcher_.keep(peer, header.key, header.signature, header.bytes);
  if (!arrival)
    return {SENNIT_LINK_FAILED, fmt::format("connection to rank {}: a message came twice", peer)};
  arrival->arrived_ns = now;
  arrival->data.assign(bytes.begin(), bytes.end());
  return {};
}

void Tcp::on_announce(Link& link, const WireHeader& header) {
  if (RecvRequest* request = matcher_.find_receive(link.peer(), header.key)) {
    request->scratch[kAnnouncedNs] = now_ns();
    if (request->scratch[kGranted]) return;  // the grant is on its way
    request->scratch[kGranted] = 1;
    return post_control(link, HeaderKind::ready, header.key, request->signature, request->bytes);
  }
  Arrival* arrival = matcher_.keep(link.peer(), header.key, header.signature, header.bytes);
  if (!arrival) return;
  arrival->arrived_ns = now_ns();
  arrival->handle[0] = 1;
}

RecvRequest* Tcp::on_first_piece(Link& link, const WireHeader& header) {
  RecvRequest* request = matcher_.take_receive(link.peer(), header.key);
  if (!request) return nullptr;  // cancelled meanwhile
  request->first_ns = now_ns();
  request->ready_ns =
      request->scratch[kAnnouncedNs] ? request->scratch[kAnnouncedNs] : request->first_ns;
  if (check_match(*request, header.signature, header.bytes)) return request;
  returns_.add_checked(*request);
  return nullptr;
}

// It stays pending until its communicator is cancelled here as well.
void Tcp::on_given_up(Link&, RecvRequest& request) { matcher_.post(request); }

}  // namespace sennit::tcp
