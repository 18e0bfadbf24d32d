// control_plane.cpp: the public functions of the control plane. They run on the caller's thread,
// hand closures to the control thread and, where they block, wait for its answer with a time limit
// of their own.
#include "control/control_plane.hpp"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include <fmt/format.h>

#include "base/descriptors.hpp"
#include "base/log.hpp"
#include "control/state.hpp"

namespace sennit {

using control::ControlPlane;

Result<std::unique_ptr<Control>> Control::start(const BootstrapOptions& options,
                                                Callbacks callbacks) {
  if (options.size < 1 || options.rank < 0 || options.rank >= options.size)
    return invalid(fmt::format("rank {} of {} ranks: expected a rank from 0 to size - 1",
                               options.rank, options.size));
  if (options.secret.empty() ? false : options.secret.size() != 32)
    return invalid(fmt::format("a secret of {} bytes: expected 32", options.secret.size()));
  if (options.sealed && options.secret.empty() && options.size > 1)
    return Status{SENNIT_REFUSED,
                  fmt::format("SENNIT_WIRE=sealed: this job has no secret to seal with{}; set "
                              "SENNIT_SECRET to the same on all ranks, or SENNIT_WIRE=plain",
                              options.insecure ? " (SENNIT_INSECURE=1)" : "")};
  auto plane = std::make_unique<ControlPlane>(options, std::move(callbacks));
  SENNIT_RETURN_IF_ERROR(plane->open());
  return std::unique_ptr<Control>(std::move(plane));
}

namespace control {
namespace {

// beyond a time-out, for rank 0's word about who is missing
constexpr int64_t kVerdictGraceMs = 5000;

// At rank 0 every waiting rank holds a connection for a while, and so do strangers.
size_t descriptors_wanted(int rank, int size) {
  return rank == 0 ? static_cast<size_t>(size) + 2 * kStrangers : 2 * size_t{kFanOut};
}

// A time-out of 0: silence is never taken for death.
BootstrapOptions with_limits(BootstrapOptions options) {
  if (options.heartbeat_timeout_ms == 0) options.heartbeat_timeout_ms = int64_t{1} << 40;
  return options;
}

int64_t heartbeat_interval(int64_t timeout_ms) {
  return std::max<int64_t>(1, std::min<int64_t>(1000, timeout_ms / 4));
}

}  // namespace

ControlPlane::ControlPlane(const BootstrapOptions& options, Callbacks callbacks)
    : options_(with_limits(options)),
      callbacks_(std::move(callbacks)),
      rank_(options.rank),
      size_(options.size),
      heartbeat_ms_(heartbeat_interval(options_.heartbeat_timeout_ms)),
      pid_(getpid()),
      job_(options.job) {
  heartbeat_ = Writer(Frame::heartbeat).finish();
}

ControlPlane::~ControlPlane() {
  if (getpid() != pid_) {  // a forked child: the thread and the sockets are the parent's
    thread_.detach();
    return;
  }
  if (thread_.joinable()) {
    leave();
    thread_.join();
  }
  for (const int fd : {wake_fd_, epoll_fd_, listener_, start_port_fd_, spare_fd_}) close_socket(fd);
}

Status ControlPlane::open() {
  if (size_ > 1) reserve_descriptors(descriptors_wanted(rank_, size_));
  epoll_fd_ = open_guarded([] { return epoll_create1(EPOLL_CLOEXEC); });
  wake_fd_ = open_guarded([] { return eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); });
  if (epoll_fd_ >= 0 && wake_fd_ >= 0) hold_spare();
  if (epoll_fd_ < 0 || wake_fd_ < 0 || spare_fd_ < 0) {
    const int error = errno;
    if (rank_ == 0 && options_.root_listener_fd >= 0) close_socket(options_.root_listener_fd);
    return {SENNIT_OUT_OF_RESOURCES,
            fmt::format("cannot set up the control plane: {}{}{}", std::strerror(error),
                        error == EMFILE ? "; " : "", error == EMFILE ? kDescriptorRemedy : "")};
  }
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = 0;
  epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, wake_fd_, &event);

  now_ms_ = now_ms();
  start_deadline_ms_ = now_ms_ + options_.arrival_timeout_ms;
  if (size_ > 1) SENNIT_RETURN_IF_ERROR(prepare_root());

  sigset_t all, before;  // signals are for the threads of the user
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { run(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);

  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return started_.has_value(); });
  const Status status = *started_;
  lock.unlock();
  if (!status.ok()) thread_.join();
  return status;
}

