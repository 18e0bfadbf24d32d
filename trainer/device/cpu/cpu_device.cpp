// cpu_device.cpp: the CPU device's memory, and what it does element by element (see
// trainer/device/cpu/cpu_device.hpp).
#include "trainer/device/cpu/cpu_device.hpp"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <numeric>

#include "base/process/memory_left.hpp"
#include "trainer/device/cpu/amx/kernels.hpp"

namespace sennit::trainer {
namespace {
constexpr int64_t kPiece = 32'768;     // elements of a part
constexpr size_t kHugePage = 2 << 20;  // larger memory begins on such a page, and asks for them

// Null where there is too little.
void* aligned(size_t bytes) {
  const size_t alignment = bytes >= kHugePage ? kHugePage : 64;
  const size_t rounded = (bytes + alignment - 1) / alignment * alignment;
  void* memory = nullptr;
  if (rounded < bytes || posix_memalign(&memory, alignment, rounded ? rounded : alignment) != 0)
    return nullptr;
  // Rows that are a page apart then share an entry of the processor's table of pages.
  if (alignment == kHugePage) madvise(memory, rounded, MADV_HUGEPAGE);
  return memory;
}

}  // namespace

const CpuKernels& cpu_kernels() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
    return __builtin_cpu_supports("avx512bf16") ? kCpuAvx512Bf16 : kCpuAvx512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return kCpuAvx2;
#endif
  return kCpuGeneric;
}

void* CpuScratch::reserve(size_t bytes_needed) {
  if (bytes_needed <= bytes_) return memory_;
  std::free(memory_);
  memory_ = aligned(bytes_needed);
  SENNIT_CHECK(memory_ != nullptr);
  bytes_ = bytes_needed;
  return memory_;
}

CpuScratch::~CpuScratch() { std::free(memory_); }

CpuDevice::CpuDevice(int threads, const CpuKernels& kernels, bool amx)
    : kernels_(kernels),
      amx_(amx && has_amx()),
      threads_(threads),
      multiply_(threads_, kernels_, amx_),
      attention_scratch_(static_cast<size_t>(threads_.count())) {}

Result<void*> CpuDevice::allocate(size_t bytes) {
  void* memory = bytes == 0 ? aligned(0) : nullptr;
  const Status taken = take_memory(bytes, [&](size_t offset, size_t piece) {
    if (!memory) memory = aligned(bytes);
    if (memory) zero(static_cast<std::byte*>(memory) + offset, piece);
    return memory != nullptr;
  });
  if (taken.ok()) return memory;
  std::free(memory);
  return Status(taken.kind(),
                taken.text() + "; train a smaller model, fewer tokens a step, or on more ranks");
}

void CpuDevice::release(void* memory) { std::free(memory); }

void CpuDevice::copy(void* to, const void* from, size_t bytes) {
  pieces(static_cast<int64_t>(bytes), 4 * kPiece, [&](int64_t first, int64_t count) {
    std::memcpy(static_cast<char*>(to) + first, static_cast<const char*>(from) + first,
                static_cast<size_t>(count));
  });
}

void CpuDevice::zero(void* memory, size_t bytes) {
  pieces(static_cast<int64_t>(bytes), static_cast<int64_t>(kHugePage),
         [&](int64_t first, int64_t count) {
           std::memset(static_cast<char*>(memory) + first, 0, static_cast<size_t>(count));
         });
}

void CpuDevice::add(Matrix y, Matrix x) {
  pieces(y.rows, rows_of_piece(y.columns), [&](int64_t first, int64_t count) {
    for (int64_t row = first; row < first + count; row++)
      kernels_.add(at(y, row), y.type, at(x, row), x.type, y.columns);
  });
}

void CpuDevice::convert(Matrix y, Matrix x) {
  pieces(y.rows, rows_of_piece(y.columns), [&](int64_t first, int64_t count) {
    for (int64_t row = first; row < first + count; row++)
      kernels_.convert(at(y, row), y.type, at(x, row), x.type, y.columns);
  });
}

void CpuDevice::multiply_by(Matrix y, float factor) {
  pieces(y.rows, rows_of_piece(y.columns), [&](int64_t first, int64_t count) {
    for (int64_t row = first; row < first + count; row++)
      kernels_.multiply_by(at(y, row), y.type, factor, y.columns);
  });
}

double CpuDevice::sum_of_squares(const float* x, size_t n) {
  std::vector<double> sums((n + kPiece - 1) / kPiece);
  pieces(static_cast<int64_t>(n), kPiece, [&](int64_t first, int64_t count) {
    sums[static_cast<size_t>(first / kPiece)] = kernels_.sum_of_squares(x + first, count);
  });
  return std::accumulate(sums.begin(), sums.end(), 0.0);
}

SENNIT_DEVICE_ENTRY(cpu, [](int threads) -> Result<std::unique_ptr<Device>> {
  return std::unique_ptr<Device>(std::make_unique<CpuDevice>(threads, cpu_kernels(), true));
})

}  // namespace sennit::trainer
