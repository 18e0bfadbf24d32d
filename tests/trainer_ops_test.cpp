// trainer_ops_test.cpp: every operation of a device against the same in double precision, and every gradient
// against finite differences of that. f32 and bf16, odd sizes, pieces of matrices (strides), and the same
// bits on 1, 2 and 3 threads. Seeds are printed; SENNIT_SEED repeats a run.
//
// Tolerances, relative to the largest value of the tensor: f32 2e-5 (sums of up to some hundred terms, and
// the 1e-6 of finite differences), bf16 2e-2 (inputs are bf16 to the reference too; it rounds once, to 1/256,
// at the end, and inside attention the weights and slopes once more).
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>

#include "cpu_device.hpp"

namespace sennit::trainer {
namespace {

uint64_t seed() {
  static const uint64_t value = [] {
    const char* text = std::getenv("SENNIT_SEED");
    const uint64_t s = text ? std::strtoull(text, nullptr, 10) : std::random_device()();
    std::printf("seed %lu\n", s);
    return s;
  }();
  return value;
}

float widen(uint16_t bits) { return __builtin_bit_cast(float, static_cast<uint32_t>(bits) << 16); }

// A matrix of the device with the same numbers in double.
struct Tensor {
  Matrix matrix;
  std::vector<char> memory;
  std::vector<double> values;  // row after row, without gaps

  double get(int64_t row, int64_t column) const {
    const int64_t i = row * matrix.stride + column;
    return matrix.type == Type::f32 ? matrix.f32()[i] : widen(matrix.bf16()[i]);
  }
  void set(int64_t row, int64_t column, double value) {
    const int64_t i = row * matrix.stride + column;
    const auto narrow = static_cast<float>(value);
    const auto bits = __builtin_bit_cast(uint32_t, narrow);
    if (matrix.type == Type::f32)
      matrix.f32()[i] = narrow;
    else
      matrix.bf16()[i] = static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
  }
  void read() {  // values from memory
    for (int64_t row = 0; row < matrix.rows; row++)
      for (int64_t column = 0; column < matrix.columns; column++)
        values[static_cast<size_t>(row * matrix.columns + column)] = get(row, column);
  }
};

// What the device's loops are compiled for. "best" is what users get: AMX too, where the processor has it.
struct Case {
  Type type;
  const char* isa;
};

class Ops : public testing::TestWithParam<Case> {
 protected:
  Ops() : random_(seed()) {}
  void SetUp() override {
#if defined(__x86_64__)
    if (GetParam().isa == std::string_view("avx2") && !__builtin_cpu_supports("avx2"))
      GTEST_SKIP() << "no AVX2 here";
#endif
    use_threads(2);
  }
  static Type type() { return GetParam().type; }
  void use_threads(int threads) {
    const std::string_view isa = GetParam().isa;
    const CpuKernels* kernels = isa == "best" ? &cpu_kernels() : &kCpuGeneric;
#if defined(__x86_64__)
    if (isa == "avx2") kernels = &kCpuAvx2;
#endif
    device_ = std::make_unique<CpuDevice>(threads, *kernels, isa == "best");
  }
  Tensor tensor(int64_t rows, int64_t columns, Type type, double scale = 1, int64_t gap = 3) {
    Tensor t;
    const int64_t stride = columns + gap;
    t.memory.resize(static_cast<size_t>(rows * stride) * bytes_of(type) + 64, 0x3f);
    t.matrix = {t.memory.data(), type, rows, columns, stride};
    t.values.resize(static_cast<size_t>(rows * columns));
    std::normal_distribution<double> normal(0, scale);
    for (int64_t row = 0; row < rows; row++)
      for (int64_t column = 0; column < columns; column++)
        t.set(row, column, scale > 0 ? normal(random_) : 0.0);
    t.read();
    return t;
  }
  Tensor zeros(int64_t rows, int64_t columns, Type type) { return tensor(rows, columns, type, 0); }

