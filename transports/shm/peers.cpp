// peers.cpp: see transports/shm/peers.hpp.
#include "transports/shm/peers.hpp"

#include <poll.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include <fmt/core.h>

#include "base/process/descriptors.hpp"

namespace sennit::shm {
namespace {

constexpr uint64_t kCheckEveryMs = 100;

uint64_t coarse_ms() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC_COARSE, &time);
  return static_cast<uint64_t>(time.tv_sec) * 1000 +
         static_cast<uint64_t>(time.tv_nsec) / 1'000'000;
}

}  // namespace

bool LocalPeer::push_control(SlotKind kind, bool flag, uint64_t signature, const void* body,
                             size_t bytes) {
  const Producer::Reserved place = out.reserve(0, true);
  if (!place.slot) return false;
  place.slot->kind = kind;
  place.slot->payload_bytes = 0;
  place.slot->segments = flag;
  place.slot->signature = signature;
  std::memcpy(place.slot->body, body, bytes);
  out.publish(place.slot);
  return true;
}

bool LocalPeer::flush_control() {
  bool moved = false;
  while (!control.empty()) {
    const QueuedControl& first = control.front();
    if (!push_control(first.kind, first.flag, first.signature, first.body, sizeof first.body))
      break;
    control.pop_front();
    moved = true;
  }
  return moved;
}

Peers::Peers(const TransportContext& context, std::unique_ptr<OwnSegment> own, Returns& returns)
    : rank_(context.rank),
      size_(context.size),
      local_ranks_(context.local_ranks),
      eager_bytes_(context.eager_bytes),
      returns_(returns),
      own_(std::move(own)),
      peers_(static_cast<size_t>(context.size)) {}

Peers::~Peers() {
  if (is_forked()) return;
  each([](LocalPeer& p) {
    if (p.pid_fd >= 0) close(p.pid_fd);
    // A peer that was killed cannot remove its name; one that lives will.
    if (!may_be_alive(p.address.process)) remove_name(p.address);
  });
}

bool Peers::is_forked() const { return own_->address().process.pid != getpid(); }

// ---- opening ----

Result<LocalPeer*> Peers::open(int rank, std::span<const std::byte> address) {
  if (rank < 0 || rank >= size_) return nullptr;
  std::unique_ptr<LocalPeer>& p = peers_[static_cast<size_t>(rank)];
  if (p) return p.get();
  SegmentAddress parsed;
  if (address.size() != sizeof parsed) return nullptr;
  std::memcpy(&parsed, address.data(), sizeof parsed);
  if (!shares_host(parsed)) return nullptr;
  Result<Mapping> segment = open_segment(parsed, &obstacle_);
  if (!segment) return segment.status();
  if (!*segment && !has_ring_here(rank)) return nullptr;
  p = std::make_unique<LocalPeer>();
  p->rank = rank;
  p->address = parsed;
  p->segment = *std::move(segment);
  // The owner does so at its next tick, unless it is killed before that.
  if (p->segment && all_have_mapped(*p->segment.header())) remove_name(parsed);
  p->same_pid_namespace = parsed.process.pid_namespace == own_->address().process.pid_namespace;
  if (p->segment)
    p->eager_bytes =
        std::min<size_t>(eager_bytes_, p->segment.header()->geometry.largest_payload());
  return p.get();
}

// Both ends ask this of the same two addresses.
bool Peers::shares_host(const SegmentAddress& address) {
  const SegmentAddress& own = own_->address();
  if (address.speaker != own.speaker)
    obstacle_ =
        "it is on another host: its name (SLURMD_NODENAME goes before the system's), its machine "
        "or its /dev/shm is another";
  else if (address.user != own.user)
    obstacle_ = fmt::format("it is user {}'s, and this rank is user {}'s", address.user, own.user);
  else
    return true;
  return false;
}

