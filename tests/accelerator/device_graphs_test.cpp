// Calls that become part of a graph, on the software GPU: each launch makes them again, with what
// is in memory then, alone or mixed with calls that are made once; nothing asks the driver
// meanwhile; a graph may go before its communicator and the other way round.
//
// ctest links: soft_gpu
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "sennit/sennit.h"
#include "tests/accelerator/device_calls.hpp"
#include "tests/support/eventually.hpp"
#include "tests/support/ranks.hpp"
#include "tests/support/seed.hpp"

using namespace std::chrono_literals;
using sennit_test::CallBuffers;
using sennit_test::CapturedCalls;
using sennit_test::Collective;
using sennit_test::DeviceBuffer;
using sennit_test::kCollectives;
using sennit_test::kGlobal;
using sennit_test::kThreadLocal;

namespace {

constexpr int kRanks = 3;
using DeviceGraphs = sennit_test::DeviceTest;

// The same call on host memory, and on the device's by a graph that is launched several times.
void expect_same(const Collective& collective, size_t count, sennit_type_t type, sennit_op_t op,
                 sennit_comm_t comm, CUstream stream, std::mt19937_64& random) {
  CallBuffers buffers(collective, count, type, kRanks);
  {
    CapturedCalls graph(stream, [&] {
      ASSERT_EQ(collective.call(buffers.from->data(), buffers.to->data(), count, type, op, comm),
                SENNIT_OK)
          << sennit_last_error();
    });
    for (int i = 0; i < 5; i++) {
      buffers.draw(random);
      graph.launch(stream);
      ASSERT_EQ(
          collective.call(buffers.sent.data(), buffers.received.data(), count, type, op, comm),
          SENNIT_OK)
          << sennit_last_error();
      ASSERT_EQ(cuStreamSynchronize(stream), 0);
      EXPECT_TRUE(buffers.to->read() == buffers.received)
          << collective.name << " of " << count << " of type " << type << ", launch " << i << ": "
          << sennit_last_error();
    }
  }
  buffers.free(comm);
}

TEST_P(DeviceGraphs, EveryCollectiveIsMadeAgainWithWhatIsInMemoryThen) {
  sennit_test::Ranks ranks(kRanks);
  ASSERT_TRUE(ranks.ok());
  const uint64_t seed = sennit_test::seed();
  ranks.run([&](int rank, sennit_comm_t comm) {
    std::mt19937_64 random(seed + static_cast<uint64_t>(rank)), shared(seed);
    const CUstream own = stream();
    ASSERT_EQ(sennit_comm_set_stream(comm, own), SENNIT_OK) << sennit_last_error();
    for (const Collective& collective : kCollectives)
      for (const sennit_type_t type : {SENNIT_FLOAT32, SENNIT_INT8, SENNIT_BFLOAT16})
        expect_same(collective, 1 + shared() % 5000, type, SENNIT_SUM, comm, own, random);
    expect_same(kCollectives[0], 700'000, SENNIT_FLOAT32, SENNIT_SUM, comm, own, random);
    const std::vector<std::byte> factor(8, std::byte{0x3f});
    sennit_op_t op;
    ASSERT_EQ(sennit_op_create_premul_sum(&op, factor.data(), SENNIT_FLOAT32, comm), SENNIT_OK);
    expect_same(kCollectives[0], 3000, SENNIT_FLOAT32, op, comm, own, random);
  });
}

// Each launch reads it anew, also where nothing else of the graph has changed.
TEST_P(DeviceGraphs, AScalarInTheStreamIsReadByEachLaunch) {
  constexpr size_t kCount = 3000;
  sennit_test::Ranks ranks(kRanks);
  ASSERT_TRUE(ranks.ok());
  ranks.run([&](int rank, sennit_comm_t comm) {
    const CUstream own = stream();
    ASSERT_EQ(sennit_comm_set_stream(comm, own), SENNIT_OK) << sennit_last_error();
    const auto repeated = [](int32_t value) {
      std::vector<std::byte> bytes(kCount * sizeof value);
      for (size_t i = 0; i < bytes.size(); i += sizeof value)
        std::memcpy(&bytes[i], &value, sizeof value);
      return bytes;
    };
    const DeviceBuffer from(repeated(rank + 1)), to(repeated(0));
    const DeviceBuffer scalar(std::vector<std::byte>(sizeof(int32_t)));
    sennit_op_t op;
    ASSERT_EQ(sennit_op_create_premul_sum_in_stream(&op, scalar.data(), SENNIT_INT32, comm),
              SENNIT_OK)
        << sennit_last_error();
    CapturedCalls graph(own, [&] {
      ASSERT_EQ(sennit_all_reduce(from.data(), to.data(), kCount, SENNIT_INT32, op, comm),
                SENNIT_OK)
          << sennit_last_error();
    });
    ASSERT_EQ(sennit_op_destroy(op, comm), SENNIT_OK);
    for (int32_t launch = 0; launch < 20; launch++) {
      const int32_t mine = launch * (rank + 1);
      soft_gpu_write(scalar.data(), &mine, sizeof mine);
      graph.launch(own);
      ASSERT_EQ(cuStreamSynchronize(own), 0);
      EXPECT_TRUE(to.read() == repeated(launch * (1 + 4 + 9))) << "launch " << launch;
    }
    EXPECT_EQ(sennit_comm_get_async_error(comm), SENNIT_OK) << sennit_last_error();
    ASSERT_EQ(sennit_barrier(comm), SENNIT_OK);  // before memory is freed
  });
}

// A group of a sum and of messages round the ranks, launched a thousand times, and between launches
// calls that are made once. The host hardly waits for them.
TEST_P(DeviceGraphs, AThousandLaunchesMixWithCallsThatAreMadeOnce) {
  constexpr size_t kCount = 1000;
  sennit_test::Ranks ranks(kRanks);
  ASSERT_TRUE(ranks.ok());
  const uint64_t seed = sennit_test::seed();
  ranks.run([&](int rank, sennit_comm_t comm) {
    std::mt19937_64 shared(seed);
    const CUstream own = stream();
    ASSERT_EQ(sennit_comm_set_stream(comm, own), SENNIT_OK) << sennit_last_error();
    const auto repeated = [](uint32_t value) {
      std::vector<std::byte> bytes(kCount * 4);
      for (size_t i = 0; i < kCount; i++) std::memcpy(&bytes[4 * i], &value, 4);
      return bytes;
    };
    const DeviceBuffer sum(repeated(static_cast<uint32_t>(rank + 1)));
    const DeviceBuffer going(repeated(static_cast<uint32_t>(rank))), coming(repeated(0));
    const auto reduce = [&] {
      ASSERT_EQ(sennit_all_reduce(sum.data(), sum.data(), kCount, SENNIT_UINT32, SENNIT_SUM, comm),
                SENNIT_OK)
          << sennit_last_error();
    };
    const auto pass = [&](const DeviceBuffer& from, const DeviceBuffer& to) {
      ASSERT_EQ(sennit_send(from.data(), kCount, SENNIT_UINT32, (rank + 1) % kRanks, comm),
                SENNIT_OK);
      ASSERT_EQ(sennit_recv(to.data(), kCount, SENNIT_UINT32, (rank + 2) % kRanks, comm),
                SENNIT_OK);
    };
    CapturedCalls graph(own, [&] {
      ASSERT_EQ(sennit_group_start(), SENNIT_OK);
      reduce();
      pass(going, coming);
      ASSERT_EQ(sennit_group_end(), SENNIT_OK) << sennit_last_error();
      ASSERT_EQ(cuMemcpyAsync(going.address(), coming.address(), kCount * 4, own), 0);
    });
    uint32_t expected = 6;  // of 1, 2 and 3; from then on all ranks have the same
    reduce();
    ASSERT_EQ(cuStreamSynchronize(own), 0);
    ASSERT_EQ(sennit_barrier(comm), SENNIT_OK);
    for (int i = 0; i < 1000; i++) {
      graph.launch(own);
      expected *= kRanks;
      if (shared() % 4 != 0) continue;
      reduce();
      expected *= kRanks;
      if (shared() % 8 == 0) {
        ASSERT_EQ(cuStreamSynchronize(own), 0);
      }
    }
    ASSERT_EQ(cuStreamSynchronize(own), 0);
    EXPECT_EQ(sum.read(), repeated(expected));
    EXPECT_EQ(going.read(), repeated(static_cast<uint32_t>((rank + 2 * 1000) % kRanks)));
    EXPECT_EQ(sennit_comm_get_async_error(comm), SENNIT_OK) << sennit_last_error();
    ASSERT_EQ(sennit_barrier(comm), SENNIT_OK);
  });
}

TEST_P(DeviceGraphs, NothingAsksTheDriverButTheLaunches) {
  constexpr int kLaunches = 50;
  sennit_test::Ranks ranks(kRanks);
  ASSERT_TRUE(ranks.ok());
  std::barrier together(kRanks);
  std::atomic<uint64_t> calls{0};
  ranks.run([&](int, sennit_comm_t comm) {
    const CUstream own = stream();
    const std::vector<std::byte> ones(50'000, std::byte{1});
    ASSERT_EQ(sennit_comm_set_stream(comm, own), SENNIT_OK) << sennit_last_error();
    {
      const DeviceBuffer from(ones), to(ones);
      std::atomic<int> ended{0};
      CapturedCalls graph(own, [&] {
        ASSERT_EQ(sennit_all_reduce(from.data(), to.data(), 50'000, SENNIT_UINT8, SENNIT_SUM, comm),
                  SENNIT_OK)
            << sennit_last_error();
        const auto count = [](void* counter) { ++*static_cast<std::atomic<int>*>(counter); };
        ASSERT_EQ(cuLaunchHostFunc(own, count, &ended), 0);
      });
      together.arrive_and_wait();
      calls = soft_gpu_calls();
      const auto begin = std::chrono::steady_clock::now();
      together.arrive_and_wait();
      for (int i = 1; i <= kLaunches; i++) {
        soft_gpu_write(to.data(), ones.data(), ones.size());
        graph.launch(own);
        while (ended < i) std::this_thread::yield();
        EXPECT_TRUE(to.read() == std::vector<std::byte>(50'000, std::byte{kRanks})) << i;
        together.arrive_and_wait();
      }
      // Once a second a thread that nobody waits for asks whether the device has failed.
      const auto seconds =
          1 + static_cast<uint64_t>((std::chrono::steady_clock::now() - begin) / 1s);
      const uint64_t asked = soft_gpu_calls() - calls - kLaunches * kRanks;
      EXPECT_LE(asked, 5 * seconds);
      together.arrive_and_wait();
      ASSERT_EQ(cuStreamSynchronize(own), 0);
      together.arrive_and_wait();
    }
    together.arrive_and_wait();
  });
}

// As PyTorch does: the call is in a stream of its own, which the capture spreads to and comes back
// from. What other threads do meanwhile leaves the capture valid: here those that look after a call
// that is out, and after the device.
TEST_P(DeviceGraphs, ACaptureSpreadsAndStaysValid) {
  sennit_test::Ranks ranks(2);
  ASSERT_TRUE(ranks.ok());
  std::barrier together(2);
  ranks.run([&](int rank, sennit_comm_t comm) {
    const CUstream own = stream(), inner = stream(), third = stream();
    const std::vector<std::byte> ones(1000, std::byte{1});
    CUevent forth = nullptr, back = nullptr;
    ASSERT_EQ(cuEventCreate(&forth, 0), 0);
    ASSERT_EQ(cuEventCreate(&back, 0), 0);
    sennit_comm_t other = nullptr;
    ASSERT_EQ(sennit_comm_dup(comm, &other), SENNIT_OK);
    ASSERT_EQ(sennit_comm_set_stream(comm, inner), SENNIT_OK) << sennit_last_error();
    ASSERT_EQ(sennit_comm_set_stream(other, third), SENNIT_OK) << sennit_last_error();
    {
      const DeviceBuffer buffer(ones), held(ones);
      if (rank == 1) soft_gpu_hold(third);
      ASSERT_EQ(sennit_all_reduce(held.data(), held.data(), 1000, SENNIT_UINT8, SENNIT_SUM, other),
                SENNIT_OK)
          << sennit_last_error();
      together.arrive_and_wait();
      CapturedCalls graph(
          own,
          [&] {
            ASSERT_EQ(cuEventRecord(forth, own), 0);
            ASSERT_EQ(cuStreamWaitEvent(inner, forth, 0), 0);
            for (int i = 0; i < 12; i++)  // more than there are mailboxes: some are made
              ASSERT_EQ(sennit_all_reduce(buffer.data(), buffer.data(), 1000, SENNIT_UINT8,
                                          SENNIT_SUM, comm),
                        SENNIT_OK)
                  << sennit_last_error();
            ASSERT_EQ(cuEventRecord(back, inner), 0);
            ASSERT_EQ(cuStreamWaitEvent(own, back, 0), 0);
            std::this_thread::sleep_for(2500ms);  // the device is asked now whether it has failed
            together.arrive_and_wait();
          },
          kGlobal);
      together.arrive_and_wait();
      if (rank == 1) soft_gpu_release(third);
      for (int i = 0; i < 3; i++) {
        soft_gpu_write(buffer.data(), ones.data(), ones.size());
        graph.launch(own);
        ASSERT_EQ(cuStreamSynchronize(own), 0);
        EXPECT_EQ(buffer.read(), std::vector<std::byte>(1000, std::byte{1 << 12 & 0xff}));
        EXPECT_EQ(sennit_comm_get_async_error(comm), SENNIT_OK) << sennit_last_error();
        together.arrive_and_wait();
      }
      ASSERT_EQ(cuStreamSynchronize(third), 0);
      together.arrive_and_wait();
    }
    together.arrive_and_wait();
    sennit_comm_destroy(other);
  });
}

// What a graph had is for the next one, as soon as it is gone.
TEST_P(DeviceGraphs, GraphsThatAreGoneLeaveNothing) {
  sennit_test::Ranks ranks(2);
  ASSERT_TRUE(ranks.ok());
  std::barrier together(2);
  ranks.run([&](int, sennit_comm_t comm) {
    const CUstream own = stream();
    ASSERT_EQ(sennit_comm_set_stream(comm, own), SENNIT_OK) << sennit_last_error();
    const DeviceBuffer buffer(std::vector<std::byte>(100'000));
    uint64_t settled = 0;
    for (int i = 0; i < 60; i++) {
      if (i == 30) settled = soft_gpu_allocations_of_thread();
      CapturedCalls graph(own, [&] {
        for (int k = 0; k < 5; k++)
          ASSERT_EQ(sennit_all_reduce(buffer.data(), buffer.data(), 100'000, SENNIT_UINT8,
                                      SENNIT_SUM, comm),
                    SENNIT_OK)
              << sennit_last_error();
      });
      if (i % 3 != 0) continue;
      graph.launch(own);
      ASSERT_EQ(cuStreamSynchronize(own), 0);
    }
    // Once in a while a graph is gone only after the next is captured. Of the 30 graphs each has
    // five mailboxes, and five calls with memory.
    EXPECT_GT(settled, 0u);
    EXPECT_LE(soft_gpu_allocations_of_thread() - settled, 10u);
    EXPECT_EQ(sennit_comm_get_async_error(comm), SENNIT_OK) << sennit_last_error();
    together.arrive_and_wait();
  });
}

// While a graph lives the stream that it was captured in is anybody's: only within one capture
// ranks would wait for one another for ever.
TEST_P(DeviceGraphs, RanksMayCaptureInOneStreamOneAfterTheOther) {
  constexpr size_t kBytes = 1000;
  sennit_test::Ranks ranks(2);
  ASSERT_TRUE(ranks.ok());
  const CUstream shared = stream();
  std::barrier together(2);
  ranks.run([&](int rank, sennit_comm_t comm) {
    const CUstream own = stream();
    ASSERT_EQ(sennit_comm_set_stream(comm, shared), SENNIT_OK) << sennit_last_error();
    {
      const DeviceBuffer buffer(std::vector<std::byte>(kBytes, static_cast<std::byte>(rank + 1)));
      std::unique_ptr<CapturedCalls> graph;
      for (int turn = 0; turn < 2; turn++) {
        if (turn == rank)
          graph = std::make_unique<CapturedCalls>(shared, [&] {
            EXPECT_EQ(sennit_all_reduce(buffer.data(), buffer.data(), kBytes, SENNIT_UINT8,
                                        SENNIT_SUM, comm),
                      SENNIT_OK)
                << sennit_last_error();
          });
        together.arrive_and_wait();
      }
      graph->launch(own);
      EXPECT_EQ(cuStreamSynchronize(own), 0);
      EXPECT_TRUE(buffer.read() == std::vector<std::byte>(kBytes, std::byte{3}));
      EXPECT_EQ(sennit_comm_get_async_error(comm), SENNIT_OK) << sennit_last_error();
      together.arrive_and_wait();  // before memory is freed
    }
  });
  EXPECT_EQ(cuStreamDestroy_v2(shared), 0);
}

// A rank launches and the others do not, until one of them gives up: streams go on, also in
// launches after that, and after the communicator is gone. Returns how long it takes a stream.
std::chrono::milliseconds launch_past_those_that_failed(const std::function<CUstream()>& stream) {
  sennit_test::Ranks ranks(2);
  EXPECT_TRUE(ranks.ok());
  if (!ranks.ok()) return {};
  std::array<std::chrono::milliseconds, 2> took{};
  std::barrier together(2);
  ranks.run([&](int rank, sennit_comm_t comm) {
    const CUstream own = stream();
    sennit_comm_t other = nullptr, third = nullptr;
    ASSERT_EQ(sennit_comm_dup(comm, &other), SENNIT_OK);
    ASSERT_EQ(sennit_comm_dup(comm, &third), SENNIT_OK);
    for (const sennit_comm_t each : {other, third})
      ASSERT_EQ(sennit_comm_set_stream(each, own), SENNIT_OK) << sennit_last_error();
    const DeviceBuffer buffer(std::vector<std::byte>(1000));
    const auto reduce_on = [&](sennit_comm_t on) {
      return [&buffer, on] {
        ASSERT_EQ(
            sennit_all_reduce(buffer.data(), buffer.data(), 1000, SENNIT_UINT8, SENNIT_SUM, on),
            SENNIT_OK)
            << sennit_last_error();
      };
    };
    CapturedCalls graph(own, reduce_on(other)), later(own, reduce_on(third));
    together.arrive_and_wait();
    if (rank == 0) graph.launch(own);
    std::this_thread::sleep_for(100ms);
    const auto begin = std::chrono::steady_clock::now();
    if (rank == 1) sennit_comm_abort(other);
    ASSERT_EQ(cuStreamSynchronize(own), 0);
    took[static_cast<size_t>(rank)] =
        std::chrono::ceil<std::chrono::milliseconds>(std::chrono::steady_clock::now() - begin);
    for (int i = 0; i < 3; i++) graph.launch(own);
    later.launch(own);
    ASSERT_EQ(cuStreamSynchronize(own), 0);
    together.arrive_and_wait();
    EXPECT_EQ(sennit_comm_destroy(other), SENNIT_OK);
    EXPECT_EQ(sennit_comm_destroy(third), SENNIT_OK);
    for (int i = 0; i < 3; i++) {
      graph.launch(own);
      later.launch(own);
    }
    ASSERT_EQ(cuStreamSynchronize(own), 0);
    EXPECT_EQ(sennit_barrier(comm), SENNIT_OK) << sennit_last_error();
    together.arrive_and_wait();  // before memory is freed
  });
  return std::max(took[0], took[1]);
}

TEST_P(DeviceGraphs, LaunchesPassByCommunicatorsThatFailedOrAreGone) {
  const auto launch = [&] { return launch_past_those_that_failed([&] { return stream(); }); };
  EXPECT_LT(sennit_test::least_time(2s, launch), 2s);
}

TEST_P(DeviceGraphs, WhatCannotBePartOfAGraphIsNamed) {
  sennit_test::Ranks ranks(2);
  ASSERT_TRUE(ranks.ok());
  ranks.run([&](int rank, sennit_comm_t comm) {
    const CUstream own = stream();
    ASSERT_EQ(sennit_comm_set_stream(comm, own), SENNIT_OK) << sennit_last_error();
    const DeviceBuffer buffer(std::vector<std::byte>(100));
    std::vector<std::byte> plain(100);
    CUgraph graph = nullptr;
    const auto said = [](const char* what) {
      return std::string(sennit_last_error()).find(what) != std::string::npos;
    };
    ASSERT_EQ(cuStreamBeginCapture_v2(own, kThreadLocal), 0);
    EXPECT_EQ(sennit_all_reduce(plain.data(), plain.data(), 100, SENNIT_UINT8, SENNIT_SUM, comm),
              SENNIT_INVALID_ARGUMENT);
    EXPECT_TRUE(said("is the host's alone")) << sennit_last_error();
    sennit_work_t work = nullptr;
    EXPECT_EQ(sennit_all_reduce_start(buffer.data(), buffer.data(), 100, SENNIT_UINT8, SENNIT_SUM,
                                      comm, &work),
              SENNIT_UNSUPPORTED);
    EXPECT_TRUE(said("no work to wait for")) << sennit_last_error();
    EXPECT_EQ(sennit_recv(buffer.data(), 100, SENNIT_UINT8, SENNIT_ANY_SOURCE, comm),
              SENNIT_UNSUPPORTED);
    EXPECT_TRUE(said("names its source")) << sennit_last_error();
    EXPECT_EQ(sennit_send_start(buffer.data(), 100, SENNIT_UINT8, rank, comm, &work),
              SENNIT_UNSUPPORTED);
    EXPECT_EQ(cuStreamSynchronize(own), 900);  // which makes the capture invalid
    EXPECT_EQ(sennit_all_reduce(buffer.data(), buffer.data(), 100, SENNIT_UINT8, SENNIT_SUM, comm),
              SENNIT_INVALID_ARGUMENT);
    EXPECT_TRUE(said("invalid since an earlier call")) << sennit_last_error();
    EXPECT_EQ(cuStreamEndCapture(own, &graph), 901);
    const auto reduce = [&] {
      return sennit_all_reduce(buffer.data(), buffer.data(), 100, SENNIT_UINT8, SENNIT_SUM, comm);
    };
    ASSERT_EQ(sennit_group_start(), SENNIT_OK);
    EXPECT_EQ(reduce(), SENNIT_OK);
    ASSERT_EQ(cuStreamBeginCapture_v2(own, kThreadLocal), 0);
    EXPECT_EQ(reduce(), SENNIT_OK);
    EXPECT_EQ(sennit_group_end(), SENNIT_INVALID_ARGUMENT);
    EXPECT_TRUE(said("begun or ended within a group")) << sennit_last_error();
    EXPECT_EQ(cuStreamEndCapture(own, &graph), 0);
    EXPECT_EQ(cuGraphDestroy(graph), 0);
    // None of these has counted as a call.
    ASSERT_EQ(sennit_all_reduce(buffer.data(), buffer.data(), 100, SENNIT_UINT8, SENNIT_SUM, comm),
              SENNIT_OK)
        << rank << sennit_last_error();
    ASSERT_EQ(cuStreamSynchronize(own), 0);
    EXPECT_EQ(sennit_barrier(comm), SENNIT_OK) << sennit_last_error();
  });
}

// One rank captures what the other makes at once.
TEST_P(DeviceGraphs, ACallThatIsInAGraphOnSomeRanksOnlyIsNamed) {
  setenv("SENNIT_STALL", "500", 1);
  sennit_test::Ranks ranks(2);
  ASSERT_TRUE(ranks.ok());
  ranks.run([&](int rank, sennit_comm_t comm) {
    const CUstream own = stream();
    ASSERT_EQ(sennit_comm_set_stream(comm, own), SENNIT_OK) << sennit_last_error();
    const DeviceBuffer buffer(std::vector<std::byte>(100));
    const auto reduce = [&] {
      ASSERT_EQ(
          sennit_all_reduce(buffer.data(), buffer.data(), 100, SENNIT_UINT8, SENNIT_SUM, comm),
          SENNIT_OK)
          << sennit_last_error();
    };
    if (rank == 0) {
      CapturedCalls graph(own, reduce);
      while (sennit_comm_get_async_error(comm) == SENNIT_OK) std::this_thread::sleep_for(10ms);
    } else {
      reduce();
      ASSERT_EQ(cuStreamSynchronize(own), 0);
      while (sennit_comm_get_async_error(comm) == SENNIT_OK) std::this_thread::sleep_for(10ms);
    }
    EXPECT_EQ(sennit_comm_get_async_error(comm), SENNIT_MISMATCH) << sennit_last_error();
    EXPECT_NE(std::string(sennit_last_error()).find("in a graph"), std::string::npos)
        << sennit_last_error();
  });
  unsetenv("SENNIT_STALL");
}

INSTANTIATE_TEST_SUITE_P(Over, DeviceGraphs, testing::Values("loopback", "shm", "tcp"),
                         [](const auto& name) { return std::string(name.param); });

}  // namespace