  static double tolerance(Type type) { return type == Type::f32 ? 2e-5 : 2e-2; }
  static void expect_near(const Tensor& got_tensor, const std::vector<double>& wanted, const char* what,
                          double allowed) {
    Tensor got = got_tensor;
    double largest = 1e-30, off = 0;
    size_t where = 0;
    ASSERT_EQ(got.values.size(), wanted.size()) << what;
    for (const double value : wanted) largest = std::max(largest, std::abs(value));
    for (size_t i = 0; i < wanted.size(); i++) {
      const double difference = std::abs(got.get(static_cast<int64_t>(i) / got.matrix.columns,
                                                 static_cast<int64_t>(i) % got.matrix.columns) -
                                         wanted[i]);
      if (!(difference <= off)) off = difference, where = i;
    }
    EXPECT_LE(off / largest, allowed)
        << what << " at " << where << ": wanted " << wanted[where] << ", seed " << seed();
  }
  static void expect_near(const std::vector<float>& got, const std::vector<double>& wanted, const char* what,
                          double allowed) {
    double largest = 1e-30;
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
  // d(sum of out * dout) / d(values), by central differences of `forward`, which reads `values` where they
  // are.
  static std::vector<double> differences(std::vector<double>& values, const std::vector<double>& dout,
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
  std::unique_ptr<Device> device_;
};

// ---- matrix products

std::vector<double> product(const Tensor& a, bool transpose_a, const Tensor& b, bool transpose_b, int64_t m,
                            int64_t n, int64_t k) {
  std::vector<double> c(static_cast<size_t>(m * n));
  for (int64_t i = 0; i < m; i++)
    for (int64_t j = 0; j < n; j++)
      for (int64_t depth = 0; depth < k; depth++)
        c[static_cast<size_t>(i * n + j)] +=
            a.values[static_cast<size_t>(transpose_a ? depth * m + i : i * k + depth)] *
            b.values[static_cast<size_t>(transpose_b ? j * k + depth : depth * n + j)];
  return c;
}

TEST_P(Ops, MultiplyIsTheProductInEveryForm) {
  const int64_t shapes[][3] = {{1, 1, 1},      {5, 7, 3},      {33, 17, 65},   {64, 96, 32},
                               {130, 70, 129}, {16, 1030, 40}, {1100, 48, 64}, {70, 65, 2100}};
  for (const auto& [m, n, k] : shapes)
    for (const bool transpose_a : {false, true})
      for (const bool transpose_b : {false, true})
        for (const bool accumulate : {false, true})
          for (const Type out : {type(), Type::f32}) {
            const Tensor a = transpose_a ? tensor(k, m, type()) : tensor(m, k, type());
            const Tensor b = transpose_b ? tensor(n, k, type()) : tensor(k, n, type());
            Tensor c = tensor(m, n, out);
            std::vector<double> wanted = product(a, transpose_a, b, transpose_b, m, n, k);
            if (accumulate)
              for (size_t i = 0; i < wanted.size(); i++) wanted[i] += c.values[i];
            device_->multiply(c.matrix, a.matrix, transpose_a, b.matrix, transpose_b, accumulate);
            const double allowed = out == Type::f32 ? 2e-5 : 1e-2;
            expect_near(c, wanted, "product", allowed);
            if (HasFailure()) FAIL() << m << "x" << n << "x" << k << transpose_a << transpose_b << accumulate;
          }
}

// ---- RMSNorm

std::vector<double> rms_norm(const std::vector<double>& x, const std::vector<double>& weight,
                             double epsilon) {
  const size_t n = weight.size();
  std::vector<double> y(x.size());
  for (size_t row = 0; row < x.size() / n; row++) {
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += x[row * n + i] * x[row * n + i];
    for (size_t i = 0; i < n; i++)
      y[row * n + i] = x[row * n + i] / std::sqrt(sum / static_cast<double>(n) + epsilon) * weight[i];
  }
  return y;
}

TEST_P(Ops, RmsNorm) {
  for (const int64_t columns :
       {5, 15, 48, 131}) {  // one column: y is the sign of x, its slope is all cancellation
    const int64_t rows = 7;
    Tensor x = tensor(rows, columns, type()), weight = tensor(1, columns, type());
    const Tensor dy = tensor(rows, columns, type());
    Tensor y = zeros(rows, columns, type());
    std::vector<float> inverse(static_cast<size_t>(rows));
    device_->rms_norm(y.matrix, inverse.data(), x.matrix, weight.matrix.data, 1e-5f);
    const auto forward = [&] { return rms_norm(x.values, weight.values, 1e-5); };
    expect_near(y, forward(), "y", tolerance(type()));

    Tensor dx = zeros(rows, columns, type()), more = tensor(rows, columns, Type::f32);
    Tensor dweight = tensor(1, columns, Type::f32);
    const auto wanted = differences(x.values, dy.values, forward);
    auto wanted_more = wanted, wanted_weight = differences(weight.values, dy.values, forward);
    for (size_t i = 0; i < wanted.size(); i++) wanted_more[i] += more.values[i];
    for (size_t i = 0; i < wanted_weight.size(); i++) wanted_weight[i] += dweight.values[i];
    device_->rms_norm_gradient(dx.matrix, false, dweight.matrix.f32(), dy.matrix, x.matrix,
                               weight.matrix.data, inverse.data());
    expect_near(dx, wanted, "dx", tolerance(type()));
    expect_near(dweight, wanted_weight, "dweight", 2e-5);
    device_->rms_norm_gradient(more.matrix, true, dweight.matrix.f32(), dy.matrix, x.matrix,
                               weight.matrix.data, inverse.data());
    expect_near(more, wanted_more, "dx added", 2e-5);
  }
}

// ---- rotary positions

TEST_P(Ops, RotateTurnsPairsAndItsGradientTurnsBack) {
  const int64_t rows = 5, heads = 3;
  for (const int64_t head_size : {2, 12, 64}) {
    const int64_t half = head_size / 2, columns = heads * head_size;
    Tensor x = tensor(rows, columns, type());
    const Tensor angles = tensor(20, half, Type::f32, 2.0, 0);
    std::vector<float> cosines, sines;
    for (const double angle : angles.values) {
      cosines.push_back(static_cast<float>(std::cos(angle)));
      sines.push_back(static_cast<float>(std::sin(angle)));
    }
    const std::vector<int32_t> positions = {3, 0, 19, 7, 7};
    const auto forward = [&] {
      std::vector<double> y(x.values.size());
      for (int64_t row = 0; row < rows; row++)
        for (int64_t head = 0; head < heads; head++)
          for (int64_t i = 0; i < half; i++) {
            const auto low = static_cast<size_t>(row * columns + head * head_size + i),
                       high = low + static_cast<size_t>(half);
            const auto turn = static_cast<size_t>(positions[static_cast<size_t>(row)] * half + i);
            y[low] = x.values[low] * cosines[turn] - x.values[high] * sines[turn];
            y[high] = x.values[high] * cosines[turn] + x.values[low] * sines[turn];
          }
      return y;
    };
    Tensor dy = tensor(rows, columns, type());
    const auto wanted = forward(), wanted_gradient = differences(x.values, dy.values, forward);
    device_->rotate(x.matrix, head_size, cosines.data(), sines.data(), positions.data(), false);
    expect_near(x, wanted, "y", tolerance(type()));
    device_->rotate(dy.matrix, head_size, cosines.data(), sines.data(), positions.data(), true);
    expect_near(dy, wanted_gradient, "dx", tolerance(type()));
  }
}

// ---- attention

struct AttentionCase {
  Tensor q, k, v, dout;
  AttentionShape shape;
};

// out; the log-sums too where asked for
std::vector<double> attention(const AttentionCase& a, std::vector<double>* log_sums = nullptr) {
  const AttentionShape& s = a.shape;
  const int64_t d = s.head_size, group = s.query_heads / s.kv_heads;
  std::vector<double> out(static_cast<size_t>(s.batch * s.queries * s.query_heads * d));
  if (log_sums) log_sums->assign(static_cast<size_t>(s.batch * s.query_heads * s.queries), -INFINITY);
  for (int64_t b = 0; b < s.batch; b++)
    for (int64_t h = 0; h < s.query_heads; h++)
      for (int64_t i = 0; i < s.queries; i++) {
        const int64_t seen = std::min(s.keys, s.first_query + i - s.first_key + 1);
        if (seen <= 0) continue;
        std::vector<double> weights;
        double sum = 0;
        const auto q_at = static_cast<size_t>((b * s.queries + i) * s.query_heads * d + h * d);
        const auto k_at = [&](int64_t j) {
          return static_cast<size_t>((b * s.keys + j) * s.kv_heads * d + h / group * d);
        };
        for (int64_t j = 0; j < seen; j++) {
          double score = 0;
          for (size_t e = 0; e < static_cast<size_t>(d); e++)
            score += a.q.values[q_at + e] * a.k.values[k_at(j) + e];
          weights.push_back(std::exp(score * static_cast<double>(s.scale)));
          sum += weights.back();
        }
        for (int64_t j = 0; j < seen; j++)
          for (size_t e = 0; e < static_cast<size_t>(d); e++)
            out[q_at + e] += weights[static_cast<size_t>(j)] / sum * a.v.values[k_at(j) + e];
        if (log_sums)
          (*log_sums)[static_cast<size_t>((b * s.query_heads + h) * s.queries + i)] = std::log(sum);
      }
  return out;
}

class Attention : public Ops {
 protected:
  AttentionCase make(AttentionShape shape) {
    shape.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(shape.head_size)));
    const int64_t q_columns = shape.query_heads * shape.head_size,
                  k_columns = shape.kv_heads * shape.head_size;
    return {tensor(shape.batch * shape.queries, q_columns, type()),
            tensor(shape.batch * shape.keys, k_columns, type()),
            tensor(shape.batch * shape.keys, k_columns, type()),
            tensor(shape.batch * shape.queries, q_columns, type()), shape};
  }
  static std::vector<float> statistics(const AttentionShape& s) {
    return std::vector<float>(static_cast<size_t>(s.batch * s.query_heads * s.queries), 7.0f);
  }
};

//                        batch queries keys first_query first_key heads kv_heads head_size scale
constexpr AttentionShape kSmall[] = {{1, 1, 1, 0, 0, 1, 1, 4, 0},   {2, 5, 5, 0, 0, 2, 2, 8, 0},
                                     {1, 19, 19, 0, 0, 4, 2, 6, 0}, {2, 7, 9, 9, 0, 3, 1, 16, 0},
                                     {1, 9, 7, 4, 6, 2, 1, 5, 0},   {1, 6, 6, 0, 6, 2, 2, 4, 0}};

TEST_P(Attention, GradientIsThatOfFiniteDifferences) {
  for (const AttentionShape& shape : kSmall) {
    AttentionCase a = make(shape);
    Tensor out = zeros(a.q.matrix.rows, a.q.matrix.columns, type());
    std::vector<float> log_sums = statistics(shape), dots = statistics(shape);
    std::vector<double> wanted_sums;
    const std::vector<double> wanted = attention(a, &wanted_sums);
    device_->attention(out.matrix, log_sums.data(), a.q.matrix, a.k.matrix, a.v.matrix, a.shape);
    expect_near(out, wanted, "out", tolerance(type()));
    expect_near(log_sums, wanted_sums, "log_sums", tolerance(type()));

    device_->attention_dots(dots.data(), a.dout.matrix, out.matrix, a.shape);
    Tensor dq = tensor(out.matrix.rows, out.matrix.columns, Type::f32);
    Tensor dk = tensor(a.k.matrix.rows, a.k.matrix.columns, Type::f32),
           dv = tensor(a.k.matrix.rows, a.k.matrix.columns, Type::f32);
    const auto forward = [&] { return attention(a); };
    const auto plus = [](std::vector<double> x, const std::vector<double>& y) {
      for (size_t i = 0; i < x.size(); i++) x[i] += y[i];
      return x;
    };
    const auto wanted_dq = plus(differences(a.q.values, a.dout.values, forward), dq.values);
    const auto wanted_dk = plus(differences(a.k.values, a.dout.values, forward), dk.values);
    const auto wanted_dv = plus(differences(a.v.values, a.dout.values, forward), dv.values);
    device_->attention_gradient(dq.matrix, dk.matrix, dv.matrix, a.dout.matrix, a.q.matrix, a.k.matrix,
                                a.v.matrix, log_sums.data(), dots.data(), a.shape);
    expect_near(dq, wanted_dq, "dq", tolerance(type()));
    expect_near(dk, wanted_dk, "dk", tolerance(type()));
    expect_near(dv, wanted_dv, "dv", tolerance(type()));
  }
}

// The gradient in double, by formula: finite differences of a long sequence would take minutes.
void attention_gradient(const AttentionCase& a, std::vector<double>& dq, std::vector<double>& dk,
                        std::vector<double>& dv) {
  const AttentionShape& s = a.shape;
  const int64_t d = s.head_size, group = s.query_heads / s.kv_heads;
  std::vector<double> log_sums;
  const std::vector<double> out = attention(a, &log_sums);
  dq.assign(a.q.values.size(), 0), dk.assign(a.k.values.size(), 0), dv.assign(a.v.values.size(), 0);
  for (int64_t b = 0; b < s.batch; b++)
    for (int64_t h = 0; h < s.query_heads; h++)
      for (int64_t i = 0; i < s.queries; i++) {
        const auto q = static_cast<size_t>((b * s.queries + i) * s.query_heads * d + h * d);
        const double log_sum = log_sums[static_cast<size_t>((b * s.query_heads + h) * s.queries + i)];
        double dots = 0;
        for (size_t e = 0; e < static_cast<size_t>(d); e++) dots += a.dout.values[q + e] * out[q + e];
        for (int64_t j = 0; j < std::min(s.keys, s.first_query + i - s.first_key + 1); j++) {
          const auto k = static_cast<size_t>((b * s.keys + j) * s.kv_heads * d + h / group * d);
          double score = 0, slope = 0;
          for (size_t e = 0; e < static_cast<size_t>(d); e++) {
            score += a.q.values[q + e] * a.k.values[k + e];
            slope += a.dout.values[q + e] * a.v.values[k + e];
          }
          const double p = std::exp(score * static_cast<double>(s.scale) - log_sum);
          slope = p * (slope - dots) * static_cast<double>(s.scale);
          for (size_t e = 0; e < static_cast<size_t>(d); e++) {
            dv[k + e] += p * a.dout.values[q + e];
            dk[k + e] += slope * a.q.values[q + e];
            dq[q + e] += slope * a.k.values[k + e];
          }
        }
      }
}

TEST_P(Attention, LongSequencesAndChunksOfThem) {
  const AttentionShape shapes[] = {{1, 600, 600, 0, 0, 2, 1, 64, 0},
                                   {2, 130, 300, 200, 10, 4, 2, 32, 0},
                                   {1, 70, 530, 1000, 0, 2, 2, 80, 0},
                                   {1, 257, 65, 40, 60, 1, 1, 128, 0}};
  for (const AttentionShape& shape : shapes) {
    AttentionCase a = make(shape);
    Tensor out = zeros(a.q.matrix.rows, a.q.matrix.columns, Type::f32);
    std::vector<float> log_sums = statistics(shape), dots = statistics(shape);
    std::vector<double> wanted_sums, wanted_dq, wanted_dk, wanted_dv;
    const std::vector<double> wanted = attention(a, &wanted_sums);
    device_->attention(out.matrix, log_sums.data(), a.q.matrix, a.k.matrix, a.v.matrix, a.shape);
    expect_near(out, wanted, "out", tolerance(type()));
    expect_near(log_sums, wanted_sums, "log_sums", tolerance(type()));
    device_->attention_dots(dots.data(), a.dout.matrix, out.matrix, a.shape);
    Tensor dq = zeros(out.matrix.rows, out.matrix.columns, Type::f32);
    Tensor dk = zeros(a.k.matrix.rows, a.k.matrix.columns, Type::f32),
           dv = zeros(a.k.matrix.rows, a.k.matrix.columns, Type::f32);
    device_->attention_gradient(dq.matrix, dk.matrix, dv.matrix, a.dout.matrix, a.q.matrix, a.k.matrix,
                                a.v.matrix, log_sums.data(), dots.data(), a.shape);
    attention_gradient(a, wanted_dq, wanted_dk, wanted_dv);
    expect_near(dq, wanted_dq, "dq", tolerance(type()));
    expect_near(dk, wanted_dk, "dk", tolerance(type()));
    expect_near(dv, wanted_dv, "dv", tolerance(type()));
  }
}

// Queries 20 ... 59 of a sequence, its keys in three chunks in any order, one of which no query sees.
TEST_P(Attention, PartsOverChunksOfKeysJoinToTheWhole) {
  const AttentionCase whole = make({2, 40, 80, 20, 0, 4, 2, 16, 0});
  Tensor out = zeros(80, 64, Type::f32);
  std::vector<float> log_sums = statistics(whole.shape);
  bool first = true;
  for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{60, 80}, {31, 60}, {0, 31}}) {
    AttentionShape part = whole.shape;
    part.first_key = begin, part.keys = end - begin;
    Tensor k = zeros(2 * part.keys, 32, type()), v = zeros(2 * part.keys, 32, type());
    for (int64_t row = 0; row < 2 * part.keys; row++)
      for (int64_t column = 0; column < 32; column++) {
        const int64_t from = row / part.keys * 80 + begin + row % part.keys;
        k.set(row, column, whole.k.get(from, column));
        v.set(row, column, whole.v.get(from, column));
      }
    Tensor mine = zeros(80, 64, first ? Type::f32 : type());
    std::vector<float> sums = statistics(part);
    device_->attention(first ? out.matrix : mine.matrix, first ? log_sums.data() : sums.data(),
                       whole.q.matrix, k.matrix, v.matrix, part);
    if (!first) device_->attention_join(out.matrix, log_sums.data(), mine.matrix, sums.data(), part);
    first = false;
  }
  std::vector<double> wanted_sums;
  const std::vector<double> wanted = attention(whole, &wanted_sums);
  expect_near(out, wanted, "joined", tolerance(type()));
  expect_near(log_sums, wanted_sums, "log_sums", tolerance(type()));
}

