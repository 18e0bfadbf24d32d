// watch.cpp: life and death of a rank's local peers, of its name in /dev/shm, and of requests that
// fail.
//
// Shared memory has no end of file. So ten times a second, and only for peers that something is
// expected from, a pidfd is polled; it is readable once the process has exited, reaped or not.
// Where there is no pidfd, /proc is read. Peers in another PID namespace cannot be watched: for
// them the control plane's sockets decide.
#include <poll.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <fmt/format.h>

#include "transports/shm/shm.hpp"

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

bool ShmTransport::is_dead(Peer& p) {
  if (!p.same_pid_namespace) return false;
  if (!p.pid_fd_tried) {
    p.pid_fd_tried = true;
    p.pid_fd = static_cast<int>(syscall(SYS_pidfd_open, p.address.process.pid, 0));
    // Opened or not: if the number has gone to another process, the start time tells.
    return !may_be_alive(p.address.process);
  }
  if (p.pid_fd < 0) return !may_be_alive(p.address.process);
  pollfd entry{p.pid_fd, POLLIN, 0};
  return ::poll(&entry, 1, 0) == 1;
}

void ShmTransport::report(Peer& p, Status status) {
  if (p.reported) return;
  p.reported = true;
  events_.push_back({p.rank, std::move(status)});
}

void ShmTransport::tick() {
  const uint64_t now_ms = coarse_ms();
  if (now_ms < next_check_ms_) return;
  next_check_ms_ = now_ms + kCheckEveryMs;

  // Everybody who will map our segment has: the name is not needed any more.
  const uint32_t attached = own_->header().attached.load(std::memory_order_acquire);
  const bool all_asked = asked_count_ >= context_.size - 1;
  const bool all_mapped = context_.local_ranks > 1
                              ? attached + 1 >= static_cast<uint32_t>(context_.local_ranks)
                              : all_asked && attached >= reached_;
  if (own_->linked() && all_mapped) own_->unlink();

  for (Peer* p : active_) {
    if (p->reported || (p->in && p->in.peek())) continue;  // take first what it sent before it died
    if (is_dead(*p)) {
      remove_name(p->address);
      report(*p, {SENNIT_PEER_FAILED,
                  fmt::format("rank {} (process {}) has died", p->rank, p->address.process.pid)});
    } else if (!p->segment || p->segment.header()->closed.load(std::memory_order_acquire)) {
      report(*p,
             {SENNIT_PEER_FAILED, fmt::format("rank {} has closed its shared memory", p->rank)});
    }
  }
}

// Ends the requests of `p` that `which` holds for.
template <typename Which>
void ShmTransport::hand_back(Peer& p, Which which, const Status& status) {
  const auto sweep = [&](auto& list, auto forget) {
    for (auto* request = list.front(); request;) {
      auto* after = list.after(request);
      if (which(*request)) {
        list.remove(*request);
        forget(*request);
        finish(*request, status);
      }
      request = after;
    }
  };
  const auto forget_offer = [&](SendRequest& request) { offers_.erase(request.scratch[kId]); };
  sweep(p.waiting, [](SendRequest&) {});
  sweep(p.offered, forget_offer);
  sweep(p.streaming, forget_offer);
  sweep(p.receiving, [&](RecvRequest& request) {
    std::erase(fetching_, request.scratch[kToken]);
    transfers_.erase(request.scratch[kToken]);
  });
}

void ShmTransport::fail_peer(int rank, const Status& status) {
  if (rank < 0 || rank >= context_.size || !peers_[static_cast<size_t>(rank)]) return;
  Peer& p = peer(rank);
  if (p.failed.ok()) p.failed = status;
  p.reported = true;
  hand_back(
      p, [](const MessageRequest&) { return true; }, status);
  matcher_.take_receives_if([&](const RecvRequest& request) { return request.peer == rank; },
                            [&](RecvRequest& request) { finish(request, status); });
  matcher_.drop_arrivals_if([&](const Arrival& early) { return early.peer == rank; });
  p.posted = 0;
  p.control.clear();
  p.comms.clear();
}

void ShmTransport::cancel(uint32_t comm, const Status& status) {
  if (!cancelled_.emplace(comm, status).second) return;
  own_->note_cancelled(comm);
  const auto of_comm = [&](const auto& message) { return message.key.comm == comm; };
  for (const std::unique_ptr<Peer>& p : peers_)
    if (p) hand_back(*p, of_comm, status);
  matcher_.take_receives_if(of_comm, [&](RecvRequest& request) {
    peer(request.peer).posted--;
    finish(request, status);
  });
  drop_arrivals(of_comm);
}

void ShmTransport::forget(const std::function<bool(uint32_t comm)>& over) {
  std::erase_if(cancelled_, [&](const auto& entry) { return over(entry.first); });
  drop_arrivals([&](const Arrival& early) { return over(early.key.comm); });
}

template <typename Which>
void ShmTransport::drop_arrivals(Which which) {
  matcher_.take_arrivals_if(which, [&](Arrival& early) {
    if (early.handle[0] == 0) early_taken(peer(early.peer), early.key.comm, early.bytes);
    matcher_.recycle(&early);
  });
}

}  // namespace sennit::shm
