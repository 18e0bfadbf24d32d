// accelerator_test.cpp: what every accelerator promises: the processor, and a CUDA device, for
// which the software GPU stands; and how devices come to be known.
//
// ctest links: soft_gpu
// ctest variable: SOFT_GPU_DEVICES=4
#include "accelerator/accelerator.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "accelerator/cuda/kernel_image.hpp"
#include "reduce/reduce.hpp"
#include "tests/soft_gpu/cuda_functions.hpp"
#include "tests/soft_gpu/soft_gpu.hpp"
#include "tests/support/seed.hpp"

namespace sennit {
namespace {

// An accelerator of each kind, and a stream of it.
struct Subject {
  Accelerator* accelerator = nullptr;
  void* stream = nullptr;
};

Subject make_subject(const std::string& name) {
  if (name == "host") return {&host_accelerator(), nullptr};
  CUcontext context = nullptr;
  CUstream stream = nullptr;
  EXPECT_EQ(cuInit(0), 0);
  EXPECT_EQ(cuDevicePrimaryCtxRetain(&context, 0), 0);
  EXPECT_EQ(cuCtxSetCurrent(context), 0);
  EXPECT_EQ(cuStreamCreate(&stream, 1), 0);
  const Result<Accelerator*> device = cuda_device_of(stream);
  EXPECT_TRUE(device.ok()) << device.status().text();
  return {device.ok() ? *device : nullptr, stream};
}

class Accelerators : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    subject_ = make_subject(GetParam());
    ASSERT_NE(subject_.accelerator, nullptr);
  }
  std::byte* take(size_t bytes) {
    const Result<std::byte*> memory = subject_.accelerator->allocate(bytes, MemoryKind::pinned);
    EXPECT_TRUE(memory.ok()) << memory.status().text();
    return *memory;
  }
  std::unique_ptr<StreamWorker> enqueued() {
    Result<std::unique_ptr<StreamWorker>> worker = subject_.accelerator->make_worker({}, false);
    EXPECT_TRUE(worker.ok()) << worker.status().text();
    const Status put = (*worker)->enqueue(subject_.stream, 1 << 20);
    EXPECT_TRUE(put.ok()) << put.text();
    while (!(*worker)->reached()) std::this_thread::yield();
    return *std::move(worker);
  }
  static std::vector<uint64_t> await(StreamWorker& worker, size_t tokens) {
    std::vector<uint64_t> done;
    while (done.size() < tokens) {
      worker.poll(&done);
      std::this_thread::yield();
    }
    return done;
  }
  Subject subject_;
};

TEST_P(Accelerators, WhatIsSubmittedIsDoneOnceAndAsReduceHasIt) {
  std::mt19937_64 random(sennit_test::seed());
  constexpr size_t kCount = 3000, kInputs = 12;  // more than a command holds
  std::byte* const memory = take((kInputs + 1) * kCount * 8);
  const auto worker = enqueued();
  for (int type = 0; type < SENNIT_TYPE_COUNT; type++)
    for (const Op op : {Op::sum, Op::prod, Op::min, Op::max, Op::avg}) {
      const auto of = static_cast<DataType>(type);
      const size_t bytes = kCount * type_bytes(of);
      std::vector<const void*> inputs;
      for (size_t i = 1; i <= kInputs; i++) inputs.push_back(memory + i * kCount * 8);
      for (size_t i = 0; i < (kInputs + 1) * kCount * 8; i++)
        memory[i] = static_cast<std::byte>(random());
      const uint64_t divisor = op == Op::avg ? 3 : 1;
      std::vector<std::byte> expected(bytes);
      reduce(of, op, expected.data(), inputs, kCount, divisor);
      worker->submit({false, of, op, divisor, memory, inputs, kCount}, 7);
      EXPECT_EQ(await(*worker, 1), std::vector<uint64_t>{7});
      EXPECT_TRUE(std::equal(expected.begin(), expected.end(), memory)) << type << ' ' << int(op);
    }
  worker->leave();
  subject_.accelerator->free(memory, (kInputs + 1) * kCount * 8, MemoryKind::pinned);
}

