// element_test.cpp: the arithmetic of single elements gives the bits of reduce().
//
// Of types of 8 bits all pairs, of others random bit patterns mixed with the awkward values of each
// type. What differs would differ between ranks that calculate on a device and ranks that do not.
//
// ctest not-under-tsan: it has one thread
#include "reduce/element.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "reduce/reduce.hpp"
#include "tests/support/seed.hpp"

namespace sennit {
namespace {

using sennit_test::seed;

bool is_float(DataType type) { return type >= DataType::float16; }

// The numbers around which formats round, overflow, or lose digits, and their neighbours.
std::vector<uint64_t> awkward_bits(DataType type) {
  using Limits = std::numeric_limits<double>;
  constexpr double kValues[] = {0.0,
                                1.0,
                                3.0,
                                1e-45,
                                1.17549435e-38,
                                6e-8,
                                5.96e-8,
                                6.1e-5,
                                1.5e-5,
                                0.001953125,
                                0.015625,
                                448.0,
                                464.0,
                                480.0,
                                57344.0,
                                61440,
                                65504.0,
                                65520.0,
                                3.4e38,
                                3.3895314e38,
                                1e308,
                                5e-324,
                                127,
                                255,
                                2147483647.0,
                                9.3e18,
                                Limits::infinity(),
                                Limits::quiet_NaN()};
  std::vector<uint64_t> bits;
  for (const double value : kValues)
    for (const double signed_value : {value, -value})
      for (const int step : {-1, 0, 1}) {
        uint64_t x = 0;
        from_double(type, signed_value, &x);
        bits.push_back(x + static_cast<uint64_t>(step));
      }
  // NaNs with payloads, quiet and not.
  for (const uint64_t x :
       {0x7f800001ull, 0xffc00123ull, 0x7ff0000000000001ull, 0x7c01ull, 0xfe11ull})
    bits.push_back(x);
  return bits;
}

// `n` inputs of `count` elements.
class Inputs {
 public:
  Inputs(DataType type, size_t n, size_t count)
      : bytes_(type_bytes(type)), count_(count), memory_(n, std::vector<char>(count * bytes_ + 8)) {
    for (const auto& input : memory_) pointers_.push_back(input.data());
  }
  void set(size_t k, size_t i, uint64_t bits) {
    std::memcpy(memory_[k].data() + i * bytes_, &bits, bytes_);
  }
  uint64_t get(size_t k, size_t i) const { return at(memory_[k], i); }
  uint64_t at(const std::vector<char>& memory, size_t i) const {
    uint64_t bits = 0;
    std::memcpy(&bits, memory.data() + i * bytes_, bytes_);
    return bits;
  }
  const std::vector<const void*>& pointers() const { return pointers_; }
  size_t count() const { return count_; }
  size_t bytes() const { return count_ * bytes_; }

