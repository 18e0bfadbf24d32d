// nccl_device_test.cpp: NCCL's interface on memory of devices, as far as it is NCCL's own to say
// what happens: whose stream a default stream is, calls without elements, groups over several
// streams, and memory for threads that have not chosen a device. Two devices of the software GPU.
// ctest links: nccl_forwarder soft_gpu
// ctest runs: sennit_nccl
// ctest variable: SOFT_GPU_DEVICES=2
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "tests/nccl/nccl_ranks.hpp"
#include "tests/soft_gpu/cuda_functions.hpp"
#include "tests/soft_gpu/soft_gpu.hpp"

using namespace std::chrono_literals;
using sennit_test::Bounded;
using sennit_test::kNonblocking;
using sennit_test::settle;
using sennit_test::text;

namespace {

constexpr size_t kCount = 1000;
constexpr size_t kLargeCount = 1 << 20;  // a message of as many is not sent before it is expected
constexpr int kDevices = 2;
constexpr unsigned kBlockingStream = 0, kNonBlockingStream = 1;
constexpr int kThreadLocal = 1;  // of CUstreamCaptureMode
constexpr int kMemoryType = 2, kTypeDevice = 2;
constexpr unsigned kAttachGlobal = 1;  // of managed memory
const auto kDefault = static_cast<cudaStream_t>(nullptr);
const auto kLegacy = reinterpret_cast<cudaStream_t>(1);  // its other handle
const auto kPerThread = reinterpret_cast<cudaStream_t>(2);

CUcontext context_of(int device) {
  CUcontext context = nullptr;
  EXPECT_EQ(cuInit(0), 0);
  EXPECT_EQ(cuDevicePrimaryCtxRetain(&context, device), 0);
  return context;
}
void choose(int device) { EXPECT_EQ(cuCtxSetCurrent(context_of(device)), 0); }

// Integers of the device that is current, all of one value.
class Integers {
 public:
  explicit Integers(int value = 0, size_t count = kCount) : count_(count) {
    EXPECT_EQ(cuMemAlloc_v2(&address_, count_ * sizeof(int)), 0);
    const std::vector<int> all(count_, value);
    soft_gpu_write(data(), all.data(), count_ * sizeof(int));
  }
  Integers(const Integers&) = delete;
  Integers& operator=(const Integers&) = delete;
  void* data() const { return reinterpret_cast<void*>(address_); }
  std::vector<int> read() const {
    std::vector<int> all(count_);
    soft_gpu_read(all.data(), data(), count_ * sizeof(int));
    return all;
  }

 private:
  const size_t count_;
  CUdeviceptr address_ = 0;  // never freed: that waits for every kernel of the device
};

std::vector<int> all_of(int value) { return std::vector<int>(kCount, value); }

ncclResult_t sum(const Integers& memory, ncclComm_t comm, cudaStream_t stream) {
  return ncclAllReduce(memory.data(), memory.data(), kCount, ncclInt32, ncclSum, comm, stream);
}

cudaStream_t new_stream(unsigned flags = kNonBlockingStream) {
  CUstream stream = nullptr;
  EXPECT_EQ(cuStreamCreate(&stream, flags), 0);
  return reinterpret_cast<cudaStream_t>(stream);
}
CUstream cuda(cudaStream_t stream) { return reinterpret_cast<CUstream>(stream); }

// A rank on each device, both of this thread.
class NcclDevices : public testing::Test {
 protected:
  void SetUp() override {
    for (int d = 0; d < kDevices; d++) {
      choose(d);
      memory.push_back(std::make_unique<Integers>(d + 1));
    }
    ASSERT_EQ(ncclCommInitAll(comms.data(), kDevices, nullptr), ncclSuccess) << text();
  }
  void TearDown() override {
    for (const ncclComm_t comm : comms) EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess) << text();
  }
  void expect_sums() {
    for (int d = 0; d < kDevices; d++) {
      choose(d);
      EXPECT_EQ(cuStreamSynchronize(nullptr), 0);
      EXPECT_EQ(memory[static_cast<size_t>(d)]->read(), all_of(3)) << d;
    }
  }