// Far more than a ring holds.
TEST_P(Accelerators, AnyNumberMayBeOut) {
  constexpr uint64_t kPieces = 2000, kBytes = 40;
  std::byte* const memory = take(2 * kPieces * kBytes);
  for (size_t i = 0; i < kPieces * kBytes; i++) memory[i] = static_cast<std::byte>(i * 7);
  std::byte* const to = memory + kPieces * kBytes;
  const auto worker = enqueued();
  for (uint64_t i = 0; i < kPieces; i++) {
    const void* const from = memory + i * kBytes;
    worker->submit({true, DataType::uint8, Op::sum, 1, to + i * kBytes, {&from, 1}, kBytes}, i);
  }
  std::vector<uint64_t> done = await(*worker, kPieces);
  std::sort(done.begin(), done.end());
  for (uint64_t i = 0; i < kPieces; i++) ASSERT_EQ(done[i], i);
  EXPECT_EQ(std::memcmp(memory, to, kPieces * kBytes), 0);
  worker->leave();
  subject_.accelerator->free(memory, 2 * kPieces * kBytes, MemoryKind::pinned);
}

// Workers come and go, and memory is kept for the next.
TEST_P(Accelerators, StreamsGoOnWhenWorkersLeave) {
  std::byte* const first = take(1000);
  subject_.accelerator->free(first, 1000, MemoryKind::pinned);
  for (int i = 0; i < 30; i++) enqueued()->leave();
  const Status over = subject_.accelerator->synchronize(subject_.stream);
  EXPECT_TRUE(over.ok()) << over.text();
  EXPECT_FALSE(subject_.accelerator->is_captured(subject_.stream).value());
  const Result<MemoryKind> kind = subject_.accelerator->look(first);
  ASSERT_TRUE(kind.ok());
  EXPECT_EQ(*kind, MemoryKind::pinned);
}

// A block that serves for less than it has is not taken for less from then on.
TEST_P(Accelerators, MemoryServesForAsMuchAsItHas) {
  constexpr size_t kMuch = 24 << 20, kLess = 9 << 20;
  std::byte* const first = take(kMuch);
  subject_.accelerator->free(first, kMuch, MemoryKind::pinned);
  const uint64_t taken = soft_gpu_allocations_of_thread();
  for (int i = 0; i < 3; i++) {
    std::byte* const small = take(kLess);
    subject_.accelerator->free(small, kLess, MemoryKind::pinned);
    std::byte* const again = take(kMuch);
    subject_.accelerator->free(again, kMuch, MemoryKind::pinned);
  }
  EXPECT_EQ(soft_gpu_allocations_of_thread(), taken);
}

// An error where there is no other process to export to, or to import from; nothing while a worker
// is out.
TEST_P(Accelerators, MemoryIsExportedWhereProcessesCanMapIt) {
  const bool exports = GetParam() == std::string("cuda");
  Accelerator& accelerator = *subject_.accelerator;
  const Result<std::byte*> small = accelerator.allocate(1000, MemoryKind::device);
  const Result<std::byte*> large = accelerator.allocate(48 << 20, MemoryKind::device);
  ASSERT_TRUE(small.ok() && large.ok());
  const Result<ExportedMemory> exported = accelerator.export_memory(*small);
  ASSERT_EQ(exported.ok(), exports);
  if (exports) {
    EXPECT_LE(exported->begin, *small);
    EXPECT_GE(exported->begin + exported->bytes, *small + 1000);
    const Result<ExportedMemory> other = accelerator.export_memory(*large + (48 << 20) - 1);
    ASSERT_TRUE(other.ok());
    EXPECT_NE(other->begin, exported->begin);
    EXPECT_EQ(other->bytes, 48u << 20) << "no more than was asked for";
    const Result<std::byte*> own = accelerator.import_memory(*exported);
    ASSERT_TRUE(own.ok());
    EXPECT_EQ(*own, exported->begin);
    ExportedMemory of_another = *exported;
    of_another.process++;
    {
      const auto worker = enqueued();
      const Result<std::byte*> now = accelerator.import_memory(of_another);
      ASSERT_TRUE(now.ok()) << now.status().text();
      EXPECT_EQ(*now, nullptr);
      worker->leave();
    }
    EXPECT_FALSE(accelerator.import_memory(of_another).ok()) << "its handle says otherwise";
  }
  accelerator.free(*small, 1000, MemoryKind::device);
  accelerator.free(*large, 48 << 20, MemoryKind::device);
}

