// threads.cpp: see trainer/device/cpu/threads.hpp. oneDNN brings OpenMP, which must not start
// threads of its own below ours: each of our threads tells it so.
#include "trainer/device/cpu/threads.hpp"

#include <dlfcn.h>
#include <signal.h>

#include <chrono>

#include "trainer/base/local_ranks.hpp"
#include "trainer/base/start_thread.hpp"

namespace sennit::trainer {
namespace {

constexpr auto kSpin = std::chrono::microseconds(50);

void keep_openmp_to_this_thread() {
  using Function = void (*)(int);
  static const auto kSet = reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
  if (kSet) kSet(1);
}

// Waits while `value` is `old`: spins, then sleeps.
void wait_while(const std::atomic<uint32_t>& value, uint32_t old) {
  const auto until = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < 64; i++) {
      if (value.load(std::memory_order_acquire) != old) return;
#if defined(__x86_64__)
      __builtin_ia32_pause();
#endif
    }
  } while (std::chrono::steady_clock::now() < until);
  value.wait(old, std::memory_order_acquire);
}

}  // namespace

CpuThreads::CpuThreads(int threads) {
  keep_openmp_to_this_thread();
  if (threads <= 0) threads = cores_of_this_process();
  // Where oneDNN's kernels run no handler may, but on a stack of its own:
  // trainer/base/stop_signal.hpp.
  sigset_t all, before;
  sigfillset(&all);
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) sigdelset(&all, fault);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  workers_ = start_helpers("computing", threads, [this](int thread) { serve(thread); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

CpuThreads::~CpuThreads() {
  end_ = true;
  call_.fetch_add(1, std::memory_order_release);
  call_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void CpuThreads::take_parts(int thread) {
  for (;;) {
    const int64_t part = next_.fetch_add(1, std::memory_order_relaxed);
    if (part >= parts_) return;
    (*work_)(part, thread);
  }
}

void CpuThreads::run(int64_t parts, const std::function<void(int64_t, int)>& work) {
  if (parts <= 1 || workers_.empty()) {
    for (int64_t part = 0; part < parts; part++) work(part, 0);
    return;
  }
  work_ = &work;
  parts_ = parts;
  next_.store(0, std::memory_order_relaxed);
  working_.store(static_cast<uint32_t>(workers_.size()), std::memory_order_relaxed);
  call_.fetch_add(1, std::memory_order_release);
  call_.notify_all();
  take_parts(0);
  for (uint32_t left = working_.load(std::memory_order_acquire); left != 0;
       left = working_.load(std::memory_order_acquire))
    wait_while(working_, left);
}

void CpuThreads::serve(int thread) {
  keep_openmp_to_this_thread();
  for (uint32_t seen = 0;;) {
    wait_while(call_, seen);
    seen++;
    if (end_) return;
    take_parts(thread);
    if (working_.fetch_sub(1, std::memory_order_acq_rel) == 1) working_.notify_one();
  }
}

}  // namespace sennit::trainer