  const Bounded bounded{"a test of devices"};
  std::vector<std::unique_ptr<Integers>> memory;
  std::array<ncclComm_t, kDevices> comms = {};
};

TEST_F(NcclDevices, ACommunicatorKnowsItsDevice) {
  for (int d = 0; d < kDevices; d++) {
    int device = -7;
    EXPECT_EQ(ncclCommCuDevice(comms[static_cast<size_t>(d)], &device), ncclSuccess);
    EXPECT_EQ(device, d);
  }
}

// As PyTorch's DataParallel does: the device that was current before is current again at the end.
TEST_F(NcclDevices, ADefaultStreamIsOfTheCommunicatorsDevice) {
  for (const cudaStream_t stream : {kDefault, kLegacy}) {
    EXPECT_EQ(ncclGroupStart(), ncclSuccess);
    for (int d = 0; d < kDevices; d++) {
      choose(d);
      memory[static_cast<size_t>(d)] = std::make_unique<Integers>(d + 1);
      EXPECT_EQ(sum(*memory[static_cast<size_t>(d)], comms[static_cast<size_t>(d)], stream),
                ncclSuccess);
    }
    choose(0);
    EXPECT_EQ(ncclGroupEnd(), ncclSuccess) << text();
    expect_sums();
  }
}

TEST_F(NcclDevices, OfAThreadThatHasChosenNone) {
  std::thread([&] {
    EXPECT_EQ(ncclGroupStart(), ncclSuccess);
    for (size_t d = 0; d < kDevices; d++)
      EXPECT_EQ(sum(*memory[d], comms[d], kDefault), ncclSuccess);
    EXPECT_EQ(ncclGroupEnd(), ncclSuccess) << text();
  }).join();
  expect_sums();
}

TEST(NcclNonblockingDevices, InDefaultStreams) {
  const Bounded bounded("default streams of communicators that do not block");
  for (const cudaStream_t stream : {kDefault, kPerThread}) {
    ncclUniqueId id;
    ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess) << text();
    std::vector<std::thread> ranks;
    for (int d = 0; d < kDevices; d++)
      ranks.emplace_back([&, d] {
        choose(d);
        ncclComm_t comm = nullptr;
        ncclConfig_t config = kNonblocking;
        EXPECT_EQ(ncclCommInitRankConfig(&comm, kDevices, id, d, &config), ncclInProgress);
        EXPECT_EQ(settle(comm), ncclSuccess) << text();
        const Integers memory(d + 1);
        const ncclResult_t begun = sum(memory, comm, stream);
        EXPECT_TRUE(begun == ncclInProgress || begun == ncclSuccess) << text();
        EXPECT_EQ(settle(comm), ncclSuccess) << text();
        EXPECT_EQ(cuStreamSynchronize(cuda(stream)), 0);
        EXPECT_EQ(memory.read(), all_of(3));
        // Beside a call that could be made later.
        const Integers here(d + 1), there(d + 1);
        const cudaStream_t other = new_stream();
        EXPECT_EQ(ncclGroupStart(), ncclSuccess);
        sum(here, comm, stream);
        sum(there, comm, other);
        const ncclResult_t both = ncclGroupEnd();
        EXPECT_TRUE(both == ncclInProgress || both == ncclSuccess) << text();
        EXPECT_EQ(settle(comm), ncclSuccess) << text();
        EXPECT_EQ(cuStreamSynchronize(cuda(other)), 0);
        EXPECT_EQ(here.read(), all_of(3));
        EXPECT_EQ(there.read(), all_of(3));
        EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
      });
    for (std::thread& rank : ranks) rank.join();
  }
}