void ControlPlane::wake() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake_fd_, &one, sizeof one);
}

void ControlPlane::post(std::function<void()> command) {
  if (getpid() != pid_) return;
  {
    const std::lock_guard lock(mutex_);
    if (ended_) return;
    commands_.push_back(std::move(command));
  }
  wake();
}

Result<Buffer> ControlPlane::wait_collective(uint32_t seq, const std::string& what) {
  const auto limit = std::chrono::milliseconds(options_.arrival_timeout_ms + kVerdictGraceMs);
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, limit, [&] { return results_.count(seq) || !failure_.ok() || ended_; });
  if (const auto result = results_.find(seq); result != results_.end()) {
    const Result<Buffer> value = result->second;
    results_.erase(result);
    return value;
  }
  if (!failure_.ok()) return failure_;
  if (ended_) return Status{SENNIT_ABORTED, what + ": this rank has left the job"};
  return Status{SENNIT_TIMED_OUT, fmt::format("{}: nothing came from rank 0 within {} ms", what,
                                              options_.arrival_timeout_ms + kVerdictGraceMs)};
}

Result<std::vector<std::vector<std::byte>>> ControlPlane::all_gather(
    std::span<const std::byte> mine) {
  const std::lock_guard guard(collective_mutex_);
  const uint32_t seq = next_collective_++;
  post([this, seq, blob = std::vector<std::byte>(mine.begin(), mine.end())]() mutable {
    contribute(seq, std::move(blob));
  });
  const Result<Buffer> result = wait_collective(seq, "all_gather of the start");
  if (!result) return result.status();
  std::vector<std::vector<std::byte>> blobs;
  blobs.reserve(static_cast<size_t>(size_));
  Reader in(**result);
  for (int r = 0; r < size_ && in.ok(); r++) {
    const auto blob = in.blob();
    blobs.emplace_back(blob.begin(), blob.end());
  }
  if (!in.ok() || in.left() != 0)
    return Status{SENNIT_INTERNAL, "all_gather of the start: rank 0 sent something malformed"};
  return blobs;
}

Result<std::vector<std::byte>> ControlPlane::broadcast(std::span<const std::byte> from_rank0) {
  const std::lock_guard guard(collective_mutex_);
  const uint32_t seq = next_collective_++;
  if (rank_ == 0) {
    post([this, frame = Writer(Frame::broadcast).u32(seq).blob(from_rank0).finish()] {
      flood_down(frame);
    });
    const std::lock_guard lock(mutex_);
    if (!failure_.ok()) return failure_;
    return std::vector<std::byte>(from_rank0.begin(), from_rank0.end());
  }
  const Result<Buffer> result = wait_collective(seq, "broadcast of the start");
  if (!result) return result.status();
  return **result;
}

void ControlPlane::report_suspect(int peer, const std::string& what) {
  if (peer < 0 || peer >= size_ || peer == rank_) return;
  post([this, peer, what] { suspect(peer, kBroken, rank_, what); });
}

void ControlPlane::report_stall(const CallDescriptor& mine) {
  post([this, mine] { stalled(mine, -1); });
}

void ControlPlane::report_mismatch(const CallDescriptor& mine, int peer) {
  post([this, mine, peer] { stalled(mine, std::max(peer, 0)); });
}

void ControlPlane::abort(uint32_t comm, const std::string& why) {
  post([this, comm, why] {
    request_failure(
        comm, {SENNIT_ABORTED, fmt::format("communicator {} was aborted by {}{}{}", comm,
                                           describe_rank(rank_), why.empty() ? "" : ": ", why)});
  });
}

void ControlPlane::fail(uint32_t comm, const Status& status) {
  post([this, comm, status] { request_failure(comm, status); });
}

void ControlPlane::leave() {
  post([this] { begin_leave(); });
  std::unique_lock lock(mutex_);
  // The thread ends by itself within kLingerMs + kClosingMs; the limit is for a machine that barely
  // runs.
  changed_.wait_for(lock, std::chrono::seconds(5), [&] { return ended_; });
}

std::string ControlPlane::statistics() const {
  const std::lock_guard lock(mutex_);
  return fmt::format(
      "start frames {}, frames sent {}, frames received {}, connections {}, refused strangers {}",
      counters_.start_frames, counters_.frames_out, counters_.frames_in, counters_.connections,
      counters_.refused);
}

}  // namespace control
}  // namespace sennit
