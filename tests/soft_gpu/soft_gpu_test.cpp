// soft_gpu_test.cpp: the software GPU does what CUDA's driver does, in what Sennit depends on: its
// memory is out of reach, its streams keep their order, and it waits where the driver waits.
// ctest links: soft_gpu
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "accelerator/cuda/mailbox.hpp"
#include "reduce/table.hpp"
#include "tests/soft_gpu/cuda_functions.hpp"
#include "tests/soft_gpu/soft_gpu.hpp"

namespace sennit::cuda {
namespace {

constexpr unsigned kNonBlocking = 1;
constexpr int kNotReady = 600;
constexpr int kFloat32 = 8;  // of DataType
// Of CUstreamCaptureMode.
constexpr int kGlobal = 0, kThreadLocal = 1, kRelaxed = 2;

void* pointer(CUdeviceptr address) { return reinterpret_cast<void*>(address); }
CUdeviceptr address(const void* memory) { return reinterpret_cast<CUdeviceptr>(memory); }

// That something does not happen cannot be waited for: long enough to see it nearly always.
void give_time() { std::this_thread::sleep_for(std::chrono::milliseconds(20)); }

class SoftGpu : public testing::Test {
 protected:
  void SetUp() override {
    RecordProperty("seed", std::to_string(soft_gpu_seed()));
    ASSERT_EQ(cuInit(0), 0);
    ASSERT_EQ(cuDevicePrimaryCtxRetain(&context_, 0), 0);
    ASSERT_EQ(cuCtxSetCurrent(context_), 0);
  }
  void TearDown() override {
    if (HasFailure())
      std::printf("SOFT_GPU_SEED=%llu\n", static_cast<unsigned long long>(soft_gpu_seed()));
    soft_gpu_mend();
    EXPECT_EQ(cuDevicePrimaryCtxRelease_v2(0), 0);
  }
  CUdeviceptr allocate(size_t bytes) {
    CUdeviceptr memory = 0;
    EXPECT_EQ(cuMemAlloc_v2(&memory, bytes), 0);
    return memory;
  }
  CUstream stream(unsigned flags = 0) {
    CUstream made = nullptr;
    EXPECT_EQ(cuStreamCreate(&made, flags), 0);
    return made;
  }
  CUcontext context_ = nullptr;
};

// A mailbox, its board and a launch in a stream.
class Launch {
 public:
  explicit Launch(CUstream stream) : stream_(stream) {
    CUmodule module = nullptr;
    EXPECT_EQ(cuMemHostRegister_v2(mailbox_.get(), sizeof(Mailbox), 0), 0);
    EXPECT_EQ(cuMemAlloc_v2(&board_, sizeof(Board)), 0);
    EXPECT_EQ(cuMemsetD8Async(board_, 0, sizeof(Board), stream), 0);
    EXPECT_EQ(cuModuleLoadData(&module, "any"), 0);
    EXPECT_EQ(cuModuleGetFunction(&function_, module, kKernelName), 0);
  }
  ~Launch() {
    EXPECT_EQ(cuMemHostUnregister(mailbox_.get()), 0);
    EXPECT_EQ(cuMemFree_v2(board_), 0);
  }
  void start() {
    Mailbox* mailbox = mailbox_.get();
    std::fill(std::begin(mailbox->done), std::end(mailbox->done), 0);
    launch_++;
    posted_ = next_tile_ = 0;
    void* parameters[] = {&mailbox, &board_, &launch_};
    EXPECT_EQ(cuLaunchKernel(function_, 2, 1, 1, kThreads, 1, 1, 0, stream_, parameters, nullptr),
              0);
  }
  void post(const Command& what, uint64_t bytes) {
    Command command = what;
    command.number = ++posted_;
    const uint64_t tiles = tiles_of(bytes);
    command.tile_shift = tile_shift_of(bytes);
    command.where = next_tile_ << kTilesBits | tiles;
    next_tile_ += tiles;
    mailbox_->ring[posted_ % kRing] = command;
    std::atomic_ref(mailbox_->posted).store(posting(launch_, posted_), std::memory_order_release);
  }
  void copy(const void* from, void* to, uint64_t bytes) {
    Command command;
    command.out = to;
    command.count = bytes;
    command.in[0] = from;
    post(command, bytes);
  }
  void leave() { leave(launch_); }
  void leave(uint64_t launch) {
    std::atomic_ref(mailbox_->leave).store(launch, std::memory_order_release);
  }
  bool reached() const { return read(mailbox_->reached) == launch_; }
  bool ended() const { return read(mailbox_->ended) == launch_; }
  bool done(uint64_t number) const { return read(mailbox_->done[number % kRing]) == number; }
  void wait(uint64_t number) const {
    while (!done(number)) std::this_thread::yield();
  }

