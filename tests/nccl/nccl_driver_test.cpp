// nccl_driver_test.cpp: threads that make their first calls at the same time all know of CUDA's
// driver. Each trial is a process of its own, since what is found is kept.
// ctest compiles: src/nccl/device_memory.cpp src/nccl/device.cpp
// ctest runs: fake_cuda
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

#include "nccl/device_memory.hpp"

namespace {

using sennit::nccl::Owner;
using sennit::nccl::owner_of;

constexpr int kTrials = 100, kThreads = 4;

// As in fake_cuda.c.
struct Answers {
  const char* device_memory;
  size_t device_bytes;
};

// How many of the threads take memory of the device for the host's.
int mistaken() {
  void* const driver = dlopen(SENNIT_BINARY_DIR "/tests/fake_cuda/libcuda.so.1", RTLD_NOW);
  if (!driver) return kThreads;
  static char memory[64];
  *static_cast<Answers*>(dlsym(driver, "fake_cuda_answers")) = {memory, sizeof memory};
  std::atomic<int> waiting{kThreads}, wrong{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; i++)
    threads.emplace_back([&] {
      waiting--;
      while (waiting.load() > 0) std::this_thread::yield();
      const void* const pointer = memory;
      wrong += owner_of(&pointer, 1) != Owner::device;
    });
  for (std::thread& thread : threads) thread.join();
  return wrong.load();
}

TEST(NcclDriver, FirstCallsOfSeveralThreadsAllKnowIt) {
  int trials_with_mistakes = 0;
  for (int i = 0; i < kTrials; i++) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) _exit(mistaken() > 0 ? 1 : 0);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    trials_with_mistakes += status != 0;
  }
  EXPECT_EQ(trials_with_mistakes, 0) << "of " << kTrials;
}

}  // namespace