 private:
  size_t bytes_, count_;
  std::vector<std::vector<char>> memory_;
  std::vector<const void*> pointers_;
};

void compare(DataType type, Op op, const Inputs& inputs, uint64_t divisor) {
  std::vector<char> expected(inputs.bytes() + 8, 0x5a), got = expected;
  const auto& in = inputs.pointers();
  reduce(type, op, expected.data(), in, inputs.count(), divisor);
  element::reduce_elements(static_cast<int>(type), kernel_op(op, divisor), got.data(), in.data(),
                           in.size(), inputs.count(), divisor);
  if (got == expected) return;
  for (size_t i = 0; i < inputs.count(); i++) {
    std::string all;
    for (size_t k = 0; k < in.size(); k++) all += " " + std::to_string(inputs.get(k, i));
    ASSERT_EQ(inputs.at(got, i), inputs.at(expected, i))
        << name(type) << " " << name(op) << " of" << all << ", divisor " << divisor;
  }
  FAIL() << name(type) << " " << name(op) << " wrote past the end";
}

template <typename Check>
void for_each_op(const Check& check) {
  for (int t = 0; t < SENNIT_TYPE_COUNT; t++)
    for (int op = 0; op < kOps; op++)
      if (applies(static_cast<Op>(op), static_cast<DataType>(t)))
        check(static_cast<DataType>(t), static_cast<Op>(op));
}

TEST(element, every_type_and_op_gives_the_bits_of_reduce) {
  std::mt19937_64 random(seed());
  for_each_op([&](DataType type, Op op) {
    const std::vector<uint64_t> awkward = awkward_bits(type);
    for (const size_t n : {1, 2, 3, 9, 12})
      for (const uint64_t divisor : {uint64_t{1}, uint64_t{3}, uint64_t{8}, 1 + random() % 9000}) {
        Inputs inputs(type, n, 3000);
        for (size_t k = 0; k < n; k++)
          for (size_t i = 0; i < inputs.count(); i++) {
            uint64_t bits = random();
            if (random() % 3 == 0) bits = awkward[random() % awkward.size()];
            if (is_float(type) && random() % 3 == 0)  // of a size at which sums round
              from_double(type, (static_cast<double>(random() % 4096) - 2048) / 64, &bits);
            inputs.set(k, i, bits);
          }
        compare(type, op, inputs, divisor);
      }
  });
}

TEST(element, all_pairs_of_awkward_values_and_of_bytes) {
  for_each_op([](DataType type, Op op) {
    std::vector<uint64_t> values = awkward_bits(type);
    if (type_bytes(type) == 1) {
      values.resize(256);
      for (size_t x = 0; x < values.size(); x++) values[x] = x;
    }
    Inputs inputs(type, 2, values.size() * values.size());
    for (size_t a = 0; a < values.size(); a++)
      for (size_t b = 0; b < values.size(); b++) {
        inputs.set(0, a * values.size() + b, values[a]);
        inputs.set(1, a * values.size() + b, values[b]);
      }
    for (const uint64_t divisor : {1, 3}) compare(type, op, inputs, divisor);
  });
}

// Against a number of each size of 16-bit floats, and alone by a divisor.
TEST(element, all_elements_of_two_bytes) {
  for (const DataType type : {DataType::float16, DataType::bfloat16})
    for (uint64_t other = 0; other < 65536; other += 1 + (other & 0x3ff ? 0x3fe : 0)) {
      Inputs inputs(type, 2, 65536);
      for (size_t x = 0; x < inputs.count(); x++) {
        inputs.set(0, x, x);
        inputs.set(1, x, other);
      }
      for (const Op op : {Op::sum, Op::prod, Op::min, Op::max, Op::avg})
        compare(type, op, inputs, 7);
    }
}

TEST(element, an_average_of_one_input_is_divided) {
  for (int t = 0; t < SENNIT_TYPE_COUNT; t++) {
    const auto type = static_cast<DataType>(t);
    Inputs inputs(type, 1, 65536);
    for (size_t x = 0; x < inputs.count(); x++) inputs.set(0, x, x << (x & 47));
    for (const uint64_t divisor : {1, 2, 5, 1000}) compare(type, Op::avg, inputs, divisor);
  }
}

TEST(element, the_result_may_be_an_input) {
  const float a[] = {1, 2, 3};
  float b[] = {5, 7, 10};
  const void* in[] = {a, b};
  element::reduce_elements(SENNIT_FLOAT32, KernelOp::sum, b, in, 2, 3, 1);
  EXPECT_EQ(b[0], 6);
  EXPECT_EQ(b[2], 13);
}

TEST(element, types_have_their_sizes) {
  for (int t = 0; t < SENNIT_TYPE_COUNT; t++)
    EXPECT_EQ(element::bytes_of(t), type_bytes(static_cast<DataType>(t)));
  EXPECT_EQ(element::bytes_of(SENNIT_TYPE_COUNT), 0u);
  EXPECT_EQ(element::bytes_of(-1), 0u);
}

}  // namespace
}  // namespace sennit