// A group is made before it ends where one of its calls is in the thread's own stream.
TEST(NcclNonblockingDevices, WhatAGroupThatCannotWaitDidNotMakeSaysTheError) {
  const Bounded bounded("a group that cannot wait");
  choose(0);
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess) << text();
  ncclComm_t comm = nullptr, never = nullptr;
  ncclConfig_t config = kNonblocking;
  EXPECT_EQ(ncclCommInitRankConfig(&comm, 1, id, 0, &config), ncclInProgress);
  EXPECT_EQ(settle(comm), ncclSuccess) << text();
  const Integers memory(1);
  const ncclUniqueId none{};
  EXPECT_EQ(ncclGroupStart(), ncclSuccess);
  EXPECT_EQ(ncclCommInitRankConfig(&never, 2, none, 1, &config), ncclSuccess) << text();
  EXPECT_EQ(sum(memory, comm, kPerThread), ncclSuccess) << text();
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidArgument);
  ASSERT_NE(never, nullptr);
  EXPECT_EQ(settle(never), ncclInvalidArgument);
  for (const ncclComm_t each : {comm, never}) EXPECT_EQ(ncclCommDestroy(each), ncclSuccess);
}

// Ranks as threads, each with a device.
void run(const std::array<ncclComm_t, kDevices>& comms,
         const std::function<void(int, ncclComm_t)>& f) {
  std::vector<std::thread> ranks;
  for (int d = 0; d < kDevices; d++)
    ranks.emplace_back([&, d] {
      choose(d);
      f(d, comms[static_cast<size_t>(d)]);
    });
  for (std::thread& rank : ranks) rank.join();
}

TEST_F(NcclDevices, ACallOnTheHostsMemoryIsOfTheStreamThatItNames) {
  run(comms, [&](int d, ncclComm_t comm) {
    const cudaStream_t first = new_stream(), second = new_stream();
    EXPECT_EQ(sum(*memory[static_cast<size_t>(d)], comm, first), ncclSuccess) << text();
    EXPECT_EQ(cuStreamSynchronize(cuda(first)), 0);
    EXPECT_EQ(cuStreamDestroy_v2(cuda(first)), 0);
    int own = d + 1;
    EXPECT_EQ(ncclAllReduce(&own, &own, 1, ncclInt32, ncclSum, comm, second), ncclSuccess)
        << text();
    EXPECT_EQ(own, 3);
  });
}

TEST_F(NcclDevices, WithoutElementsNothingHappens) {
  run(comms, [&](int d, ncclComm_t comm) {
    const cudaStream_t stream = new_stream();
    if (d == 0) {  // a message that one side has memory for, and the other has not
      EXPECT_EQ(ncclSend(nullptr, 0, ncclInt32, 1, comm, stream), ncclSuccess);
      EXPECT_EQ(ncclRecv(memory[0]->data(), 0, ncclInt32, 1, comm, stream), ncclSuccess);
    } else {
      EXPECT_EQ(ncclRecv(memory[1]->data(), 0, ncclInt32, 0, comm, stream), ncclSuccess);
      EXPECT_EQ(ncclSend(nullptr, 0, ncclInt32, 0, comm, stream), ncclSuccess);
    }
    // One has made a call in a stream before, the other has not.
    if (d == 0) {
      EXPECT_EQ(ncclGroupStart(), ncclSuccess);
      EXPECT_EQ(ncclSend(memory[0]->data(), kCount, ncclInt32, 0, comm, stream), ncclSuccess);
      EXPECT_EQ(ncclRecv(memory[0]->data(), kCount, ncclInt32, 0, comm, stream), ncclSuccess);
      EXPECT_EQ(ncclGroupEnd(), ncclSuccess) << text();
    }
    EXPECT_EQ(ncclAllReduce(nullptr, nullptr, 0, ncclInt32, ncclSum, comm, stream), ncclSuccess)
        << text();
    EXPECT_EQ(cuStreamBeginCapture_v2(cuda(stream), 0), 0);
    EXPECT_EQ(ncclAllReduce(nullptr, nullptr, 0, ncclInt32, ncclSum, comm, stream), ncclSuccess)
        << text();
    CUgraph graph = nullptr;
    EXPECT_EQ(cuStreamEndCapture(cuda(stream), &graph), 0);
    EXPECT_EQ(cuGraphDestroy(graph), 0);
    EXPECT_EQ(ncclBroadcast(nullptr, nullptr, 0, ncclInt32, 2, comm, stream), ncclInvalidArgument);
    EXPECT_EQ(ncclSend(nullptr, 0, ncclInt32, -1, comm, stream), ncclInvalidArgument);
    EXPECT_EQ(sum(*memory[static_cast<size_t>(d)], comm, stream), ncclSuccess) << text();
    EXPECT_EQ(cuStreamSynchronize(cuda(stream)), 0);
  });
  expect_sums();
}

