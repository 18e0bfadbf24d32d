// shm.cpp: the shm transport: which way a message goes, and what a peer's ring holds. See
// transports/shm/shm.hpp.
#include "transports/shm/shm.hpp"

#include <sys/prctl.h>

#include <fmt/core.h>

#include "base/options.hpp"

namespace sennit::shm {
namespace {

constexpr int kMessagesPerPoll = 64;
constexpr uint32_t kCallsPerTick = 32;  // of progress(), for one look at who lives

}  // namespace

Result<std::unique_ptr<Transport>> ShmTransport::make(const TransportContext& context) {
  remove_stale_segments(context.job);
  // Where Yama restricts ptrace, let the peers read this process's memory. Fails harmlessly
  // elsewhere.
  prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
  Result<std::unique_ptr<OwnSegment>> own = OwnSegment::create(context);
  if (!own) return own.status();
  return std::unique_ptr<Transport>(new ShmTransport(context, std::move(*own)));
}

ShmTransport::~ShmTransport() {
  if (peers_.is_forked()) return;
  registered_.clear();
  peers_.each([](LocalPeer& p) {
    if (p.out) p.flush_control();
  });
}

std::vector<std::byte> ShmTransport::address() const {
  const auto* bytes = reinterpret_cast<const std::byte*>(&peers_.own().address());
  return {bytes, bytes + sizeof(SegmentAddress)};
}

// A peer that cannot be opened only for want of something here is near, and an error of add_peer().
Reach ShmTransport::reach(int rank, std::span<const std::byte> address) {
  const Result<LocalPeer*> peer = peers_.open(rank, address);
  return !peer || *peer ? Reach::same_host : Reach::none;
}

Status ShmTransport::add_peer(int rank, std::span<const std::byte> address) {
  const Result<LocalPeer*> peer = peers_.open(rank, address);
  if (!peer) return peer.status();
  if (*peer) return {};
  return {
      SENNIT_LINK_FAILED,
      fmt::format("shm: rank {} is not on this host, or its segment in /dev/shm is gone", rank)};
}

// ---- sending ----

void ShmTransport::send(SendRequest& request) {
  LocalPeer& p = peers_.at(request.peer);
  request.status = Status();
  request.ready_ns = request.first_ns = 0;
  if (const Status* status = peers_.refused(p, request.key.comm))
    return returns_.add(request, *status);
  if (p.waiting.empty() && try_send(p, request)) return;
  p.waiting.push_back(request);
  peers_.activate(p);
}

// False if it has to wait: because the ring is full, or until it is known what became of a peer
// whose segment is gone, see Peers::tick().
bool ShmTransport::try_send(LocalPeer& p, SendRequest& request) {
  if (!p.out) [[unlikely]] {
    if (!p.segment) return false;
    if (Status status = peers_.claim_ring(p); !status.ok()) {
      returns_.add(request, std::move(status));
      return true;
    }
  }
  const bool copies = !request.exported && SmallMessages::takes(p, request.key.comm, request.bytes);
  return copies ? small_.send(p, request) : offers_.send(p, request);
}

// ---- receiving ----

void ShmTransport::recv(RecvRequest& request) {
  LocalPeer& p = peers_.at(request.peer);
  request.status = Status();
  request.ready_ns = request.first_ns = 0;
  request.exposed = nullptr;
  if (const Status* status = peers_.refused(p, request.key.comm))
    return returns_.add(request, *status);
  Arrival* early = matcher_.post(request);
  if (!early) {
    p.posted++;
    return peers_.activate(p);
  }
  clock_.forget();
  request.ready_ns = early->arrived_ns;
  if (SmallMessages::is_offer(*early))
    transfers_.take_early(p, request, *early);
  else
    small_.take_early(p, request, *early);
  matcher_.recycle(early);
}

// A peer's ring is looked into only while something of it is awaited.
bool ShmTransport::has_come(int peer, const Key& key) {
  peers_.activate(peers_.at(peer));
  return matcher_.find_arrival(peer, key) != nullptr;
}

Now ShmTransport::recv_now(const SmallMessage& message) {
  return small_.recv_now(message, [this](LocalPeer& p, const Slot& slot) { take(p, slot); });
}

void ShmTransport::take(LocalPeer& p, const Slot& slot) {
  switch (slot.kind) {
    case SlotKind::eager:
      return small_.take(p, slot);
    case SlotKind::offer:
      return transfers_.take_offer(p, slot);
    case SlotKind::want:
      return offers_.take_want(p, slot);
    case SlotKind::fragment:
      return transfers_.take_fragment(p, slot);
    case SlotKind::done:
      return offers_.take_done(p, slot);
    case SlotKind::exported:
      return device_exports_.take_exported(p, slot);
    case SlotKind::mapped:
      return device_exports_.take_mapped(p, slot);
    case SlotKind::takes:
      return device_exports_.take_takes(p, slot);
    case SlotKind::arena: {
      ArenaBody arena;
      std::memcpy(&arena, slot.body, sizeof arena);
      return p.arenas.add(arena, slot.signature);
    }
  }
  peers_.report(
      p, {SENNIT_LINK_FAILED, fmt::format("shm: rank {} sent a message of unknown kind", p.rank)});
}

// ---- progress and failure ----

bool ShmTransport::poll(LocalPeer& p) {
  bool moved = false;
  if (!p.in) [[unlikely]]
    peers_.find_rings();
  if (p.in)
    for (int i = 0; i < kMessagesPerPoll; i++) {
      const Slot* slot = p.in.peek();
      if (!slot) break;
      take(p, *slot);
      p.in.pop(*slot);
      moved = true;
    }
  if (!p.control.empty()) moved |= p.flush_control();
  if (!p.streaming.empty()) moved |= offers_.stream(p);
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
  clock_.forget();
  bool moved = false;
  std::vector<LocalPeer*>& active = peers_.active();
  for (size_t i = active.size(); i-- > 0;) {
    LocalPeer& p = *active[i];
    moved |= poll(p);
    if (p.busy()) continue;
    p.active = false;
    active[i] = active.back();
    active.pop_back();
  }
  moved |= transfers_.fetch_some();
  if (++calls_ % kCallsPerTick == 0) peers_.tick();
  return returns_.hand_over(completions) || moved;
}

// Ends the requests of `p` that `which` holds for, but for those in the matcher.
template <typename Which>
void ShmTransport::hand_back(LocalPeer& p, Which which, const Status& status) {
  p.waiting.take_if(which, [&](SendRequest& request) { returns_.add(request, status); });
  offers_.hand_back(p, which, status);
  transfers_.hand_back(p, which, status);
}

void ShmTransport::fail_peer(int rank, const Status& status) {
  LocalPeer* const p = peers_.find(rank);
  if (!p) return;
  if (p->failed.ok()) p->failed = status;
  p->reported = true;
  const auto of_peer = [rank](const auto& message) { return message.peer == rank; };
  hand_back(*p, of_peer, status);
  matcher_.take_receives_if(of_peer, [&](RecvRequest& request) { returns_.add(request, status); });
  matcher_.drop_arrivals_if(of_peer);
  p->posted = 0;
  p->control.clear();
  p->comms.clear();
}

void ShmTransport::cancel(uint32_t comm, const Status& status) {
  if (!peers_.cancel(comm, status)) return;
  const auto of_comm = [comm](const auto& message) { return message.key.comm == comm; };
  peers_.each([&](LocalPeer& p) { hand_back(p, of_comm, status); });
  matcher_.take_receives_if(of_comm, [&](RecvRequest& request) {
    peers_.at(request.peer).posted--;
    returns_.add(request, status);
  });
  small_.drop_early_if(of_comm);
}

void ShmTransport::forget(const std::function<bool(uint32_t comm)>& over) {
  peers_.forget(over);
  device_exports_.forget(over);
  small_.drop_early_if([&](const Arrival& early) { return over(early.key.comm); });
}

Status ShmTransport::deregister_memory(void* memory) {
  const std::span<const std::byte> range = registered_.range(memory);
  if (!range.empty() && offers_.reads(range))
    return invalid("this memory is still being sent: wait for the call that uses it");
  return registered_.remove(memory);
}

std::string ShmTransport::statistics() const {
  size_t rings = 0;
  peers_.each([&](const LocalPeer& p) { rings += static_cast<bool>(p.out); });
  return fmt::format(
      "rings {}, eager messages {} ({} came early), exposed {}, of devices {}, mapped {}, read {}, "
      "streamed {}",
      rings, small_.sent(), small_.came_early(), transfers_.exposed(),
      transfers_.exposed_of_devices(), format_bytes(transfers_.mapped_bytes()),
      format_bytes(transfers_.read_bytes()), format_bytes(offers_.streamed_bytes()));
}

}  // namespace sennit::shm

namespace sennit {
SENNIT_TRANSPORT_ENTRY(shm, 80, Reach::same_host, shm::ShmTransport::make)
}
