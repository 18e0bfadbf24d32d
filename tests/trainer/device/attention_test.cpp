// attention_test.cpp: attention against the same in double precision, its gradient against
// finite differences; whole sequences, chunks of them, parts that are joined; and the same bits on
// 1, 2 and 3 threads.
#include <map>

#include "tests/support/trials.hpp"
#include "tests/trainer/device/ops.hpp"

namespace sennit::trainer {
namespace {

struct AttentionCase {
  Tensor q, k, v, dout;
  AttentionShape shape;
};

// out; the log-sums too where asked for
std::vector<double> attention(const AttentionCase& a, std::vector<double>* log_sums = nullptr) {
  const AttentionShape& s = a.shape;
  const int64_t d = s.head_size, group = s.query_heads / s.kv_heads;
  std::vector<double> out(static_cast<size_t>(s.batch * s.queries * s.query_heads * d));
  if (log_sums)
    log_sums->assign(static_cast<size_t>(s.batch * s.query_heads * s.queries), -INFINITY);
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

// What is wanted of a case. It is worked out once for all devices, since a test begins with the
// same numbers on each.
struct Wanted {
  std::vector<double> out, log_sums, dq, dk, dv;
};
const Wanted& wanted_of(const AttentionCase& a, const std::function<Wanted()>& work_out) {
  static std::map<std::vector<double>, Wanted> known;  // by the queries
  const auto [at, is_new] = known.try_emplace(a.q.values);
  if (is_new) at->second = work_out();
  return at->second;
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
  Numbers<float> statistics(const AttentionShape& s) {
    return floats(static_cast<size_t>(s.batch * s.query_heads * s.queries), 7.0f);
  }
};

// Of each query of each head, dout times out, as it is stored.
std::vector<double> dots_of(const AttentionCase& a, const Tensor& stored) {
  const AttentionShape& s = a.shape;
  Tensor out = stored;
  out.download();
  std::vector<double> dots;
  for (int64_t b = 0; b < s.batch; b++)
    for (int64_t h = 0; h < s.query_heads; h++)
      for (int64_t i = 0; i < s.queries; i++) {
        double dot = 0;
        for (int64_t e = h * s.head_size; e < (h + 1) * s.head_size; e++)
          dot += a.dout.get(b * s.queries + i, e) * out.get(b * s.queries + i, e);
        dots.push_back(dot);
      }
  return dots;
}

//                        batch queries keys first_query first_key heads kv_heads head_size scale
constexpr AttentionShape kSmall[] = {{1, 1, 1, 0, 0, 1, 1, 4, 0},   {2, 5, 5, 0, 0, 2, 2, 8, 0},
                                     {1, 19, 19, 0, 0, 4, 2, 6, 0}, {2, 7, 9, 9, 0, 3, 1, 16, 0},
                                     {1, 9, 7, 4, 6, 2, 1, 5, 0},   {1, 6, 6, 0, 6, 2, 2, 4, 0}};

TEST_P(Attention, GradientIsThatOfFiniteDifferences) {
  for (const AttentionShape& shape : kSmall) {
    AttentionCase a = make(shape);
    Tensor out = zeros(a.q.matrix.rows, a.q.matrix.columns, type());
    Numbers<float> log_sums = statistics(shape), dots = statistics(shape);
    const Wanted& wanted = wanted_of(a, [&] {
      Wanted w;
      w.out = attention(a, &w.log_sums);
      const auto forward = [&] { return attention(a); };
      w.dq = differences(a.q.values, a.dout.values, forward);
      w.dk = differences(a.k.values, a.dout.values, forward);
      w.dv = differences(a.v.values, a.dout.values, forward);
      return w;
    });
    device_->attention(out.matrix, log_sums.data(), a.q.matrix, a.k.matrix, a.v.matrix, a.shape);
    expect_near(out, wanted.out, "out", tolerance(type()));
    expect_near(log_sums, wanted.log_sums, "log_sums", tolerance(type()));

    device_->attention_dots(dots.data(), a.dout.matrix, out.matrix, a.shape);
    expect_near(dots, dots_of(a, out), "dots", tolerance(Type::f32));
    // Where `out` is bfloat16 the terms of a dot are off by up to a 512th of themselves, and what
    // such dots are subtracted from may be as small. So a gradient's own error is asked for with
    // dots of `out` as it was before it was rounded.
    Tensor exact = zeros(a.q.matrix.rows, a.q.matrix.columns, Type::f32);
    device_->attention(exact.matrix, log_sums.data(), a.q.matrix, a.k.matrix, a.v.matrix, a.shape);
    device_->attention_dots(dots.data(), a.dout.matrix, exact.matrix, a.shape);
    const std::vector<double>* const slopes[] = {&wanted.dq, &wanted.dk, &wanted.dv};
    for (const bool accumulate : {true, false}) {
      const Type written = accumulate ? Type::f32 : type();
      Tensor gradients[] = {tensor(out.matrix.rows, out.matrix.columns, written),
                            tensor(a.k.matrix.rows, a.k.matrix.columns, written),
                            tensor(a.k.matrix.rows, a.k.matrix.columns, written)};
      auto& [dq, dk, dv] = gradients;
      device_->attention_gradient(dq.matrix, dk.matrix, dv.matrix, accumulate, a.dout.matrix,
                                  a.q.matrix, a.k.matrix, a.v.matrix, log_sums.data(), dots.data(),
                                  a.shape);
      for (size_t n = 0; n < 3; n++) {
        std::vector<double> sum = *slopes[n];
        if (accumulate)
          for (size_t i = 0; i < sum.size(); i++) sum[i] += gradients[n].values[i];
        expect_near(gradients[n], sum, std::array{"dq", "dk", "dv"}[n], tolerance(type()), 0.1);
      }
    }
  }
}

// The gradient in double by formula, for finite differences of a long sequence would take minutes.
Wanted by_formula(const AttentionCase& a) {
  const AttentionShape& s = a.shape;
  const int64_t d = s.head_size, group = s.query_heads / s.kv_heads;
  Wanted wanted;
  wanted.out = attention(a, &wanted.log_sums);
  wanted.dq.assign(a.q.values.size(), 0);
  wanted.dk.assign(a.k.values.size(), 0);
  wanted.dv.assign(a.v.values.size(), 0);
  for (int64_t b = 0; b < s.batch; b++)
    for (int64_t h = 0; h < s.query_heads; h++)
      for (int64_t i = 0; i < s.queries; i++) {
        const auto q = static_cast<size_t>((b * s.queries + i) * s.query_heads * d + h * d);
        const double log_sum =
            wanted.log_sums[static_cast<size_t>((b * s.query_heads + h) * s.queries + i)];
        double dots = 0;
        for (size_t e = 0; e < static_cast<size_t>(d); e++)
          dots += a.dout.values[q + e] * wanted.out[q + e];
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
            wanted.dv[k + e] += p * a.dout.values[q + e];
            wanted.dk[k + e] += slope * a.q.values[q + e];
            wanted.dq[q + e] += slope * a.k.values[k + e];
          }
        }
      }
  return wanted;
}

TEST_P(Attention, LongSequencesAndChunksOfThem) {
  // More than a block of 64 queries or 128 keys, and the first than a part of 512 queries. The
  // loops of this test in double take minutes for the long ones where nothing is optimised.
  const std::vector<AttentionShape> shapes =
      sennit_test::kSanitized ? std::vector<AttentionShape>{{1, 530, 140, 0, 0, 2, 1, 16, 0},
                                                            {2, 70, 150, 100, 10, 2, 1, 32, 0},
                                                            {1, 70, 140, 1000, 0, 1, 1, 80, 0},
                                                            {1, 70, 65, 40, 60, 1, 1, 128, 0}}
                              : std::vector<AttentionShape>{{1, 600, 600, 0, 0, 2, 1, 64, 0},
                                                            {2, 130, 300, 200, 10, 4, 2, 32, 0},
                                                            {1, 70, 530, 1000, 0, 2, 2, 80, 0},
                                                            {1, 257, 65, 40, 60, 1, 1, 128, 0}};
  for (const AttentionShape& shape : shapes) {
    AttentionCase a = make(shape);
    Tensor out = zeros(a.q.matrix.rows, a.q.matrix.columns, Type::f32);
    Numbers<float> log_sums = statistics(shape), dots = statistics(shape);
    const Wanted& wanted = wanted_of(a, [&a] { return by_formula(a); });
    device_->attention(out.matrix, log_sums.data(), a.q.matrix, a.k.matrix, a.v.matrix, a.shape);
    expect_near(out, wanted.out, "out", tolerance(type()));
    expect_near(log_sums, wanted.log_sums, "log_sums", tolerance(type()));
    device_->attention_dots(dots.data(), a.dout.matrix, out.matrix, a.shape);
    Tensor dq = zeros(out.matrix.rows, out.matrix.columns, type());
    Tensor dk = zeros(a.k.matrix.rows, a.k.matrix.columns, type()),
           dv = zeros(a.k.matrix.rows, a.k.matrix.columns, type());
    device_->attention_gradient(dq.matrix, dk.matrix, dv.matrix, false, a.dout.matrix, a.q.matrix,
                                a.k.matrix, a.v.matrix, log_sums.data(), dots.data(), a.shape);
    expect_near(dq, wanted.dq, "dq", tolerance(type()));
    expect_near(dk, wanted.dk, "dk", tolerance(type()));
    expect_near(dv, wanted.dv, "dv", tolerance(type()));
  }
}

// Queries 20 ... 59 of a sequence, its keys in three chunks in any order, one of which no query
// sees.
TEST_P(Attention, PartsOverChunksOfKeysJoinToTheWhole) {
  const AttentionCase whole = make({2, 40, 80, 20, 0, 4, 2, 16, 0});
  Tensor out = zeros(80, 64, Type::f32);
  Numbers<float> log_sums = statistics(whole.shape);
  bool first = true;
  for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{60, 80}, {31, 60}, {0, 31}}) {
    AttentionShape part = whole.shape;
    part.first_key = begin;
    part.keys = end - begin;
    Tensor k = zeros(2 * part.keys, 32, type()), v = zeros(2 * part.keys, 32, type());
    for (int64_t row = 0; row < 2 * part.keys; row++)
      for (int64_t column = 0; column < 32; column++) {
        const int64_t from = row / part.keys * 80 + begin + row % part.keys;
        k.set(row, column, whole.k.get(from, column));
        v.set(row, column, whole.v.get(from, column));
      }
    k.upload();
    v.upload();
    Tensor mine = zeros(80, 64, first ? Type::f32 : type());
    const Numbers<float> sums = statistics(part);
    device_->attention(first ? out.matrix : mine.matrix, first ? log_sums.data() : sums.data(),
                       whole.q.matrix, k.matrix, v.matrix, part);
    if (!first)
      device_->attention_join(out.matrix, log_sums.data(), mine.matrix, sums.data(), part);
    first = false;
  }
  std::vector<double> wanted_sums;
  const std::vector<double> wanted = attention(whole, &wanted_sums);
  expect_near(out, wanted, "joined", tolerance(type()));
  expect_near(log_sums, wanted_sums, "log_sums", tolerance(type()));
}

