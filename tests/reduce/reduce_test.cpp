// reduce_test.cpp: reductions against a scalar reference, and the same bits on every instruction
// set.
//
// Inputs are random bit patterns mixed with the awkward values of each type: NaNs with payloads,
// infinities, zeros of both signs, denormals, the largest numbers. The seed is printed; TEST_SEED
// repeats a run.
//
// ctest not-under-tsan: it has one thread
#include "reduce/reduce.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <random>

#include "reduce/table.hpp"
#include "tests/support/seed.hpp"

namespace sennit {
namespace {

constexpr int kTypes = SENNIT_TYPE_COUNT;
constexpr std::string_view kIsas[] = {"generic", "avx2", "avx512"};

using sennit_test::seed;

bool is_float(DataType type) { return type >= DataType::float16; }

uint64_t bits_of(DataType type, const void* element) {
  uint64_t bits = 0;
  std::memcpy(&bits, element, type_bytes(type));
  return bits;
}

// A random element: any bits, or one of the values where mistakes live.
uint64_t random_bits(DataType type, std::mt19937_64& random) {
  const double awkward[] = {0.0,
                            -0.0,
                            1.0,
                            -1.0,
                            std::numeric_limits<double>::infinity(),
                            -std::numeric_limits<double>::infinity(),
                            std::numeric_limits<double>::quiet_NaN(),
                            1e-45,
                            -6e-8,
                            6e-5,
                            65504.0,
                            -65519.0,
                            448.0,
                            464.0,
                            57344.0,
                            3.4e38,
                            1e308,
                            5e-324};
  uint64_t bits = random();
  if (random() % 4 == 0) {
    from_double(type, awkward[random() % std::size(awkward)], &bits);
  } else if (is_float(type) && random() % 2 == 0) {  // of a size at which sums round
    from_double(
        type,
        std::ldexp(static_cast<double>(random() % 4096) - 2048, -static_cast<int>(random() % 12)),
        &bits);
  }
  return bits;
}

template <typename F>
F combine_floats(KernelOp op, F a, F b) {
  if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<F>::quiet_NaN();
  switch (op) {
    case KernelOp::prod:
      return a * b;
    case KernelOp::min:
      return a == b ? (std::signbit(a) ? a : b) : std::min(a, b);
    case KernelOp::max:
      return a == b ? (std::signbit(a) ? b : a) : std::max(a, b);
    default:  // sum, average
      break;
  }
  return a + b;
}

template <typename F>
void reference_floats(DataType type, KernelOp op, const std::vector<uint64_t>& in, uint64_t divisor,
                      void* out) {
  F sum = static_cast<F>(to_double(type, &in[0]));
  for (size_t k = 1; k < in.size(); k++)
    sum = combine_floats<F>(op, sum, static_cast<F>(to_double(type, &in[k])));
  if (op == KernelOp::average) sum /= static_cast<F>(divisor);
  from_double(type, sum, out);
}

template <typename T>
void reference_integers(KernelOp op, const std::vector<uint64_t>& in, uint64_t divisor, void* out) {
  using Wide = std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>;
  T sum = static_cast<T>(in[0]);
  for (size_t k = 1; k < in.size(); k++) {
    const T x = static_cast<T>(in[k]);
    if (op == KernelOp::prod)
      sum = static_cast<T>(static_cast<uint64_t>(sum) * static_cast<uint64_t>(x));
    else if (op == KernelOp::min)
      sum = std::min(sum, x);
    else if (op == KernelOp::max)
      sum = std::max(sum, x);
    else if (op == KernelOp::band)
      sum = static_cast<T>(sum & x);
    else if (op == KernelOp::bor)
      sum = static_cast<T>(sum | x);
    else if (op == KernelOp::bxor)
      sum = static_cast<T>(sum ^ x);
    else
      sum = static_cast<T>(static_cast<uint64_t>(sum) + static_cast<uint64_t>(x));
  }
  if (op == KernelOp::average)
    sum = static_cast<T>(static_cast<Wide>(sum) / static_cast<Wide>(divisor));
  std::memcpy(out, &sum, sizeof sum);
}

uint64_t reference(DataType type, KernelOp op, const std::vector<uint64_t>& in, uint64_t divisor) {
  uint64_t out = 0;
  switch (type) {
    case DataType::int8:
      reference_integers<int8_t>(op, in, divisor, &out);
      break;
    case DataType::uint8:
      reference_integers<uint8_t>(op, in, divisor, &out);
      break;
    case DataType::int32:
      reference_integers<int32_t>(op, in, divisor, &out);
      break;
    case DataType::uint32:
      reference_integers<uint32_t>(op, in, divisor, &out);
      break;
    case DataType::int64:
      reference_integers<int64_t>(op, in, divisor, &out);
      break;
    case DataType::uint64:
      reference_integers<uint64_t>(op, in, divisor, &out);
      break;
    case DataType::float64:
      reference_floats<double>(type, op, in, divisor, &out);
      break;
    default:
      reference_floats<float>(type, op, in, divisor, &out);
  }
  return out;
}

std::string text(DataType type, const std::vector<uint64_t>& in) {
  std::string s;
  char buffer[64];
  for (const uint64_t x : in) {
    std::snprintf(buffer, sizeof buffer, " %lx (%g)", bits_of(type, &x), to_double(type, &x));
    s += buffer;
  }
  return s;
}

// Bitwise operations are of integers: tables have nothing for the others.
bool applies(DataType type, KernelOp op) { return op < KernelOp::band || !is_float(type); }

// One call on random data at random offsets, on every instruction set, against the reference.
void check_random(DataType type, KernelOp op, size_t inputs, size_t count,
                  std::mt19937_64& random) {
  const size_t bytes = type_bytes(type);
  const uint64_t divisor = 1 + random() % 300;
  std::vector<std::vector<uint64_t>> elements(count, std::vector<uint64_t>(inputs));
  std::vector<std::vector<char>> memory(inputs);
  std::vector<const void*> pointers(inputs);
  for (size_t k = 0; k < inputs; k++) {
    const size_t offset = random() % 70;  // any alignment
    memory[k].resize(offset + count * bytes + 1);
    pointers[k] = memory[k].data() + offset;
    for (size_t i = 0; i < count; i++) {
      elements[i][k] =
          bits_of(type, std::initializer_list<uint64_t>{random_bits(type, random)}.begin());
      std::memcpy(memory[k].data() + offset + i * bytes, &elements[i][k], bytes);
    }
  }
  const int alias = static_cast<int>(random() % (inputs + 1)) - 1;  // -1: out lies apart
  for (const std::string_view isa : kIsas) {
    const ReduceTable* table = reduce_table(isa);
    if (!table) continue;
    const size_t offset = random() % 70;
    std::vector<char> out(offset + count * bytes + 64, 0x5a);
    std::vector<const void*> in = pointers;
    if (alias >= 0) {
      std::memcpy(out.data() + offset, pointers[static_cast<size_t>(alias)], count * bytes);
      in[static_cast<size_t>(alias)] = out.data() + offset;
    }
    table->reduce[static_cast<int>(type)][static_cast<int>(op)](out.data() + offset, in.data(),
                                                                inputs, count, divisor);
    for (size_t i = 0; i < count; i++) {
      const uint64_t expected = reference(type, op, elements[i], divisor);
      const uint64_t got = bits_of(type, out.data() + offset + i * bytes);
      ASSERT_EQ(got, expected) << std::hex << isa << " " << name(type) << " op "
                               << static_cast<int>(op) << " element " << i << " of " << count << ":"
                               << text(type, elements[i]);
    }
    for (size_t i = 0; i < 64; i++)
      ASSERT_EQ(out[offset + count * bytes + i], 0x5a) << "wrote past the end";
  }
}

TEST(reduce, every_type_op_and_isa_gives_the_reference_bits) {
  std::mt19937_64 random(seed());
  for (int type = 0; type < kTypes; type++)
    for (int op = 0; op < kKernelOps; op++) {
      if (!applies(static_cast<DataType>(type), static_cast<KernelOp>(op))) continue;
      for (size_t inputs = 1; inputs <= 9; inputs++)
        for (const size_t count :
             {size_t{0}, size_t{1}, size_t{3}, size_t{64}, 65 + random() % 500}) {
          check_random(static_cast<DataType>(type), static_cast<KernelOp>(op), inputs, count,
                       random);
          if (HasFatalFailure()) return;
        }
    }
}

TEST(reduce, bitwise_operations_are_of_integers_only) {
  for (const std::string_view isa : kIsas) {
    const ReduceTable* table = reduce_table(isa);
    if (!table) continue;
    for (int type = 0; type < kTypes; type++)
      for (int op = 0; op < kKernelOps; op++)
        EXPECT_EQ(table->reduce[type][op] != nullptr,
                  applies(static_cast<DataType>(type), static_cast<KernelOp>(op)))
            << isa << " type " << type << " op " << op;
  }
  for (int op = 0; op < sennit::kOps; op++)
    for (int type = 0; type < kTypes; type++) {
      const bool bitwise = static_cast<Op>(op) >= Op::band && static_cast<Op>(op) <= Op::bxor;
      EXPECT_EQ(sennit::applies(static_cast<Op>(op), static_cast<DataType>(type)),
                !bitwise || !is_float(static_cast<DataType>(type)));
    }
}

// All pairs of 8-bit floats: every rounding, overflow and NaN of the formats.
TEST(reduce, all_pairs_of_fp8) {
  for (const DataType type : {DataType::float8_e4m3, DataType::float8_e5m2})
    for (int op = 0; op < static_cast<int>(KernelOp::band); op++)
      for (const std::string_view isa : kIsas) {
        const ReduceTable* table = reduce_table(isa);
        if (!table) continue;
        uint8_t a[256], b[256], out[256];
        for (unsigned x = 0; x < 256; x++) {
          for (unsigned y = 0; y < 256; y++) {
            a[y] = static_cast<uint8_t>(x);
            b[y] = static_cast<uint8_t>(y);
          }
          const void* in[] = {a, b};
          table->reduce[static_cast<int>(type)][op](out, in, 2, 256, 3);
          for (unsigned y = 0; y < 256; y++)
            ASSERT_EQ(out[y], reference(type, static_cast<KernelOp>(op), {x, y}, 3))
                << isa << " " << name(type) << " op " << op << ": " << x << ", " << y;
        }
      }
}

// Every 16-bit and 8-bit pattern survives widening and rounding; NaNs become the canonical one.
TEST(reduce, narrow_patterns_survive) {
  for (const DataType type :
       {DataType::float16, DataType::bfloat16, DataType::float8_e4m3, DataType::float8_e5m2})
    for (const std::string_view isa : kIsas) {
      const ReduceTable* table = reduce_table(isa);
      if (!table) continue;
      const size_t bytes = type_bytes(type);
      const size_t patterns = bytes == 1 ? 256 : 65536;
      std::vector<char> in(patterns * bytes), out(patterns * bytes);
      for (size_t x = 0; x < patterns; x++) std::memcpy(in.data() + x * bytes, &x, bytes);
      const void* pointer = in.data();
      table->reduce[static_cast<int>(type)][0](out.data(), &pointer, 1, patterns, 1);
      for (size_t x = 0; x < patterns; x++) {
        uint64_t expected = 0;
        from_double(type, to_double(type, in.data() + x * bytes), &expected);
        if (!std::isnan(to_double(type, in.data() + x * bytes))) {
          ASSERT_EQ(expected, x);
        }
        ASSERT_EQ(bits_of(type, out.data() + x * bytes), expected)
            << isa << " " << name(type) << " " << x;
      }
    }
}

TEST(reduce, scale_rounds_once_on_every_isa) {
  std::mt19937_64 random(seed());
  for (int t = 0; t < kTypes; t++) {
    const auto type = static_cast<DataType>(t);
    const size_t bytes = type_bytes(type);
    for (int round = 0; round < 50; round++) {
      const size_t count = random() % 300;
      const uint64_t factor = random_bits(type, random);
      const size_t offset = random() % 70;
      std::vector<char> in(offset + count * bytes + 1);
      for (size_t i = 0; i < count; i++) {
        const uint64_t x = random_bits(type, random);
        std::memcpy(in.data() + offset + i * bytes, &x, bytes);
      }
      for (const std::string_view isa : kIsas) {
        const ReduceTable* table = reduce_table(isa);
        if (!table) continue;
        std::vector<char> out = in;  // in place half of the time
        const char* from = round % 2 ? out.data() + offset : in.data() + offset;
        table->scale[t](out.data() + offset, from, &factor, count);
        for (size_t i = 0; i < count; i++) {
          const uint64_t x = bits_of(type, in.data() + offset + i * bytes);
          const uint64_t f = bits_of(type, &factor);
          ASSERT_EQ(bits_of(type, out.data() + offset + i * bytes),
                    reference(type, KernelOp::prod, {f, x}, 1))
              << isa << " " << name(type) << text(type, {f, x});
        }
      }
    }
  }
}

TEST(reduce, public_function_maps_ops_and_copies_one_input) {
  const float a[] = {1, 2, 3}, b[] = {5, 7, 10};
  const void* in[] = {a, b};
  float out[3];
  reduce(DataType::float32, Op::avg, out, in, 3, 1);
  EXPECT_EQ(out[2], 13);
  reduce(DataType::float32, Op::avg, out, in, 3, 2);
  EXPECT_EQ(out[2], 6.5);
  reduce(DataType::float32, Op::premul_sum, out, in, 3, 2);
  EXPECT_EQ(out[2], 13);
  reduce(DataType::float32, Op::prod, out, in, 3);
  EXPECT_EQ(out[1], 14);
  reduce(DataType::float32, Op::min, out, in, 3);
  EXPECT_EQ(out[0], 1);
  reduce(DataType::float32, Op::max, out, in, 3);
  EXPECT_EQ(out[0], 5);
  const uint32_t signalling_nan = 0x7f800001;
  const void* one[] = {&signalling_nan};
  uint32_t copied = 0;
  reduce(DataType::float32, Op::sum, &copied, one, 1);
  EXPECT_EQ(copied, signalling_nan);
  const int8_t x[] = {-7, 100}, y[] = {0, 100};
  const void* pair[] = {x, y};
  int8_t small[2];
  reduce(DataType::int8, Op::avg, small, pair, 2, 2);
  EXPECT_EQ(small[0], -3);   // toward zero
  EXPECT_EQ(small[1], -28);  // 200 wraps to -56
}

TEST(reduce, overflow_of_e4m3_is_nan_and_e5m2_is_infinity) {
  const double large = 300;
  uint8_t e4[2], e5[2];
  from_double(DataType::float8_e4m3, large, &e4[0]);
  from_double(DataType::float8_e5m2, 57344, &e5[0]);
  e4[1] = e4[0];
  e5[1] = e5[0];
  const void* in4[] = {&e4[0], &e4[1]};
  const void* in5[] = {&e5[0], &e5[1]};
  uint8_t out = 0;
  reduce(DataType::float8_e4m3, Op::sum, &out, in4, 1);
  EXPECT_EQ(out, 0x7f);
  reduce(DataType::float8_e5m2, Op::sum, &out, in5, 1);
  EXPECT_EQ(out, 0x7c);
}

// The error of a bf16 sum over many inputs in one pass is one rounding, not one per input.
TEST(reduce, narrow_sums_round_once) {
  std::mt19937_64 random(seed());
  std::vector<std::vector<uint16_t>> values(64, std::vector<uint16_t>(257));
  std::vector<const void*> in;
  for (auto& v : values) {
    for (auto& x : v)
      from_double(DataType::bfloat16, static_cast<double>(random() % 2000) / 1000 - 1, &x);
    in.push_back(v.data());
  }
  std::vector<uint16_t> out(257);
  reduce(DataType::bfloat16, Op::sum, out.data(), in, out.size());
  for (size_t i = 0; i < out.size(); i++) {
    double exact = 0;
    for (auto& v : values) exact += to_double(DataType::bfloat16, &v[i]);
    const double got = to_double(DataType::bfloat16, &out[i]);
    // Half a unit in the last place (2^-8 relative), and fp32's own error on sums of magnitude 64.
    ASSERT_LE(std::fabs(got - exact), std::fabs(exact) / 256 + 64 * 64 * 6e-8) << i;
  }
}

TEST(reduce, isa_is_one_that_this_machine_has) {
  EXPECT_NE(reduce_table(reduce_isa()), nullptr);
  EXPECT_NE(reduce_table("generic"), nullptr);
  EXPECT_EQ(reduce_table("sse9"), nullptr);
}

}  // namespace
}  // namespace sennit
