// transfers.cpp: see transports/shm/transfers.hpp.
#include "transports/shm/transfers.hpp"

#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fmt/core.h>

#include "base/log.hpp"
#include "transports/shm/offers.hpp"

namespace sennit::shm {
namespace {

constexpr size_t kFetchBytes = size_t{1} << 20;  // most that one progress() call copies
constexpr size_t kBlockBytes = size_t{256} << 10;
constexpr int kPieces = 32;          // of one process_vm_readv
constexpr uint64_t kNoTransfer = 0;  // as a token
// What is kept of an offer that came early: indices into Arrival::handle. The first tells it from a
// small message.
constexpr int kEarlyId = 0, kEarlyCancelledCount = 1;

}  // namespace

void Transfers::take_offer(LocalPeer& p, const Slot& slot) {
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
    request->ready_ns = clock_.now();
    return begin(p, *request, {body.id, slot.cancelled_count, slot.signature, body.bytes, source});
  }
  if (peers_.refused(p, slot.key.comm)) return;
  Arrival* early = matcher_.keep(p.rank, slot.key, slot.signature, body.bytes);
  if (!early)
    return peers_.report(
        p, {SENNIT_LINK_FAILED, fmt::format("shm: rank {} sent the same message twice", p.rank)});
  early->arrived_ns = clock_.now();
  early->handle[kEarlyId] = body.id;
  early->handle[kEarlyCancelledCount] = slot.cancelled_count;
  const std::span<const std::byte> table = std::as_bytes(source);
  early->data.assign(table.begin(), table.end());
}

void Transfers::take_early(LocalPeer& p, RecvRequest& request, const Arrival& early) {
  const auto* table = reinterpret_cast<const RemoteSegment*>(early.data.data());
  begin(p, request,
        {early.handle[kEarlyId],
         static_cast<uint16_t>(early.handle[kEarlyCancelledCount]),
         early.signature,
         early.bytes,
         {table, early.data.size() / sizeof(RemoteSegment)}});
}

void Transfers::acknowledge(LocalPeer& p, const RecvRequest& request, uint64_t offer,
                            bool mismatch) {
  p.post_control(SlotKind::done, mismatch, request.bytes, DoneBody{offer, request.first_ns});
  if (!p.control.empty()) peers_.activate(p);
}

void Transfers::begin(LocalPeer& p, RecvRequest& request, const Offered& offered) {
  if (!p.segment) {  // it is not known yet what became of the peer; nothing is being transferred
    request.scratch[kToken] = kNoTransfer;
    p.receiving.push_back(request);
    return peers_.activate(p);
  }
  if (!p.out)
    if (Status status = peers_.claim_ring(p); !status.ok())
      return returns_.add(request, std::move(status));
  request.first_ns = clock_.now();
  if (!check_match(request, offered.signature, offered.bytes)) {
    acknowledge(p, request, offered.id, true);
    return returns_.add_checked(request);
  }
  if (offered.bytes > 0 && offered.source.size() == 1 && p.same_pid_namespace &&
      expose(p, request, offered))
    return;
  Transfer transfer;
  transfer.request = &request;
  transfer.peer = &p;
  transfer.offer = offered.id;
  transfer.cancelled_count = offered.cancelled_count;
  transfer.left = offered.bytes;
  transfer.target = SegmentCursor(request.segments);
  transfer.source.assign(offered.source.begin(), offered.source.end());
  const uint64_t token = table_.insert(std::move(transfer));
  request.scratch[kToken] = token;
  p.receiving.push_back(request);
  peers_.activate(p);
  if (offered.bytes == 0)
    complete(*table_.find(token), token, true);
  else if (offered.source.empty())
    ask_for_stream(*table_.find(token), token);
  else
    fetching_.push_back(token);
}

// Whether it is over with that.
bool Transfers::expose(LocalPeer& p, RecvRequest& request, const Offered& offered) {
  const RemoteSegment& source = offered.source[0];
  const std::byte* const of_device = p.exports.find(source.address, source.bytes);
  if (of_device && !request.may_import) {
    acknowledge(p, request, offered.id, false);
    returns_.add(request, not_imported(p.rank));
    return true;
  }
  if (of_device)
    request.exposed = of_device;
  else if (request.may_expose)
    request.exposed = p.arenas.find(p.address.process, source.address, source.bytes);
  if (!request.exposed) return false;
  request.scratch[kId] = offered.id;
  request.scratch[kCancelledCount] = offered.cancelled_count;
  exposed_++;
  if (of_device) exposed_of_devices_++;
  returns_.add(request);
  return true;
}

