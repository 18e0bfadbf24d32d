// process.cpp: see process.hpp.
#include "tests/soft_gpu/process.hpp"

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <thread>

#include "tests/soft_gpu/soft_gpu.hpp"

namespace soft_gpu {
namespace {

// Atomics without a destructor: threads of streams read them until the process is gone. They are
// relaxed, so that the driver orders nothing by itself that the program forgot to order.
std::atomic<bool> is_ready, was_forked, has_broken, exiting;
std::atomic<uint64_t> calls, kernels, parked;
thread_local uint64_t calls_of_thread = 0, allocations_of_thread = 0;
thread_local bool in_host_function = false;

// Kernels are asked to touch the program's memory no more before its static objects go.
void park_kernels() {
  exiting = true;
  for (int i = 0; i < 1000 && parked < kernels; i++)
    std::this_thread::sleep_for(std::chrono::microseconds(100));
}

uint64_t first_seed() {
  if (const char* given = std::getenv("SOFT_GPU_SEED")) return std::strtoull(given, nullptr, 10);
  return std::random_device{}();
}

}  // namespace

int oldness() {
  const char* const given = std::getenv("SOFT_GPU_OLD");
  return given != nullptr ? std::atoi(given) : 0;
}

void initialize() {
  static const bool once = [] {
    soft_gpu_seed();
    pthread_atfork(nullptr, nullptr, [] { was_forked = true; });
    std::atexit(park_kernels);
    return true;
  }();
  is_ready = once;
}

void count_call() {
  calls.fetch_add(1, std::memory_order_relaxed);
  calls_of_thread++;
}

void count_allocation() { allocations_of_thread++; }

int enter() {
  count_call();
  if (was_forked.load(std::memory_order_relaxed) || !is_ready.load(std::memory_order_relaxed))
    return kNotInitialized;
  if (in_host_function) return kNotPermitted;
  return device_error();
}

void break_device(const std::string& why) {
  std::fprintf(stderr, "soft_gpu: %s; every call fails from now on\n", why.c_str());
  has_broken.store(true, std::memory_order_relaxed);
}

bool broken() { return has_broken.load(std::memory_order_relaxed); }
int device_error() { return broken() ? kIllegalAddress : 0; }

HostFunction::HostFunction() { in_host_function = true; }
HostFunction::~HostFunction() { in_host_function = false; }

RunningKernel::RunningKernel() { kernels.fetch_add(1, std::memory_order_relaxed); }
RunningKernel::~RunningKernel() { kernels.fetch_sub(1, std::memory_order_relaxed); }

bool RunningKernel::goes_on() {
  if (exiting.load(std::memory_order_relaxed)) {
    parked.fetch_add(1);
    while (true) std::this_thread::sleep_for(std::chrono::hours(1));
  }
  return !broken();
}

Dice::Dice(uint64_t index) : state_(soft_gpu_seed() * 0x9e3779b97f4a7c15u + index) {}

// splitmix64.
uint64_t Dice::below(uint64_t bound) {
  uint64_t z = state_ += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return (z ^ (z >> 31)) % bound;
}

void Dice::sleep_below(uint64_t microseconds) {
  std::this_thread::sleep_for(std::chrono::microseconds(below(microseconds)));
}

}  // namespace soft_gpu

uint64_t soft_gpu_calls() { return soft_gpu::calls.load(std::memory_order_relaxed); }
uint64_t soft_gpu_allocations_of_thread() { return soft_gpu::allocations_of_thread; }
uint64_t soft_gpu_calls_of_thread() { return soft_gpu::calls_of_thread; }

uint64_t soft_gpu_seed() {
  static const uint64_t seed = soft_gpu::first_seed();
  return seed;
}

void soft_gpu_break() { soft_gpu::break_device("a test has broken it"); }
void soft_gpu_mend() { soft_gpu::has_broken.store(false, std::memory_order_relaxed); }