// NCCL's guide, "Mixing Multiple Streams within the same ncclGroupStart/End() group".
TEST_F(NcclDevices, TheStreamsOfAGroupGoOnTogether) {
  std::array<cudaStream_t, kDevices> held = {};
  run(comms, [&](int d, ncclComm_t comm) {
    const cudaStream_t first = new_stream(), second = held[static_cast<size_t>(d)] = new_stream();
    const Integers other(10 * (d + 1));
    soft_gpu_hold(cuda(second));
    EXPECT_EQ(ncclGroupStart(), ncclSuccess);
    EXPECT_EQ(sum(*memory[static_cast<size_t>(d)], comm, first), ncclSuccess);
    EXPECT_EQ(sum(other, comm, second), ncclSuccess);
    EXPECT_EQ(ncclGroupEnd(), ncclSuccess) << text();
    std::this_thread::sleep_for(50ms);
    EXPECT_EQ(memory[static_cast<size_t>(d)]->read(), all_of(d + 1)) << "before the other stream";
    soft_gpu_release(cuda(second));
    EXPECT_EQ(cuStreamSynchronize(cuda(first)), 0);
    EXPECT_EQ(memory[static_cast<size_t>(d)]->read(), all_of(3));
    EXPECT_EQ(other.read(), all_of(30)) << "what the first stream went on before";
  });
}

// Of two communicators in a group one has failed: the other's calls are made all the same.
TEST_F(NcclDevices, TheStreamsOfAGroupGoOnTogetherWhereACommunicatorHasFailed) {
  std::array<ncclComm_t, kDevices> failed = {};
  ASSERT_EQ(ncclCommInitAll(failed.data(), kDevices, nullptr), ncclSuccess) << text();
  for (const ncclComm_t comm : failed) EXPECT_EQ(ncclCommRevoke(comm, 0), ncclSuccess) << text();
  choose(1);
  const cudaStream_t late = new_stream();
  soft_gpu_hold(cuda(late));
  std::thread releases([&] {
    std::this_thread::sleep_for(50ms);
    soft_gpu_release(cuda(late));
  });
  run(comms, [&](int d, ncclComm_t comm) {
    const cudaStream_t first = d == 1 ? late : new_stream(), second = new_stream();
    const Integers unused, other(10 * (d + 1));
    EXPECT_EQ(ncclGroupStart(), ncclSuccess);
    EXPECT_EQ(sum(unused, failed[static_cast<size_t>(d)], first), ncclSuccess) << text();
    EXPECT_EQ(sum(*memory[static_cast<size_t>(d)], comm, first), ncclSuccess) << text();
    EXPECT_EQ(sum(other, comm, second), ncclSuccess) << text();
    EXPECT_EQ(ncclGroupEnd(), ncclRemoteError);
    EXPECT_EQ(cuStreamSynchronize(cuda(second)), 0);
    EXPECT_EQ(other.read(), all_of(30)) << "what the second stream went on before";
  });
  releases.join();
  expect_sums();
  for (const ncclComm_t comm : failed) EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess) << text();
}

