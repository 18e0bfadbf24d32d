// Calls on device memory, on the software GPU: all collectives, types and operations give the bits
// that the same calls on host memory give, over every way that messages take; nothing asks the
// driver between enqueue and end; what programs do to their device meanwhile hangs nothing.
//
// Ranks are threads; over tcp and shm their messages go through pinned memory, over loopback they
// are read where they lie.
//
// ctest links: soft_gpu
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <fmt/core.h>

#include "sennit/sennit.h"
#include "tests/accelerator/device_calls.hpp"
#include "tests/support/eventually.hpp"
#include "tests/support/ranks.hpp"
#include "tests/support/seed.hpp"

using namespace std::chrono_literals;

using sennit_test::CallBuffers;
using sennit_test::Collective;
using sennit_test::DeviceBuffer;
using sennit_test::difference;
using sennit_test::kCollectives;

namespace {

constexpr int kRanks = 3;

using DeviceCalls = sennit_test::DeviceTest;

// Places for a scalar, in memory of the device and in pinned memory. Copies in the stream put one
// there for each of two calls.
class ScalarInStream {
 public:
  ScalarInStream(sennit_comm_t comm, CUstream stream) : comm_(comm), stream_(stream) {
    EXPECT_EQ(cuMemHostAlloc(&pinned_, kBytes, 0), 0);
  }
  // See CallBuffers.
  ~ScalarInStream() {
    EXPECT_EQ(sennit_barrier(comm_), SENNIT_OK);
    next_.reset();
    there_.reset();
    EXPECT_EQ(cuMemFreeHost(pinned_), 0);
    EXPECT_EQ(sennit_barrier(comm_), SENNIT_OK);
  }
  ScalarInStream(const ScalarInStream&) = delete;
  ScalarInStream& operator=(const ScalarInStream&) = delete;

  // Both calls are in the stream before it comes to the first copy.
  void expect_read(const Collective& collective, size_t count, sennit_type_t type, bool in_pinned,
                   std::mt19937_64& random) {
    CallBuffers first(collective, count, type, kRanks), second(collective, count, type, kRanks);
    first.draw(random);
    second.draw(random);
    const std::vector<std::byte> scalars = sennit_test::random_bytes(2 * kBytes, random);
    soft_gpu_write(next_->data(), scalars.data(), scalars.size());
    void* const at = in_pinned ? pinned_ : there_->data();
    sennit_op_t op;
    ASSERT_EQ(sennit_op_create_premul_sum_in_stream(&op, at, type, comm_), SENNIT_OK)
        << sennit_last_error();
    soft_gpu_hold(stream_);
    size_t from = 0;
    for (CallBuffers* const buffers : {&first, &second}) {
      EXPECT_EQ(cuMemcpyAsync(reinterpret_cast<CUdeviceptr>(at), next_->address() + from, kBytes,
                              stream_),
                0);
      EXPECT_EQ(collective.call(buffers->from->data(), buffers->to->data(), count, type, op, comm_),
                SENNIT_OK)
          << sennit_last_error();
      from += kBytes;
    }
    EXPECT_EQ(sennit_op_destroy(op, comm_), SENNIT_OK);
    soft_gpu_release(stream_);
    ASSERT_EQ(cuStreamSynchronize(stream_), 0);
    expect_of_host(collective, first, scalars.data(), count, type);
    expect_of_host(collective, second, scalars.data() + kBytes, count, type);
    first.free(comm_);
    second.free(comm_);
  }

 private:
  static constexpr size_t kBytes = 8;  // of the largest type

  void expect_of_host(const Collective& collective, CallBuffers& buffers, const std::byte* scalar,
                      size_t count, sennit_type_t type) const {
    sennit_op_t op;
    ASSERT_EQ(sennit_op_create_premul_sum(&op, scalar, type, comm_), SENNIT_OK);
    ASSERT_EQ(collective.call(buffers.sent.data(), buffers.received.data(), count, type, op, comm_),
              SENNIT_OK)
        << sennit_last_error();
    ASSERT_EQ(sennit_op_destroy(op, comm_), SENNIT_OK);
    EXPECT_TRUE(buffers.to->read() == buffers.received)
        << collective.name << " of " << count << " of type " << type;
  }

