// pace.cpp: see trainer/checkpoint/pace.hpp.
#include "trainer/checkpoint/pace.hpp"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <ctime>

#include <algorithm>

namespace sennit::trainer {
namespace {

constexpr double kPausesPerWork = 19;
constexpr int kLeastPriority = 19;

double seconds_of(std::chrono::steady_clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

// Of the calling thread.
double core_seconds() {
  timespec time = {};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

}  // namespace

void Pace::begin(double seconds, uint64_t bytes) {
  seconds_ = seconds;
  bytes_ = bytes;
  paused_s_ = 0;
  began_ = Clock::now();
  core_s_ = core_seconds();
}

void Pace::wrote(uint64_t bytes) {
  if (seconds_ <= 0 || bytes >= bytes_) return;
  const Clock::time_point now = Clock::now();
  const double due = seconds_ * static_cast<double>(bytes) / static_cast<double>(bytes_);
  const double pause =
      std::min(kPausesPerWork * (core_seconds() - core_s_), due - seconds_of(now - began_));
  if (pause > 0) {
    const auto until =
        now + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(pause));
    MutexLock lock(mutex_);
    while (!hurry_ && hurried_.wait_until(lock, until) == std::cv_status::no_timeout) {
    }
  }
  core_s_ = core_seconds();
  paused_s_ += seconds_of(Clock::now() - now);
}

void Pace::hurry() {
  {
    const MutexLock lock(mutex_);
    hurry_ = true;
  }
  hurried_.notify_all();
}

void Pace::reset() {
  const MutexLock lock(mutex_);
  hurry_ = false;
}

void yield_to_others() {
  // Linux has a priority for each thread; where it is refused the writer is as fast as before.
  static_cast<void>(
      ::setpriority(PRIO_PROCESS, static_cast<id_t>(::syscall(SYS_gettid)), kLeastPriority));
}

}  // namespace sennit::trainer
