// control_plane.cpp: the control plane as its user has it. The public functions run on the caller's
// thread, hand closures to the control thread and, where they block, wait for its answer with a
// time limit of their own. The control thread waits for sockets, commands and time, and drives the
// plane (control/rank/plane.hpp).
#include "control/control_plane.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <thread>
#include <utility>

#include <fmt/core.h>

#include "base/mutex.hpp"
#include "base/process/descriptors.hpp"
#include "base/process/signals_blocked.hpp"
#include "control/callers.hpp"
#include "control/entrance.hpp"
#include "control/poller.hpp"
#include "control/rank/plane.hpp"
#include "control/switchboard.hpp"
#include "control/tree/shape.hpp"

namespace sennit {
namespace control {
namespace {

// Beyond a time-out, for rank 0's word about who is missing.
constexpr int64_t kVerdictGraceMs = 5000;
constexpr int64_t kStarvedMs = 250;  // later than asked for by more than this: we did not run
// The thread ends by itself much sooner; the limit is for a machine that barely runs.
constexpr std::chrono::seconds kMostLeaving{5};

// At rank 0 every waiting rank holds a connection for a while, and so do strangers.
size_t descriptors_wanted(int rank, int size) {
  return rank == 0 ? static_cast<size_t>(size) + 2 * kMostStrangers : 2 * size_t{kFanOut};
}

class ControlPlane final : public Control {
 public:
  ControlPlane(const BootstrapOptions& options, Callbacks callbacks)
      : self_(options, std::move(callbacks)),
        switchboard_(self_, poller_),
        entrance_(self_, poller_, switchboard_),
        plane_(self_, switchboard_, entrance_, callers_) {
    switchboard_.set_owner(&plane_);
  }
  ~ControlPlane() override;
  // Returns when the start is over.
  Status open();

  const SharedJob* shared() const override { return plane_.bootstrap().shared(); }
  int rank() const override { return self_.rank; }
  int size() const override { return self_.size; }
  uint64_t job() const override { return self_.job; }
  const std::vector<std::byte>& secret() const override { return self_.options.secret; }
  bool sealed() const override { return self_.options.sealed; }
  std::string interface_address() const override { return plane_.bootstrap().own_address(); }
  Result<std::vector<Blob>> all_gather(std::span<const std::byte> mine) override;
  Result<Blob> broadcast(std::span<const std::byte> from_rank0) override;
  void report_suspect(int peer, const std::string& what) override;
  void report_stall(const CallDescriptor& mine) override;
  void expire(const CallDescriptor& mine, int64_t waited_ms) override;
  void report_mismatch(const CallDescriptor& mine, int peer) override;
  void abort(uint32_t comm, const std::string& why) override;
  void fail(uint32_t comm, const Status& status) override;
  void tell(uint8_t topic, Blob blob, MayWait may_wait) override;
  void announce(uint8_t topic, uint64_t key, Blob blob) override;
  void leave() override;
  std::optional<MeasuredClock> clock() const override { return plane_.clock().measured(); }
  std::string statistics() const override { return switchboard_.statistics(); }

 private:
  Status set_up();
  void post(std::function<void()> command);
  int64_t result_limit_ms() const { return self_.options.arrival_timeout_ms + kVerdictGraceMs; }
  void run();
  void round();
  void excuse_gap(int64_t since_ms);

