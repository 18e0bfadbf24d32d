// cpu_kernels_attention.hpp: attention of one head, forwards and backwards, without storing its scores
// (FlashAttention, arXiv 2205.14135), for any engine of small matrix products.
//
// Scores are kept turned: a row is a key, a column a query, so that the largest and the sum over keys go down
// columns and need nothing across a vector's lanes. With queries as columns every product is A * B of
// row-major blocks, and what one product leaves is what the next one takes:
//   scores = K * Q^T                  out^T += V^T * P          (P = exp(scale * scores - largest))
//   dP = V * dO^T                     dV += P * dO
//   dS = P * (dP - dots) * scale      dK += dS * Q              dQ^T += K^T * dS
// An Engine packs A and B (sizes padded with zeros to multiples of its tile) and multiplies:
//   Element; kRows, kColumns, kDepth (multiples of which m, n, k are);
//   pack_a / pack_b (plain, or turned), from_scores_a / from_scores_b; multiply(C, A, B, m, n, k,
//   accumulate).
// Scratch of a thread: O((block + keys) * head_size + block^2).
#pragma once

#include <cmath>

#include "cpu_kernels_vector.hpp"

namespace sennit::trainer {
namespace {

constexpr int64_t kQueryBlock = 64;  // attention()'s callers cut queries by it
constexpr int64_t kKeyBlock = 256;

SENNIT_INLINE int64_t round_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

// Takes pieces out of one reserved memory. The first pass only adds up.
class Carver {
 public:
  explicit Carver(char* memory) : memory_(memory) {}
  template <typename T>
  T* take(int64_t count) {
    T* piece = memory_ ? reinterpret_cast<T*>(memory_ + used_) : nullptr;
    used_ += (static_cast<size_t>(count) * sizeof(T) + 63) / 64 * 64;
    return piece;
  }
  size_t used() const { return used_; }