TEST_P(Attention, TheSameBitsOnAnyNumberOfThreads) {
  const AttentionCase first = make({2, 150, 150, 0, 0, 4, 2, 32, 0});
  const Tensor first_x = tensor(1500, 144, type()), first_y = tensor(1500, 600, type()),
               first_w = tensor(1, 144, type());
  std::vector<char> bits[3];
  for (int threads = 1; threads <= 3; threads++) {
    use_threads(threads);
    const AttentionCase a = {again(first.q), again(first.k), again(first.v), again(first.dout),
                             first.shape};
    const Tensor x = again(first_x), y = again(first_y), w = again(first_w);
    std::vector<char>& mine = bits[threads - 1];
    const auto keep = [&](Tensor& t) {
      t.download();
      mine.insert(mine.end(), t.host.begin(), t.host.end());
    };
    Tensor product = zeros(144, 600, Type::f32), dx = zeros(1500, 144, type()),
           dw = zeros(1, 144, Type::f32);
    device_->multiply(product.matrix, x.matrix, true, y.matrix, false, true);
    keep(product);
    const Numbers<float> inverse = floats(1500, 1.0f), log_sums = statistics(a.shape),
                         dots = floats(log_sums.host.size(), 0.5f);
    device_->rms_norm_gradient(dx.matrix, false, dw.matrix.f32(), x.matrix, x.matrix, w.matrix.data,
                               inverse.data());
    keep(dw);
    Tensor out = zeros(300, 128, type()), dq = zeros(300, 128, Type::f32),
           dk = zeros(300, 64, Type::f32), dv = zeros(300, 64, Type::f32);
    device_->attention(out.matrix, log_sums.data(), a.q.matrix, a.k.matrix, a.v.matrix, a.shape);
    device_->attention_gradient(dq.matrix, dk.matrix, dv.matrix, true, a.dout.matrix, a.q.matrix,
                                a.k.matrix, a.v.matrix, log_sums.data(), dots.data(), a.shape);
    for (Tensor* t : {&out, &dq, &dk, &dv}) keep(*t);
    const double squares = device_->sum_of_squares(product.matrix.f32(), 80'000);
    const auto* const bytes = reinterpret_cast<const char*>(&squares);
    mine.insert(mine.end(), bytes, bytes + sizeof squares);
  }
  EXPECT_TRUE(bits[0] == bits[1]);
  EXPECT_TRUE(bits[0] == bits[2]);
}

INSTANTIATE_TEST_SUITE_P(Devices, Attention, testing::ValuesIn(all_cases()), kName);

}  // namespace
}  // namespace sennit::trainer
