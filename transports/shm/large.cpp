// large.cpp: large messages of the shm transport. See transports/shm/shm.hpp.
//
// The sender puts an offer into the ring (where the bytes lie) and waits; the receiver, once a
// receive is posted, maps, reads or asks for a stream, and answers `done`. Reading goes in blocks,
// so that one progress() call is short and other messages move in between. The sender may take its
// memory back at any time (cancel): it notes the communicator in its segment first, and a receiver
// looks there after reading and before it trusts the bytes.
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include <fmt/format.h>

#include "base/log.hpp"
#include "transports/shm/shm.hpp"

namespace sennit::shm {
namespace {

constexpr size_t kFetchBytes = size_t{1} << 20;  // most that one progress() call copies
constexpr size_t kBlockBytes = size_t{256} << 10;
constexpr int kPieces = 32;                    // of one process_vm_readv
constexpr uint32_t kNotReadable = UINT32_MAX;  // as number of segments: too many to list

}  // namespace

bool ShmTransport::push_control(Peer& p, Kind kind, bool flag, uint64_t signature, const void* body,
                                size_t bytes) {
  const Producer::Place place = p.out.reserve(0, true);
  if (!place.slot) return false;
  place.slot->kind = kind;
  place.slot->payload_bytes = 0;
  place.slot->segments = flag;
  place.slot->signature = signature;
  std::memcpy(place.slot->body, body, bytes);
  p.out.publish(place.slot);
  return true;
}

bool ShmTransport::flush_control(Peer& p) {
  bool moved = false;
  while (!p.control.empty()) {
    const Control& c = p.control.front();
    if (!push_control(p, c.kind, c.flag, c.signature, c.body, sizeof c.body)) break;
    p.control.pop_front();
    moved = true;
  }
  return moved;
}

// ---- the sender's side ----

bool ShmTransport::send_offer(Peer& p, SendRequest& request) {
  for (; p.arenas_told < arenas_.all().size(); p.arenas_told++) {
    const Arena& arena = *arenas_.all()[p.arenas_told];
    const ArenaBody body{reinterpret_cast<uint64_t>(arena.data()), arena.bytes(), arena.fd(), 0};
    if (!push_control(p, Kind::arena, false, arena.inode(), &body, sizeof body)) return false;
  }
  offered_.clear();
  for (const Segment& segment : request.segments) registered_.locate(segment, &offered_);
  uint32_t count = static_cast<uint32_t>(offered_.size());
  if (count * sizeof(RemoteSegment) > p.out.geometry().largest_payload()) count = kNotReadable;
  const bool table = count > 1 && count != kNotReadable;
  const size_t table_bytes = table ? count * sizeof(RemoteSegment) : 0;
  const Producer::Place place = p.out.reserve(table_bytes, false);
  if (!place.slot) return false;
  request.scratch[kId] = offers_.insert(&request);
  Slot& slot = *place.slot;
  slot.kind = Kind::offer;
  slot.payload_bytes = static_cast<uint32_t>(table_bytes);
  slot.segments = count;
  slot.key = request.key;
  slot.signature = request.signature;
  const uint64_t address = count == 1 ? offered_[0].address : 0;
  const OfferBody body{request.bytes, request.scratch[kId], address};
  std::memcpy(slot.body, &body, sizeof body);
  if (table) std::memcpy(place.payload, offered_.data(), table_bytes);
  p.out.publish(&slot);
  p.offered.push_back(request);
  activate(p);
  return true;
}

// A peer may be reading what it was offered at this moment.
Status ShmTransport::deregister_memory(void* memory) {
  const std::span<const std::byte> range = registered_.range(memory);
  for (const std::unique_ptr<Peer>& p : peers_) {
    if (!p || range.empty()) continue;
    for (const SendRequest* request = p->offered.front(); request;
         request = p->offered.after(request))
      for (const Segment& segment : request->segments)
        if (segment.data < range.data() + range.size() &&
            segment.data + segment.bytes > range.data())
          return invalid("this memory is still being sent: wait for the call that uses it");
  }
  return registered_.remove(memory);
}

void ShmTransport::take_done(Peer& p, const Slot& slot) {
  DoneBody body;
  std::memcpy(&body, slot.body, sizeof body);
  SendRequest** found = offers_.find(body.id);
  if (!found) return;  // cancelled meanwhile
  SendRequest& request = **found;
  offers_.erase(body.id);
  p.offered.remove(request);
  request.ready_ns = request.first_ns = body.first_ns;
  const bool mismatch = slot.segments;
  finish(request, mismatch ? send_mismatch(request, slot.signature) : Status());
}

void ShmTransport::take_want(Peer& p, const Slot& slot) {
  WantBody body;
  std::memcpy(&body, slot.body, sizeof body);
  SendRequest** found = offers_.find(body.id);
  if (!found) return;
  SendRequest& request = **found;
  request.scratch[kToken] = body.token;
  request.scratch[kOffset] = body.offset;
  request.ready_ns = request.first_ns = now();
  p.offered.remove(request);
  p.streaming.push_back(request);
}

// Sends the next fragments of the messages that the peer wants through the ring.
bool ShmTransport::stream(Peer& p) {
  bool moved = false;
  while (!p.streaming.empty()) {
    SendRequest& request = *p.streaming.front();
    const size_t bytes = std::min<size_t>(p.out.geometry().largest_payload(),
                                          request.bytes - request.scratch[kOffset]);
    const Producer::Place place = p.out.reserve(bytes, false);
    if (!place.slot) return moved;
    SegmentCursor source(request.segments);
    source.advance(request.scratch[kOffset]);
    source.get(place.payload, bytes);
    place.slot->kind = Kind::fragment;
    place.slot->payload_bytes = static_cast<uint32_t>(bytes);
    place.slot->signature = request.scratch[kToken];
    p.out.publish(place.slot);
    moved = true;
    request.scratch[kOffset] += bytes;
    count_.streamed_bytes += bytes;
    if (request.scratch[kOffset] < request.bytes) continue;
    p.streaming.remove(request);
    offers_.erase(request.scratch[kId]);
    finish(request, Status());
  }
  return moved;
}

// ---- the receiver's side ----

void ShmTransport::take_offer(Peer& p, const Slot& slot) {
  OfferBody body;
  std::memcpy(&body, slot.body, sizeof body);
  const RemoteSegment only{body.address, body.bytes};
  std::span<const RemoteSegment> source;
  if (slot.segments == 1)
    source = {&only, 1};
  else if (slot.segments > 1 && slot.segments != kNotReadable)
    source = {reinterpret_cast<const RemoteSegment*>(p.in.payload(slot)), slot.segments};
  if (RecvRequest* request = matcher_.take_receive(p.rank, slot.key)) {
    p.posted--;
    request->ready_ns = now();
    return begin(p, *request, body.id, slot.signature, body.bytes, source);
  }
  if (refused(p, slot.key.comm)) return;
  Arrival* early = matcher_.keep(p.rank, slot.key, slot.signature, body.bytes);
  if (!early)
    return report(
        p, {SENNIT_LINK_FAILED, fmt::format("shm: rank {} sent the same message twice", p.rank)});
  early->arrived_ns = now();
  early->handle[0] = body.id;
  const std::span<const std::byte> table = std::as_bytes(source);
  early->data.assign(table.begin(), table.end());
}

void ShmTransport::acknowledge(Peer& p, const RecvRequest& request, uint64_t offer, bool mismatch) {
  const DoneBody body{offer, request.first_ns};
  if (p.control.empty() && push_control(p, Kind::done, mismatch, request.bytes, &body, sizeof body))
    return;
  Control control{Kind::done, mismatch, request.bytes, {}};
  std::memcpy(control.body, &body, sizeof body);
  p.control.push_back(control);
  activate(p);
}

void ShmTransport::begin(Peer& p, RecvRequest& request, uint64_t offer, uint64_t signature,
                         uint64_t bytes, std::span<const RemoteSegment> source) {
  if (!p.segment) {               // as in try_send(); nothing is being transferred
    request.scratch[kToken] = 0;  // no transfer's
    p.receiving.push_back(request);
    return activate(p);
  }
  if (!p.out)
    if (Status status = claim_ring(p); !status.ok()) return finish(request, std::move(status));
  request.first_ns = now();
  if (!check_match(request, signature, bytes)) {
    acknowledge(p, request, offer, true);
    done_receives_.push_back(&request);
    return;
  }
  if (request.may_expose && source.size() == 1 && p.same_pid_namespace) {
    request.exposed = p.arenas.find(p.address.process, source[0].address, bytes);
    if (request.exposed) {
      request.scratch[kId] = offer;
      count_.exposed++;
      return finish(request, Status());
    }
  }
  Transfer transfer{
      &request, &p, offer, bytes, SegmentCursor(request.segments), {source.begin(), source.end()},
      0,        0};
  const uint64_t token = transfers_.insert(std::move(transfer));
  request.scratch[kToken] = token;
  p.receiving.push_back(request);
  activate(p);
  if (bytes == 0)
    complete(*transfers_.find(token), token, true);
  else if (source.empty())
    ask_for_stream(*transfers_.find(token), token);
  else
    fetching_.push_back(token);
}

void ShmTransport::release(RecvRequest& request) {
  if (!request.exposed) return;
  request.exposed = nullptr;
  Peer& p = peer(request.peer);
  if (p.failed.ok()) acknowledge(p, request, request.scratch[kId], false);
}

// Whether process_vm_readv works on this peer: reads its nonce once. That also proves that the
// process id means the same process here.
bool ShmTransport::may_read(Peer& p) {
  if (p.read_mode == ReadMode::unknown) {
    uint64_t seen = 0;
    const iovec local{&seen, sizeof seen};
    const iovec remote{reinterpret_cast<void*>(p.address.probe_address), sizeof seen};
    const bool works =
        direct_reads_ && p.same_pid_namespace &&
        process_vm_readv(p.address.process.pid, &local, 1, &remote, 1, 0) == sizeof seen &&
        seen == p.address.nonce[0];
    p.read_mode = works ? ReadMode::direct : ReadMode::bounce;
    if (!works)
      log(LogLevel::info, "shm: cannot read rank {}'s memory (process_vm_readv): {}; copying twice",
          p.rank, direct_reads_ ? strerror(errno) : "switched off");
  }
  return p.read_mode == ReadMode::direct;
}

// Copies at most `limit` bytes of what is left.
ShmTransport::Fetched ShmTransport::fetch(Transfer& transfer, size_t limit) {
  Peer& p = *transfer.peer;
  const auto advance = [&](size_t bytes) {
    transfer.left -= bytes;
    while (bytes > 0) {
      const uint64_t step = std::min<uint64_t>(
          bytes, transfer.source[transfer.source_index].bytes - transfer.source_offset);
      transfer.source_offset += step;
      bytes -= step;
      if (transfer.source_offset < transfer.source[transfer.source_index].bytes) break;
      transfer.source_index++;
      transfer.source_offset = 0;
    }
  };
  while (transfer.left > 0 && limit > 0) {
    const RemoteSegment& segment = transfer.source[transfer.source_index];
    const uint64_t address = segment.address + transfer.source_offset;
    const size_t here = std::min<uint64_t>(segment.bytes - transfer.source_offset, limit);
    if (here == 0) {  // an empty segment
      transfer.source_index++;
      continue;
    }
    if (const std::byte* data =
            p.same_pid_namespace ? p.arenas.find(p.address.process, address, here) : nullptr) {
      transfer.target.put(data, here);
      advance(here);
      limit -= here;
      count_.mapped_bytes += here;
      continue;
    }
    if (!may_read(p)) return Fetched::cannot;
    iovec local[kPieces], remote[kPieces];
    const size_t block = std::min({limit, kBlockBytes, static_cast<size_t>(transfer.left)});
    const int locals = transfer.target.fill(local, kPieces, block);
    int remotes = 0;
    size_t listed = 0;
    uint64_t offset = transfer.source_offset;
    for (size_t i = transfer.source_index; listed < block && remotes < kPieces; i++, offset = 0) {
      const RemoteSegment& piece = transfer.source[i];
      const size_t bytes = std::min<uint64_t>(piece.bytes - offset, block - listed);
      if (bytes) remote[remotes++] = {reinterpret_cast<void*>(piece.address + offset), bytes};
      listed += bytes;
    }
    const ssize_t bytes =
        process_vm_readv(p.address.process.pid, local, static_cast<unsigned long>(locals), remote,
                         static_cast<unsigned long>(remotes), 0);
    if (bytes <= 0) {
      if (bytes < 0 && errno == ESRCH) return Fetched::peer_died;
      if (bytes < 0 && errno == EPERM) p.read_mode = ReadMode::bounce;
      return Fetched::cannot;
    }
    transfer.target.advance(static_cast<size_t>(bytes));
    advance(static_cast<size_t>(bytes));
    limit -= static_cast<size_t>(bytes);
    count_.read_bytes += static_cast<uint64_t>(bytes);
  }
  return transfer.left > 0 ? Fetched::more : Fetched::all;
}

bool ShmTransport::fetch_some() {
  bool moved = false;
  for (size_t budget = kFetchBytes; budget > 0 && !fetching_.empty();) {
    const uint64_t token = fetching_.front();
    Transfer& transfer = *transfers_.find(token);
    const uint64_t before = transfer.left;
    const Fetched fetched = fetch(transfer, budget);
    budget -= std::min<size_t>(budget, before - transfer.left);
    moved |= before != transfer.left;
    if (fetched == Fetched::more) {
      // The budget is spent; the next call goes on with the next one, so that a long message is not
      // alone.
      fetching_.pop_front();
      fetching_.push_back(token);
      continue;
    }
    fetching_.pop_front();
    if (fetched == Fetched::all)
      complete(transfer, token, true);
    else if (fetched == Fetched::cannot)
      ask_for_stream(transfer, token);
    else
      report(*transfer.peer,
             {SENNIT_PEER_FAILED, fmt::format("rank {} (process {}) has died", transfer.peer->rank,
                                              transfer.peer->address.process.pid)});
  }
  return moved;
}

void ShmTransport::ask_for_stream(Transfer& transfer, uint64_t token) {
  Peer& p = *transfer.peer;
  const WantBody body{transfer.offer, token, transfer.request->bytes - transfer.left};
  if (p.control.empty() && push_control(p, Kind::want, false, 0, &body, sizeof body)) return;
  Control control{Kind::want, false, 0, {}};
  std::memcpy(control.body, &body, sizeof body);
  p.control.push_back(control);
}

void ShmTransport::take_fragment(Peer& p, const Slot& slot) {
  Transfer* transfer = transfers_.find(slot.signature);
  if (!transfer || transfer->peer != &p) return;  // cancelled meanwhile
  transfer->left -= transfer->target.put(p.in.payload(slot), slot.payload_bytes);
  if (transfer->left == 0) complete(*transfer, slot.signature, false);
}

void ShmTransport::complete(Transfer& transfer, uint64_t token, bool acknowledged) {
  Peer& p = *transfer.peer;
  RecvRequest& request = *transfer.request;
  // The sender may have taken its memory back while it was read. Then the receive stays pending:
  // this communicator is being cancelled here too.
  if (acknowledged && was_cancelled(*p.segment.header(), request.key.comm)) return;
  if (acknowledged) acknowledge(p, request, transfer.offer, false);
  p.receiving.remove(request);
  transfers_.erase(token);
  finish(request, Status());
}

}  // namespace sennit::shm
