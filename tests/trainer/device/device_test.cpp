// device_test.cpp: what every registered device keeps, asked through its own memory alone:
// memory, products, sums, the same bits with any number of threads. Operation by operation, the
// processor is held against definitions in ops_test.cpp.
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/seed.hpp"
#include "trainer/device/device.hpp"

namespace sennit::trainer {
namespace {

class EveryDevice : public testing::TestWithParam<const DeviceEntry*> {
 protected:
  void SetUp() override { use(2); }
  void TearDown() override { let_go(); }
  void use(int threads) {
    let_go();
    Result<std::unique_ptr<Device>> opened = open_device(GetParam()->name(), threads);
    ASSERT_TRUE(opened.ok()) << opened.status().text();
    device_ = *std::move(opened);
  }
  void let_go() {
    for (void* memory : taken_) device_->release(memory);
    taken_.clear();
  }
  void* take(size_t bytes) {
    const Result<void*> memory = device_->allocate(bytes);
    EXPECT_TRUE(memory.ok()) << memory.status().text();
    taken_.push_back(*memory);
    return *memory;
  }
  Matrix matrix(int64_t rows, int64_t columns, const std::vector<float>& values = {}) {
    const Matrix m{take(static_cast<size_t>(rows * columns) * sizeof(float)), Type::f32, rows,
                   columns, columns};
    if (!values.empty()) device_->upload(m.data, values.data(), m.bytes());
    return m;
  }
  std::vector<float> values_of(const Matrix& m) {
    std::vector<float> values(static_cast<size_t>(m.rows * m.columns));
    device_->download(values.data(), m.data, m.bytes());
    return values;
  }

  std::unique_ptr<Device> device_;
  std::vector<void*> taken_;
};

TEST_P(EveryDevice, MemoryIsZeroedAlignedAndKeepsWhatItIsGiven) {
  constexpr size_t kBytes = 100'003;
  void* const memory = take(kBytes);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % 64, 0u);
  std::vector<char> host(kBytes, 1);
  device_->download(host.data(), memory, kBytes);
  EXPECT_EQ(host, std::vector<char>(kBytes, 0));
  for (size_t i = 0; i < kBytes; i++) host[i] = static_cast<char>(i * 7);
  device_->upload(memory, host.data(), kBytes);
  std::vector<char> back(kBytes);
  device_->download(back.data(), memory, kBytes);
  EXPECT_EQ(back, host);
  device_->zero(memory, kBytes);
  device_->download(back.data(), memory, kBytes);
  EXPECT_EQ(back, std::vector<char>(kBytes, 0));
}

TEST_P(EveryDevice, ComputesInTheOrderOfTheCalls) {
  const Matrix a = matrix(2, 3, {1, 2, 3, 4, 5, 6}), b = matrix(3, 2, {1, 0, 0, 1, 1, 1});
  const Matrix c = matrix(2, 2);
  device_->multiply(c, a, false, b, false, false);
  device_->multiply(c, a, false, b, false, true);
  device_->multiply_by(c, 0.5f);
  EXPECT_EQ(values_of(c), (std::vector<float>{4, 5, 10, 11}));
  device_->add(c, c);
  EXPECT_EQ(device_->sum_of_squares(c.f32(), 4), 64 + 100 + 400 + 484);
}

TEST_P(EveryDevice, GivesTheSameBitsWithAnyNumberOfThreads) {
  constexpr int64_t kRows = 70, kColumns = 130;
  std::mt19937_64 random(sennit_test::seed());
  std::vector<float> x(kRows * kColumns);
  for (float& value : x) value = std::normal_distribution<float>()(random);
  std::vector<std::vector<float>> results;
  for (const int threads : {1, 2, 5}) {
    use(threads);
    const Matrix a = matrix(kRows, kColumns, x), square = matrix(kRows, kRows);
    device_->multiply(square, a, false, a, true, false);
    const Matrix y = matrix(kRows, kRows), weight = matrix(1, kRows, x), rms = matrix(1, kRows);
    device_->rms_norm(y, rms.f32(), square, weight.data, 1e-5f);
    results.push_back(values_of(y));
  }
  EXPECT_EQ(results[1], results[0]);
  EXPECT_EQ(results[2], results[0]);
}

TEST_P(EveryDevice, SaysWhenThereIsNoMemory) {
  const Result<void*> memory = device_->allocate(size_t{1} << 60);
  ASSERT_FALSE(memory.ok());
  EXPECT_EQ(memory.status().kind(), SENNIT_OUT_OF_RESOURCES) << memory.status().text();
}

INSTANTIATE_TEST_SUITE_P(Registered, EveryDevice,
                         testing::ValuesIn(devices().begin(), devices().end()),
                         [](const testing::TestParamInfo<const DeviceEntry*>& device) {
                           return std::string(device.param->name());
                         });

TEST(Devices, AnUnknownNameIsToldWhatThereIs) {
  EXPECT_EQ(open_device("abacus", 1).status().text(),
            "--device abacus: there is no such device; there are: cpu");
}

}  // namespace
}  // namespace sennit::trainer
