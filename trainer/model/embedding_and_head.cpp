// embedding_and_head.cpp: see trainer/model/embedding_and_head.hpp.
#include "trainer/model/embedding_and_head.hpp"

#include <algorithm>
#include <cmath>

namespace sennit::trainer {
namespace {

// The final norm of x, all rows; own rows are kept too.
struct Normed {
  PooledMatrix inverse_rms, own, all;
  Matrix rows() const { return all ? all : own; }
};
Normed final_norm(Environment& e, Matrix x) {
  Normed normed;
  normed.inverse_rms = e.pool.take_f32(x.rows);
  normed.own = e.take(x.rows, x.columns);
  e.device.rms_norm(normed.own, normed.inverse_rms->f32(), x,
                    e.parameters.weights(e.parameters.layout().final_norm), e.model.norm_epsilon);
  e.gather_rows(normed.own, &normed.all);
  e.see("model.norm", normed.rows());
  return normed;
}

}  // namespace

PooledMatrix embed_forward(Environment& e, const int32_t* tokens) {
  const ParameterLayout& layout = e.parameters.layout();
  PooledMatrix partial = e.take(e.rows(), e.model.hidden);
  e.device.embed(partial, e.parameters.matrix(layout.embedding, layout.vocabulary, e.model.hidden),
                 tokens, layout.first_token);
  PooledMatrix x = e.scatter_rows(std::move(partial));
  e.see("model.embed_tokens", x);
  return x;
}

void embed_backward(Environment& e, const int32_t* tokens, Matrix dx) {
  const ParameterLayout& layout = e.parameters.layout();
  PooledMatrix memory;
  const Matrix all = e.gather_rows(dx, &memory);
  e.device.embed_gradient(
      e.parameters.gradient_matrix(layout.embedding, layout.vocabulary, e.model.hidden), tokens,
      all, layout.first_token);
}

Head head(Environment& e, Matrix x, const int32_t* targets, bool gradient, float scale) {
  Device& device = e.device;
  const ParameterLayout& layout = e.parameters.layout();
  const Normed normed = final_norm(e, x);
  const Matrix table = e.parameters.matrix(layout.output_layer, layout.vocabulary, e.model.hidden);
  const auto bytes = static_cast<int64_t>(bytes_of(e.type));
  const int64_t at_once =
      std::clamp<int64_t>(kLogitBytes / (bytes * layout.vocabulary), 1, e.rows());
  Head result;
  PooledMatrix dnormed;
  if (gradient) dnormed = e.take(e.rows(), e.model.hidden);
  std::vector<float> host(static_cast<size_t>(3 * at_once));
  for (int64_t first = 0; first < e.rows(); first += at_once) {
    const int64_t rows = std::min(at_once, e.rows() - first);
    const Matrix some = rows_of(normed.rows(), first, rows);
    const PooledMatrix logits = e.take(rows, layout.vocabulary);
    device.multiply(logits, some, false, table, true, false);
    e.see("lm_head", logits);
    // The largest, the sum of exponentials, the target's logit.
    PooledMatrix sums = e.pool.take_f32(3 * rows);
    float* const largest = sums->f32();
    float* const exponentials = largest + rows;
    device.largest_logits(largest, logits);
    e.mesh.tensor->all_reduce(largest, static_cast<size_t>(rows), Element::f32, Reduction::max)
        .wait();
    device.sum_logits(exponentials, exponentials + rows, logits, largest, targets + first,
                      layout.first_token);
    e.mesh.tensor->all_reduce(exponentials, static_cast<size_t>(2 * rows), Element::f32).wait();
    device.download(host.data(), largest, static_cast<size_t>(3 * rows) * 4);
    std::vector<int32_t> wanted(static_cast<size_t>(rows));
    device.download(wanted.data(), targets + first, wanted.size() * sizeof(int32_t));
    for (size_t i = 0; i < wanted.size(); i++) {
      const auto n = static_cast<size_t>(rows);
      if (wanted[i] >= 0)
        result.loss += std::log(static_cast<double>(host[n + i])) + static_cast<double>(host[i]) -
                       static_cast<double>(host[2 * n + i]);
    }
    if (!gradient) continue;
    const Matrix dlogits = logits;  // in their place
    device.cross_entropy_gradient(dlogits, logits, largest, exponentials, targets + first,
                                  layout.first_token, scale);
    device.multiply(rows_of(dnormed, first, rows), dlogits, false, table, false, false);
    device.multiply(
        e.parameters.gradient_matrix(layout.output_layer, layout.vocabulary, e.model.hidden),
        dlogits, true, some, false, true);
    e.mesh.world->traffic().poll();
  }
  if (!gradient) return result;
  const PooledMatrix own = e.scatter_rows(std::move(dnormed));
  result.dx = e.take(x.rows, x.columns);
  device.rms_norm_gradient(result.dx, false, e.parameters.gradient(layout.final_norm), own, x,
                           e.parameters.weights(layout.final_norm), normed.inverse_rms->f32());
  return result;
}

std::vector<float> logits_of_row(Environment& e, Matrix x, int64_t row) {
  const ParameterLayout& layout = e.parameters.layout();
  const Normed normed = final_norm(e, x);
  const Matrix table = e.parameters.matrix(layout.output_layer, layout.vocabulary, e.model.hidden);
  PooledMatrix part = e.pool.take(Type::f32, 1, layout.vocabulary);
  e.device.multiply(part, rows_of(normed.rows(), row, 1), false, table, true, false);
  PooledMatrix whole = e.pool.take_f32(e.model.vocabulary);
  e.mesh.tensor
      ->all_gather(part->data, whole->data, static_cast<size_t>(layout.vocabulary), Element::f32)
      .wait();
  std::vector<float> logits(static_cast<size_t>(e.model.vocabulary));
  e.device.download(logits.data(), whole->data, logits.size() * 4);
  return logits;
}

}  // namespace sennit::trainer
