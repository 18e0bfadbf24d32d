// A device that fails under calls, on the software GPU: they end with its error on all ranks,
// whatever it had been told to do, and the process may end.
//
// Each case is a process of its own, since a device that has failed stays so.
//
// ctest links: soft_gpu
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include "sennit/sennit.h"
#include "tests/soft_gpu/cuda_functions.hpp"
#include "tests/soft_gpu/soft_gpu.hpp"
#include "tests/support/ranks.hpp"

using namespace std::chrono_literals;

namespace {

constexpr int kRanks = 3;

// Whether the communicator fails in time.
bool ends_within(std::chrono::seconds limit, sennit_comm_t comm) {
  const auto begin = std::chrono::steady_clock::now();
  while (sennit_comm_get_async_error(comm) == SENNIT_OK) {
    if (std::chrono::steady_clock::now() - begin > limit) return false;
    std::this_thread::sleep_for(10ms);
  }
  return true;
}

// What may happen to a device, and what all ranks are told then.
struct Fault {
  void (*happen)();
  const char* told;
};
constexpr Fault kFails = {soft_gpu_break, "CUDA_ERROR_ILLEGAL_ADDRESS"};
// As far as calls tell, a context that nobody keeps is like one that cudaDeviceReset has ended.
void reset() {
  while (cuDevicePrimaryCtxRelease_v2(0) == 0) continue;
}
constexpr Fault kIsReset = {reset, "the CUDA device was reset, as cudaDeviceReset does"};

// An all-reduce that one rank's stream does not come to, meanwhile the fault happens. Returns the
// number of ranks that did not hear of it.
int unheard(CUcontext context, const Fault& fault) {
  sennit_test::Ranks ranks(kRanks);
  if (!ranks.ok()) return -1;
  std::atomic<int> allocated{0}, unheard{0};
  ranks.run([&](int rank, sennit_comm_t comm) {
    CUstream own = nullptr;
    CUdeviceptr memory = 0;
    EXPECT_EQ(cuCtxSetCurrent(context), 0);
    EXPECT_EQ(cuStreamCreate(&own, 1), 0);
    EXPECT_EQ(cuMemAlloc_v2(&memory, 4 << 20), 0);
    EXPECT_EQ(sennit_comm_set_stream(comm, own), SENNIT_OK) << sennit_last_error();
    if (rank == 0) soft_gpu_hold(own);
    allocated++;
    while (allocated < kRanks) std::this_thread::yield();
    void* const data = reinterpret_cast<void*>(memory);
    EXPECT_EQ(sennit_all_reduce(data, data, 1 << 20, SENNIT_FLOAT32, SENNIT_SUM, comm), SENNIT_OK)
        << sennit_last_error();
    if (rank == 1) {
      std::this_thread::sleep_for(100ms);
      fault.happen();
    }
    // Its own device's error, or that of the rank that heard first.
    const bool heard = ends_within(60s, comm) &&
                       std::string(sennit_last_error()).find(fault.told) != std::string::npos;
    if (!heard) {
      std::fprintf(stderr, "rank %d heard: %s\n", rank, sennit_last_error());
      unheard++;
    }
    if (rank == 0) soft_gpu_release(own);
  });
  return unheard;
}

class DeviceFaultDeathTest : public testing::TestWithParam<const char*> {};

void expect_told(const char* transport, const Fault& fault) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        setenv("SENNIT_TRANSPORTS", transport, 1);
        setenv("SENNIT_INTERFACE", "127.0.0.1", 1);
        CUcontext context = nullptr;
        EXPECT_EQ(cuInit(0), 0);
        EXPECT_EQ(cuDevicePrimaryCtxRetain(&context, 0), 0);
        std::exit(unheard(context, fault) + (testing::Test::HasFailure() ? 10 : 0));
      },
      testing::ExitedWithCode(0), "");
}

TEST_P(DeviceFaultDeathTest, EndsTheCallsOfAllRanks) { expect_told(GetParam(), kFails); }

TEST_P(DeviceFaultDeathTest, OfAResetIsNamed) { expect_told(GetParam(), kIsReset); }

INSTANTIATE_TEST_SUITE_P(Over, DeviceFaultDeathTest, testing::Values("loopback", "shm", "tcp"),
                         [](const auto& name) { return std::string(name.param); });

}  // namespace
