// ops_test.cpp: every operation of a device but attention against the same in double
// precision, and every gradient against finite differences of that.
//
// ctest not-under-tsan: others try its threads as well
#include <numeric>

#include "tests/trainer/device/ops.hpp"

namespace sennit::trainer {
namespace {

// ---- matrix products ----

// Row by row, `transposed` turned over.
std::vector<double> plain(const Tensor& x, bool transposed, int64_t rows, int64_t columns) {
  if (!transposed) return x.values;
  std::vector<double> turned(x.values.size());
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < columns; j++)
      turned[static_cast<size_t>(i * columns + j)] = x.values[static_cast<size_t>(j * rows + i)];
  return turned;
}

std::vector<double> product(const Tensor& a, bool transpose_a, const Tensor& b, bool transpose_b,
                            int64_t m, int64_t n, int64_t k) {
  const std::vector<double> rows = plain(a, transpose_a, m, k),
                            columns = plain(b, !transpose_b, n, k);
  std::vector<double> c(static_cast<size_t>(m * n));
  for (int64_t i = 0; i < m; i++)
    for (int64_t j = 0; j < n; j++) {
      const double *row = &rows[static_cast<size_t>(i * k)],
                   *column = &columns[static_cast<size_t>(j * k)];
      c[static_cast<size_t>(i * n + j)] = std::inner_product(row, row + k, column, 0.0);
    }
  return c;
}

TEST_P(Ops, MultiplyIsTheProductInEveryForm) {
  const int64_t shapes[][3] = {{1, 1, 1},      {5, 7, 3},      {33, 17, 65},   {64, 96, 32},
                               {130, 70, 129}, {16, 1030, 40}, {1100, 48, 64}, {70, 65, 2100}};
  for (const auto& [m, n, k] : shapes)
    for (const bool transpose_a : {false, true})
      for (const bool transpose_b : {false, true}) {
        const Tensor a = transpose_a ? tensor(k, m, type()) : tensor(m, k, type());
        const Tensor b = transpose_b ? tensor(n, k, type()) : tensor(k, n, type());
        const std::vector<double> exact = product(a, transpose_a, b, transpose_b, m, n, k);
        for (const bool accumulate : {false, true})
          for (const Type out : {type(), Type::f32}) {
            Tensor c = tensor(m, n, out);
            std::vector<double> wanted = exact;
            if (accumulate)
              for (size_t i = 0; i < wanted.size(); i++) wanted[i] += c.values[i];
            device_->multiply(c.matrix, a.matrix, transpose_a, b.matrix, transpose_b, accumulate);
            const double allowed = out == Type::f32 ? 2e-5 : 1e-2;
            expect_near(c, wanted, "product", allowed);
            if (HasFailure())
              FAIL() << m << "x" << n << "x" << k << transpose_a << transpose_b << accumulate;
          }
      }
}

TEST_P(Ops, AProductOfNothingIsZero) {
  for (const Type out : {type(), Type::f32}) {
    Tensor c = tensor(3, 5, out);
    const std::vector<double> before = c.values;
    const Matrix a{nullptr, type(), 3, 0, 1}, b{nullptr, type(), 0, 5, 5};
    device_->multiply(c.matrix, a, false, b, false, true);
    expect_near(c, before, "added to", 0);
    device_->multiply(c.matrix, a, false, b, false, false);
    expect_near(c, std::vector<double>(15), "written", 0);
  }
}

// ---- RMSNorm ----

std::vector<double> rms_norm(const std::vector<double>& x, const std::vector<double>& weight,
                             double epsilon) {
  const size_t n = weight.size();
  std::vector<double> y(x.size());
  for (size_t row = 0; row < x.size() / n; row++) {
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += x[row * n + i] * x[row * n + i];
    for (size_t i = 0; i < n; i++)
      y[row * n + i] =
          x[row * n + i] / std::sqrt(sum / static_cast<double>(n) + epsilon) * weight[i];
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
    Numbers<float> inverse = floats(static_cast<size_t>(rows));
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

// ---- rotary positions ----

TEST_P(Ops, RotateTurnsPairsAndItsGradientTurnsBack) {
  const int64_t rows = 5, heads = 3;
  for (const int64_t head_size : {2, 12, 64}) {
    const int64_t half = head_size / 2, columns = heads * head_size;
    Tensor x = tensor(rows, columns, type());
    const Tensor angles = tensor(20, half, Type::f32, 2.0, 0);
    Numbers<float> cosines = floats(angles.values.size()), sines = floats(angles.values.size());
    for (size_t i = 0; i < angles.values.size(); i++) {
      cosines.host[i] = static_cast<float>(std::cos(angles.values[i]));
      sines.host[i] = static_cast<float>(std::sin(angles.values[i]));
    }
    cosines.memory->upload(cosines.host.data());
    sines.memory->upload(sines.host.data());
    const Numbers<int32_t> positions = numbers<int32_t>({3, 0, 19, 7, 7});
    const auto forward = [&] {
      std::vector<double> y(x.values.size());
      for (int64_t row = 0; row < rows; row++)
        for (int64_t head = 0; head < heads; head++)
          for (int64_t i = 0; i < half; i++) {
            const auto low = static_cast<size_t>(row * columns + head * head_size + i),
                       high = low + static_cast<size_t>(half);
            const auto turn =
                static_cast<size_t>(positions.host[static_cast<size_t>(row)] * half + i);
            y[low] = x.values[low] * cosines.host[turn] - x.values[high] * sines.host[turn];
            y[high] = x.values[high] * cosines.host[turn] + x.values[low] * sines.host[turn];
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

// ---- SwiGLU ----

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
    const Tensor y = zeros(5, columns, type()), dgate = zeros(5, columns, type()),
                 dup = zeros(5, columns, type());
    device_->swiglu(y.matrix, gate.matrix, up.matrix);
    expect_near(y, forward(), "y", tolerance(type()));
    device_->swiglu_gradient(dgate.matrix, dup.matrix, dy.matrix, gate.matrix, up.matrix);
    expect_near(dgate, differences(gate.values, dy.values, forward), "dgate", tolerance(type()));
    expect_near(dup, differences(up.values, dy.values, forward), "dup", tolerance(type()));
  }
}

// ---- embedding ----

TEST_P(Ops, EmbeddingOfAPieceOfTheVocabulary) {
  const int64_t columns = 70, first_token = 10;
  const Tensor table = tensor(6, columns, type()), dy = tensor(5, columns, type());
  const std::vector<int32_t> tokens = {12, 15, 9, 12, 16};
  const Numbers<int32_t> rows = numbers(tokens);
  Tensor y = tensor(5, columns, type()), dtable = tensor(6, columns, Type::f32);
  std::vector<double> wanted(y.values.size()), wanted_table = dtable.values;
  for (size_t row = 0; row < 5; row++)
    for (size_t i = 0; i < 70; i++)
      if (tokens[row] == 12 || tokens[row] == 15) {
        const size_t at = static_cast<size_t>(tokens[row] - first_token) * 70 + i;
        wanted[row * 70 + i] = table.values[at];
        wanted_table[at] += dy.values[row * 70 + i];
      }
  device_->embed(y.matrix, table.matrix, rows.data(), first_token);
  expect_near(y, wanted, "y", 0);
  device_->embed_gradient(dtable.matrix, rows.data(), dy.matrix, first_token);
  expect_near(dtable, wanted_table, "dtable", 1e-6);
}

// ---- cross entropy: the vocabulary in two pieces, as on two ranks ----

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
  Tensor pieces[2] = {columns(whole, 0, cut), columns(whole, cut, vocabulary - cut)};
  const Numbers<int32_t> wanted_tokens = numbers(targets);
  Numbers<float> largest = floats(6, -INFINITY), sums = floats(6);
  std::vector<float> target_logits(6);
  for (int p = 0; p < 2; p++) {
    Numbers<float> mine = floats(6);
    device_->largest_logits(mine.data(), pieces[p].matrix);
    mine.download();
    for (size_t row = 0; row < 6; row++)
      largest.host[row] = std::max(largest.host[row], mine.host[row]);
  }
  largest.memory->upload(largest.host.data());
  for (int p = 0; p < 2; p++) {
    Numbers<float> my_sums = floats(6), my_targets = floats(6);
    device_->sum_logits(my_sums.data(), my_targets.data(), pieces[p].matrix, largest.data(),
                        wanted_tokens.data(), p * cut);
    my_sums.download();
    my_targets.download();
    for (size_t row = 0; row < 6; row++) {
      sums.host[row] += my_sums.host[row];
      target_logits[row] += my_targets.host[row];
    }
  }
  sums.memory->upload(sums.host.data());
  double got = 0;
  for (size_t row = 0; row < 6; row++)
    if (targets[row] >= 0) got += std::log(sums.host[row]) + largest.host[row] - target_logits[row];
  EXPECT_NEAR(got, loss()[0], 2e-5 * loss()[0]) << "seed " << seed();
  EXPECT_EQ(target_logits[3], 0.0f);
  for (int p = 0; p < 2; p++) {
    Tensor wide = zeros(rows, pieces[p].matrix.columns, Type::f32);
    std::vector<double> wanted;
    for (int64_t row = 0; row < rows; row++)
      for (int64_t i = 0; i < pieces[p].matrix.columns; i++)
        wanted.push_back(slopes[static_cast<size_t>(row * vocabulary + i + p * cut)]);
    device_->cross_entropy_gradient(wide.matrix, pieces[p].matrix, largest.data(), sums.data(),
                                    wanted_tokens.data(), p * cut, 0.2f);
    expect_near(wide, wanted, "dlogits", 2e-5);
    device_->cross_entropy_gradient(pieces[p].matrix, pieces[p].matrix, largest.data(), sums.data(),
                                    wanted_tokens.data(), p * cut, 0.2f);
    expect_near(pieces[p], wanted, "dlogits in place", tolerance(type()));
  }
}

// ---- element by element ----

// A row of one logit: its sum is e^(logit - largest).
TEST_P(Ops, ExponentialsOverTheirWholeRange) {
  constexpr int64_t kRows = 4096;
  Tensor logits = zeros(kRows, 1, type());
  for (int64_t row = 0; row < kRows; row++)
    logits.set(row, 0, -100.0 * static_cast<double>(row) / kRows);
  logits.set(kRows - 1, 0, -INFINITY);
  logits.upload();
  const Numbers<int32_t> targets = numbers(std::vector<int32_t>(kRows, -1));
  Numbers<float> sums = floats(kRows), target_logits = floats(kRows);
  for (const float largest : {0.0f, -3.0f, 7.5f}) {
    const Numbers<float> all = floats(kRows, largest);
    device_->sum_logits(sums.data(), target_logits.data(), logits.matrix, all.data(),
                        targets.data(), 0);
    sums.download();
    for (int64_t row = 0; row < kRows; row++) {
      const double x = logits.get(row, 0) - static_cast<double>(largest);
      const double off = type() == Type::f32
                             ? 4e-7
                             : 2e-7 * (2 + std::min(200.0, std::abs(x)) + 2 * std::abs(largest));
      // From e^-87 on, numbers that are not normal may be 0.
      const double wanted = std::exp(x), allowed = wanted * off + (x < -86 ? 1e-37 : 0);
      EXPECT_NEAR(sums.host[static_cast<size_t>(row)], wanted, allowed) << x;
    }
  }
}

TEST_P(Ops, ElementByElement) {
  for (const int64_t columns : {1, 16, 45}) {
    for (const Type other : {Type::f32, Type::bf16}) {
      Tensor y = tensor(4, columns, type()), converted = zeros(4, columns, type());
      const Tensor x = tensor(4, columns, other);
      std::vector<double> sum = y.values, scaled;
      for (size_t i = 0; i < sum.size(); i++) sum[i] += x.values[i];
      device_->add(y.matrix, x.matrix);
      expect_near(y, sum, "sum", type() == Type::f32 ? 1e-6 : 4e-3);
      y.download();
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
  const uint32_t signalling = 0x7f800001u;
  x.set(0, 0, NAN);
  x.set(0, 1, INFINITY);
  std::memcpy(&x.host[2 * sizeof signalling], &signalling, sizeof signalling);
  x.upload();
  device_->convert(y.matrix, x.matrix);
  y.download();
  EXPECT_TRUE(std::isnan(y.get(0, 0)));
  EXPECT_TRUE(std::isinf(y.get(0, 1)));
  EXPECT_TRUE(std::isnan(y.get(0, 2)));
}

TEST_P(Ops, AdamwOverThreeSteps) {
  const int64_t n = 40'003;
  Tensor master = tensor(1, n, Type::f32), first = zeros(1, n, Type::f32),
         second = zeros(1, n, Type::f32);
  Tensor weight = zeros(1, n, type());
  std::vector<double> w = master.values, m(w.size()), v(w.size());
  for (int step = 1; step <= 3; step++) {
    const Tensor gradient = tensor(1, n, Type::f32);
    AdamW p;
    p.learning_rate = 0.01f;
    p.weight_decay = 0.1f;
    p.step = step;
    p.gradient_scale = 0.5f;
    for (size_t i = 0; i < w.size(); i++) {
      const double g = gradient.values[i] * 0.5, beta1 = static_cast<double>(p.beta1),
                   beta2 = static_cast<double>(p.beta2);
      m[i] = beta1 * m[i] + (1 - beta1) * g;
      v[i] = beta2 * v[i] + (1 - beta2) * g * g;
      const double m_hat = m[i] / (1 - std::pow(beta1, step)),
                   v_hat = v[i] / (1 - std::pow(beta2, step));
      w[i] -= 0.01 * 0.1 * w[i] + 0.01 * m_hat / (std::sqrt(v_hat) + 1e-8);
    }
    device_->adamw(master.matrix.f32(), first.matrix.f32(), second.matrix.f32(),
                   gradient.matrix.f32(), weight.matrix.data, type(), static_cast<size_t>(n), p);
  }
  expect_near(master, w, "master", 2e-6);
  expect_near(weight, w, "weight", type() == Type::f32 ? 2e-6 : 4e-3);
  AdamW p;
  device_->adamw(master.matrix.f32(), first.matrix.f32(), second.matrix.f32(), first.matrix.f32(),
                 nullptr, Type::f32, 5, p);
}

INSTANTIATE_TEST_SUITE_P(Devices, Ops, testing::ValuesIn(all_cases()), kName);

}  // namespace
}  // namespace sennit::trainer
