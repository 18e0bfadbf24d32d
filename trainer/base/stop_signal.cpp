// stop_signal.cpp: see trainer/base/stop_signal.hpp. The handler does nothing that is unsafe in
// one.
#include "trainer/base/stop_signal.hpp"

#include <time.h>

#include <atomic>
#include <cstdint>

namespace sennit::trainer {
namespace {

constexpr int kSignals[2] = {SIGINT, SIGTERM};
constexpr size_t kStackBytes = 1 << 16;  // the processor's state on it takes up to 11 KiB
constexpr int64_t kSameWishNs = 1'000'000'000;

std::atomic<int> g_first{0};
std::atomic<int64_t> g_first_ns{0};
static_assert(std::atomic<int64_t>::is_always_lock_free);

void note(int signal) {
  timespec time = {};
  clock_gettime(CLOCK_MONOTONIC, &time);
  const int64_t now = int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
  int64_t first = 0;
  if (g_first_ns.compare_exchange_strong(first, now)) {
    g_first = signal;
  } else if (now - first >= kSameWishNs) {
    std::signal(signal, SIG_DFL);
    raise(signal);  // ends the process as this handler returns
  }
}

}  // namespace

StopSignals::StopSignals() {
  g_first = 0;
  g_first_ns = 0;
  stack_t stack = {};
  if (sigaltstack(nullptr, &stack) == 0 && (stack.ss_flags & SS_DISABLE)) {
    stack_ = std::make_unique<std::byte[]>(kStackBytes);
    stack.ss_sp = stack_.get();
    stack.ss_size = kStackBytes;
    stack.ss_flags = 0;
    sigaltstack(&stack, nullptr);
  }
  for (int i = 0; i < 2; i++) {
    struct sigaction action = {};
    action.sa_handler = note;
    action.sa_flags = SA_RESTART | SA_ONSTACK;
    sigaction(kSignals[i], nullptr, &before_[i]);
    if (before_[i].sa_handler != SIG_IGN) sigaction(kSignals[i], &action, nullptr);
  }
}

StopSignals::~StopSignals() {
  for (int i = 0; i < 2; i++) sigaction(kSignals[i], &before_[i], nullptr);
  if (!stack_) return;
  stack_t none = {};
  none.ss_flags = SS_DISABLE;
  sigaltstack(&none, nullptr);
}

int StopSignals::first() { return g_first; }

}  // namespace sennit::trainer