  Self self_;
  Callers callers_;
  Poller poller_;
  Switchboard switchboard_;
  Entrance entrance_;
  Plane plane_;
  std::thread thread_;
  Mutex collective_mutex_;  // one at a time, in the same order on all ranks
  uint32_t next_collective_ SENNIT_GUARDED_BY(collective_mutex_) = 0;
};

// ---- the start and the end ----

ControlPlane::~ControlPlane() {
  if (getpid() != self_.pid) {  // a forked child: the thread and the sockets are the parent's
    thread_.detach();
    return;
  }
  if (!thread_.joinable()) return;
  leave();
  thread_.join();
}

Status ControlPlane::set_up() {
  if (self_.size > 1) reserve_descriptors(descriptors_wanted(self_.rank, self_.size));
  if (poller_.open() && switchboard_.spare_descriptor().hold()) return {};
  const int error = errno;
  if (self_.rank == 0 && self_.options.root_listener_fd >= 0)
    close_socket(self_.options.root_listener_fd);
  return {SENNIT_OUT_OF_RESOURCES,
          fmt::format("cannot set up the control plane: {}{}{}", std::strerror(error),
                      error == EMFILE ? "; " : "", error == EMFILE ? kDescriptorRemedy : "")};
}

Status ControlPlane::open() {
  SENNIT_RETURN_IF_ERROR(set_up());
  self_.now_ms = now_ms();
  SENNIT_RETURN_IF_ERROR(plane_.bootstrap().prepare());

  try {
    const SignalsBlocked blocked;
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error& error) {
    return {SENNIT_OUT_OF_RESOURCES,
            fmt::format("the system has no thread left for the control plane of rank {} ({}): "
                        "raise the limit of threads (ulimit -u, pids.max)",
                        self_.rank, error.what())};
  }

  const bool awaited = callers_.await_start(self_.options.interruption);
  if (!awaited) post([this] { plane_.bootstrap().abort(Interruption::status()); });
  const Status status = callers_.wait_for_start();
  if (status.ok()) return status;
  thread_.join();
  return awaited ? status : Interruption::status();
}

void ControlPlane::leave() {
  post([this] { plane_.departure().begin(); });
  callers_.wait_for_end(kMostLeaving);
}

// ---- the control thread ----

void ControlPlane::run() {
  self_.now_ms = now_ms();
  plane_.bootstrap().begin();
  do round();
  while (!plane_.departure().over(switchboard_.empty()));
  switchboard_.clear();
  entrance_.close();
  callers_.end();
}

// Time in which this process did not run (stopped, suspended, starved) is taken out of every count
// of silence: a rank that was stopped must not accuse its peers when it goes on.
void ControlPlane::excuse_gap(int64_t since_ms) {
  const int64_t gap_ms = now_ms() - since_ms;
  if (gap_ms <= kStarvedMs) return;
  switchboard_.excuse(gap_ms);
  plane_.excuse(gap_ms);
}

void ControlPlane::round() {
  const int64_t before = now_ms();
  const int64_t wait = std::clamp<int64_t>(self_.next_due_ms - before, 0, self_.heartbeat_ms);
  const std::vector<uint64_t> ready = poller_.wait(wait);
  self_.now_ms = now_ms();
  excuse_gap(before + wait);

  for (const uint64_t id : ready) {
    if (id == Entrance::kId)
      entrance_.serve();
    else
      switchboard_.serve(id);
  }
  for (const auto& command : callers_.take_commands()) command();

  self_.next_due_ms = self_.now_ms + self_.heartbeat_ms;
  switchboard_.tick();
  entrance_.tick();
  plane_.tick();
  switchboard_.watch();
  // A gap in the work of this very round (a callback that took long, a starved machine) counts as
  // well.
  excuse_gap(self_.now_ms);
}

// ---- callers ----

void ControlPlane::post(std::function<void()> command) {
  if (getpid() != self_.pid) return;
  if (callers_.post(std::move(command))) poller_.ring();
}

Result<std::vector<Blob>> ControlPlane::all_gather(std::span<const std::byte> mine) {
  const MutexLock guard(collective_mutex_);
  const uint32_t number = next_collective_++;
  post([this, number, blob = Blob(mine.begin(), mine.end())] {
    plane_.collectives().contribute(number, blob);
  });
  Result<std::vector<Blob>> result = callers_.wait_for_result(
      number, "all_gather of the start", result_limit_ms(), self_.options.interruption);
  if (result.ok() && result->size() != static_cast<size_t>(self_.size))
    return Status{SENNIT_INTERNAL, "all_gather of the start: rank 0 called another collective"};
  return result;
}

Result<Blob> ControlPlane::broadcast(std::span<const std::byte> from_rank0) {
  const MutexLock guard(collective_mutex_);
  const uint32_t number = next_collective_++;
  if (self_.rank == 0) {
    // Before: whoever has it needs this rank no more, and may leave.
    if (Status failure = callers_.failure(); !failure.ok()) return failure;
    const Blob blob(from_rank0.begin(), from_rank0.end());
    post([this, number, blob] { plane_.collectives().broadcast(number, blob); });
    return blob;
  }
  Result<std::vector<Blob>> result = callers_.wait_for_result(
      number, "broadcast of the start", result_limit_ms(), self_.options.interruption);
  if (!result) return result.status();
  if (result->size() != 1)
    return Status{SENNIT_INTERNAL, "broadcast of the start: rank 0 called another collective"};
  return std::move(result->front());
}

void ControlPlane::report_suspect(int peer, const std::string& what) {
  if (peer < 0 || peer >= self_.size || peer == self_.rank) return;
  post([this, peer, what] { plane_.suspect_broken(peer, what); });
}

void ControlPlane::report_stall(const CallDescriptor& mine) {
  post([this, mine] { plane_.calls().stalled(mine, -1); });
}

void ControlPlane::expire(const CallDescriptor& mine, int64_t waited_ms) {
  post([this, mine, waited_ms] { plane_.calls().expire(mine, waited_ms); });
}

void ControlPlane::report_mismatch(const CallDescriptor& mine, int peer) {
  post([this, mine, peer] { plane_.calls().stalled(mine, std::max(peer, 0)); });
}

void ControlPlane::abort(uint32_t comm, const std::string& why) {
  post([this, comm, why] { plane_.abort(comm, why); });
}

void ControlPlane::fail(uint32_t comm, const Status& status) {
  post([this, comm, status] { plane_.calls().fail(comm, status); });
}

void ControlPlane::tell(uint8_t topic, Blob blob, MayWait may_wait) {
  post([this, topic, blob = std::move(blob), may_wait] {
    plane_.news().tell(topic, blob, may_wait == MayWait::yes);
  });
}

void ControlPlane::announce(uint8_t topic, uint64_t key, Blob blob) {
  post([this, topic, key, blob = std::move(blob)] { plane_.news().announce(topic, key, blob); });
}

}  // namespace
}  // namespace control

namespace {

Status check(const BootstrapOptions& options) {
  constexpr size_t kSecretBytes = 32;
  if (options.size < 1 || options.rank < 0 || options.rank >= options.size)
    return invalid(fmt::format("rank {} of {} ranks: expected a rank from 0 to size - 1",
                               options.rank, options.size));
  if (!options.secret.empty() && options.secret.size() != kSecretBytes)
    return invalid(
        fmt::format("a secret of {} bytes: expected {}", options.secret.size(), kSecretBytes));
  if (options.sealed && options.secret.empty() && options.size > 1)
    return Status{SENNIT_REFUSED,
                  fmt::format("SENNIT_WIRE=sealed: this job has no secret to seal with{}; set "
                              "SENNIT_SECRET to the same on all ranks, or SENNIT_WIRE=plain",
                              options.insecure ? " (SENNIT_INSECURE=1)" : "")};
  return {};
}

}  // namespace

Result<std::unique_ptr<Control>> Control::start(const BootstrapOptions& options,
                                                Callbacks callbacks) {
  if (const Status fits = check(options); !fits.ok()) {
    close_socket(options.root_listener_fd);
    return fits;
  }
  auto plane = std::make_unique<control::ControlPlane>(options, std::move(callbacks));
  SENNIT_RETURN_IF_ERROR(plane->open());
  return std::unique_ptr<Control>(std::move(plane));
}

}  // namespace sennit
