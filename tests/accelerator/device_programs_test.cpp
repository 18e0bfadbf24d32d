// device_programs_test.cpp: random programs of calls on device memory, on the software GPU, give
// what the same calls on host memory give: two streams, two communicators, groups, graphs that are
// launched again and again and destroyed while they are out, scalars that lie where earlier calls
// wrote, host calls between, memory that is freed while calls on it are out, copies of the
// program's own, and streams that are late by chance.
//
// Each rank has buffers on the device and their mirrors on the host. A step is done on both; what
// lies on the device is looked at when a program is over. PROGRAMS=10000 makes so many.
//
// ctest links: soft_gpu
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "sennit/sennit.h"
#include "tests/accelerator/device_calls.hpp"
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
    for (unsigned i = 0; i < kSets; i++)  // one that blocks, and one that does not
      EXPECT_EQ(cuStreamCreate(&streams_[i], i), 0);
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
    graphs_.clear();
    for (const CUstream stream : streams_) ASSERT_EQ(cuStreamSynchronize(stream), 0);
    for (auto& set : buffers_)
      for (Buffer& buffer : set) {
        std::vector<int32_t> there(buffer.host.size());
        soft_gpu_read(there.data(), buffer.there(), buffer.bytes());
        ASSERT_EQ(there, buffer.host) << "rank " << rank_;
      }
  }

 private:
  // On the device's buffers, or on their mirrors.
  using Step = std::function<void(bool there)>;
  struct Graph {
    std::unique_ptr<sennit_test::CapturedCalls> made;
    size_t which;  // the stream and its buffers
    std::vector<Step> steps;
  };

  void run_step(Random& random) {
    const size_t which = random() % kSets;
    switch (random() % 9) {
      case 0:
        capture(random, which);
        [[fallthrough]];
      case 1:
        if (!graphs_.empty()) launch(graphs_[random() % graphs_.size()], 1 + random() % 4);
        return;
      case 2:
        return call_on_host_memory(random, which);
      case 3:
        return call_on_memory_that_goes(random, which);
      default:
        const Step step = draw_step(random, which);
        step(true);
        step(false);
    }
  }

  void capture(Random& random, size_t which) {
    Graph graph{nullptr, which, {}};
    for (uint64_t left = 1 + random() % 3; left > 0; left--)
      graph.steps.push_back(draw_step(random, which));
    graph.made = std::make_unique<sennit_test::CapturedCalls>(streams_[which], [&] {
      for (const Step& step : graph.steps) step(true);
    });
    graphs_.push_back(std::move(graph));
  }
  void launch(const Graph& graph, uint64_t times) const {
    for (uint64_t i = 0; i < times; i++) {
      graph.made->launch(streams_[graph.which]);
      for (const Step& step : graph.steps) step(false);
    }
  }

  // Once what is in the stream is over.
  void call_on_host_memory(Random& random, size_t which) const {
    const sennit_comm_t comm = comms_[random() % comms_.size()];
    int32_t sum = rank_;
    ASSERT_EQ(sennit_comm_set_stream(comm, streams_[which]), SENNIT_OK) << sennit_last_error();
    ASSERT_EQ(sennit_all_reduce(&sum, &sum, 1, SENNIT_INT32, SENNIT_SUM, comm), SENNIT_OK);
    ASSERT_EQ(sum, kRanks * (kRanks - 1) / 2);
  }

  // It is freed in the stream's order; or at once, which waits for all that is in the streams and
  // lets nobody call the driver meanwhile. That would wait for good for ranks that share the device
  // and have not enqueued their part, or for what they enqueue next: they come together before and
  // after.
  void call_on_memory_that_goes(Random& random, size_t which) {
    Buffer& from = buffers_[which][random() % kBuffers];
    Buffer& to = other_than(buffers_[which], from);
    const size_t count = 1 + random() % kMostElements;
    const bool at_once = random() % 2 == 0;
    const sennit_comm_t comm = comms_[random() % comms_.size()];
    const CUstream stream = streams_[which];
    CUdeviceptr memory = 0;
    ASSERT_EQ(cuMemAlloc_v2(&memory, count * sizeof(int32_t)), 0);
    ASSERT_EQ(cuMemcpyAsync(memory, from.device, count * sizeof(int32_t), stream), 0);
    ASSERT_EQ(sennit_comm_set_stream(comm, stream), SENNIT_OK) << sennit_last_error();
    EXPECT_EQ(sennit_all_reduce(reinterpret_cast<void*>(memory), to.there(), count, SENNIT_INT32,
                                SENNIT_SUM, comm),
              SENNIT_OK)
        << sennit_last_error();
    if (at_once) {
      EXPECT_EQ(sennit_barrier(host_comm_), SENNIT_OK);
      EXPECT_EQ(cuMemFree_v2(memory), 0);
      EXPECT_EQ(sennit_barrier(host_comm_), SENNIT_OK);
    } else {
      EXPECT_EQ(cuMemFreeAsync(memory, stream), 0);
    }
    reduce_or_move(host_comm_, false, 0, from, to, count, 0);
  }

  // Of calls, or a copy of the program's own.
  Step draw_step(Random& random, size_t which) {
    const sennit_comm_t comm = comms_[random() % comms_.size()];
    auto& set = buffers_[which];
    Buffer& a = set[random() % kBuffers];
    Buffer& b = set[random() % kBuffers];
    Buffer& c = set[random() % kBuffers];
    const uint64_t kind = random() % 10;
    const size_t count = 1 + random() % kMostElements;
    const int root = static_cast<int>(random() % kRanks);
    const CUstream stream = streams_[which];
    if (kind == 8) return [&a, &b, count, stream](bool there) { copy(a, b, count, stream, there); };
    const auto on = [this, comm, stream](bool there) {
      if (!there) return host_comm_;
      EXPECT_EQ(sennit_comm_set_stream(comm, stream), SENNIT_OK) << sennit_last_error();
      return comm;
    };
    if (kind == 9) {
      Buffer& out = &b == &c ? other_than(set, c) : b;
      return [=, &a, &out, &c](bool there) { sum_products(on(there), there, a, out, c, count); };
    }
    if (kind == 7 && &a != &b && &b != &c && &a != &c)
      return [=, this, &a, &b, &c](bool there) {
        const sennit_comm_t its = on(there);
        EXPECT_EQ(sennit_group_start(), SENNIT_OK);
        reduce_or_move(its, there, 0, a, a, count, root);
        reduce_or_move(its, there, 2, b, c, count, root);
        EXPECT_EQ(sennit_group_end(), SENNIT_OK) << sennit_last_error();
      };
    // Buffers are one, or lie apart.
    Buffer& to = &a == &b && kind % 7 > 1 ? other_than(set, a) : b;
    return [=, this, &a, &to](bool there) {
      reduce_or_move(on(there), there, kind % 7, a, to, count, root);
    };
  }
  static Buffer& other_than(std::array<Buffer, kBuffers>& set, const Buffer& one) {
    return &set[0] == &one ? set[1] : set[0];
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
  // Each element times the first of `scalar`, which lies there when the stream comes to the call.
  static void sum_products(sennit_comm_t on, bool there, Buffer& from, Buffer& to, Buffer& scalar,
                           size_t n) {
    constexpr sennit_type_t kType = SENNIT_INT32;
    sennit_op_t op;
    if (there)
      EXPECT_EQ(sennit_op_create_premul_sum_in_stream(&op, scalar.there(), kType, on), SENNIT_OK)
          << sennit_last_error();
    else
      EXPECT_EQ(sennit_op_create_premul_sum(&op, scalar.host.data(), kType, on), SENNIT_OK);
    const void* const in = there ? from.there() : from.host.data();
    void* const out = there ? to.there() : static_cast<void*>(to.host.data());
    EXPECT_EQ(sennit_all_reduce(in, out, n, kType, op, on), SENNIT_OK) << sennit_last_error();
    EXPECT_EQ(sennit_op_destroy(op, on), SENNIT_OK);
  }
  // The program's own, in the stream's order.
  static void copy(Buffer& from, Buffer& to, size_t count, CUstream stream, bool there) {
    if (&from == &to) return;
    const size_t bytes = count * sizeof(int32_t);
    if (!there) {
      std::memcpy(to.host.data(), from.host.data(), bytes);
      return;
    }
    ASSERT_EQ(cuMemcpyAsync(to.device, from.device, bytes, stream), 0);
  }

  const int rank_;
  const std::array<sennit_comm_t, 2> comms_;
  const sennit_comm_t host_comm_;
  std::array<CUstream, kSets> streams_ = {};
  std::array<std::array<Buffer, kBuffers>, kSets> buffers_;
  std::vector<Graph> graphs_;
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