// A message each way, where CUDA has the receive's stream wait for the send's. As two kernels each
// rank's second would wait for its first, and that for the peer's second.
void exchange(int d, ncclComm_t comm, cudaStream_t sends, cudaStream_t receives) {
  const Integers from(d + 1, kLargeCount), to(0, kLargeCount);
  EXPECT_EQ(ncclGroupStart(), ncclSuccess);
  EXPECT_EQ(ncclSend(from.data(), kLargeCount, ncclInt32, 1 - d, comm, sends), ncclSuccess);
  EXPECT_EQ(ncclRecv(to.data(), kLargeCount, ncclInt32, 1 - d, comm, receives), ncclSuccess);
  EXPECT_EQ(ncclGroupEnd(), ncclSuccess) << text();
  EXPECT_EQ(cuStreamSynchronize(cuda(receives)), 0);
  EXPECT_TRUE(to.read() == std::vector<int>(kLargeCount, 2 - d));
}

TEST_F(NcclDevices, AGroupInStreamsThatWaitForOneAnotherEnds) {
  run(comms, [](int d, ncclComm_t comm) {
    const cudaStream_t blocking = new_stream(kBlockingStream);
    exchange(d, comm, kDefault, blocking);
    exchange(d, comm, blocking, kLegacy);
    exchange(d, comm, kDefault, kLegacy);
    exchange(d, comm, kDefault, kPerThread);
  });
}

// A launch returns only when its kernel has ended.
TEST(NcclDevicesDeathTest, AGroupInTwoStreamsEndsWhereLaunchesBlock) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto failed = [] {
    const Bounded bounded("a group in two streams where launches block");
    setenv("CUDA_LAUNCH_BLOCKING", "1", 1);
    std::array<ncclComm_t, kDevices> comms = {};
    choose(0);
    EXPECT_EQ(ncclCommInitAll(comms.data(), kDevices, nullptr), ncclSuccess) << text();
    run(comms,
        [](int d, ncclComm_t comm) { exchange(d, comm, kDefault, new_stream(kBlockingStream)); });
    for (const ncclComm_t comm : comms) EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess) << text();
    return testing::Test::HasFailure() ? 1 : 0;
  };
  EXPECT_EXIT(std::exit(failed()), testing::ExitedWithCode(0), "");
}

bool is_captured(cudaStream_t stream) {
  int capturing = 0;
  EXPECT_EQ(cuStreamIsCapturing(cuda(stream), &capturing), 0);
  return capturing != 0;
}

// Ends a capture that nothing was put into, and that is valid.
void end_empty_capture(cudaStream_t stream) {
  CUgraph graph = nullptr;
  size_t nodes = 1;
  EXPECT_EQ(cuStreamEndCapture(cuda(stream), &graph), 0) << "an earlier call has made it invalid";
  EXPECT_EQ(cuGraphGetNodes(graph, nullptr, &nodes), 0);
  EXPECT_EQ(nodes, 0u);
  EXPECT_EQ(cuGraphDestroy(graph), 0);
}

