// ops.hpp: what the tests of a device's operations share: tensors that are also there in
// double precision, the loops to try, and comparison. f32 and bf16, odd sizes, pieces of matrices
// (strides). Seeds are printed; TEST_SEED repeats a run.
//
// Operations are given the device's own memory alone. What the test reads and writes is the host's
// copy: upload() and download() bring one to the other.
//
// Tolerances, relative to the largest value of the tensor: f32 2e-5 (sums of up to some hundred
// terms, and the 1e-6 of finite differences), bf16 2e-2 (inputs are bf16 to the reference too; it
// rounds once, to 1/256, at the end, and inside attention the weights and slopes once more).
#pragma once

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/seed.hpp"
#include "trainer/device/cpu/cpu_device.hpp"

namespace sennit::trainer {

using sennit_test::seed;

// The value of an element of bf16.
inline float widen(uint16_t bits) {
  return __builtin_bit_cast(float, static_cast<uint32_t>(bits) << 16);
}

// Some memory of a device, which must outlive it.
class DeviceMemory {
 public:
  DeviceMemory(Device& device, size_t bytes) : device_(device), bytes_(bytes) {
    const Result<void*> memory = device.allocate(bytes);
    SENNIT_CHECK(memory.ok());
    memory_ = *memory;
  }
  ~DeviceMemory() { device_.release(memory_); }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  void* get() const { return memory_; }
  void upload(const void* host) const { device_.upload(memory_, host, bytes_); }
  void download(void* host) const { device_.download(host, memory_, bytes_); }

 private:
  Device& device_;
  size_t bytes_;
  void* memory_ = nullptr;
};

// Some numbers that are a vector on the host. Copies share the device's memory.
template <typename T>
struct Numbers {
  std::vector<T> host;
  std::shared_ptr<DeviceMemory> memory;

  Numbers(Device& device, std::vector<T> values)
      : host(std::move(values)),
        memory(std::make_shared<DeviceMemory>(device, host.size() * sizeof(T))) {
    memory->upload(host.data());
  }
  T* data() const { return static_cast<T*>(memory->get()); }
  const std::vector<T>& download() {
    memory->download(host.data());
    return host;
  }
};

// A matrix of the device with the same numbers in double. Copies share the device's memory.
struct Tensor {
  Matrix matrix;
  std::vector<char> host;  // all of the memory, gaps between rows as well
  std::shared_ptr<DeviceMemory> memory;
  std::vector<double> values;  // row after row, without gaps

  void upload() const { memory->upload(host.data()); }
  void download() { memory->download(host.data()); }
  double get(int64_t row, int64_t column) const {
    const Matrix m = in_host();
    const int64_t i = row * m.stride + column;
    return m.type == Type::f32 ? m.f32()[i] : widen(m.bf16()[i]);
  }
  // In the host's copy.
  void set(int64_t row, int64_t column, double value) {
    const Matrix m = in_host();
    const int64_t i = row * m.stride + column;
    const auto narrow = static_cast<float>(value);
    const auto bits = __builtin_bit_cast(uint32_t, narrow);
    if (m.type == Type::f32)
      m.f32()[i] = narrow;
    else
      m.bf16()[i] = static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
  }
  void read() {  // values from the host's copy
    for (int64_t row = 0; row < matrix.rows; row++)
      for (int64_t column = 0; column < matrix.columns; column++)
        values[static_cast<size_t>(row * matrix.columns + column)] = get(row, column);
  }