  std::unique_ptr<Mailbox> take_mailbox() { return std::move(mailbox_); }

 private:
  static uint64_t read(uint64_t& word) {
    return std::atomic_ref(word).load(std::memory_order_acquire);
  }
  const CUstream stream_;
  std::unique_ptr<Mailbox> mailbox_ = std::make_unique<Mailbox>();
  CUdeviceptr board_ = 0;
  CUfunction function_ = nullptr;
  uint64_t launch_ = 0, posted_ = 0, next_tile_ = 0;
};

using SoftGpuDeathTest = SoftGpu;

TEST_F(SoftGpuDeathTest, TheProcessorCannotTouchMemoryOfTheDevice) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  volatile char* const memory = static_cast<char*>(pointer(allocate(100)));
  const auto touch = [&](bool writes) {
    signal(SIGSEGV, SIG_DFL);  // else a sanitizer reports it
    if (writes) memory[3] = 1;
    std::exit(memory[3]);
  };
  EXPECT_EXIT(touch(true), testing::KilledBySignal(SIGSEGV), "");
  EXPECT_EXIT(touch(false), testing::KilledBySignal(SIGSEGV), "");
  EXPECT_EQ(cuMemFree_v2(address(const_cast<char*>(memory))), 0);
}

struct Attributes {
  unsigned type = 9, managed = 9;
  int ordinal = 9;
};
Attributes look(CUdeviceptr memory) {
  Attributes found;
  const int attributes[] = {2, 8, 9};
  void* data[] = {&found.type, &found.managed, &found.ordinal};
  EXPECT_EQ(cuPointerGetAttributes(3, attributes, data, memory), 0);
  return found;
}

TEST_F(SoftGpu, SaysWhatMemoryIs) {
  const CUdeviceptr device = allocate(1000);
  CUdeviceptr managed = 0;
  void* pinned = nullptr;
  std::vector<char> registered(5000);
  ASSERT_EQ(cuMemAllocManaged(&managed, 100, 1), 0);
  ASSERT_EQ(cuMemHostAlloc(&pinned, 100, 0), 0);
  ASSERT_EQ(cuMemHostRegister_v2(registered.data(), 5000, 0), 0);
  EXPECT_EQ(cuMemHostRegister_v2(registered.data() + 100, 10, 0), 712);
  EXPECT_EQ(look(device + 999).type, 2u);
  EXPECT_EQ(look(device).ordinal, 0);
  EXPECT_EQ(look(device).managed, 0u);
  EXPECT_EQ(look(device + 1000).type, 0u);
  EXPECT_EQ(look(managed).type, 2u);
  EXPECT_EQ(look(managed).managed, 1u);
  EXPECT_EQ(look(address(pinned) + 99).type, 1u);
  EXPECT_EQ(look(address(registered.data()) + 4999).type, 1u);
  *static_cast<char*>(pointer(managed)) = 1;
  ASSERT_EQ(cuMemFree_v2(device), 0);
  EXPECT_EQ(look(device).type, 0u);
  EXPECT_EQ(look(device).ordinal, -2);
  EXPECT_EQ(cuMemFree_v2(device), 1);
  const CUdeviceptr next = allocate(1000);
  EXPECT_NE(next, device);
  EXPECT_EQ(cuMemFree_v2(next), 0);
  EXPECT_EQ(cuMemFree_v2(managed), 0);
  EXPECT_EQ(cuMemFreeHost(pinned), 0);
  EXPECT_EQ(cuMemHostUnregister(registered.data()), 0);
  EXPECT_EQ(cuMemHostUnregister(registered.data()), 713);
  EXPECT_EQ(look(address(registered.data())).type, 0u);
}

// What maps it is tried between processes by device_processes_test.
TEST_F(SoftGpu, SharesAllocationsWithOtherProcesses) {
  const CUdeviceptr memory = allocate(1 << 20);
  CUstream own = stream();
  CUdeviceptr asynchronous = 0, mapped = 0;
  EXPECT_EQ(cuMemAllocAsync(&asynchronous, 1 << 20, own), 0);
  CUipcMemHandle handle, inside;
  EXPECT_EQ(cuIpcGetMemHandle(&handle, memory), 0);
  EXPECT_EQ(cuIpcGetMemHandle(&inside, memory + 1000), 0);
  EXPECT_EQ(std::memcmp(&handle, &inside, sizeof handle), 0) << "the allocation's";
  EXPECT_EQ(cuIpcGetMemHandle(&inside, asynchronous), 1);
  EXPECT_EQ(cuIpcOpenMemHandle_v2(&mapped, handle, 1), 201) << "its own process has it already";
  EXPECT_EQ(cuIpcCloseMemHandle(memory), 1);
  EXPECT_EQ(cuMemFreeAsync(asynchronous, own), 0);
  EXPECT_EQ(cuMemFree_v2(memory), 0);
  EXPECT_EQ(cuStreamDestroy_v2(own), 0);
}

TEST_F(SoftGpu, AStreamKeepsItsOrder) {
  const CUdeviceptr memory = allocate(1 << 20);
  const CUstream in = stream(kNonBlocking);
  std::vector<unsigned char> back(1 << 20);
  for (unsigned char i = 0; i < 50; i++) ASSERT_EQ(cuMemsetD8Async(memory, i, back.size(), in), 0);
  ASSERT_EQ(cuMemcpyAsync(address(back.data()), memory, back.size(), in), 0);
  EXPECT_EQ(std::count(back.begin(), back.end(), 49), std::ssize(back));
  ASSERT_EQ(cuStreamSynchronize(in), 0);
  EXPECT_EQ(cuStreamQuery(in), 0);
  EXPECT_EQ(cuStreamDestroy_v2(in), 0);
  EXPECT_EQ(cuStreamQuery(in), 400);
  EXPECT_EQ(cuMemFree_v2(memory), 0);
}

TEST_F(SoftGpu, TheDefaultStreamWaitsForStreamsThatBlockAndTheyForIt) {
  const CUstream blocking = stream(), other = stream(), free = stream(kNonBlocking);
  std::vector<int> order;  // guarded by the streams' order alone
  const auto note = [&](CUstream in, int what) {
    auto* const said = new std::pair(&order, what);
    ASSERT_EQ(cuLaunchHostFunc(
                  in,
                  [](void* data) {
                    const std::unique_ptr<std::pair<std::vector<int>*, int>> mine(
                        static_cast<std::pair<std::vector<int>*, int>*>(data));
                    mine->first->push_back(mine->second);
                  },
                  said),
              0);
  };
  soft_gpu_hold(blocking);
  note(blocking, 1);
  note(nullptr, 2);
  note(other, 3);
  ASSERT_EQ(cuStreamSynchronize(free), 0);
  EXPECT_EQ(cuStreamQuery(nullptr), kNotReady);
  EXPECT_EQ(cuStreamQuery(other), kNotReady);
  soft_gpu_release(blocking);
  ASSERT_EQ(cuStreamSynchronize(other), 0);
  EXPECT_EQ(order, (std::vector{1, 2, 3}));
  for (const CUstream each : {blocking, other, free}) EXPECT_EQ(cuStreamDestroy_v2(each), 0);
}

TEST_F(SoftGpu, AnEventIsWaitedForAsItWasRecorded) {
  const CUstream first = stream(kNonBlocking), second = stream(kNonBlocking);
  CUevent event = nullptr;
  ASSERT_EQ(cuEventCreate(&event, 2), 0);
  EXPECT_EQ(cuEventQuery(event), 0);
  soft_gpu_hold(first);
  ASSERT_EQ(cuEventRecord(event, first), 0);
  ASSERT_EQ(cuStreamWaitEvent(second, event, 0), 0);
  EXPECT_EQ(cuEventQuery(event), kNotReady);
  EXPECT_EQ(cuStreamQuery(second), kNotReady);
  soft_gpu_release(first);
  EXPECT_EQ(cuStreamSynchronize(second), 0);
  EXPECT_EQ(cuEventQuery(event), 0);
  EXPECT_EQ(cuEventSynchronize(event), 0);
  EXPECT_EQ(cuEventDestroy_v2(event), 0);
  for (const CUstream each : {first, second}) EXPECT_EQ(cuStreamDestroy_v2(each), 0);
}

// And whoever launches meanwhile waits for him who frees: the driver's hazard.
TEST_F(SoftGpu, WhatMightWaitForACaptureMakesItInvalid) {
  const CUstream in = stream(kNonBlocking), other = stream(kNonBlocking);
  CUgraph graph = nullptr;
  const auto on_a_thread = [&](int mode) {
    int error = 0;
    std::thread([&] {
      EXPECT_EQ(cuCtxSetCurrent(context_), 0);
      EXPECT_EQ(cuThreadExchangeStreamCaptureMode(&mode), 0);
      error = cuStreamQuery(other);
    }).join();
    return error;
  };
  ASSERT_EQ(cuStreamBeginCapture_v2(in, kGlobal), 0);
  EXPECT_EQ(on_a_thread(kRelaxed), 0);
  EXPECT_EQ(on_a_thread(kThreadLocal), 0);
  ASSERT_EQ(cuStreamEndCapture(in, &graph), 0);
  EXPECT_EQ(cuGraphDestroy(graph), 0);
  ASSERT_EQ(cuStreamBeginCapture_v2(in, kThreadLocal), 0);
  EXPECT_EQ(on_a_thread(kGlobal), 0);
  CUdeviceptr memory = 0;
  EXPECT_EQ(cuMemAlloc_v2(&memory, 100), 900);  // by the thread that captures
  EXPECT_EQ(cuStreamEndCapture(in, &graph), 901);
  ASSERT_EQ(cuStreamBeginCapture_v2(in, kGlobal), 0);
  EXPECT_EQ(on_a_thread(kGlobal), 900);
  int capturing = 0;
  EXPECT_EQ(cuStreamIsCapturing(in, &capturing), 0);
  EXPECT_EQ(capturing, 2);
  EXPECT_EQ(cuStreamEndCapture(in, &graph), 901);
  for (const CUstream each : {in, other}) EXPECT_EQ(cuStreamDestroy_v2(each), 0);
}

void do_nothing(void*) {}

TEST_F(SoftGpu, ACaptureEndsOnceWhatItHasSpreadToIsBack) {
  const CUstream in = stream(kNonBlocking), other = stream(kNonBlocking);
  CUevent forth = nullptr, back = nullptr;
  CUgraph graph = nullptr;
  ASSERT_EQ(cuEventCreate(&forth, 0), 0);
  ASSERT_EQ(cuEventCreate(&back, 0), 0);
  for (const bool comes_back : {true, false}) {
    ASSERT_EQ(cuStreamBeginCapture_v2(in, kThreadLocal), 0);
    EXPECT_EQ(cuEventRecord(forth, in), 0);
    EXPECT_EQ(cuStreamWaitEvent(other, forth, 0), 0);
    EXPECT_EQ(cuLaunchHostFunc(other, do_nothing, nullptr), 0);
    EXPECT_EQ(cuEventRecord(back, other), 0);
    if (!comes_back) {
      EXPECT_EQ(cuLaunchHostFunc(other, do_nothing, nullptr), 0);
    }
    EXPECT_EQ(cuStreamWaitEvent(in, back, 0), 0);
    EXPECT_EQ(cuStreamEndCapture(in, &graph), comes_back ? 0 : 904);
    EXPECT_EQ(graph != nullptr, comes_back);
    if (graph != nullptr) {
      EXPECT_EQ(cuGraphDestroy(graph), 0);
    }
  }
  for (const CUevent each : {forth, back}) EXPECT_EQ(cuEventDestroy_v2(each), 0);
  for (const CUstream each : {in, other}) EXPECT_EQ(cuStreamDestroy_v2(each), 0);
}

TEST_F(SoftGpu, WhatIsCapturedWaitsForNothingOutside) {
  const CUstream in = stream(kNonBlocking), other = stream(kNonBlocking);
  CUevent event = nullptr;
  CUgraph graph = nullptr;
  ASSERT_EQ(cuEventCreate(&event, 0), 0);
  ASSERT_EQ(cuStreamBeginCapture_v2(in, kThreadLocal), 0);
  EXPECT_EQ(cuEventRecord(event, other), 0);
  EXPECT_EQ(cuStreamWaitEvent(in, event, 0), 905);
  EXPECT_EQ(cuStreamEndCapture(in, &graph), 901);
  EXPECT_EQ(cuEventDestroy_v2(event), 0);
  for (const CUstream each : {in, other}) EXPECT_EQ(cuStreamDestroy_v2(each), 0);
}

TEST_F(SoftGpu, TheDefaultStreamIsOutOfUseWhileOneThatBlocksIsCaptured) {
  const CUstream blocking = stream(), free = stream(kNonBlocking);
  CUgraph graph = nullptr;
  int capturing = 0;
  unsigned flags = 9;
  EXPECT_EQ(cuStreamGetFlags(blocking, &flags), 0);
  EXPECT_EQ(flags, 0u);
  EXPECT_EQ(cuStreamGetFlags(free, &flags), 0);
  EXPECT_EQ(flags, kNonBlocking);
  ASSERT_EQ(cuStreamBeginCapture_v2(free, kThreadLocal), 0);
  EXPECT_EQ(cuLaunchHostFunc(nullptr, do_nothing, nullptr), 0);
  ASSERT_EQ(cuStreamEndCapture(free, &graph), 0);
  EXPECT_EQ(cuGraphDestroy(graph), 0);
  // To ask whether it is captured is an error that leaves the capture as it is.
  ASSERT_EQ(cuStreamBeginCapture_v2(blocking, kThreadLocal), 0);
  EXPECT_EQ(cuStreamIsCapturing(nullptr, &capturing), 906);
  ASSERT_EQ(cuStreamEndCapture(blocking, &graph), 0);
  EXPECT_EQ(cuGraphDestroy(graph), 0);
  ASSERT_EQ(cuStreamBeginCapture_v2(blocking, kThreadLocal), 0);
  EXPECT_EQ(cuLaunchHostFunc(nullptr, do_nothing, nullptr), 906);
  EXPECT_EQ(cuStreamSynchronize(nullptr), 906);
  EXPECT_EQ(cuStreamEndCapture(blocking, &graph), 901);
  EXPECT_EQ(cuLaunchHostFunc(nullptr, do_nothing, nullptr), 0);
  EXPECT_EQ(cuStreamSynchronize(nullptr), 0);
  for (const CUstream each : {blocking, free}) EXPECT_EQ(cuStreamDestroy_v2(each), 0);
}

TEST_F(SoftGpu, AGraphKeepsObjectsUntilItIsGoneInEveryForm) {
  const CUstream in = stream(kNonBlocking);
  std::atomic<int> launched = 0, gone = 0;
  CUgraph graph = nullptr;
  CUgraphExec made = nullptr;
  CUuserObject object = nullptr;
  int capturing = 0;
  const auto count = [](void* counter) { ++*static_cast<std::atomic<int>*>(counter); };
  ASSERT_EQ(cuStreamBeginCapture_v2(in, 1), 0);
  EXPECT_EQ(cuLaunchHostFunc(in, count, &launched), 0);
  EXPECT_EQ(cuStreamGetCaptureInfo_v2(in, &capturing, nullptr, &graph, nullptr, nullptr), 0);
  EXPECT_EQ(capturing, 1);
  EXPECT_EQ(cuUserObjectCreate(&object, &gone, count, 1, 1), 0);
  EXPECT_EQ(cuGraphRetainUserObject(graph, object, 1, 1), 0);
  ASSERT_EQ(cuStreamEndCapture(in, &graph), 0);
  EXPECT_EQ(launched, 0);
  size_t nodes = 0;
  EXPECT_EQ(cuGraphGetNodes(graph, nullptr, &nodes), 0);
  EXPECT_EQ(nodes, 1u);
  ASSERT_EQ(cuGraphInstantiateWithFlags(&made, graph, 0), 0);
  EXPECT_EQ(cuGraphDestroy(graph), 0);
  soft_gpu_hold(in);
  for (int i = 0; i < 3; i++) EXPECT_EQ(cuGraphLaunch(made, in), 0);
  EXPECT_EQ(cuGraphExecDestroy(made), 0);
  EXPECT_EQ(gone, 0);  // launches are out
  soft_gpu_release(in);
  EXPECT_EQ(cuStreamSynchronize(in), 0);
  while (gone == 0) std::this_thread::yield();
  EXPECT_EQ(launched, 3);
  EXPECT_EQ(gone, 1);
  EXPECT_EQ(cuStreamDestroy_v2(in), 0);
}

TEST_F(SoftGpu, ToFreeMemoryWaitsForAKernelThatStays) {
  const CUstream in = stream(kNonBlocking), other = stream(kNonBlocking);
  const CUdeviceptr memory = allocate(100);
  Launch launch(in);
  launch.start();
  while (!launch.reached()) std::this_thread::yield();
  std::atomic<bool> freed = false, set = false;
  std::thread frees([&] {
    EXPECT_EQ(cuCtxSetCurrent(context_), 0);
    EXPECT_EQ(cuMemFree_v2(memory), 0);
    freed = true;
  });
  give_time();
  const CUdeviceptr mine = 0;
  std::thread launches([&] {
    EXPECT_EQ(cuCtxSetCurrent(context_), 0);
    EXPECT_EQ(cuMemsetD8Async(mine, 0, 0, other), 0);  // of nothing: needs no lock
    EXPECT_EQ(cuStreamWaitEvent(other, nullptr, 0), 400);
    EXPECT_EQ(cuLaunchHostFunc(
                  other, [](void*) {}, nullptr),
              0);
    set = true;
  });
  give_time();
  EXPECT_FALSE(freed);
  EXPECT_FALSE(set);
  EXPECT_EQ(cuStreamQuery(in), kNotReady);  // returns
  launch.leave();
  frees.join();
  launches.join();
  EXPECT_TRUE(launch.ended());
  for (const CUstream each : {in, other}) EXPECT_EQ(cuStreamDestroy_v2(each), 0);
}

TEST_F(SoftGpu, AKernelCopiesAndSumsWithoutACallOfTheDriver) {
  constexpr size_t kCount = 20000, kInputs = 12, kBytes = kCount * sizeof(float);
  const CUstream in = stream(kNonBlocking);
  const CUdeviceptr device = allocate(kInputs * kBytes), sum = allocate(kBytes);
  std::vector<float> host(kInputs * kCount), result(kCount);
  ASSERT_EQ(cuMemHostRegister_v2(host.data(), kInputs * kBytes, 0), 0);
  ASSERT_EQ(cuMemHostRegister_v2(result.data(), kBytes, 0), 0);
  const auto mailbox_inputs = std::make_unique<const void*[]>(kInputs);
  ASSERT_EQ(cuMemHostRegister_v2(mailbox_inputs.get(), kInputs * sizeof(void*), 0), 0);
  {
    Launch launch(in);
    for (int round = 0; round < 20; round++) {
      launch.start();
      const uint64_t before = soft_gpu_calls(), mine = soft_gpu_calls_of_thread();
      while (!launch.reached()) std::this_thread::yield();
      for (size_t i = 0; i < host.size(); i++) {
        const size_t whole = i / kCount + static_cast<size_t>(round);
        host[i] = static_cast<float>(whole);
      }
      for (size_t k = 0; k < kInputs; k++) {
        mailbox_inputs[k] = pointer(device + k * kBytes);
        launch.copy(&host[k * kCount], pointer(device + k * kBytes), kBytes);
      }
      for (size_t k = 0; k < kInputs; k++) launch.wait(k + 1);
      Command command;
      command.out = pointer(sum);
      command.count = kCount;
      command.inputs = kInputs;
      command.type = kFloat32;
      command.op = static_cast<uint8_t>(KernelOp::sum);
      command.in[0] = mailbox_inputs.get();
      launch.post(command, kBytes);
      launch.wait(kInputs + 1);
      launch.copy(pointer(sum), result.data(), kBytes);
      launch.wait(kInputs + 2);
      launch.leave();
      EXPECT_EQ(std::count(result.begin(), result.end(), static_cast<float>(66 + 12 * round)),
                std::ssize(result));
      while (!launch.ended()) std::this_thread::yield();
      EXPECT_EQ(soft_gpu_calls(), before);
      EXPECT_EQ(soft_gpu_calls_of_thread(), mine);
    }
    float first = 0;
    soft_gpu_read(&first, pointer(sum), sizeof first);
    EXPECT_EQ(first, 66 + 12 * 19);
  }
  for (void* const each : {static_cast<void*>(host.data()), static_cast<void*>(result.data()),
                           static_cast<void*>(mailbox_inputs.get())})
    EXPECT_EQ(cuMemHostUnregister(each), 0);
  for (const CUdeviceptr each : {device, sum}) EXPECT_EQ(cuMemFree_v2(each), 0);
  EXPECT_EQ(cuStreamDestroy_v2(in), 0);
}

TEST_F(SoftGpu, AKernelThatIsToldToLeaveBeforeItsTurnLeavesAsSoonAsItComes) {
  const CUstream in = stream(kNonBlocking);
  {
    Launch launch(in);
    soft_gpu_hold(in);
    launch.start();
    launch.leave();
    give_time();
    EXPECT_FALSE(launch.reached());
    soft_gpu_release(in);
    EXPECT_EQ(cuStreamSynchronize(in), 0);
    EXPECT_TRUE(launch.ended());
  }
  EXPECT_EQ(cuStreamDestroy_v2(in), 0);
}

// Waits until the device has broken.
void expect_broken(CUstream in) {
  EXPECT_EQ(cuStreamSynchronize(in), 700);
  CUdeviceptr memory = 0;
  EXPECT_EQ(cuMemAlloc_v2(&memory, 1), 700);
  const char* name = nullptr;
  EXPECT_EQ(cuGetErrorName(700, &name), 0);
  EXPECT_STREQ(name, "CUDA_ERROR_ILLEGAL_ADDRESS");
  soft_gpu_mend();
}

TEST_F(SoftGpu, AnAddressThatTheDeviceDoesNotReachBreaksIt) {
  const CUstream in = stream(kNonBlocking);
  const CUdeviceptr memory = allocate(100), freed = allocate(100);
  ASSERT_EQ(cuMemFree_v2(freed), 0);
  std::vector<char> plain(100);
  for (const void* const from :
       {static_cast<const void*>(plain.data()), static_cast<const void*>(pointer(freed)),
        static_cast<const void*>(pointer(memory + 1))}) {
    Launch launch(in);
    launch.start();
    launch.copy(from, pointer(memory), 100);
    expect_broken(in);
    EXPECT_FALSE(launch.done(1));
    EXPECT_FALSE(launch.ended());
  }
  EXPECT_EQ(cuMemFree_v2(memory), 0);
  EXPECT_EQ(cuStreamDestroy_v2(in), 0);
}

TEST_F(SoftGpu, CommandsThatAreOutAtOnceMayNotOverlap) {
  const CUstream in = stream(kNonBlocking);
  const CUdeviceptr memory = allocate(300);
  {
    Launch launch(in);
    soft_gpu_hold(in);
    launch.start();
    launch.copy(pointer(memory), pointer(memory + 100), 100);
    launch.copy(pointer(memory + 150), pointer(memory + 250), 50);
    soft_gpu_release(in);
    expect_broken(in);
  }
  EXPECT_EQ(cuMemFree_v2(memory), 0);
  EXPECT_EQ(cuStreamDestroy_v2(in), 0);
}

TEST_F(SoftGpu, CallsFailWithoutAContextAndFromAStreamsFunction) {
  std::thread([] {
    CUdeviceptr memory = 0;
    EXPECT_EQ(cuMemAlloc_v2(&memory, 1), 201);
    EXPECT_EQ(cuStreamSynchronize(nullptr), 201);
    EXPECT_EQ(look(0).ordinal, -2);
  }).join();
  int error = 0;
  ASSERT_EQ(cuLaunchHostFunc(
                nullptr, [](void* data) { *static_cast<int*>(data) = cuCtxSynchronize(); }, &error),
            0);
  ASSERT_EQ(cuCtxSynchronize(), 0);
  EXPECT_EQ(error, 800);
}

// In processes of their own, because what the environment says is read once.
TEST_F(SoftGpuDeathTest, WithOneConnectionNothingStartsBeforeWhatWasGivenBefore) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto other_stands = [this](const char* connections) {
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", connections, 1);
    const CUstream held = stream(kNonBlocking), other = stream(kNonBlocking);
    soft_gpu_hold(held);
    EXPECT_EQ(cuLaunchHostFunc(
                  held, [](void*) {}, nullptr),
              0);
    EXPECT_EQ(cuLaunchHostFunc(
                  other, [](void*) {}, nullptr),
              0);
    give_time();
    return cuStreamQuery(other) == kNotReady ? 1 : 0;
  };
  EXPECT_EXIT(std::exit(other_stands("1")), testing::ExitedWithCode(1), "");
  EXPECT_EXIT(std::exit(other_stands("2")), testing::ExitedWithCode(0), "");
}

