// messages.cpp: see transports/tcp/messages.hpp.
#include "transports/tcp/messages.hpp"

#include <fmt/core.h>

#include "base/clock.hpp"

namespace sennit::tcp {
namespace {

// Where a receive keeps whether it has been granted, and when its message was announced: indices
// into MessageRequest::scratch.
enum ReceiveScratch { kGranted = 0, kAnnouncedNs = 1 };

void post_control(PeerConnection& connection, HeaderKind kind, const Key& key, uint64_t signature,
                  size_t bytes) {
  WireHeader header;
  header.kind = kind;
  header.key = key;
  header.signature = signature;
  header.bytes = bytes;
  connection.post_control(header);
}

}  // namespace

// ---- sending ----

void Messages::send(PeerConnection& connection, SendRequest& request) {
  sent_++;
  Grant* grant = grants_.size() > 0 ? grants_.remove(request.peer, request.key) : nullptr;
  if (grant) {
    match_send(connection, request, grant->signature, grant->bytes, grant->came_ns);
    free_grants_.push_back(grant);
  } else if (request.bytes <= eager_bytes_ &&
             connection.take_window(request.key.comm, request.bytes)) {
    request.ready_ns = now_ns();
    connection.post_eager(request);
  } else {
    SENNIT_CHECK(waiting_.insert(&request));  // keys are never reused
    post_control(connection, HeaderKind::announce, request.key, request.signature, request.bytes);
  }
}

void Messages::match_send(PeerConnection& connection, SendRequest& request, uint64_t signature,
                          size_t bytes, uint64_t ready_ns) {
  if (signature == request.signature && bytes == request.bytes) {
    request.ready_ns = ready_ns;
    connection.post_granted(request);
    return;
  }
  post_control(connection, HeaderKind::refuse, request.key, request.signature, request.bytes);
  returns_.add(request, send_mismatch(request, bytes));
}

void Messages::on_ready(PeerConnection& connection, const WireHeader& header) {
  if (SendRequest* request = waiting_.remove(connection.peer(), header.key))
    return match_send(connection, *request, header.signature, header.bytes, now_ns());
  if (grants_.find(connection.peer(), header.key)) return;
  if (free_grants_.empty()) {
    grant_pool_.push_back(std::make_unique<Grant>());
    free_grants_.push_back(grant_pool_.back().get());
  }
  Grant* grant = free_grants_.back();
  free_grants_.pop_back();
  *grant = {connection.peer(), header.key, header.signature, header.bytes, now_ns()};
  grants_.insert(grant);
}

// ---- receiving ----

bool Messages::recv(PeerConnection& connection, RecvRequest& request) {
  request.scratch[kGranted] = request.scratch[kAnnouncedNs] = 0;
  if (Arrival* arrival = matcher_.post(request)) {
    take_arrival(connection, request, *arrival);
    return true;
  }
  if (request.bytes <= eager_bytes_) return false;
  request.scratch[kGranted] = 1;
  post_control(connection, HeaderKind::ready, request.key, request.signature, request.bytes);
  return true;
}

// The message, or its announcement, came before the receive.
void Messages::take_arrival(PeerConnection& connection, RecvRequest& request, Arrival& arrival) {
  const bool announced = arrival.handle[0] != 0;
  const bool matches = check_match(request, arrival.signature, arrival.bytes);
  request.ready_ns = arrival.arrived_ns;
  if (announced) {
    // Where it does not match, the answer lets the sender find out, too.
    post_control(connection, HeaderKind::ready, request.key, request.signature, request.bytes);
    request.scratch[kGranted] = 1;
    request.scratch[kAnnouncedNs] = arrival.arrived_ns;
    if (!matches) returns_.add_checked(request);
  } else {
    request.first_ns = arrival.arrived_ns;
    request.sender_waited_us = arrival.sender_waited_us;
    request.sender_clock_us = arrival.sender_clock_us;
    connection.return_window(request.key.comm, arrival.bytes);
    if (matches) {
      SegmentCursor(request.segments).put(arrival.data.data(), arrival.bytes);
      returns_.add(request);
    } else {
      returns_.add_checked(request);
    }
  }
  matcher_.recycle(&arrival);
  if (announced && matches) matcher_.post(request);
}

Status Messages::on_message(PeerConnection& connection, const WireHeader& header,
                            std::span<const std::byte> bytes) {
  const bool dropped = cancelled_.find(header.key.comm) != nullptr;
  switch (header.kind) {
    case HeaderKind::ready:
      if (!dropped) on_ready(connection, header);
      return {};
    case HeaderKind::announce:
      if (!dropped) on_announce(connection, header);
      return {};
    case HeaderKind::refuse:
      on_refuse(connection, header);
      return {};
    case HeaderKind::ask:
      connection.post_answer(header.bytes);
      return {};
    case HeaderKind::eager:
      return dropped ? Status() : on_eager(connection, header, bytes);
    default:
      return {SENNIT_LINK_FAILED,
              fmt::format("connection to rank {}: a message of unknown kind", connection.peer())};
  }
}

Status Messages::on_eager(PeerConnection& connection, const WireHeader& header,
                          std::span<const std::byte> bytes) {
  const int peer = connection.peer();
  if (!connection.hold(header.key.comm, header.bytes))
    return {SENNIT_LINK_FAILED,
            fmt::format("connection to rank {}: more came than the window allows", peer)};
  const uint64_t now = now_ns();
  if (RecvRequest* request = matcher_.take_receive(peer, header.key)) {
    request->ready_ns = request->first_ns = now;
    request->sender_waited_us = header.waited_us;
    request->sender_clock_us = header.clock_us;
    connection.return_window(header.key.comm, header.bytes);
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
  arrival->sender_waited_us = header.waited_us;
  arrival->sender_clock_us = header.clock_us;
  arrival->data.assign(bytes.begin(), bytes.end());
  return {};
}

void Messages::on_refuse(PeerConnection& connection, const WireHeader& header) {
  RecvRequest* const request = matcher_.take_receive(connection.peer(), header.key);
  if (!request) return;
  if (check_match(*request, header.signature, header.bytes))
    request->status = Status(SENNIT_INTERNAL,
                             fmt::format("rank {} refused a matching receive", connection.peer()));
  returns_.add_checked(*request);
}

void Messages::on_announce(PeerConnection& connection, const WireHeader& header) {
  if (RecvRequest* request = matcher_.find_receive(connection.peer(), header.key)) {
    request->scratch[kAnnouncedNs] = now_ns();
    if (request->scratch[kGranted]) return;  // the grant is on its way
    request->scratch[kGranted] = 1;
    return post_control(connection, HeaderKind::ready, header.key, request->signature,
                        request->bytes);
  }
  Arrival* arrival = matcher_.keep(connection.peer(), header.key, header.signature, header.bytes);
  if (!arrival) return;
  arrival->arrived_ns = now_ns();
  arrival->handle[0] = 1;
}

RecvRequest* Messages::on_first_piece(PeerConnection& connection, const WireHeader& header) {
  RecvRequest* request = matcher_.take_receive(connection.peer(), header.key);
  if (!request) return nullptr;  // cancelled meanwhile
  request->first_ns = now_ns();
  request->sender_waited_us = header.waited_us;
  request->sender_clock_us = header.clock_us;
  request->ready_ns =
      request->scratch[kAnnouncedNs] ? request->scratch[kAnnouncedNs] : request->first_ns;
  if (check_match(*request, header.signature, header.bytes)) return request;
  returns_.add_checked(*request);
  return nullptr;
}

// Who gives a message up does not announce it again; what came by its name all the same is dropped.
void Messages::on_given_up(PeerConnection& connection, RecvRequest& request) {
  Arrival* const strange = matcher_.post(request);
  if (!strange) return;
  const bool announced = strange->handle[0] != 0;
  if (!announced) connection.return_window(request.key.comm, strange->bytes);
  matcher_.recycle(strange);
  matcher_.post(request);
}

void Messages::forget(const std::function<bool(uint32_t comm)>& over) {
  cancelled_.forget(over);
  matcher_.drop_arrivals_if([&](const Arrival& arrival) { return over(arrival.key.comm); });
  grants_.remove_if([&](const Grant& grant) { return over(grant.key.comm); },
                    [this](Grant& grant) { free_grants_.push_back(&grant); });
}

std::set<int> Messages::awaited() const {
  std::set<int> peers;
  matcher_.each_receive([&](const RecvRequest& request) { peers.insert(request.peer); });
  waiting_.each([&](const SendRequest& request) { peers.insert(request.peer); });
  return peers;
}

}  // namespace sennit::tcp