 private:
  Matrix in_host() const {
    Matrix m = matrix;
    m.data = const_cast<char*>(host.data());
    return m;
  }
};

// A registered device as users get it, by its name; or the processor with loops that are compiled
// for an older one: "generic", "avx2", "avx512".
struct Case {
  Type type;
  std::string device;
};

// Opens the case's device, with two threads until use_threads() says another number. What is made
// before that stays on the device that was open then; again() brings it over.
class Ops : public testing::TestWithParam<Case> {
 protected:
  Ops() : random_(seed()) {}
  void SetUp() override {
#if defined(__x86_64__)
    if (GetParam().device == "avx2" && !__builtin_cpu_supports("avx2"))
      GTEST_SKIP() << "no AVX2 here";
    if (GetParam().device == "avx512" &&
        !(__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
          __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")))
      GTEST_SKIP() << "no AVX-512 here";
#endif
    use_threads(2);
  }
  static Type type() { return GetParam().type; }
  void use_threads(int threads) {
    const std::string& device = GetParam().device;
    const CpuKernels* kernels = device == "generic" ? &kCpuGeneric : nullptr;
#if defined(__x86_64__)
    if (device == "avx2") kernels = &kCpuAvx2;
    if (device == "avx512") kernels = &kCpuAvx512;
#endif
    if (kernels) {
      opened_.push_back(std::make_unique<CpuDevice>(threads, *kernels, false));
    } else {
      Result<std::unique_ptr<Device>> opened = open_device(device, threads);
      ASSERT_TRUE(opened.ok()) << opened.status().text();
      opened_.push_back(*std::move(opened));
    }
    device_ = opened_.back().get();
  }
  Tensor tensor(int64_t rows, int64_t columns, Type type, double scale = 1, int64_t gap = 3) {
    Tensor t;
    const int64_t stride = columns + gap;
    t.host.resize(static_cast<size_t>(rows * stride) * bytes_of(type), 0x3f);
    t.memory = std::make_shared<DeviceMemory>(*device_, t.host.size());
    t.matrix = {t.memory->get(), type, rows, columns, stride};
    t.values.resize(static_cast<size_t>(rows * columns));
    std::normal_distribution<double> normal(0, scale);
    for (int64_t row = 0; row < rows; row++)
      for (int64_t column = 0; column < columns; column++)
        t.set(row, column, scale > 0 ? normal(random_) : 0.0);
    t.read();
    t.upload();
    return t;
  }
  Tensor zeros(int64_t rows, int64_t columns, Type type) { return tensor(rows, columns, type, 0); }
  // A matrix of its own, of columns [first, first + count) of another.
  Tensor columns(const Tensor& of, int64_t first, int64_t count) {
    Tensor t = zeros(of.matrix.rows, count, of.matrix.type);
    for (int64_t row = 0; row < of.matrix.rows; row++)
      for (int64_t i = 0; i < count; i++) t.set(row, i, of.get(row, first + i));
    t.upload();
    return t;
  }
  // The same numbers for the device that is used now.
  Tensor again(Tensor t) {
    t.memory = std::make_shared<DeviceMemory>(*device_, t.host.size());
    t.matrix.data = t.memory->get();
    t.upload();
    return t;
  }
  template <typename T>
  Numbers<T> numbers(std::vector<T> values) {
    return Numbers<T>(*device_, std::move(values));
  }
  Numbers<float> floats(size_t n, float value = 0) { return numbers(std::vector<float>(n, value)); }

  static double tolerance(Type type) { return type == Type::f32 ? 2e-5 : 2e-2; }
  // Relative to the largest that is wanted, or to `largest` where that is less: one number may be
  // near 0.
  static void expect_near(const Tensor& got_tensor, const std::vector<double>& wanted,
                          const char* what, double allowed, double largest = 0.01) {
    Tensor got = got_tensor;
    got.download();
    double off = 0;
    size_t where = 0;
    ASSERT_EQ(got.values.size(), wanted.size()) << what;
    for (const double value : wanted) largest = std::max(largest, std::abs(value));
    for (size_t i = 0; i < wanted.size(); i++) {
      const double difference = std::abs(got.get(static_cast<int64_t>(i) / got.matrix.columns,
                                                 static_cast<int64_t>(i) % got.matrix.columns) -
                                         wanted[i]);
      if (!(difference <= off)) {
        off = difference;
        where = i;
      }
    }
    EXPECT_LE(off / largest, allowed)
        << what << " at " << where << ": wanted " << wanted[where] << ", seed " << seed();
  }
  static void expect_near(Numbers<float>& got_numbers, const std::vector<double>& wanted,
                          const char* what, double allowed) {
    const std::vector<float>& got = got_numbers.download();
    double largest = 0.01;
    for (const double value : wanted)
      if (std::isfinite(value)) largest = std::max(largest, std::abs(value));
    ASSERT_EQ(got.size(), wanted.size()) << what;
    for (size_t i = 0; i < wanted.size(); i++) {
      if (std::isinf(wanted[i]))
        EXPECT_EQ(got[i], wanted[i]) << what << i;
      else
        EXPECT_LE(std::abs(got[i] - wanted[i]) / largest, allowed)
            << what << " at " << i << ", seed " << seed();
    }
  }
  // d(sum of out * dout) / d(values), by central differences of `forward`, which reads `values`
  // where they are.
  static std::vector<double> differences(std::vector<double>& values,
                                         const std::vector<double>& dout,
                                         const std::function<std::vector<double>()>& forward) {
    std::vector<double> result;
    const auto loss = [&] {
      const std::vector<double> out = forward();
      double sum = 0;
      for (size_t i = 0; i < out.size(); i++) sum += out[i] * dout[i];
      return sum;
    };
    for (double& value : values) {
      const double kept = value, step = 1e-5;
      value = kept + step;
      const double above = loss();
      value = kept - step;
      const double below = loss();
      value = kept;
      result.push_back((above - below) / (2 * step));
    }
    return result;
  }

  std::mt19937_64 random_;
  Device* device_ = nullptr;

 private:
  std::vector<std::unique_ptr<Device>> opened_;  // earlier ones have memory of tensors
};

// Every device that there is, and loops for older processors, in both types.
inline std::vector<Case> all_cases() {
  std::vector<std::string> names = {"generic"};
#if defined(__x86_64__)
  names.insert(names.end(), {"avx2", "avx512"});
#endif
  for (const DeviceEntry* device : devices()) names.emplace_back(device->name());
  std::vector<Case> cases;
  for (const std::string& name : names)
    for (const Type type : {Type::f32, Type::bf16}) cases.push_back({type, name});
  return cases;
}
inline const auto kName = [](const testing::TestParamInfo<Case>& info) {
  return std::string(info.param.type == Type::f32 ? "f32_" : "bf16_") + info.param.device;
};

}  // namespace sennit::trainer