  const sennit_comm_t comm_;
  const CUstream stream_;
  std::unique_ptr<DeviceBuffer> next_ =
      std::make_unique<DeviceBuffer>(std::vector<std::byte>(2 * kBytes));
  std::unique_ptr<DeviceBuffer> there_ =
      std::make_unique<DeviceBuffer>(std::vector<std::byte>(kBytes));
  void* pinned_ = nullptr;
};

TEST_P(DeviceCalls, EveryCollectiveTypeAndOperationHasTheHostsBits) {
  sennit_test::Ranks ranks(kRanks);
  ASSERT_TRUE(ranks.ok());
  const uint64_t seed = sennit_test::seed();
  ranks.run([&](int rank, sennit_comm_t comm) {
    std::mt19937_64 random(seed + static_cast<uint64_t>(rank)), shared(seed);
    const CUstream own = stream();
    ASSERT_EQ(sennit_comm_set_stream(comm, own), SENNIT_OK) << sennit_last_error();
    for (const Collective& collective : kCollectives)
      for (int type = 0; type < SENNIT_TYPE_COUNT; type++)
        for (const sennit_op_t op : {SENNIT_SUM, SENNIT_PROD, SENNIT_MIN, SENNIT_MAX, SENNIT_AVG}) {
          const bool reduces = std::strstr(collective.name, "reduce") != nullptr;
          if (!reduces && (op != SENNIT_SUM || type % 3 != 0)) continue;
          const size_t count = 1 + shared() % 5000;
          EXPECT_EQ(difference(collective, count, static_cast<sennit_type_t>(type), op, comm, own,
                               random),
                    "");
        }
    // Of many chunks.
    for (const Collective& collective : kCollectives)
      EXPECT_EQ(difference(collective, 700'000, SENNIT_BFLOAT16, SENNIT_SUM, comm, own, random),
                "");
  });
}

// Calls follow one another in the stream without the host.
TEST_P(DeviceCalls, SumsOfWhatIsMultipliedFirstHaveTheHostsBits) {
  sennit_test::Ranks ranks(kRanks);
  ASSERT_TRUE(ranks.ok());
  const uint64_t seed = sennit_test::seed();
  ranks.run([&](int rank, sennit_comm_t comm) {
    std::mt19937_64 random(seed + static_cast<uint64_t>(rank));
    const CUstream own = stream();
    ASSERT_EQ(sennit_comm_set_stream(comm, own), SENNIT_OK) << sennit_last_error();
    for (const sennit_type_t type :
         {SENNIT_FLOAT32, SENNIT_BFLOAT16, SENNIT_INT8, SENNIT_FLOAT64}) {
      const std::vector<std::byte> factor(8, std::byte{0x3f});
      sennit_op_t op;
      ASSERT_EQ(sennit_op_create_premul_sum(&op, factor.data(), type, comm), SENNIT_OK);
      for (const Collective& collective : kCollectives)
        for (const size_t count : {1, 1000, 100'000})
          if (std::strstr(collective.name, "reduce")) {
            EXPECT_EQ(difference(collective, count, type, op, comm, own, random), "");
          }
      ASSERT_EQ(sennit_op_destroy(op, comm), SENNIT_OK);
    }
  });
}

// The scalar is read in the stream's order: when the calls are made all of it is still to come.
TEST_P(DeviceCalls, AScalarInTheStreamIsWhatLiesThereWhenACallRuns) {
  sennit_test::Ranks ranks(kRanks);
  ASSERT_TRUE(ranks.ok());
  const uint64_t seed = sennit_test::seed();
  ranks.run([&](int rank, sennit_comm_t comm) {
    std::mt19937_64 random(seed + static_cast<uint64_t>(rank));
    const CUstream own = stream();
    ASSERT_EQ(sennit_comm_set_stream(comm, own), SENNIT_OK) << sennit_last_error();
    ScalarInStream scalar(comm, own);
    for (int type = 0; type < SENNIT_TYPE_COUNT; type++)
      for (const Collective& collective : kCollectives)
        if (std::strstr(collective.name, "reduce"))
          for (const size_t count : {1, 50'000})
            scalar.expect_read(collective, count, static_cast<sennit_type_t>(type), type % 2 == 1,
                               random);
  });
}

TEST_P(DeviceCalls, AScalarThatNoStreamReadsIsNamed) {
  sennit_test::Ranks ranks(kRanks);
  ASSERT_TRUE(ranks.ok());
  ranks.run([&](int rank, sennit_comm_t comm) {
    const CUstream own = stream();
    const auto says = [](const char* words) {
      EXPECT_NE(std::string(sennit_last_error()).find(words), std::string::npos)
          << sennit_last_error();
    };
    float plain = 2, x = static_cast<float>(rank + 1), sum = 0;
    auto buffer = std::make_unique<DeviceBuffer>(std::vector<std::byte>(sizeof plain));
    const DeviceBuffer& there = *buffer;
    sennit_op_t op;
    const auto create = [&](const void* scalar) {
      return sennit_op_create_premul_sum_in_stream(&op, scalar, SENNIT_FLOAT32, comm);
    };
    EXPECT_EQ(create(there.data()), SENNIT_INVALID_ARGUMENT);
    says("call sennit_comm_set_stream first");
    ASSERT_EQ(sennit_comm_set_stream(comm, own), SENNIT_OK) << sennit_last_error();
    EXPECT_EQ(create(&plain), SENNIT_INVALID_ARGUMENT);
    says("which no device reaches");
    EXPECT_EQ(create(nullptr), SENNIT_INVALID_ARGUMENT);
    // A group in which one is off makes none of its calls.
    ASSERT_EQ(sennit_group_start(), SENNIT_OK);
    EXPECT_EQ(create(&plain), SENNIT_INVALID_ARGUMENT);
    EXPECT_EQ(sennit_all_reduce(&x, &sum, 1, SENNIT_FLOAT32, SENNIT_SUM, comm), SENNIT_OK);
    EXPECT_EQ(sennit_group_end(), SENNIT_INVALID_ARGUMENT);
    EXPECT_EQ(sum, 0);
    ASSERT_EQ(create(there.data()), SENNIT_OK) << sennit_last_error();
    EXPECT_EQ(sennit_all_reduce(&x, &sum, 1, SENNIT_FLOAT32, op, comm), SENNIT_INVALID_ARGUMENT);
    says("give the scalar in the host's memory");
    ASSERT_EQ(sennit_op_destroy(op, comm), SENNIT_OK);
    // Of pinned memory the host reads it, once the stream has come so far.
    float* pinned = nullptr;
    ASSERT_EQ(cuMemHostAlloc(reinterpret_cast<void**>(&pinned), sizeof plain, 0), 0);
    *pinned = 0;
    soft_gpu_write(there.data(), &plain, sizeof plain);
    ASSERT_EQ(create(pinned), SENNIT_OK) << sennit_last_error();
    ASSERT_EQ(cuMemcpyAsync(reinterpret_cast<CUdeviceptr>(pinned), there.address(), 4, own), 0);
    ASSERT_EQ(sennit_all_reduce(&x, &sum, 1, SENNIT_FLOAT32, op, comm), SENNIT_OK)
        << sennit_last_error();
    EXPECT_EQ(sum, 2 * 6);
    ASSERT_EQ(sennit_op_destroy(op, comm), SENNIT_OK);
    ASSERT_EQ(sennit_barrier(comm), SENNIT_OK);  // see CallBuffers
    buffer.reset();
    ASSERT_EQ(cuMemFreeHost(pinned), 0);
    ASSERT_EQ(sennit_barrier(comm), SENNIT_OK);
  });
}

// Who has nothing to send has no memory, and is in the others' call all the same.
TEST_P(DeviceCalls, RanksWithoutElementsTakePart) {
  sennit_test::Ranks ranks(kRanks);
  ASSERT_TRUE(ranks.ok());
  ranks.run([&](int rank, sennit_comm_t comm) {
    const CUstream own = stream();
    ASSERT_EQ(sennit_comm_set_stream(comm, own), SENNIT_OK) << sennit_last_error();
    const size_t counts[kRanks] = {0, 10'001, 17};
    const size_t mine = counts[rank];
    std::vector<std::byte> sent(mine, static_cast<std::byte>(rank)), expected;
    for (int r = 0; r < kRanks; r++)
      expected.insert(expected.end(), counts[r], static_cast<std::byte>(r));
    const DeviceBuffer from(sent), to(std::vector<std::byte>(expected.size()));
    ASSERT_EQ(sennit_all_gather_v(mine > 0 ? from.data() : nullptr, to.data(), counts, nullptr,
                                  SENNIT_UINT8, comm),
              SENNIT_OK)
        << sennit_last_error();
    ASSERT_EQ(sennit_gather_v(mine > 0 ? from.data() : nullptr, rank == 1 ? to.data() : nullptr,
                              counts, nullptr, SENNIT_UINT8, 1, comm),
              SENNIT_OK)
        << sennit_last_error();
    ASSERT_EQ(sennit_all_reduce(nullptr, nullptr, 0, SENNIT_INT32, SENNIT_SUM, comm), SENNIT_OK);
    ASSERT_EQ(cuStreamSynchronize(own), 0);
    EXPECT_EQ(to.read(), expected);
    EXPECT_EQ(sennit_comm_get_async_error(comm), SENNIT_OK) << sennit_last_error();
    EXPECT_EQ(sennit_barrier(comm), SENNIT_OK);
  });
}

// Many chunks of blocks that do not divide evenly, so that chunks differ in many places.
TEST_P(DeviceCalls, ChunksOfUnevenSizesFindRoom) {
  setenv("SENNIT_CHUNK_BYTES", "3000", 1);
  constexpr int kMany = 7;
  {
    sennit_test::Ranks ranks(kMany);
    ASSERT_TRUE(ranks.ok());
    ranks.run([&](int rank, sennit_comm_t comm) {
      const CUstream own = stream();
      ASSERT_EQ(sennit_comm_set_stream(comm, own), SENNIT_OK) << sennit_last_error();
      for (const size_t count : {9'973, 31, 12'345}) {
        std::vector<std::byte> sent(count, static_cast<std::byte>(rank + 1)), expected;
        for (int r = 0; r < kMany; r++)
          expected.insert(expected.end(), count, static_cast<std::byte>(r + 1));
        auto from = std::make_unique<DeviceBuffer>(sent);
        auto to = std::make_unique<DeviceBuffer>(std::vector<std::byte>(expected.size()));
        ASSERT_EQ(sennit_all_gather(from->data(), to->data(), count, SENNIT_UINT8, comm), SENNIT_OK)
            << sennit_last_error();
        ASSERT_EQ(cuStreamSynchronize(own), 0);
        EXPECT_EQ(to->read(), expected);
        ASSERT_EQ(sennit_comm_get_async_error(comm), SENNIT_OK) << sennit_last_error();
        EXPECT_EQ(sennit_barrier(comm), SENNIT_OK);  // see CallBuffers
        from.reset();
        to.reset();
        EXPECT_EQ(sennit_barrier(comm), SENNIT_OK);
      }
    });
  }
  unsetenv("SENNIT_CHUNK_BYTES");
}

// Handles of calls are waited for as on host memory, and a communicator ends with calls out.
TEST_P(DeviceCalls, HandlesAreWaitedForAndCallsOutAreEnded) {
  sennit_test::Ranks ranks(kRanks);
  ASSERT_TRUE(ranks.ok());
  ranks.run([&](int rank, sennit_comm_t comm) {
    const CUstream own = stream();
    const DeviceBuffer buffer(std::vector<std::byte>(40'000, std::byte{1}));
    sennit_comm_t other = nullptr;
    ASSERT_EQ(sennit_comm_set_stream(comm, own), SENNIT_OK) << sennit_last_error();
    ASSERT_EQ(sennit_comm_dup(comm, &other), SENNIT_OK);
    ASSERT_EQ(sennit_comm_set_stream(other, own), SENNIT_OK) << sennit_last_error();
    sennit_work_t work = nullptr, grouped = nullptr;
    ASSERT_EQ(sennit_all_reduce_start(buffer.data(), buffer.data(), 40'000, SENNIT_UINT8,
                                      SENNIT_BOR, comm, &work),
              SENNIT_OK)
        << sennit_last_error();
    ASSERT_EQ(sennit_work_wait(work, -1), SENNIT_OK) << sennit_last_error();
    ASSERT_EQ(sennit_work_free(work), SENNIT_OK);
    ASSERT_EQ(sennit_group_start(), SENNIT_OK);
    ASSERT_EQ(sennit_all_reduce_start(buffer.data(), buffer.data(), 40'000, SENNIT_UINT8,
                                      SENNIT_SUM, comm, &grouped),
              SENNIT_OK);
    ASSERT_EQ(sennit_group_end(), SENNIT_OK) << sennit_last_error();
    for (int i = 0; i < 3; i++)
      ASSERT_EQ(
          sennit_all_reduce(buffer.data(), buffer.data(), 40'000, SENNIT_UINT8, SENNIT_BAND, other),
          SENNIT_OK);
    EXPECT_EQ(sennit_work_wait(grouped, -1), SENNIT_OK) << sennit_last_error();
    EXPECT_EQ(sennit_work_free(grouped), SENNIT_OK);
    EXPECT_EQ(sennit_comm_destroy(other), SENNIT_OK);  // three calls may be out
    ASSERT_EQ(cuStreamSynchronize(own), 0);
    EXPECT_EQ(buffer.read(), std::vector<std::byte>(40'000, std::byte{3})) << rank;
    EXPECT_EQ(sennit_barrier(comm), SENNIT_OK);
  });
}

// Of a call whose handle was given up in its group nobody waits for the end.
TEST_P(DeviceCalls, AGroupWaitsForNoHandleThatWasGivenUp) {
  sennit_test::Ranks ranks(kRanks);
  ASSERT_TRUE(ranks.ok());
  ranks.run([&](int rank, sennit_comm_t comm) {
    const CUstream own = stream();
    const DeviceBuffer buffer(std::vector<std::byte>(4000, std::byte{1}));
    ASSERT_EQ(sennit_comm_set_stream(comm, own), SENNIT_OK) << sennit_last_error();
    soft_gpu_hold(own);
    std::atomic<bool> ended{false}, in_time{false};
    std::thread releases([&] {
      in_time = sennit_test::eventually([&] { return ended.load(); });
      soft_gpu_release(own);
    });
    sennit_work_t given_up = nullptr;
    EXPECT_EQ(sennit_group_start(), SENNIT_OK);
    EXPECT_EQ(sennit_all_reduce_start(buffer.data(), buffer.data(), 4000, SENNIT_UINT8, SENNIT_SUM,
                                      comm, &given_up),
              SENNIT_OK)
        << sennit_last_error();
    EXPECT_EQ(sennit_work_free(given_up), SENNIT_OK);
    EXPECT_EQ(sennit_group_end(), SENNIT_OK) << sennit_last_error();
    ended = true;
    releases.join();
    EXPECT_TRUE(in_time) << rank;
    EXPECT_EQ(cuStreamSynchronize(own), 0);
    EXPECT_EQ(buffer.read(), std::vector<std::byte>(4000, std::byte{kRanks}));
    EXPECT_EQ(sennit_barrier(comm), SENNIT_OK);  // see CallBuffers
  });
}

// Of a group on two communicators one has failed: the other's call is made, and the stream goes on.
TEST_P(DeviceCalls, AGroupWithACommunicatorThatFailedLetsTheStreamGoOn) {
  sennit_test::Ranks ranks(2);
  ASSERT_TRUE(ranks.ok());
  ranks.run([&](int, sennit_comm_t comm) {
    const CUstream own = stream();
    const DeviceBuffer buffer(std::vector<std::byte>(4000));
    sennit_comm_t other = nullptr;
    ASSERT_EQ(sennit_comm_dup(comm, &other), SENNIT_OK);
    ASSERT_EQ(sennit_comm_set_stream(comm, own), SENNIT_OK) << sennit_last_error();
    ASSERT_EQ(sennit_comm_set_stream(other, own), SENNIT_OK) << sennit_last_error();
    ASSERT_EQ(sennit_group_start(), SENNIT_OK);
    // The other rank may have aborted it already.
    (void)sennit_all_reduce(buffer.data(), buffer.data(), 1000, SENNIT_INT32, SENNIT_SUM, other);
    ASSERT_EQ(sennit_all_reduce(buffer.data(), buffer.data(), 1000, SENNIT_INT32, SENNIT_SUM, comm),
              SENNIT_OK);
    sennit_comm_abort(other);
    sennit_group_end();
    EXPECT_EQ(cuStreamSynchronize(own), 0);
    EXPECT_EQ(sennit_barrier(comm), SENNIT_OK) << sennit_last_error();
    sennit_comm_destroy(other);
  });
}

// Of a call of two ranks in these streams the second is refused, and both hear of it.
void expect_refused(CUcontext context, const std::array<CUstream, 2>& streams) {
  sennit_test::Ranks ranks(2);
  ASSERT_TRUE(ranks.ok());
  std::atomic<int> refused{0};
  ranks.run([&](int rank, sennit_comm_t comm) {
    const CUstream own = streams[static_cast<size_t>(rank)];
    ASSERT_EQ(cuCtxSetCurrent(context), 0);
    ASSERT_EQ(sennit_comm_set_stream(comm, own), SENNIT_OK) << sennit_last_error();
    const DeviceBuffer buffer(std::vector<std::byte>(100));
    const sennit_status_t made =
        sennit_all_reduce(buffer.data(), buffer.data(), 100, SENNIT_UINT8, SENNIT_SUM, comm);
    if (made == SENNIT_INVALID_ARGUMENT &&
        std::strstr(sennit_last_error(), "ranks that share a process have streams of their own"))
      refused++;
    EXPECT_EQ(cuStreamSynchronize(own), 0);
    while (sennit_comm_get_async_error(comm) == SENNIT_OK) std::this_thread::sleep_for(1ms);
    EXPECT_NE(std::strstr(sennit_last_error(), "have streams of their own"), nullptr)
        << sennit_last_error();
  });
  EXPECT_EQ(refused, 1);
}

// A call of the first would wait for the second's, behind it: they are told so, and nobody waits.
TEST_P(DeviceCalls, RanksThatShareAStreamAreNamed) {
  const CUstream shared = stream();
  expect_refused(context_, {shared, shared});
  EXPECT_EQ(cuStreamDestroy_v2(shared), 0);
}

// CUDA has the default stream and all streams that block wait for one another.
TEST_P(DeviceCalls, RanksInStreamsThatWaitForOneAnotherAreNamed) {
  const CUstream legacy = nullptr, per_thread = reinterpret_cast<CUstream>(2);
  CUstream blocking = nullptr;
  ASSERT_EQ(cuStreamCreate(&blocking, 0), 0);
  expect_refused(context_, {legacy, blocking});
  expect_refused(context_, {per_thread, legacy});
  EXPECT_EQ(cuStreamDestroy_v2(blocking), 0);
}

TEST_P(DeviceCalls, MessagesToOneselfAreCopiedInTheStream) {
  sennit_test::Ranks ranks(2);
  ASSERT_TRUE(ranks.ok());
  ranks.run([&](int rank, sennit_comm_t comm) {
    const CUstream own = stream();
    ASSERT_EQ(sennit_comm_set_stream(comm, own), SENNIT_OK) << sennit_last_error();
    const std::vector<std::byte> content(5000, std::byte{7});
    const DeviceBuffer from(content), to(std::vector<std::byte>(5000));
    ASSERT_EQ(sennit_group_start(), SENNIT_OK);
    ASSERT_EQ(sennit_send(from.data(), 5000, SENNIT_UINT8, rank, comm), SENNIT_OK);
    ASSERT_EQ(sennit_recv(to.data(), 5000, SENNIT_UINT8, rank, comm), SENNIT_OK);
    ASSERT_EQ(sennit_group_end(), SENNIT_OK) << sennit_last_error();
    ASSERT_EQ(cuStreamSynchronize(own), 0);
    EXPECT_EQ(to.read(), content);
    EXPECT_EQ(sennit_send(from.data(), 5000, SENNIT_UINT8, rank, comm), SENNIT_INVALID_ARGUMENT);
  });
}

// Which the stream may come to late; and it need not wait for whoever has the handles.
TEST_P(DeviceCalls, MessagesToOneselfAreDoneOnceTheyAreCopied) {
  sennit_test::Ranks ranks(2);
  ASSERT_TRUE(ranks.ok());
  ranks.run([&](int rank, sennit_comm_t comm) {
    const CUstream own = stream();
    ASSERT_EQ(sennit_comm_set_stream(comm, own), SENNIT_OK) << sennit_last_error();
    const std::vector<std::byte> content(5000, std::byte{7});
    const DeviceBuffer from(content), to(std::vector<std::byte>(5000));
    sennit_work_t sent = nullptr, received = nullptr;
    soft_gpu_hold(own);
    EXPECT_EQ(sennit_send_start(from.data(), 5000, SENNIT_UINT8, rank, comm, &sent), SENNIT_OK)
        << sennit_last_error();
    EXPECT_EQ(sennit_recv_start(to.data(), 5000, SENNIT_UINT8, rank, comm, &received), SENNIT_OK)
        << sennit_last_error();
    EXPECT_EQ(sennit_work_test(sent), SENNIT_IN_PROGRESS);
    EXPECT_EQ(sennit_work_wait(received, 5), SENNIT_IN_PROGRESS);
    soft_gpu_release(own);
    EXPECT_EQ(cuStreamSynchronize(own), 0);
    for (const sennit_work_t work : {sent, received}) {
      EXPECT_EQ(sennit_work_wait(work, -1), SENNIT_OK) << sennit_last_error();
      EXPECT_EQ(sennit_work_free(work), SENNIT_OK);
    }
    EXPECT_EQ(to.read(), content);
    EXPECT_EQ(sennit_barrier(comm), SENNIT_OK);  // see CallBuffers
  });
}

TEST_P(DeviceCalls, CallsAreOrderedInTheStream) {
  sennit_test::Ranks ranks(kRanks);
  ASSERT_TRUE(ranks.ok());
  ranks.run([&](int, sennit_comm_t comm) {
    constexpr size_t kCount = 1000;
    const CUstream own = stream();
    ASSERT_EQ(sennit_comm_set_stream(comm, own), SENNIT_OK) << sennit_last_error();
    std::vector<int32_t> ones(kCount, 1);
    std::vector<std::byte> content(kCount * 4);
    std::memcpy(content.data(), ones.data(), content.size());
    const DeviceBuffer buffer(content);
    for (int i = 0; i < 8; i++)
      ASSERT_EQ(
          sennit_all_reduce(buffer.data(), buffer.data(), kCount, SENNIT_INT32, SENNIT_SUM, comm),
          SENNIT_OK)
          << sennit_last_error();
    ASSERT_EQ(cuStreamSynchronize(own), 0);
    std::memcpy(ones.data(), buffer.read().data(), content.size());
    EXPECT_EQ(ones, std::vector<int32_t>(kCount, 6561));  // 3 to the 8th
  });
}

// How often something asks the driver between enqueue and end. Where none has ended for a second,
// as on a busy machine, a thread that nobody waits for asks whether the device has failed, in five
// calls: without those of the seconds that it lasts.
uint64_t calls_between(sennit_test::Ranks& ranks, const std::function<CUstream()>& stream) {
  std::atomic<int> enqueued{0}, ended{0};
  std::atomic<uint64_t> calls_at_enqueue{0}, calls{0};
  ranks.run([&](int rank, sennit_comm_t comm) {
    const CUstream own = stream();
    ASSERT_EQ(sennit_comm_set_stream(comm, own), SENNIT_OK) << sennit_last_error();
    const DeviceBuffer buffer(std::vector<std::byte>(4 << 20));
    // The last stream lets go when all have enqueued and the calls are counted.
    if (rank == 0) soft_gpu_hold(own);
    ASSERT_EQ(
        sennit_all_reduce(buffer.data(), buffer.data(), 1 << 20, SENNIT_FLOAT32, SENNIT_SUM, comm),
        SENNIT_OK)
        << sennit_last_error();
    enqueued++;
    while (enqueued < kRanks) std::this_thread::yield();
    if (rank == 0) {
      calls_at_enqueue = soft_gpu_calls();
      soft_gpu_release(own);
    }
    // Not by the driver: what was received says that it is over.
    const auto begin = std::chrono::steady_clock::now();
    while (std::chrono::steady_clock::now() - begin < 1s) std::this_thread::sleep_for(10ms);
    ended++;
    while (ended < kRanks) std::this_thread::yield();
    if (rank == 0) {
      const uint64_t asked = soft_gpu_calls() - calls_at_enqueue;
      const auto seconds = static_cast<uint64_t>((std::chrono::steady_clock::now() - begin) / 1s);
      calls = asked - std::min(asked, 5 * seconds);
    }
    ended++;
    while (ended < 2 * kRanks) std::this_thread::yield();
    EXPECT_EQ(cuStreamQuery(own), 0);
  });
  return calls;
}

// That thread may be about to ask at the beginning, but not each time.
TEST_P(DeviceCalls, NothingAsksTheDriverBetweenEnqueueAndEnd) {
  constexpr int kMostTries = 5;
  sennit_test::Ranks ranks(kRanks);
  ASSERT_TRUE(ranks.ok());
  uint64_t least = UINT64_MAX;
  for (int i = 0; i < kMostTries && least > 0; i++)
    least = std::min(least, calls_between(ranks, [&] { return stream(); }));
  EXPECT_EQ(least, 0u);
}

// Its own stream comes late: that is no error, and nobody touches its memory before.
TEST_P(DeviceCalls, AStreamThatComesLateIsNoError) {
  setenv("SENNIT_STALL", "200", 1);
  setenv("SENNIT_ARRIVAL_TIMEOUT", "2000", 1);
  {
    sennit_test::Ranks ranks(kRanks);
    ASSERT_TRUE(ranks.ok());
    std::barrier ready(kRanks);
    ranks.run([&](int rank, sennit_comm_t comm) {
      const CUstream own = stream();
      ASSERT_EQ(sennit_comm_set_stream(comm, own), SENNIT_OK) << sennit_last_error();
      std::vector<std::byte> content(4000);
      const DeviceBuffer buffer(content);
      if (rank == 1) soft_gpu_hold(own);
      ready.arrive_and_wait();  // none of them is late for the call itself
      ASSERT_EQ(
          sennit_all_reduce(buffer.data(), buffer.data(), 1000, SENNIT_INT32, SENNIT_SUM, comm),
          SENNIT_OK);
      if (rank == 1) {
        std::this_thread::sleep_for(3500ms);
        // Written when the stream comes to it, in its order.
        const std::vector<int32_t> twos(1000, 2);
        soft_gpu_write(buffer.data(), twos.data(), 4000);
        soft_gpu_release(own);
      }
      EXPECT_EQ(cuStreamSynchronize(own), 0);
      int32_t first = 0;
      std::memcpy(&first, buffer.read().data(), 4);
      EXPECT_EQ(first, 2);
      EXPECT_EQ(sennit_comm_get_async_error(comm), SENNIT_OK) << sennit_last_error();
    });
  }
  unsetenv("SENNIT_STALL");
  unsetenv("SENNIT_ARRIVAL_TIMEOUT");
}

// Nor is it for a message that is waited for, be it the peer's stream that comes late, or its own
// before anybody knows from whom the message will come.
TEST_P(DeviceCalls, AMessageWaitsForStreamsThatComeLate) {
  constexpr int kPairs = 2;  // of a rank that receives, and one that sends to it
  setenv("SENNIT_STALL", "100", 1);
  setenv("SENNIT_ARRIVAL_TIMEOUT", "2000", 1);
  {
    sennit_test::Ranks ranks(2 * kPairs);
    ASSERT_TRUE(ranks.ok());
    std::array<std::atomic<CUstream>, kPairs> late = {};  // that sends, or receives from any rank
    ranks.run([&](int rank, sennit_comm_t comm) {
      const CUstream own = stream();
      const auto pair = static_cast<size_t>(rank / 2);
      const bool receives = rank % 2 == 0, from_any = pair == 1;
      const std::vector<std::byte> content(4000, std::byte{5});
      const DeviceBuffer buffer(receives ? std::vector<std::byte>(4000) : content);
      ASSERT_EQ(sennit_comm_set_stream(comm, own), SENNIT_OK) << sennit_last_error();
      if (receives) {
        if (from_any) soft_gpu_hold(own);
        late[pair] = own;
        sennit_work_t work = nullptr;
        EXPECT_EQ(sennit_recv_start(buffer.data(), 4000, SENNIT_UINT8,
                                    from_any ? SENNIT_ANY_SOURCE : rank + 1, comm, &work),
                  SENNIT_OK)
            << sennit_last_error();
        EXPECT_EQ(sennit_work_wait(work, -1), SENNIT_OK) << sennit_last_error();
        EXPECT_EQ(sennit_work_free(work), SENNIT_OK);
        EXPECT_EQ(buffer.read(), content);
      } else {
        soft_gpu_hold(own);
        EXPECT_EQ(sennit_send(buffer.data(), 4000, SENNIT_UINT8, rank - 1, comm), SENNIT_OK)
            << sennit_last_error();
        while (late[pair] == nullptr) std::this_thread::yield();
        std::this_thread::sleep_for(3000ms);
        soft_gpu_release(own);
        soft_gpu_release(late[pair]);
      }
      EXPECT_EQ(cuStreamSynchronize(own), 0);
      EXPECT_EQ(sennit_comm_get_async_error(comm), SENNIT_OK) << sennit_last_error();
      EXPECT_EQ(sennit_barrier(comm), SENNIT_OK);  // see CallBuffers
    });
  }
  unsetenv("SENNIT_STALL");
  unsetenv("SENNIT_ARRIVAL_TIMEOUT");
}

// Sends and receives of one group go into the stream together: one behind the other, each would
// wait for the peer's second.
TEST_P(DeviceCalls, AGroupOfMessagesIsOnePlaceInTheStream) {
  sennit_test::Ranks ranks(kRanks);
  ASSERT_TRUE(ranks.ok());
  ranks.run([&](int rank, sennit_comm_t comm) {
    constexpr size_t kBytes = 300'000;
    const CUstream own = stream();
    ASSERT_EQ(sennit_comm_set_stream(comm, own), SENNIT_OK) << sennit_last_error();
    std::vector<std::unique_ptr<DeviceBuffer>> to, from;
    for (int peer = 0; peer < kRanks; peer++) {
      from.push_back(std::make_unique<DeviceBuffer>(
          std::vector<std::byte>(kBytes, static_cast<std::byte>(10 * rank + peer))));
      to.push_back(std::make_unique<DeviceBuffer>(std::vector<std::byte>(kBytes)));
    }
    sennit_group_start();
    for (int i = 1; i < kRanks; i++) {
      const int peer = (rank + i) % kRanks;
      const auto p = static_cast<size_t>(peer);
      ASSERT_EQ(sennit_send(from[p]->data(), kBytes, SENNIT_UINT8, peer, comm), SENNIT_OK);
      ASSERT_EQ(sennit_recv(to[p]->data(), kBytes, SENNIT_UINT8, peer, comm), SENNIT_OK);
    }
    ASSERT_EQ(sennit_group_end(), SENNIT_OK) << sennit_last_error();
    ASSERT_EQ(cuStreamSynchronize(own), 0);
    for (int i = 1; i < kRanks; i++) {
      const int peer = (rank + i) % kRanks;
      EXPECT_EQ(to[static_cast<size_t>(peer)]->read(),
                std::vector<std::byte>(kBytes, static_cast<std::byte>(10 * peer + rank)));
    }
  });
}

// A rank that gives up: streams go on, on all ranks, also where one has not come to the call.
// Returns after how long.
std::chrono::milliseconds abort_one_rank(const std::function<CUstream()>& stream) {
  sennit_test::Ranks ranks(kRanks);
  EXPECT_TRUE(ranks.ok());
  if (!ranks.ok()) return {};
  std::array<std::chrono::milliseconds, kRanks> took{};
  ranks.run([&](int rank, sennit_comm_t comm) {
    const CUstream own = stream();
    ASSERT_EQ(sennit_comm_set_stream(comm, own), SENNIT_OK) << sennit_last_error();
    const DeviceBuffer buffer(std::vector<std::byte>(4000));
    if (rank == 0) soft_gpu_hold(own);
    if (rank != 2) {
      ASSERT_EQ(
          sennit_all_reduce(buffer.data(), buffer.data(), 1000, SENNIT_INT32, SENNIT_SUM, comm),
          SENNIT_OK);
    }
    std::this_thread::sleep_for(300ms);
    const auto begin = std::chrono::steady_clock::now();
    if (rank == 2) sennit_comm_abort(comm);
    if (rank == 1) {
      EXPECT_EQ(cuStreamSynchronize(own), 0);
    }
    took[static_cast<size_t>(rank)] =
        std::chrono::ceil<std::chrono::milliseconds>(std::chrono::steady_clock::now() - begin);
    if (rank == 0) soft_gpu_release(own);
    EXPECT_EQ(cuStreamSynchronize(own), 0);
  });
  return *std::ranges::max_element(took);
}

TEST_P(DeviceCalls, AbortLetsStreamsGoOn) {
  const auto abort_one = [&] { return abort_one_rank([&] { return stream(); }); };
  EXPECT_LT(sennit_test::least_time(2s, abort_one), 2s);
}

TEST_P(DeviceCalls, WrongMemoryIsNamed) {
  sennit_test::Ranks ranks(2);
  ASSERT_TRUE(ranks.ok());
  ranks.run([&](int, sennit_comm_t comm) {
    const CUstream own = stream();
    ASSERT_EQ(sennit_comm_set_stream(comm, own), SENNIT_OK) << sennit_last_error();
    const DeviceBuffer buffer(std::vector<std::byte>(4000));
    std::vector<int32_t> plain(1000);
    EXPECT_EQ(sennit_all_reduce(plain.data(), buffer.data(), 1000, SENNIT_INT32, SENNIT_SUM, comm),
              SENNIT_INVALID_ARGUMENT);
    const std::string text = sennit_last_error();
    EXPECT_NE(text.find("both have to be of a kind"), std::string::npos) << text;
    EXPECT_EQ(sennit_comm_get_async_error(comm), SENNIT_OK);
  });
}

// No device knows what it was, and to touch it would end the process.
TEST_P(DeviceCalls, MemoryThatWasFreedIsNamed) {
  sennit_test::Ranks ranks(2);
  ASSERT_TRUE(ranks.ok());
  ranks.run([&](int, sennit_comm_t comm) {
    const CUstream own = stream();
    ASSERT_EQ(sennit_comm_set_stream(comm, own), SENNIT_OK) << sennit_last_error();
    const auto expect_named = [&](void* memory, size_t bytes) {
      EXPECT_EQ(sennit_all_reduce(memory, memory, bytes, SENNIT_UINT8, SENNIT_SUM, comm),
                SENNIT_INVALID_ARGUMENT);
      EXPECT_NE(std::strstr(sennit_last_error(), "was it freed?"), nullptr) << sennit_last_error();
    };
    CUdeviceptr freed = 0;
    ASSERT_EQ(cuMemAlloc_v2(&freed, 4000), 0);
    ASSERT_EQ(cuMemFree_v2(freed), 0);
    expect_named(reinterpret_cast<void*>(freed), 4000);
    // Of what is the host's the end may be gone alone.
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    void* const host =
        mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(host, MAP_FAILED);
    ASSERT_EQ(mprotect(static_cast<std::byte*>(host) + page, page, PROT_NONE), 0);
    expect_named(host, page + 1);
    EXPECT_EQ(sennit_all_reduce(host, host, page, SENNIT_UINT8, SENNIT_SUM, comm), SENNIT_OK)
        << sennit_last_error();
    EXPECT_EQ(munmap(host, 2 * page), 0);
    EXPECT_EQ(sennit_comm_get_async_error(comm), SENNIT_OK);
  });
}

// No call goes into it, nor may one on the host's memory wait for it.
TEST_P(DeviceCalls, AStreamThatWasDestroyedIsNamed) {
  sennit_test::Ranks ranks(2);
  ASSERT_TRUE(ranks.ok());
  ranks.run([&](int, sennit_comm_t comm) {
    const CUstream gone = stream(), own = stream();
    ASSERT_EQ(sennit_comm_set_stream(comm, gone), SENNIT_OK) << sennit_last_error();
    // A stream that is made later, by the other rank, might get its address.
    ASSERT_EQ(sennit_barrier(comm), SENNIT_OK);
    ASSERT_EQ(cuStreamDestroy_v2(gone), 0);
    const DeviceBuffer buffer(std::vector<std::byte>(100));
    std::vector<std::byte> plain(100);
    for (void* const memory : {buffer.data(), static_cast<void*>(plain.data())}) {
      EXPECT_EQ(sennit_all_reduce(memory, memory, 100, SENNIT_UINT8, SENNIT_SUM, comm),
                SENNIT_INVALID_ARGUMENT);
      EXPECT_NE(std::strstr(sennit_last_error(), "was it destroyed?"), nullptr)
          << sennit_last_error();
    }
    ASSERT_EQ(sennit_comm_set_stream(comm, own), SENNIT_OK) << sennit_last_error();
    EXPECT_EQ(sennit_all_reduce(buffer.data(), buffer.data(), 100, SENNIT_UINT8, SENNIT_SUM, comm),
              SENNIT_OK)
        << sennit_last_error();
    EXPECT_EQ(cuStreamSynchronize(own), 0);
    EXPECT_EQ(sennit_comm_get_async_error(comm), SENNIT_OK);
    EXPECT_EQ(sennit_barrier(comm), SENNIT_OK);  // see CallBuffers
  });
}

INSTANTIATE_TEST_SUITE_P(Over, DeviceCalls, testing::Values("loopback", "tcp", "shm"),
                         [](const auto& over) { return std::string(over.param); });

}  // namespace