// Its streams wait for one another, and one that is captured would draw the other into the graph.
TEST_F(NcclDevices, AGroupIsCapturedAsAWholeOrNotAtAll) {
  run(comms, [&](int d, ncclComm_t comm) {
    const cudaStream_t first = new_stream(), second = new_stream();
    const Integers here(d + 1), there(d + 1);
    const auto expect_refused = [&] {
      EXPECT_EQ(ncclGroupStart(), ncclSuccess);
      EXPECT_EQ(sum(here, comm, first), ncclSuccess) << text();
      EXPECT_EQ(sum(there, comm, second), ncclSuccess) << text();
      EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
      EXPECT_NE(text().find("captured into the same graph"), std::string::npos) << text();
    };
    for (const cudaStream_t captured : {first, second}) {
      EXPECT_EQ(cuStreamBeginCapture_v2(cuda(captured), kThreadLocal), 0);
      expect_refused();
      EXPECT_FALSE(is_captured(captured == first ? second : first));
      end_empty_capture(captured);
    }
    for (const cudaStream_t each : {first, second})
      EXPECT_EQ(cuStreamBeginCapture_v2(cuda(each), kThreadLocal), 0);
    expect_refused();
    for (const cudaStream_t each : {first, second}) end_empty_capture(each);
    EXPECT_EQ(sum(*memory[static_cast<size_t>(d)], comm, first), ncclSuccess) << text();
    EXPECT_EQ(cuStreamSynchronize(cuda(first)), 0);
  });
  expect_sums();
}

TEST_F(NcclDevices, TheDefaultStreamIsRefusedWhileOneThatBlocksIsCaptured) {
  run(comms, [&](int d, ncclComm_t comm) {
    const cudaStream_t blocking = new_stream(kBlockingStream);
    int own = 0;
    EXPECT_EQ(cuStreamBeginCapture_v2(cuda(blocking), kThreadLocal), 0);
    EXPECT_EQ(ncclAllReduce(&own, &own, 1, ncclInt32, ncclSum, comm, kDefault), ncclInvalidUsage);
    EXPECT_NE(text().find("the default stream"), std::string::npos) << text();
    EXPECT_EQ(sum(*memory[static_cast<size_t>(d)], comm, kDefault), ncclInvalidArgument);
    EXPECT_NE(text().find("the default stream"), std::string::npos) << text();
    end_empty_capture(blocking);
    EXPECT_EQ(sum(*memory[static_cast<size_t>(d)], comm, kDefault), ncclSuccess) << text();
  });
  expect_sums();
}

// The host reads managed memory, whosever it is.
TEST_F(NcclDevices, AManagedScalarIsReadAtOnce) {
  run(comms, [&](int d, ncclComm_t comm) {
    CUdeviceptr scalar = 0;
    ASSERT_EQ(cuMemAllocManaged(&scalar, sizeof(int), kAttachGlobal), 0);
    auto* const factor = reinterpret_cast<int*>(scalar);
    *factor = 2;
    ncclRedOp_t op;
    ASSERT_EQ(ncclRedOpCreatePreMulSum(&op, factor, ncclInt32, ncclScalarHostImmediate, comm),
              ncclSuccess)
        << text();
    *factor = 0;
    void* const data = memory[static_cast<size_t>(d)]->data();
    const cudaStream_t stream = new_stream();
    EXPECT_EQ(ncclAllReduce(data, data, kCount, ncclInt32, op, comm, stream), ncclSuccess)
        << text();
    EXPECT_EQ(ncclRedOpDestroy(op, comm), ncclSuccess);
    EXPECT_EQ(cuStreamSynchronize(cuda(stream)), 0);
    EXPECT_EQ(memory[static_cast<size_t>(d)]->read(), all_of(6));
  });
}

TEST(NcclDeviceMemory, OfAThreadThatHasChosenNoneIsTheFirstDevices) {
  ASSERT_EQ(cuInit(0), 0);
  void* memory = nullptr;
  std::thread([&] {
    EXPECT_EQ(ncclMemAlloc(&memory, 4096), ncclSuccess) << text();
    unsigned type = 0;
    EXPECT_EQ(cuPointerGetAttribute(&type, kMemoryType, reinterpret_cast<CUdeviceptr>(memory)), 0);
    EXPECT_EQ(type, kTypeDevice);
  }).join();
  std::thread([&] { EXPECT_EQ(ncclMemFree(memory), ncclSuccess) << text(); }).join();
  EXPECT_EQ(ncclMemFree(memory), ncclInvalidArgument) << "it was freed before";
}

}  // namespace
