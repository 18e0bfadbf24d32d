// shm.cpp: the shm transport: its peers, their rings, and small messages. See
// transports/shm/shm.hpp.
#include "transports/shm/shm.hpp"

#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>

#include <fmt/format.h>

#include "base/log.hpp"
#include "base/options.hpp"
#include "base/trace.hpp"

namespace sennit::shm {
namespace {

// per (communicator, peer), beyond what fits into the ring
constexpr size_t kEarlyWindowBytes = 64 << 10;
constexpr size_t kEarlyOverheadBytes = 128;  // what one early message costs besides its bytes
constexpr int kMessagesPerPoll = 64;

}  // namespace

Result<std::unique_ptr<Transport>> ShmTransport::make(const TransportContext& context) {
  remove_stale_segments(context.job);
  // Where Yama restricts ptrace, let the peers read this process's memory. Fails harmlessly
  // elsewhere.
  prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
  std::unique_ptr<ShmTransport> transport(new ShmTransport(context));
  Result<std::unique_ptr<OwnSegment>> own = OwnSegment::create(context);
  if (!own) return own.status();
  transport->own_ = std::move(*own);
  transport->peers_.resize(static_cast<size_t>(context.size));
  transport->asked_.resize(static_cast<size_t>(context.size));
  return std::unique_ptr<Transport>(std::move(transport));
}

ShmTransport::~ShmTransport() {
  // a fork of the owner: nothing here is its own
  if (own_ && own_->address().process.pid != getpid()) return;
  registered_.clear();
  for (const std::unique_ptr<Peer>& p : peers_) {
    if (!p) continue;
    if (p->out) flush_control(*p);
    if (p->pid_fd >= 0) close(p->pid_fd);
    // A peer that was killed cannot remove its name; one that lives will.
    if (!may_be_alive(p->address.process)) remove_name(p->address);
  }
}

std::vector<std::byte> ShmTransport::address() const {
  const auto* bytes = reinterpret_cast<const std::byte*>(&own_->address());
  return {bytes, bytes + sizeof(Address)};
}

Peer* ShmTransport::open_peer(int rank, std::span<const std::byte> address) {
  if (rank < 0 || rank >= context_.size) return nullptr;
  std::unique_ptr<Peer>& p = peers_[static_cast<size_t>(rank)];
  if (p) return p.get();
  if (!asked_[static_cast<size_t>(rank)]) {
    asked_[static_cast<size_t>(rank)] = true;
    asked_count_++;
  }
  Address parsed;
  if (address.size() != sizeof parsed) return nullptr;
  std::memcpy(&parsed, address.data(), sizeof parsed);
  Mapping segment = open_segment(parsed, &obstacle_);
  if (!segment && !has_ring_here(rank)) return nullptr;
  p = std::make_unique<Peer>();
  p->rank = rank;
  p->address = parsed;
  p->segment = std::move(segment);
  p->same_pid_namespace = parsed.process.pid_namespace == own_->address().process.pid_namespace;
  if (p->segment)
    p->eager_bytes =
        std::min<size_t>(context_.eager_bytes, p->segment.header()->geometry.largest_payload());
  reached_++;
  return p.get();
}

// Whoever finished its calls may leave, and its segment with it, before this rank looks for it the
// first time; what it sent lies in our segment.
bool ShmTransport::has_ring_here(int rank) const {
  SegmentHeader& header = own_->header();
  const uint32_t claimed =
      std::min(header.claimed.load(std::memory_order_acquire), header.capacity);
  for (uint32_t i = 0; i < claimed; i++)
    if (header.senders()[i].load(std::memory_order_acquire) == rank + 1) return true;
  return false;
}

Reach ShmTransport::reach(int rank, std::span<const std::byte> address) {
  return open_peer(rank, address) ? Reach::same_host : Reach::none;
}

Status ShmTransport::add_peer(int rank, std::span<const std::byte> address) {
  if (open_peer(rank, address)) return {};
  return {
      SENNIT_LINK_FAILED,
      fmt::format("shm: rank {} is not on this host, or its segment in /dev/shm is gone", rank)};
}

Peer& ShmTransport::peer(int rank) {
  SENNIT_CHECK(rank >= 0 && rank < context_.size && peers_[static_cast<size_t>(rank)]);
  return *peers_[static_cast<size_t>(rank)];
}

void ShmTransport::activate(Peer& p) {
  if (p.active) return;
  p.active = true;
  active_.push_back(&p);
}

// The status that requests of this peer and communicator end with at once, or nullptr.
const Status* ShmTransport::refused(const Peer& p, uint32_t comm) const {
  if (!p.failed.ok()) return &p.failed;
  if (cancelled_.empty()) return nullptr;
  const auto entry = cancelled_.find(comm);
  return entry == cancelled_.end() ? nullptr : &entry->second;
}

uint64_t ShmTransport::now() {
  if (clock_ns_ == 0) clock_ns_ = now_ns();
  return clock_ns_;
}

void ShmTransport::finish(SendRequest& request, Status status) {
  request.status = std::move(status);
  done_sends_.push_back(&request);
}

void ShmTransport::finish(RecvRequest& request, Status status) {
  request.status = std::move(status);
  done_receives_.push_back(&request);
}

Status ShmTransport::claim_ring(Peer& p) {
  SegmentHeader& header = *p.segment.header();
  if (p.out_index == UINT32_MAX)
    p.out_index = header.claimed.fetch_add(1, std::memory_order_acq_rel);
  if (p.out_index >= header.capacity)
    return {SENNIT_OUT_OF_RESOURCES,
            fmt::format("shm: rank {} has room for {} local peers, and more came", p.rank,
                        header.capacity)};
  void* ring = p.segment.ring(p.out_index);
  SENNIT_RETURN_IF_ERROR(
      populate(ring, header.geometry.ring_bytes(),
               fmt::format("a ring from rank {} to rank {}", context_.rank, p.rank)));
  p.out = Producer(ring, header.geometry);
  header.senders()[p.out_index].store(context_.rank + 1, std::memory_order_release);
  return {};
}

// Gives rings that peers have claimed in our segment to those peers.
void ShmTransport::find_rings() {
  SegmentHeader& header = own_->header();
  const uint32_t claimed =
      std::min(header.claimed.load(std::memory_order_acquire), header.capacity);
  bool all_known = true;
  for (uint32_t i = rings_examined_; i < claimed; i++) {
    const int sender = header.senders()[i].load(std::memory_order_acquire) - 1;
    Peer* p =
        sender >= 0 && sender < context_.size ? peers_[static_cast<size_t>(sender)].get() : nullptr;
    if (p && !p->in) p->in = Consumer(own_->ring(i), header.geometry);
    all_known = all_known && p;
    if (all_known) rings_examined_ = i + 1;
  }
}

void ShmTransport::send(SendRequest& request) {
  Peer& p = peer(request.peer);
  request.status = Status();
  request.ready_ns = request.first_ns = 0;
  if (const Status* status = refused(p, request.key.comm)) return finish(request, *status);
  if (p.waiting.empty() && try_send(p, request)) return;
  p.waiting.push_back(request);
  activate(p);
}

// False if it has to wait: because the ring is full, or until it is known what became of a peer
// whose segment is gone, see tick().
bool ShmTransport::try_send(Peer& p, SendRequest& request) {
  if (!p.out) [[unlikely]] {
    if (!p.segment) return false;
    if (Status status = claim_ring(p); !status.ok()) {
      finish(request, std::move(status));
      return true;
    }
  }
  if (request.bytes <= p.eager_bytes && !p.out.held(request.key.comm))
    return send_eager(p, request);
  return send_offer(p, request);
}

bool ShmTransport::send_eager(Peer& p, SendRequest& request) {
  const bool fits_inline = request.bytes <= kInlineBytes;
  const Producer::Place place = p.out.reserve(fits_inline ? 0 : request.bytes, false);
  if (!place.slot) return false;
  Slot& slot = *place.slot;
  slot.kind = Kind::eager;
  slot.inline_bytes = static_cast<uint16_t>(fits_inline ? request.bytes : 0);
  slot.payload_bytes = static_cast<uint32_t>(fits_inline ? 0 : request.bytes);
  slot.key = request.key;
  slot.signature = request.signature;
  std::byte* to = fits_inline ? slot.body : place.payload;
  for (const Segment& segment : request.segments) {
    if (segment.bytes) std::memcpy(to, segment.data, segment.bytes);
    to += segment.bytes;
  }
  p.out.publish(&slot);
  count_.eager++;
  finish(request, Status());
  return true;
}

void ShmTransport::recv(RecvRequest& request) {
  Peer& p = peer(request.peer);
  request.status = Status();
  request.ready_ns = request.first_ns = 0;
  request.exposed = nullptr;
  if (const Status* status = refused(p, request.key.comm)) return finish(request, *status);
  Arrival* early = matcher_.post(request);
  if (!early) {
    p.posted++;
    return activate(p);
  }
  clock_ns_ = 0;
  request.ready_ns = early->arrived_ns;
  if (const uint64_t offer = early->handle[0]) {
    const auto* table = reinterpret_cast<const RemoteSegment*>(early->data.data());
    begin(p, request, offer, early->signature, early->bytes,
          {table, early->data.size() / sizeof(RemoteSegment)});
  } else {
    if (check_match(request, early->signature, early->bytes)) {
      request.first_ns = early->arrived_ns;
      SegmentCursor(request.segments).put(early->data.data(), early->bytes);
    }
    early_taken(p, request.key.comm, early->bytes);
    done_receives_.push_back(&request);
  }
  matcher_.recycle(early);
}

void ShmTransport::take(Peer& p, const Slot& slot) {
  switch (slot.kind) {
    case Kind::eager:
      return take_eager(p, slot);
    case Kind::offer:
      return take_offer(p, slot);
    case Kind::want:
      return take_want(p, slot);
    case Kind::fragment:
      return take_fragment(p, slot);
    case Kind::done:
      return take_done(p, slot);
    case Kind::arena: {
      ArenaBody arena;
      std::memcpy(&arena, slot.body, sizeof arena);
      return p.arenas.add(arena, slot.signature);
    }
  }
  report(p,
         {SENNIT_LINK_FAILED, fmt::format("shm: rank {} sent a message of unknown kind", p.rank)});
}

void ShmTransport::take_eager(Peer& p, const Slot& slot) {
  const bool fits_inline = slot.payload_bytes == 0;
  const size_t bytes = fits_inline ? slot.inline_bytes : slot.payload_bytes;
  const std::byte* data = fits_inline ? slot.body : p.in.payload(slot);
  RecvRequest* request = matcher_.take_receive(p.rank, slot.key);
  if (!request) return keep_early(p, slot, {data, bytes});
  p.posted--;
  // In a slot: it is complete the moment it is seen, and reading the clock would take a tenth of
  // its latency.
  if (!fits_inline) request->ready_ns = request->first_ns = now();
  if (check_match(*request, slot.signature, bytes)) {
    if (request->segments.size() == 1 && bytes > 0)
      std::memcpy(request->segments[0].data, data, bytes);
    else
      SegmentCursor(request->segments).put(data, bytes);
  }
  done_receives_.push_back(request);
}

void ShmTransport::keep_early(Peer& p, const Slot& slot, std::span<const std::byte> data) {
  if (refused(p, slot.key.comm)) return;
  Arrival* early = matcher_.keep(p.rank, slot.key, slot.signature, data.size());
  if (!early)
    return report(
        p, {SENNIT_LINK_FAILED, fmt::format("shm: rank {} sent the same message twice", p.rank)});
  early->arrived_ns = now();
  early->data.assign(data.begin(), data.end());
  count_.early++;
  EarlyState& state = p.early_state(slot.key.comm);
  state.early_bytes += data.size() + kEarlyOverheadBytes;
  if (state.early_bytes <= kEarlyWindowBytes || state.held) return;
  state.held = true;
  p.in.set_held(slot.key.comm, true);
}

void ShmTransport::early_taken(Peer& p, uint32_t comm, size_t bytes) {
  EarlyState& state = p.early_state(comm);
  state.early_bytes -= bytes + kEarlyOverheadBytes;
  if (state.held && state.early_bytes < kEarlyWindowBytes / 2) {
    state.held = false;
    const bool shared_bit = std::any_of(
        p.comms.begin(), p.comms.end(),
        [&](const EarlyState& other) { return other.held && (other.comm & 63) == (comm & 63); });
    if (!shared_bit) p.in.set_held(comm, false);
  }
  p.forget_if_idle(state);
}

bool ShmTransport::poll(Peer& p) {
  bool moved = false;
  if (!p.in) [[unlikely]]
    find_rings();
  if (p.in)
    for (int i = 0; i < kMessagesPerPoll; i++) {
      const Slot* slot = p.in.peek();
      if (!slot) break;
      take(p, *slot);
      p.in.pop(*slot);
      moved = true;
    }
  if (!p.control.empty()) moved |= flush_control(p);
  if (!p.streaming.empty()) moved |= stream(p);
  while (SendRequest* request = p.waiting.front()) {
    p.waiting.remove(*request);
    if (!try_send(p, *request)) {
      p.waiting.push_front(*request);
      break;
    }
    moved = true;
  }
  return moved;
}

bool ShmTransport::progress(Completions& completions) {
  clock_ns_ = 0;
  bool moved = false;
  for (size_t i = active_.size(); i-- > 0;) {
    Peer& p = *active_[i];
    moved |= poll(p);
    if (p.busy()) continue;
    p.active = false;
    active_[i] = active_.back();
    active_.pop_back();
  }
  if (!fetching_.empty()) moved |= fetch_some();
  if ((++calls_ & 31) == 0) tick();
  const auto hand_over = [&moved](auto& from, auto& to) {
    if (from.empty()) return;
    to.insert(to.end(), from.begin(), from.end());
    from.clear();
    moved = true;
  };
  hand_over(done_sends_, completions.sends);
  hand_over(done_receives_, completions.receives);
  hand_over(events_, completions.events);
  return moved;
}

std::string ShmTransport::statistics() const {
  size_t rings = 0;
  for (const std::unique_ptr<Peer>& p : peers_) rings += p && p->out;
  return fmt::format(
      "rings {}, eager messages {} ({} came early), exposed {}, mapped {}, read {}, streamed {}",
      rings, count_.eager, count_.early, count_.exposed, format_bytes(count_.mapped_bytes),
      format_bytes(count_.read_bytes), format_bytes(count_.streamed_bytes));
}

}  // namespace sennit::shm

namespace sennit {
SENNIT_TRANSPORT_ENTRY(shm, 80, shm::ShmTransport::make)
}