// A stream of a device that nothing else here uses.
CUstream stream_of(int device) {
  CUcontext context = nullptr;
  CUstream stream = nullptr;
  EXPECT_EQ(cuInit(0), 0);
  EXPECT_EQ(cuDevicePrimaryCtxRetain(&context, device), 0);
  EXPECT_EQ(cuCtxSetCurrent(context), 0);
  EXPECT_EQ(cuStreamCreate(&stream, 1), 0);
  return stream;
}

// Else a write of the parent's after a fork might go to a copy of the page, which no device knows.
TEST(CudaDevices, KeepPinnedMemoryFromForkedChildren) {
  const Subject subject = make_subject("cuda");
  ASSERT_NE(subject.accelerator, nullptr);
  const Result<std::byte*> memory = subject.accelerator->allocate(1000, MemoryKind::pinned);
  ASSERT_TRUE(memory.ok()) << memory.status().text();
  const pid_t child = fork();
  if (child == 0) {
    unsigned char is_there = 0;
    _exit(mincore(*memory, 1, &is_there) == 0 ? 1 : 0);
  }
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0) << "the child has it";
  subject.accelerator->free(*memory, 1000, MemoryKind::pinned);
}

TEST(CudaDevices, AreNoneOfAForkedChilds) {
  ASSERT_NE(make_subject("cuda").accelerator, nullptr);
  const pid_t child = fork();
  if (child == 0) {
    const Result<Accelerator*> device = cuda_device_of(nullptr);
    _exit(device.status().text().find("this process was forked") == std::string::npos ? 1 : 0);
  }
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0) << "the child is told something else";
}

// Each communicator asks, and a program may make many.
TEST(CudaDevices, AreAskedOnceWhetherTheyServe) {
  constexpr int kUnfit = 1;
  const CUstream stream = stream_of(kUnfit);
  setenv("SOFT_GPU_OLD", "1", 1);
  const Result<Accelerator*> first = cuda_device_of(stream);
  EXPECT_EQ(first.status().kind(), SENNIT_UNSUPPORTED);
  const uint64_t calls = soft_gpu_calls_of_thread();
  const Result<Accelerator*> second = cuda_device_of(stream);
  EXPECT_EQ(second.status().text(), first.status().text());
  EXPECT_EQ(soft_gpu_calls_of_thread(), calls + 1) << "whose stream it is";
  unsetenv("SOFT_GPU_OLD");
}

// Of a build without a kernel that is the reason.
TEST(CudaDevices, ThatTheKernelIsNotForAreNamed) {
  constexpr int kOld = 3;
  setenv("SOFT_GPU_OLD", "2", 1);
  const Result<Accelerator*> device = cuda_device_of(stream_of(kOld));
  unsetenv("SOFT_GPU_OLD");
  EXPECT_EQ(device.status().kind(), SENNIT_UNSUPPORTED);
  const char* const why = cuda::worker_image() ? "compute capability 8.0" : "has no kernels";
  EXPECT_NE(device.status().text().find(why), std::string::npos) << device.status().text();
}

// Else another context might come to have its address.
TEST(CudaDevices, KeepTheirPrimaryContext) {
  constexpr int kKept = 2;
  const Result<Accelerator*> device = cuda_device_of(stream_of(kKept));
  ASSERT_TRUE(device.ok()) << device.status().text();
  unsigned flags = 0;
  int active = 0;
  EXPECT_EQ(cuDevicePrimaryCtxRelease_v2(kKept), 0);
  EXPECT_EQ(cuDevicePrimaryCtxGetState(kKept, &flags, &active), 0);
  EXPECT_EQ(active, 1);
}

INSTANTIATE_TEST_SUITE_P(Every, Accelerators, testing::Values("host", "cuda"),
                         [](const auto& name) { return std::string(name.param); });

}  // namespace
}  // namespace sennit