// Whoever finished its calls may leave, and its segment with it, before this rank looks for it the
// first time; what it sent lies in our segment.
bool Peers::has_ring_here(int rank) const {
  SegmentHeader& header = own_->header();
  const uint32_t claimed =
      std::min(header.claimed.load(std::memory_order_acquire), header.capacity);
  for (uint32_t i = 0; i < claimed; i++)
    if (header.senders()[i].load(std::memory_order_acquire) == rank + 1) return true;
  return false;
}

// ---- rings ----

Status Peers::claim_ring(LocalPeer& p) {
  SegmentHeader& header = *p.segment.header();
  if (p.out_index == UINT32_MAX)
    p.out_index = header.claimed.fetch_add(1, std::memory_order_acq_rel);
  if (p.out_index >= header.capacity)
    return {SENNIT_OUT_OF_RESOURCES,
            fmt::format("shm: rank {} has room for {} local peers, and more came", p.rank,
                        header.capacity)};
  void* ring = p.segment.ring(p.out_index);
  SENNIT_RETURN_IF_ERROR(populate(ring, header.geometry.ring_bytes(),
                                  fmt::format("a ring from rank {} to rank {}", rank_, p.rank)));
  p.out = Producer(ring, header.geometry);
  header.senders()[p.out_index].store(rank_ + 1, std::memory_order_release);
  return {};
}

void Peers::find_rings() {
  SegmentHeader& header = own_->header();
  const uint32_t claimed =
      std::min(header.claimed.load(std::memory_order_acquire), header.capacity);
  bool all_known = true;
  for (uint32_t i = rings_examined_; i < claimed; i++) {
    LocalPeer* const p = find(header.senders()[i].load(std::memory_order_acquire) - 1);
    if (p && !p->in) p->in = Consumer(own_->ring(i), header.geometry);
    all_known = all_known && p;
    if (all_known) rings_examined_ = i + 1;
  }
}

// ---- life and death ----

bool Peers::cancel(uint32_t comm, const Status& status) {
  if (!cancelled_.add(comm, status)) return false;
  own_->note_cancelled(comm);
  return true;
}

bool Peers::is_dead(LocalPeer& p) {
  if (!p.same_pid_namespace) return false;
  if (!p.pid_fd_tried) {
    p.pid_fd_tried = true;
    p.pid_fd =
        off_standard_streams(static_cast<int>(syscall(SYS_pidfd_open, p.address.process.pid, 0)));
    // Opened or not: if the number has gone to another process, the start time tells.
    return !may_be_alive(p.address.process);
  }
  if (p.pid_fd < 0) return !may_be_alive(p.address.process);
  pollfd entry{p.pid_fd, POLLIN, 0};
  return ::poll(&entry, 1, 0) == 1;
}

void Peers::report(LocalPeer& p, Status status) {
  if (p.reported) return;
  p.reported = true;
  returns_.add_event(p.rank, std::move(status));
}

// Whoever finds it, by looking or by reading from the dead process's memory, takes its name away.
void Peers::report_death(LocalPeer& p) {
  remove_name(p.address);
  report(p, {SENNIT_PEER_FAILED,
             fmt::format("rank {} (process {}) has died", p.rank, p.address.process.pid)});
}

// The name is not needed any more once everybody who will map our segment has.
void Peers::remove_own_name() {
  if (own_->linked() && all_have_mapped(own_->header())) own_->unlink();
}

bool Peers::all_have_mapped(const SegmentHeader& header) const {
  return header.attached.load(std::memory_order_acquire) + 1 >= static_cast<uint32_t>(local_ranks_);
}

void Peers::tick() {
  const uint64_t now_ms = coarse_ms();
  if (now_ms < next_check_ms_) return;
  next_check_ms_ = now_ms + kCheckEveryMs;
  remove_own_name();
  for (LocalPeer* p : active_) {
    if (p->reported || (p->in && p->in.peek())) continue;  // take first what it sent before it died
    if (is_dead(*p)) {
      report_death(*p);
    } else if (!p->segment || p->segment.header()->closed.load(std::memory_order_acquire)) {
      report(*p,
             {SENNIT_PEER_FAILED, fmt::format("rank {} has closed its shared memory", p->rank)});
    }
  }
}

}  // namespace sennit::shm