// Never destroyed: its kernel may still be running.
Launch* left_at_exit = nullptr;

TEST_F(SoftGpuDeathTest, ALaunchThatBlocksReturnsWhenTheKernelHasEnded) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto ended = [this] {
    setenv("CUDA_LAUNCH_BLOCKING", "1", 1);
    Launch& launch = *(left_at_exit = new Launch(stream(kNonBlocking)));
    std::thread leaves([&] {
      give_time();
      launch.leave(1);
    });
    launch.start();
    leaves.join();
    return launch.ended() ? 1 : 0;
  };
  EXPECT_EXIT(std::exit(ended()), testing::ExitedWithCode(1), "");
}

// Such memory goes after the driver's time, and a kernel would still read it.
std::unique_ptr<Mailbox> kept_until_exit;

TEST_F(SoftGpuDeathTest, AProcessMayExitWhileAKernelWaits) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        Launch& launch = *(left_at_exit = new Launch(stream(kNonBlocking)));
        launch.start();
        while (!launch.reached()) std::this_thread::yield();
        kept_until_exit = launch.take_mailbox();
        std::exit(0);
      },
      testing::ExitedWithCode(0), "");
}

struct CallsAtTheVeryEnd {
  ~CallsAtTheVeryEnd() {
    CUcontext context = nullptr;
    unsigned flags = 0;
    int active = 0;
    const bool well = cuCtxGetCurrent(&context) == 0 && context != nullptr &&
                      cuDevicePrimaryCtxGetState(0, &flags, &active) == 0 && active == 1 &&
                      cuCtxSynchronize() == 0;
    _exit(well ? 7 : 1);
  }
};

// PyTorch's static objects do, after all that is the thread's own is gone.
TEST_F(SoftGpuDeathTest, AStaticObjectMayCallAtTheVeryEnd) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        static const CallsAtTheVeryEnd last;
        std::exit(0);
      },
      testing::ExitedWithCode(7), "");
}

}  // namespace
}  // namespace sennit::cuda