// ---- SwiGLU

TEST_P(Ops, Swiglu) {
  for (const int64_t columns : {1, 16, 37}) {
    Tensor gate = tensor(5, columns, type(), 3), up = tensor(5, columns, type());
    const Tensor dy = tensor(5, columns, type());
    const auto forward = [&] {
      std::vector<double> y(gate.values.size());
      for (size_t i = 0; i < y.size(); i++)
        y[i] = gate.values[i] / (1 + std::exp(-gate.values[i])) * up.values[i];
      return y;
    };
    Tensor y = zeros(5, columns, type()), dgate = y, dup = y;
    dgate.matrix.data = dgate.memory.data(), dup.matrix.data = dup.memory.data();
    device_->swiglu(y.matrix, gate.matrix, up.matrix);
    expect_near(y, forward(), "y", tolerance(type()));
    device_->swiglu_gradient(dgate.matrix, dup.matrix, dy.matrix, gate.matrix, up.matrix);
    expect_near(dgate, differences(gate.values, dy.values, forward), "dgate", tolerance(type()));
    expect_near(dup, differences(up.values, dy.values, forward), "dup", tolerance(type()));
  }
}

// ---- embedding

TEST_P(Ops, EmbeddingOfAPieceOfTheVocabulary) {
  const int64_t columns = 70, first_token = 10;
  const Tensor table = tensor(6, columns, type()), dy = tensor(5, columns, type());
  const std::vector<int32_t> tokens = {12, 15, 9, 12, 16};
  Tensor y = tensor(5, columns, type()), dtable = tensor(6, columns, Type::f32);
  std::vector<double> wanted(y.values.size()), wanted_table = dtable.values;
  for (size_t row = 0; row < 5; row++)
    for (size_t i = 0; i < 70; i++)
      if (tokens[row] == 12 || tokens[row] == 15) {
        const size_t at = static_cast<size_t>(tokens[row] - first_token) * 70 + i;
        wanted[row * 70 + i] = table.values[at];
        wanted_table[at] += dy.values[row * 70 + i];
      }
  device_->embed(y.matrix, table.matrix, tokens.data(), first_token);
  expect_near(y, wanted, "y", 0);
  device_->embed_gradient(dtable.matrix, tokens.data(), dy.matrix, first_token);
  expect_near(dtable, wanted_table, "dtable", 1e-6);
}

