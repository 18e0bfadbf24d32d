// device_programs_test.cpp: random programs of calls on device memory, on the software GPU, give
// what the same calls on host memory give: two streams, two communicators, groups, host calls
// between, copies of the program's own, and streams that are late by chance.
//
// Each rank has buffers on the device and their mirrors on the host. A step is done on both; what
// lies on the device is looked at when a program is over. PROGRAMS=10000 makes so many.
//
// ctest links: soft_gpu
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "sennit/sennit.h"
#include "tests/soft_gpu/cuda_functions.hpp"
#include "tests/soft_gpu/soft_gpu.hpp"
#include "tests/support/ranks.hpp"
#include "tests/support/seed.hpp"
#include "tests/support/trials.hpp"

namespace {

constexpr int kRanks = 3;
constexpr size_t kBuffers = 3, kSets = 2;  // a stream for each set
constexpr size_t kMostElements = 40'000;   // of a block

using Random = std::mt19937_64;

// Room for a block of each rank, here and there.
struct Buffer {
  CUdeviceptr device = 0;
  std::vector<int32_t> host = std::vector<int32_t>(kRanks * kMostElements);

  void* there() const { return reinterpret_cast<void*>(device); }
  size_t bytes() const { return host.size() * sizeof(int32_t); }
};

// A rank's side of a program. Every rank draws the same numbers.
class Side {
 public:
  Side(int rank, sennit_comm_t device_comm, sennit_comm_t other, sennit_comm_t host_comm)
      : rank_(rank), comms_{device_comm, other}, host_comm_(host_comm) {
    for (CUstream& stream : streams_) EXPECT_EQ(cuStreamCreate(&stream, 1), 0);
    for (auto& set : buffers_)
      for (Buffer& buffer : set) EXPECT_EQ(cuMemAlloc_v2(&buffer.device, buffer.bytes()), 0);
  }

  void run_program(Random& random) {
    for (auto& set : buffers_)
      for (Buffer& buffer : set) {
        for (int32_t& x : buffer.host) x = static_cast<int32_t>(random() % 1000) + rank_;
        soft_gpu_write(buffer.there(), buffer.host.data(), buffer.bytes());
      }
    const size_t steps = 1 + random() % 12;
    for (size_t step = 0; step < steps; step++) run_step(random);
    for (const CUstream stream : streams_) ASSERT_EQ(cuStreamSynchronize(stream), 0);
    for (auto& set : buffers_)
      for (Buffer& buffer : set) {
        std::vector<int32_t> there(buffer.host.size());
        soft_gpu_read(there.data(), buffer.there(), buffer.bytes());
        ASSERT_EQ(there, buffer.host) << "rank " << rank_;
      }
  }