void Transfers::release(RecvRequest& request) {
  if (!request.exposed) return;
  request.exposed = nullptr;
  LocalPeer& p = peers_.at(request.peer);
  const auto since = static_cast<uint16_t>(request.scratch[kCancelledCount]);
  const TakenBack taken =
      p.segment ? taken_back(*p.segment.header(), request.key.comm, since) : TakenBack::no;
  if (taken == TakenBack::yes)
    request.status = {SENNIT_PEER_FAILED,
                      fmt::format("rank {} took its memory back while it was read", p.rank)};
  if (taken == TakenBack::unknown)
    request.status = {
        SENNIT_LINK_FAILED,
        fmt::format("rank {} gave up {} communicators or more while its memory was read, so that "
                    "nobody can tell whether what was read is what it sent",
                    p.rank, SegmentHeader::kCancelledRemembered)};
  if (p.failed.ok()) acknowledge(p, request, request.scratch[kId], false);
}

// Whether process_vm_readv works on this peer: reads its nonce once. That also proves that the
// process id means the same process here.
bool Transfers::may_read(LocalPeer& p) {
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

void Transfers::Transfer::advance_source(size_t bytes) {
  left -= bytes;
  while (bytes > 0) {
    const uint64_t step = std::min<uint64_t>(bytes, source[source_index].bytes - source_offset);
    source_offset += step;
    bytes -= step;
    if (source_offset < source[source_index].bytes) break;
    source_index++;
    source_offset = 0;
  }
}

// Reads at most `limit` bytes out of the peer's memory, as process_vm_readv() returns it.
ssize_t Transfers::read_block(Transfer& transfer, size_t limit) {
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
  return process_vm_readv(transfer.peer->address.process.pid, local,
                          static_cast<unsigned long>(locals), remote,
                          static_cast<unsigned long>(remotes), 0);
}

// Copies at most `limit` bytes of what is left.
Transfers::Fetched Transfers::fetch(Transfer& transfer, size_t limit) {
  LocalPeer& p = *transfer.peer;
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
      transfer.advance_source(here);
      limit -= here;
      mapped_bytes_ += here;
      continue;
    }
    if (!may_read(p)) return Fetched::cannot;
    const ssize_t got = read_block(transfer, limit);
    if (got <= 0) {
      if (got < 0 && errno == ESRCH) return Fetched::peer_died;
      if (got < 0 && errno == EPERM) p.read_mode = ReadMode::bounce;
      return Fetched::cannot;
    }
    const auto bytes = static_cast<size_t>(got);
    transfer.target.advance(bytes);
    transfer.advance_source(bytes);
    limit -= bytes;
    read_bytes_ += bytes;
  }
  return transfer.left > 0 ? Fetched::more : Fetched::all;
}

bool Transfers::fetch_oldest() {
  bool moved = false;
  for (size_t budget = kFetchBytes; budget > 0 && !fetching_.empty();) {
    const uint64_t token = fetching_.front();
    Transfer& transfer = *table_.find(token);
    const uint64_t before = transfer.left;
    const Fetched fetched = fetch(transfer, budget);
    budget -= std::min<size_t>(budget, before - transfer.left);
    moved |= before != transfer.left;
    fetching_.pop_front();
    switch (fetched) {
      case Fetched::more:
        // The budget is spent; the next call goes on with the next one, so that a long message is
        // not alone.
        fetching_.push_back(token);
        break;
      case Fetched::all:
        complete(transfer, token, true);
        break;
      case Fetched::cannot:
        ask_for_stream(transfer, token);
        break;
      case Fetched::peer_died:
        peers_.report_death(*transfer.peer);
        break;
    }
  }
  return moved;
}

void Transfers::ask_for_stream(const Transfer& transfer, uint64_t token) {
  transfer.peer->post_control(
      SlotKind::want, false, 0,
      WantBody{transfer.offer, token, transfer.request->bytes - transfer.left});
}

// What was read may be torn. The sender streams what it still has; what it has not is of a
// communicator that is being cancelled here too.
void Transfers::start_over(Transfer& transfer, uint64_t token) {
  transfer.left = transfer.request->bytes;
  transfer.target = SegmentCursor(transfer.request->segments);
  ask_for_stream(transfer, token);
}

void Transfers::take_fragment(LocalPeer& p, const Slot& slot) {
  Transfer* transfer = table_.find(slot.signature);
  if (!transfer || transfer->peer != &p) return;  // cancelled meanwhile
  transfer->left -= transfer->target.put(p.in.payload(slot), slot.payload_bytes);
  if (transfer->left == 0) complete(*transfer, slot.signature, false);
}

void Transfers::complete(Transfer& transfer, uint64_t token, bool acknowledged) {
  LocalPeer& p = *transfer.peer;
  RecvRequest& request = *transfer.request;
  if (acknowledged) {
    // The sender may have taken its memory back while it was read. Then the receive stays pending:
    // this communicator is being cancelled here too.
    const TakenBack taken =
        taken_back(*p.segment.header(), request.key.comm, transfer.cancelled_count);
    if (taken == TakenBack::yes) return;
    if (taken == TakenBack::unknown) return start_over(transfer, token);
    acknowledge(p, request, transfer.offer, false);
  }
  p.receiving.remove(request);
  table_.erase(token);
  returns_.add(request);
}

}  // namespace sennit::shm