// ---- cross entropy: the vocabulary in two pieces, as on two ranks

TEST_P(Ops, CrossEntropyOverAVocabularyInPieces) {
  const int64_t rows = 6, vocabulary = 75, cut = 31;
  const Tensor whole = tensor(rows, vocabulary, type(), 4);
  const std::vector<int32_t> targets = {0, 30, 31, -1, 74, 40};
  std::vector<double> values = whole.values;
  const auto loss = [&] {
    double sum = 0;
    for (size_t row = 0; row < 6; row++) {
      if (targets[row] < 0) continue;
      double all = 0;
      for (size_t i = 0; i < 75; i++) all += std::exp(values[row * 75 + i]);
      sum += std::log(all) - values[row * 75 + static_cast<size_t>(targets[row])];
    }
    return std::vector<double>{sum};
  };
  const std::vector<double> slopes = differences(values, {0.2}, loss);
  Tensor pieces[2] = {zeros(rows, cut, type()), zeros(rows, vocabulary - cut, type())};
  std::vector<float> largest(6, -INFINITY), sums(6), target_logits(6);
  for (int p = 0; p < 2; p++) {
    for (int64_t row = 0; row < rows; row++)
      for (int64_t i = 0; i < pieces[p].matrix.columns; i++)
        pieces[p].set(row, i, whole.get(row, i + p * cut));
    std::vector<float> mine(6);
    device_->largest_logits(mine.data(), pieces[p].matrix);
    for (size_t row = 0; row < 6; row++) largest[row] = std::max(largest[row], mine[row]);
  }
  for (int p = 0; p < 2; p++) {
    std::vector<float> my_sums(6), my_targets(6);
    device_->sum_logits(my_sums.data(), my_targets.data(), pieces[p].matrix, largest.data(), targets.data(),
                        p * cut);
    for (size_t row = 0; row < 6; row++) sums[row] += my_sums[row], target_logits[row] += my_targets[row];
  }
  double got = 0;
  for (size_t row = 0; row < 6; row++)
    if (targets[row] >= 0) got += std::log(sums[row]) + largest[row] - target_logits[row];
  EXPECT_NEAR(got, loss()[0], 2e-5 * loss()[0]) << "seed " << seed();
  EXPECT_EQ(target_logits[3], 0.0f);
  for (int p = 0; p < 2; p++) {
    Tensor wide = zeros(rows, pieces[p].matrix.columns, Type::f32);
    std::vector<double> wanted;
    for (int64_t row = 0; row < rows; row++)
      for (int64_t i = 0; i < pieces[p].matrix.columns; i++)
        wanted.push_back(slopes[static_cast<size_t>(row * vocabulary + i + p * cut)]);
    device_->cross_entropy_gradient(wide.matrix, pieces[p].matrix, largest.data(), sums.data(),
                                    targets.data(), p * cut, 0.2f);
    expect_near(wide, wanted, "dlogits", 2e-5);
    device_->cross_entropy_gradient(pieces[p].matrix, pieces[p].matrix, largest.data(), sums.data(),
                                    targets.data(), p * cut, 0.2f);
    expect_near(pieces[p], wanted, "dlogits in place", tolerance(type()));
  }
}