 private:
  void run_step(Random& random) {
    const size_t which = random() % kSets;
    const sennit_comm_t comm = comms_[random() % comms_.size()];
    auto& set = buffers_[which];
    Buffer& a = set[random() % kBuffers];
    Buffer& b = set[random() % kBuffers];
    Buffer& c = set[random() % kBuffers];
    const uint64_t kind = random() % 10;
    const size_t count = 1 + random() % kMostElements;
    const int root = static_cast<int>(random() % kRanks);
    ASSERT_EQ(sennit_comm_set_stream(comm, streams_[which]), SENNIT_OK) << sennit_last_error();
    if (kind == 8) return copy(a, b, count, streams_[which]);
    if (kind == 9) {  // on host memory: once what is in the stream is over
      int32_t sum = rank_;
      ASSERT_EQ(sennit_all_reduce(&sum, &sum, 1, SENNIT_INT32, SENNIT_SUM, comm), SENNIT_OK);
      ASSERT_EQ(sum, kRanks * (kRanks - 1) / 2);
      return;
    }
    if (kind == 7 && &a != &b && &b != &c && &a != &c) {
      both(comm, [&](sennit_comm_t on, bool there) {
        EXPECT_EQ(sennit_group_start(), SENNIT_OK);
        reduce_or_move(on, there, 0, a, a, count, root);
        reduce_or_move(on, there, 2, b, c, count, root);
        EXPECT_EQ(sennit_group_end(), SENNIT_OK) << sennit_last_error();
      });
      return;
    }
    // Buffers are one, or lie apart.
    both(comm, [&](sennit_comm_t on, bool there) {
      reduce_or_move(on, there, kind % 7, a, &a == &b && kind % 7 > 1 ? other_than(set, a) : b,
                     count, root);
    });
  }
  static Buffer& other_than(std::array<Buffer, kBuffers>& set, const Buffer& one) {
    return &set[0] == &one ? set[1] : set[0];
  }
  template <typename F>
  void both(sennit_comm_t comm, F f) const {
    f(comm, true);
    f(host_comm_, false);
  }
  void reduce_or_move(sennit_comm_t on, bool there, uint64_t kind, Buffer& from, Buffer& to,
                      size_t n, int root) const {
    const void* const in = there ? from.there() : from.host.data();
    void* const out = there ? to.there() : static_cast<void*>(to.host.data());
    constexpr sennit_type_t kType = SENNIT_INT32;
    sennit_status_t status = SENNIT_OK;
    switch (kind) {
      case 0:
        status = sennit_all_reduce(in, out, n, kType, SENNIT_SUM, on);
        break;
      case 1:
        status = sennit_broadcast(in, out, n, kType, root, on);
        break;
      case 2:
        status = sennit_all_gather(in, out, n, kType, on);
        break;
      case 3:
        status = sennit_reduce_scatter(in, out, n, kType, SENNIT_MAX, on);
        break;
      case 4:
        status = sennit_all_to_all(in, out, n, kType, on);
        break;
      case 5:
        status = sennit_reduce(in, out, n, kType, SENNIT_BXOR, root, on);
        break;
      default:
        status = sennit_scatter(in, out, n, kType, root, on);
    }
    EXPECT_EQ(status, SENNIT_OK) << sennit_last_error();
  }
  // The program's own, in the stream's order.
  static void copy(Buffer& from, Buffer& to, size_t count, CUstream stream) {
    if (&from == &to) return;
    ASSERT_EQ(cuMemcpyAsync(to.device, from.device, count * sizeof(int32_t), stream), 0);
    std::memcpy(to.host.data(), from.host.data(), count * sizeof(int32_t));
  }

  const int rank_;
  const std::array<sennit_comm_t, 2> comms_;
  const sennit_comm_t host_comm_;
  std::array<CUstream, kSets> streams_ = {};
  std::array<std::array<Buffer, kBuffers>, kSets> buffers_;
};

class DevicePrograms : public testing::TestWithParam<const char*> {};

TEST_P(DevicePrograms, GiveWhatTheHostGives) {
  setenv("SENNIT_TRANSPORTS", GetParam(), 1);
  setenv("SENNIT_INTERFACE", "127.0.0.1", 1);
  CUcontext context = nullptr;
  ASSERT_EQ(cuInit(0), 0);
  ASSERT_EQ(cuDevicePrimaryCtxRetain(&context, 0), 0);
  const char* const wanted = std::getenv("PROGRAMS");
  const int programs = wanted ? std::atoi(wanted) : sennit_test::trials(40);
  const uint64_t seed = sennit_test::seed();
  std::printf("SOFT_GPU_SEED=%lu\n", static_cast<unsigned long>(soft_gpu_seed()));
  sennit_test::Ranks ranks(kRanks);
  ASSERT_TRUE(ranks.ok());
  ranks.run([&](int rank, sennit_comm_t comm) {
    EXPECT_EQ(cuCtxSetCurrent(context), 0);
    sennit_comm_t other = nullptr, host = nullptr;
    ASSERT_EQ(sennit_comm_dup(comm, &other), SENNIT_OK);
    ASSERT_EQ(sennit_comm_dup(comm, &host), SENNIT_OK);
    Side side(rank, comm, other, host);
    Random random(seed);
    for (int program = 0; program < programs && !testing::Test::HasFailure(); program++)
      side.run_program(random);
    EXPECT_EQ(sennit_barrier(comm), SENNIT_OK);
    sennit_comm_destroy(other);
    sennit_comm_destroy(host);
  });
  unsetenv("SENNIT_TRANSPORTS");
}

INSTANTIATE_TEST_SUITE_P(Over, DevicePrograms, testing::Values("loopback", "tcp", "shm"),
                         [](const auto& over) { return std::string(over.param); });

}  // namespace
