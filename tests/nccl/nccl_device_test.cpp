// nccl_device_test.cpp: NCCL's interface on memory of devices, as far as it is NCCL's own to say
// what happens: whose stream a default stream is, calls without elements, groups over several
// streams, and memory for threads that have not chosen a device. Two devices of the software GPU.
// ctest links: nccl_forwarder soft_gpu
// ctest runs: sennit_nccl
// ctest variable: SOFT_GPU_DEVICES=2
#include <gtest/gtest.h>

#include <array>
#include <chrono>
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
constexpr int kDevices = 2;
constexpr unsigned kNonBlockingStream = 1;
constexpr int kMemoryType = 2, kTypeDevice = 2;
const auto kDefault = static_cast<cudaStream_t>(nullptr);
const auto kPerThread = reinterpret_cast<cudaStream_t>(2);

CUcontext context_of(int device) {
  CUcontext context = nullptr;
  EXPECT_EQ(cuInit(0), 0);
  EXPECT_EQ(cuDevicePrimaryCtxRetain(&context, device), 0);
  return context;
}
void choose(int device) { EXPECT_EQ(cuCtxSetCurrent(context_of(device)), 0); }

// kCount integers of the device that is current, all of one value.
class Integers {
 public:
  explicit Integers(int value = 0) {
    EXPECT_EQ(cuMemAlloc_v2(&address_, kCount * sizeof(int)), 0);
    const std::vector<int> all(kCount, value);
    soft_gpu_write(data(), all.data(), kCount * sizeof(int));
  }
  Integers(const Integers&) = delete;
  Integers& operator=(const Integers&) = delete;
  void* data() const { return reinterpret_cast<void*>(address_); }
  std::vector<int> read() const {
    std::vector<int> all(kCount);
    soft_gpu_read(all.data(), data(), kCount * sizeof(int));
    return all;
  }

 private:
  CUdeviceptr address_ = 0;  // never freed: that waits for every kernel of the device
};

std::vector<int> all_of(int value) { return std::vector<int>(kCount, value); }

ncclResult_t sum(const Integers& memory, ncclComm_t comm, cudaStream_t stream) {
  return ncclAllReduce(memory.data(), memory.data(), kCount, ncclInt32, ncclSum, comm, stream);
}

cudaStream_t new_stream() {
  CUstream stream = nullptr;
  EXPECT_EQ(cuStreamCreate(&stream, kNonBlockingStream), 0);
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
  for (const cudaStream_t stream : {kDefault, reinterpret_cast<cudaStream_t>(1)}) {
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