// ---- element by element

TEST_P(Ops, ElementByElement) {
  for (const int64_t columns : {1, 16, 45}) {
    for (const Type other : {Type::f32, Type::bf16}) {
      Tensor y = tensor(4, columns, type()), converted = zeros(4, columns, type());
      const Tensor x = tensor(4, columns, other);
      std::vector<double> sum = y.values, scaled;
      for (size_t i = 0; i < sum.size(); i++) sum[i] += x.values[i];
      device_->add(y.matrix, x.matrix);
      expect_near(y, sum, "sum", type() == Type::f32 ? 1e-6 : 4e-3);
      y.read();
      for (const double value : y.values) scaled.push_back(value * 0.25);
      device_->multiply_by(y.matrix, 0.25f);
      expect_near(y, scaled, "scaled", 0);
      device_->convert(converted.matrix, x.matrix);
      Tensor rounded = zeros(4, columns, type());
      for (int64_t row = 0; row < 4; row++)
        for (int64_t i = 0; i < columns; i++) rounded.set(row, i, x.get(row, i));
      rounded.read();
      expect_near(converted, rounded.values, "converted", 0);
    }
  }
  const Tensor x = tensor(1, 100'003, Type::f32, 1, 0);
  double squares = 0;
  for (const double value : x.values) squares += value * value;
  EXPECT_NEAR(device_->sum_of_squares(x.matrix.f32(), 100'003), squares, 1e-10 * squares);
}

TEST_P(Ops, ConvertKeepsNotANumberAndInfinity) {
  Tensor x = zeros(1, 3, Type::f32), y = zeros(1, 3, Type::bf16);
  x.matrix.f32()[0] = NAN, x.matrix.f32()[1] = INFINITY,
  x.matrix.f32()[2] = __builtin_bit_cast(float, 0x7f800001u);
  device_->convert(y.matrix, x.matrix);
  EXPECT_TRUE(std::isnan(y.get(0, 0)));
  EXPECT_TRUE(std::isinf(y.get(0, 1)));
  EXPECT_TRUE(std::isnan(y.get(0, 2)));
}

TEST_P(Ops, AdamwOverThreeSteps) {
  const int64_t n = 40'003;
  Tensor master = tensor(1, n, Type::f32), first = zeros(1, n, Type::f32), second = zeros(1, n, Type::f32);
  Tensor weight = zeros(1, n, type());
  std::vector<double> w = master.values, m(w.size()), v(w.size());
  for (int step = 1; step <= 3; step++) {
    const Tensor gradient = tensor(1, n, Type::f32);
    AdamW p;
    p.learning_rate = 0.01f, p.weight_decay = 0.1f, p.step = step, p.gradient_scale = 0.5f;
    for (size_t i = 0; i < w.size(); i++) {
      const double g = gradient.values[i] * 0.5, beta1 = static_cast<double>(p.beta1),
                   beta2 = static_cast<double>(p.beta2);
      m[i] = beta1 * m[i] + (1 - beta1) * g;
      v[i] = beta2 * v[i] + (1 - beta2) * g * g;
      const double m_hat = m[i] / (1 - std::pow(beta1, step)), v_hat = v[i] / (1 - std::pow(beta2, step));
      w[i] -= 0.01 * 0.1 * w[i] + 0.01 * m_hat / (std::sqrt(v_hat) + 1e-8);
    }
    device_->adamw(master.matrix.f32(), first.matrix.f32(), second.matrix.f32(), gradient.matrix.f32(),
                   weight.matrix.data, type(), static_cast<size_t>(n), p);
  }
  expect_near(master, w, "master", 2e-6);
  expect_near(weight, w, "weight", type() == Type::f32 ? 2e-6 : 4e-3);
  AdamW p;
  device_->adamw(master.matrix.f32(), first.matrix.f32(), second.matrix.f32(), first.matrix.f32(), nullptr,
                 Type::f32, 5, p);
}

// ---- the number of threads

TEST_P(Attention, TheSameBitsOnAnyNumberOfThreads) {
  const AttentionCase a = make({2, 150, 150, 0, 0, 4, 2, 32, 0});
  const Tensor x = tensor(1500, 144, type()), y = tensor(1500, 600, type()), w = tensor(1, 144, type());
  std::vector<char> bits[3];
  for (int threads = 1; threads <= 3; threads++) {
    use_threads(threads);
    std::vector<char>& mine = bits[threads - 1];
    const auto keep = [&](const void* p, size_t bytes) {
      mine.insert(mine.end(), static_cast<const char*>(p), static_cast<const char*>(p) + bytes);
    };
    Tensor product = zeros(144, 600, Type::f32), dx = zeros(1500, 144, type()), dw = zeros(1, 144, Type::f32);
    device_->multiply(product.matrix, x.matrix, true, y.matrix, false, true);
    keep(product.matrix.data, product.memory.size());
    std::vector<float> inverse(1500, 1.0f), log_sums = statistics(a.shape), dots(log_sums.size(), 0.5f);
    device_->rms_norm_gradient(dx.matrix, false, dw.matrix.f32(), x.matrix, x.matrix, w.matrix.data,
                               inverse.data());
    keep(dw.matrix.data, dw.memory.size());
    Tensor out = zeros(300, 128, type()), dq = zeros(300, 128, Type::f32), dk = zeros(300, 64, Type::f32),
           dv = zeros(300, 64, Type::f32);
    device_->attention(out.matrix, log_sums.data(), a.q.matrix, a.k.matrix, a.v.matrix, a.shape);
    device_->attention_gradient(dq.matrix, dk.matrix, dv.matrix, a.dout.matrix, a.q.matrix, a.k.matrix,
                                a.v.matrix, log_sums.data(), dots.data(), a.shape);
    for (const Tensor* t : {&out, &dq, &dk, &dv}) keep(t->matrix.data, t->memory.size());
    const double squares = device_->sum_of_squares(product.matrix.f32(), 80'000);
    keep(&squares, sizeof squares);
  }
  EXPECT_TRUE(bits[0] == bits[1]);
  EXPECT_TRUE(bits[0] == bits[2]);
}

const auto kCases = testing::Values(Case{Type::f32, "best"}, Case{Type::bf16, "best"},
                                    Case{Type::f32, "generic"}, Case{Type::bf16, "generic"}
#if defined(__x86_64__)
                                    ,
                                    Case{Type::f32, "avx2"}, Case{Type::bf16, "avx2"}
#endif
);
const auto kName = [](const testing::TestParamInfo<Case>& info) {
  return std::string(info.param.type == Type::f32 ? "f32_" : "bf16_") + info.param.isa;
};
INSTANTIATE_TEST_SUITE_P(Cpu, Ops, kCases, kName);
INSTANTIATE_TEST_SUITE_P(Cpu, Attention, kCases, kName);

}  // namespace
}  // namespace sennit::trainer