 private:
  char* memory_;
  size_t used_ = 0;
};

// Where a head's rows of a matrix begin: row 0 is the sequence's first.
struct HeadRows {
  const char* data = nullptr;
  Type type = Type::f32;
  int64_t stride = 0;
  HeadRows(const Matrix& m, int64_t first_row, int64_t head, int64_t head_size)
      : data(static_cast<const char*>(m.data) +
             static_cast<size_t>(first_row * m.stride + head * head_size) * bytes_of(m.type)),
        type(m.type),
        stride(m.stride) {}
  const void* row(int64_t i) const { return data + static_cast<size_t>(i * stride) * bytes_of(type); }
};

// Keys [0, result) are seen by the last of the queries.
SENNIT_INLINE int64_t seen_keys(const AttentionShape& shape, int64_t last_query) {
  const int64_t seen = shape.first_query + last_query - shape.first_key + 1;
  return seen < 0 ? 0 : seen > shape.keys ? shape.keys : seen;
}

// Scores of queries that stand before the key, or past the block's end, become `value`.
SENNIT_INLINE void mask_scores(float* scores, int64_t stride, int64_t first_key, int64_t keys,
                               int64_t padded_keys, int64_t first_query, int64_t padded_queries,
                               float value) {
  for (int64_t j = 0; j < padded_keys; j++) {
    int64_t hidden = j < keys ? first_key + j - first_query : padded_queries;
    if (hidden > padded_queries) hidden = padded_queries;
    for (int64_t i = 0; i < hidden; i++) scores[j * stride + i] = value;
  }
}

template <typename Engine>
void attention_block(const AttentionCall& call, int64_t sequence, int64_t query_head, int64_t first,
                     int64_t count, Scratch& scratch) {
  using Element = typename Engine::Element;
  const AttentionShape& shape = call.shape;
  const int64_t d = shape.head_size, kv_head = query_head / (shape.query_heads / shape.kv_heads);
  const int64_t d_rows = round_up(d, Engine::kRows), d_deep = round_up(d, Engine::kDepth);
  const int64_t columns = round_up(count, Engine::kColumns), unit = Engine::kKeyUnit;
  Element *keys_a = nullptr, *values_a = nullptr, *queries_b = nullptr, *weights_b = nullptr;
  float *scores = nullptr, *out = nullptr, *most = nullptr, *sums = nullptr;
  for (char* memory : {static_cast<char*>(nullptr), static_cast<char*>(scratch.memory())}) {
    Carver carver(memory);
    keys_a = carver.take<Element>(kKeyBlock * d_deep);
    values_a = carver.take<Element>(d_rows * kKeyBlock);
    queries_b = carver.take<Element>(d_deep * columns);
    weights_b = carver.take<Element>(kKeyBlock * columns);
    scores = carver.take<float>(kKeyBlock * columns);
    out = carver.take<float>(d_rows * columns);
    most = carver.take<float>(columns);
    sums = carver.take<float>(columns);
    if (carver.used() > scratch.bytes()) {
      scratch.reserve(carver.used());
      return attention_block<Engine>(call, sequence, query_head, first, count, scratch);
    }
  }
  const HeadRows q(call.q, sequence * shape.queries + first, query_head, d);
  const HeadRows k(call.k, sequence * shape.keys, kv_head, d), v(call.v, sequence * shape.keys, kv_head, d);
  Engine::pack_b_turned(queries_b, q.data, q.type, q.stride, count, d, columns, d_deep);
  std::memset(out, 0, static_cast<size_t>(d_rows * columns) * sizeof(float));
  for (int64_t i = 0; i < columns; i += kLanes) {
    store(most + i, splat(-INFINITY));
    store(sums + i, Vec{});
  }
  const int64_t end = seen_keys(shape, first + count - 1);
  for (int64_t begin = 0; begin < end; begin += kKeyBlock) {
    const int64_t keys = end - begin < kKeyBlock ? end - begin : kKeyBlock;
    const int64_t rows = round_up(keys, unit);
    Engine::pack_a(keys_a, k.row(begin), k.type, k.stride, keys, d, rows, d_deep);
    Engine::pack_a_turned(values_a, v.row(begin), v.type, v.stride, keys, d, d_rows, rows);
    Engine::multiply(scores, keys_a, queries_b, rows, columns, d_deep, false);
    mask_scores(scores, columns, shape.first_key + begin, keys, rows, shape.first_query + first, columns,
                -INFINITY);
    for (int64_t i = 0; i < columns; i += kLanes) {
      Vec top = splat(-INFINITY);
      for (int64_t j = 0; j < rows; j++) top = larger(load(scores + j * columns + i), top);
      const Vec before = load(most + i), now = larger(top * shape.scale, before);
      const Vec none = splat(-INFINITY);
      const Vec base = now == none ? Vec{} : now;  // a query that sees no key yet: e^-inf is 0, not a NaN
      const Vec shrink = exp_of(before - base);
      Vec sum = load(sums + i) * shrink;
      for (int64_t j = 0; j < rows; j++) {
        const Vec p = exp_of(load(scores + j * columns + i) * shape.scale - base);
        store(scores + j * columns + i, p);
        sum += p;
      }
      store(most + i, now);
      store(sums + i, sum);
      if (begin > 0)
        for (int64_t e = 0; e < d_rows; e++)
          store(out + e * columns + i, load(out + e * columns + i) * shrink);
    }
    const Element* weights = Engine::scores_b(weights_b, scores, rows, columns);
    Engine::multiply(out, values_a, weights, d_rows, columns, rows, true);
  }
  float* log_sums = call.log_sums + (sequence * shape.query_heads + query_head) * shape.queries + first;
  const HeadRows to(call.out, sequence * shape.queries + first, query_head, d);
  for (int64_t i = 0; i < count; i++) {
    const float inverse = sums[i] > 0 ? 1.0f / sums[i] : 0.0f;
    log_sums[i] = sums[i] > 0 ? most[i] + std::log(sums[i]) : -INFINITY;
    void* row = const_cast<void*>(to.row(i));
    each_vector(d, [&](int64_t e, auto part) {
      float lanes[kLanes] = {};
      const int64_t n = d - e < kLanes ? d - e : kLanes;
      for (int64_t lane = 0; lane < n; lane++) lanes[lane] = out[(e + lane) * columns + i] * inverse;
      if (to.type == Type::f32)
        part.put(static_cast<float*>(row) + e, load(lanes));
      else
        part.put(static_cast<Bf16*>(row) + e, load(lanes));
    });
  }
}

// Rows of `from` (stride `from_stride`) are added to a head's rows of the f32 matrix `to`.
SENNIT_INLINE void add_rows(const HeadRows& to, const float* from, int64_t from_stride, int64_t rows,
                            int64_t d) {
  for (int64_t i = 0; i < rows; i++) {
    auto* row = static_cast<float*>(const_cast<void*>(to.row(i)));
    each_vector(d, [&](int64_t e, auto part) {
      part.put(row + e, part.get(row + e) + part.get(from + i * from_stride + e));
    });
  }
}

template <typename Engine>
void attention_gradient_head(const AttentionCall& call, int64_t sequence, int64_t kv_head, Scratch& scratch) {
  using Element = typename Engine::Element;
  const AttentionShape& shape = call.shape;
  const int64_t d = shape.head_size, group = shape.query_heads / shape.kv_heads;
  const int64_t d_rows = round_up(d, Engine::kRows), d_deep = round_up(d, Engine::kDepth);
  const int64_t d_columns = round_up(d, Engine::kColumns), unit = Engine::kKeyUnit;
  const int64_t all_keys = round_up(shape.keys, unit);
  Element *keys_a = nullptr, *keys_turned = nullptr, *values_a = nullptr, *queries_b = nullptr,
          *turned_b = nullptr;
  Element *douts_b = nullptr, *douts_turned = nullptr, *block_a = nullptr, *block_b = nullptr;
  float *scores = nullptr, *slopes = nullptr, *dk = nullptr, *dv = nullptr, *dq = nullptr,
        *rows_of_dq = nullptr;
  for (char* memory : {static_cast<char*>(nullptr), static_cast<char*>(scratch.memory())}) {
    Carver carver(memory);
    keys_a = carver.take<Element>(all_keys * d_deep);
    values_a = carver.take<Element>(all_keys * d_deep);
    keys_turned = carver.take<Element>(d_rows * all_keys);
    dk = carver.take<float>(all_keys * d_columns);
    dv = carver.take<float>(all_keys * d_columns);
    queries_b = carver.take<Element>(kQueryBlock * d_columns);
    turned_b = carver.take<Element>(d_deep * kQueryBlock);
    douts_b = carver.take<Element>(kQueryBlock * d_columns);
    douts_turned = carver.take<Element>(d_deep * kQueryBlock);
    block_a = carver.take<Element>(kKeyBlock * kQueryBlock);
    block_b = carver.take<Element>(kKeyBlock * kQueryBlock);
    scores = carver.take<float>(kKeyBlock * kQueryBlock);
    slopes = carver.take<float>(kKeyBlock * kQueryBlock);
    dq = carver.take<float>(d_rows * kQueryBlock);
    rows_of_dq = carver.take<float>(kQueryBlock * d_rows);
    if (carver.used() > scratch.bytes()) {
      scratch.reserve(carver.used());
      return attention_gradient_head<Engine>(call, sequence, kv_head, scratch);
    }
  }
  const HeadRows k(call.k, sequence * shape.keys, kv_head, d), v(call.v, sequence * shape.keys, kv_head, d);
  // A block of keys each, as the products below take them.
  for (int64_t begin = 0; begin < shape.keys; begin += kKeyBlock) {
    const int64_t keys = shape.keys - begin < kKeyBlock ? shape.keys - begin : kKeyBlock;
    const int64_t rows = round_up(keys, unit);
    Engine::pack_a(keys_a + begin * d_deep, k.row(begin), k.type, k.stride, keys, d, rows, d_deep);
    Engine::pack_a(values_a + begin * d_deep, v.row(begin), v.type, v.stride, keys, d, rows, d_deep);
    Engine::pack_a_turned(keys_turned + begin * d_rows, k.row(begin), k.type, k.stride, keys, d, d_rows,
                          rows);
  }
  std::memset(dk, 0, static_cast<size_t>(all_keys * d_columns) * sizeof(float));
  std::memset(dv, 0, static_cast<size_t>(all_keys * d_columns) * sizeof(float));
  for (int64_t head = kv_head * group; head < (kv_head + 1) * group; head++) {
    const int64_t statistics = (sequence * shape.query_heads + head) * shape.queries;
    for (int64_t first = 0; first < shape.queries; first += kQueryBlock) {
      const int64_t count = shape.queries - first < kQueryBlock ? shape.queries - first : kQueryBlock;
      const int64_t end = seen_keys(shape, first + count - 1);
      if (end == 0) continue;
      const int64_t columns = round_up(count, Engine::kQueryUnit);
      const HeadRows q(call.q, sequence * shape.queries + first, head, d);
      const HeadRows dout(call.dout, sequence * shape.queries + first, head, d);
      Engine::pack_b_turned(turned_b, q.data, q.type, q.stride, count, d, columns, d_deep);
      Engine::pack_b(queries_b, q.data, q.type, q.stride, count, d, columns, d_columns);
      Engine::pack_b_turned(douts_turned, dout.data, dout.type, dout.stride, count, d, columns, d_deep);
      Engine::pack_b(douts_b, dout.data, dout.type, dout.stride, count, d, columns, d_columns);
      float log_sums[kQueryBlock] = {}, dots[kQueryBlock] = {};
      for (int64_t i = 0; i < count; i++) {
        const float value = call.log_sums[statistics + first + i];
        log_sums[i] = value == -INFINITY ? INFINITY : value;  // sees no key: all its weights are 0
        dots[i] = call.dots[statistics + first + i];
      }
      std::memset(dq, 0, static_cast<size_t>(d_rows * columns) * sizeof(float));
      for (int64_t begin = 0; begin < end; begin += kKeyBlock) {
        const int64_t keys = end - begin < kKeyBlock ? end - begin : kKeyBlock;
        // Packed with as many rows as the whole block has: the turned keys' rows are that long.
        const int64_t in_block = shape.keys - begin < kKeyBlock ? shape.keys - begin : kKeyBlock;
        const int64_t rows = round_up(in_block, unit);
        Engine::multiply(scores, keys_a + begin * d_deep, turned_b, rows, columns, d_deep, false);
        Engine::multiply(slopes, values_a + begin * d_deep, douts_turned, rows, columns, d_deep, false);
        mask_scores(scores, columns, shape.first_key + begin, keys, rows, shape.first_query + first, columns,
                    -INFINITY);
        for (int64_t i = 0; i < columns; i += kLanes) {
          const Vec log_sum = load(log_sums + i), dots_here = load(dots + i);
          for (int64_t j = 0; j < rows; j++) {
            float* score = scores + j * columns + i;
            float* slope = slopes + j * columns + i;
            const Vec p = exp_of(load(score) * shape.scale - log_sum);
            store(score, p);
            store(slope, p * (load(slope) - dots_here) * shape.scale);
          }
        }
        const Element* p_a = Engine::scores_a(block_a, scores, rows, columns);
        Engine::multiply(dv + begin * d_columns, p_a, douts_b, rows, d_columns, columns, true);
        const Element* slopes_a = Engine::scores_a(block_a, slopes, rows, columns);
        Engine::multiply(dk + begin * d_columns, slopes_a, queries_b, rows, d_columns, columns, true);
        const Element* slopes_b = Engine::scores_b(block_b, slopes, rows, columns);
        Engine::multiply(dq, keys_turned + begin * d_rows, slopes_b, d_rows, columns, rows, true);
      }
      for (int64_t i = 0; i < count; i++)
        for (int64_t e = 0; e < d; e++) rows_of_dq[i * d_rows + e] = dq[e * columns + i];
      add_rows(HeadRows(call.dq, sequence * shape.queries + first, head, d), rows_of_dq, d_rows, count, d);
    }
  }
  add_rows(HeadRows(call.dk, sequence * shape.keys, kv_head, d), dk, d_columns, shape.keys, d);
  add_rows(HeadRows(call.dv, sequence * shape.keys, kv_head, d), dv, d_columns, shape.keys, d);
}

}  // namespace
}  // namespace sennit::trainer
