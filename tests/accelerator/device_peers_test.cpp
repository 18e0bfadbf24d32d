// Calls on the memory of several devices of one process, on the software GPU: a device reads what
// another exports once it has access to that, with the bits that the same calls on host memory
// give. Where none can be had, messages go through pinned memory.
//
// ctest links: soft_gpu
// ctest variable: SOFT_GPU_DEVICES=3
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>
#include <string>

#include "sennit/sennit.h"
#include "tests/accelerator/device_calls.hpp"
#include "tests/support/ranks.hpp"
#include "tests/support/seed.hpp"

using sennit_test::difference;
using sennit_test::kCollectives;
using sennit_test::read_in_devices;

namespace {

constexpr int kRanks = 3;

// This thread takes the device's memory from now on.
void use(int device) {
  CUcontext context = nullptr;
  EXPECT_EQ(cuDevicePrimaryCtxRetain(&context, device), 0);
  EXPECT_EQ(cuCtxSetCurrent(context), 0);
}

CUstream stream_of(int device) {
  CUstream made = nullptr;
  use(device);
  EXPECT_EQ(cuStreamCreate(&made, 1), 0);
  return made;
}

// Ranks are threads with a device each.
void compare_all(bool reach_one_another) {
  ASSERT_EQ(cuInit(0), 0);
  sennit_test::Ranks ranks(kRanks);
  ASSERT_TRUE(ranks.ok());
  const uint64_t seed = sennit_test::seed();
  ranks.run([&](int rank, sennit_comm_t comm) {
    const CUstream own = stream_of(rank);
    ASSERT_EQ(sennit_comm_set_stream(comm, own), SENNIT_OK) << sennit_last_error();
    std::mt19937_64 random(seed + static_cast<uint64_t>(rank));
    for (const size_t count : {1, 1000, 70'001, 600'000})
      for (const auto& collective : kCollectives)
        EXPECT_EQ(difference(collective, count, SENNIT_FLOAT16, SENNIT_SUM, comm, own, random), "");
    if (reach_one_another) {
      // Nothing is mapped while a kernel is out, so how soon depends on when calls begin.
      int32_t least = 0;
      for (int rounds = 0; rounds < 100 && least <= 10; rounds++) {
        EXPECT_EQ(
            difference(kCollectives[0], 600'000, SENNIT_FLOAT16, SENNIT_SUM, comm, own, random),
            "");
        auto mine = static_cast<int32_t>(read_in_devices(comm));
        ASSERT_EQ(sennit_all_reduce(&mine, &least, 1, SENNIT_INT32, SENNIT_MIN, comm), SENNIT_OK);
      }
      EXPECT_GT(read_in_devices(comm), 10u);
    } else {
      EXPECT_EQ(read_in_devices(comm), 0u);
    }
  });
}

// One test: what was enabled stays so.
TEST(DevicePeers, GoThroughTheHostUntilTheyReachOneAnother) {
  setenv("SOFT_GPU_PEERS", "0", 1);
  compare_all(false);
  unsetenv("SOFT_GPU_PEERS");
  compare_all(true);
}

// Two ranks that are threads of one process and one device, beside a second one.
TEST(DevicePeers, ShareADevice) {
  sennit_test::Ranks ranks(2);
  ASSERT_TRUE(ranks.ok());
  const uint64_t seed = sennit_test::seed();
  ranks.run([&](int rank, sennit_comm_t comm) {
    const CUstream own = stream_of(1);
    ASSERT_EQ(sennit_comm_set_stream(comm, own), SENNIT_OK) << sennit_last_error();
    std::mt19937_64 random(seed + static_cast<uint64_t>(rank));
    for (int i = 0; i < 8; i++)
      EXPECT_EQ(difference(kCollectives[0], 70'000, SENNIT_INT32, SENNIT_SUM, comm, own, random),
                "");
    EXPECT_GT(read_in_devices(comm), 0u);
  });
}

// What a peer exports is read by the device of a rank's first call. Communicators on another device
// of its go through the host, and nobody sends it what it does not read.
TEST(DevicePeers, AreOneForARankAndItsOthersGoThroughTheHost) {
  sennit_test::Ranks ranks(2);
  ASSERT_TRUE(ranks.ok());
  const uint64_t seed = sennit_test::seed();
  ranks.run([&](int rank, sennit_comm_t comm) {
    const int other_device = rank == 0 ? 0 : 2;
    const CUstream first = stream_of(rank), second = stream_of(other_device);
    ASSERT_EQ(sennit_comm_set_stream(comm, first), SENNIT_OK) << sennit_last_error();
    sennit_comm_t other = nullptr;
    ASSERT_EQ(sennit_comm_split(comm, 0, rank, &other), SENNIT_OK) << sennit_last_error();
    ASSERT_EQ(sennit_comm_set_stream(other, second), SENNIT_OK) << sennit_last_error();
    std::mt19937_64 random(seed + static_cast<uint64_t>(rank));
    const auto compare = [&](sennit_comm_t with, CUstream stream) {
      EXPECT_EQ(difference(kCollectives[0], 70'000, SENNIT_INT32, SENNIT_SUM, with, stream, random),
                "");
    };
    for (int i = 0; i < 6; i++) {
      use(rank);
      compare(comm, first);
      use(other_device);
      compare(other, second);
    }
    EXPECT_GT(read_in_devices(comm), 0u);
    EXPECT_EQ(sennit_comm_finalize(other), SENNIT_OK);
    sennit_comm_destroy(other);
  });
}

}  // namespace
