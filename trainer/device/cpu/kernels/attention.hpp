// attention.hpp: attention of one head, forwards and backwards, without storing its scores
// (FlashAttention, arXiv 2205.14135), for any engine of small matrix products.
//
// Scores are kept turned: a row is a key, a column a query, so that the largest and the sum over
// keys go down columns and need nothing across a vector's lanes. With queries as columns every
// product is A * B of row-major blocks, and what one product leaves is what the next one takes:
//   scores = K * Q^T                  out^T += V^T * P          (P = exp(scale * scores - largest))
//   dP = V * dO^T                     dV += P * dO
//   dS = P * (dP - dots) * scale      dK += dS * Q              dQ^T += K^T * dS
// Keys and values are packed once for all queries and all query heads that share them. An Engine
// packs A and B, sizes padded with zeros to multiples of kUnit, and multiplies; of a head's
// elements only as many as make a multiple of kProductUnit, where they are rows of A or summed
// over:
//   Element
//   pack_a, pack_b   the operand, or its transpose, out of a matrix
//   put_a, put_b     two rows by 32 columns of an operand out of registers
//   multiply         C = or += A * B; C in rows of n, A packed with a_k >= k columns
//   turn             16 x 16
// Scratch of a thread: O((block + keys) * head_size + block^2).
#pragma once

#include <cmath>

#include "trainer/device/cpu/kernels/vector.hpp"

namespace sennit::trainer {
namespace {

constexpr int64_t kQueryBlock = 64, kKeyBlock = 128;  // their scores stay in the first cache

// The least multiple of `unit` that is not below n.
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
  const void* row(int64_t i) const {
    return data + static_cast<size_t>(i * stride) * bytes_of(type);
  }
};

// Keys [0, result) are seen by the last of the queries.
SENNIT_INLINE int64_t seen_keys(const AttentionShape& shape, int64_t last_query) {
  const int64_t seen = shape.first_query + last_query - shape.first_key + 1;
  return seen < 0 ? 0 : seen > shape.keys ? shape.keys : seen;
}

// Scores of queries that stand before the key, or of keys past the block's end, become -infinity.
SENNIT_INLINE void mask_scores(float* scores, int64_t columns, int64_t first_key, int64_t keys,
                               int64_t padded_keys, int64_t first_query) {
  const int64_t all_see = first_query - first_key + 1;  // keys before this one
  for (int64_t j = all_see < 0 ? 0 : all_see < keys ? all_see : keys; j < padded_keys; j++) {
    int64_t hidden = j < keys ? first_key + j - first_query : columns;
    if (hidden > columns) hidden = columns;
    each_vector(hidden, [&](int64_t i, auto part) {
      part.put(scores + j * columns + i, splat(-INFINITY));
    });
  }
}

// A head's keys and values as both passes need them; `turned` is K^T (gradient) or V^T (forwards).
template <typename Element>
struct PackedKeys {
  Element *keys = nullptr, *values = nullptr, *turned = nullptr;
};

// A head's keys [0, all_keys) and their values, d elements each, by blocks of kKeyBlock keys: a
// block that begins at key b lies at b * round_up(d, kUnit). turn_values: `turned` is V^T, else
// K^T. Values are packed where there is room for them (to.values).
template <typename Engine>
void pack_keys(const PackedKeys<typename Engine::Element>& to, const HeadRows& k, const HeadRows& v,
               bool turn_values, int64_t all_keys, int64_t d) {
  const int64_t d_padded = round_up(d, Engine::kUnit);
  for (int64_t begin = 0; begin < all_keys; begin += kKeyBlock) {
    const int64_t keys = all_keys - begin < kKeyBlock ? all_keys - begin : kKeyBlock,
                  at = begin * d_padded;
    const HeadRows& turned = turn_values ? v : k;
    Engine::pack_a(to.keys + at, k.row(begin), k.type, k.stride, false, keys, d);
    if (to.values) Engine::pack_a(to.values + at, v.row(begin), v.type, v.stride, false, keys, d);
    Engine::pack_a(to.turned + at, turned.row(begin), turned.type, turned.stride, true, d, keys);
  }
}

// Rows of a head out of columns: to[i][e] = or += from[e][i] * factors[i].
template <typename Engine>
void write_rows(const HeadRows& to, const float* from, int64_t from_stride, const float* factors,
                int64_t rows, int64_t d, bool accumulate) {
  alignas(64) float block[kLanes * kLanes];
  for (int64_t i = 0; i < rows; i += kLanes)
    for (int64_t e = 0; e < d; e += kLanes) {
      Engine::turn(block, from + e * from_stride + i, from_stride);
      const int64_t here = rows - i < kLanes ? rows - i : kLanes;
      for (int64_t r = 0; r < here; r++) {
        const Vec value = load(block + r * kLanes) * (factors ? factors[i + r] : 1.0f);
        void* row = const_cast<void*>(to.row(i + r));
        const auto put = [&](auto* p, auto part) {
          part.put(p, accumulate ? part.get(p) + value : value);
        };
        const auto typed_put = [&](auto part) {
          if (to.type == Type::f32)
            put(static_cast<float*>(row) + e, part);
          else
            put(static_cast<Bf16*>(row) + e, part);
        };
        if (d - e >= kLanes)
          typed_put(Whole{});
        else
          typed_put(FirstLanes{d - e});
      }
    }
}

// A thread's memory in the forward pass: all keys of the head, and of one block the queries (Q^T),
// weights (P), scores and sums (out^T).
template <typename Engine>
struct ForwardScratch {
  using Element = typename Engine::Element;
  PackedKeys<Element> packed;
  Element *queries = nullptr, *weights = nullptr;
  float *scores = nullptr, *out = nullptr;
};

// One block of queries of one head against all keys.
template <typename Engine>
void attention_block(const AttentionCall& call, const ForwardScratch<Engine>& s, int64_t sequence,
                     int64_t head, int64_t first, int64_t count) {
  const AttentionShape& shape = call.shape;
  const int64_t d = shape.head_size, d_padded = round_up(d, Engine::kUnit),
                multiplied = round_up(d, Engine::kProductUnit),
                columns = round_up(count, Engine::kUnit);
  const HeadRows q(call.q, sequence * shape.queries + first, head, d);
  alignas(64) float most[kQueryBlock], sums[kQueryBlock], inverse[kQueryBlock];
  Engine::pack_b(s.queries, q.data, q.type, q.stride, true, d, count);
  std::memset(s.out, 0, static_cast<size_t>(d_padded * columns) * sizeof(float));
  for (int64_t i = 0; i < columns; i += kLanes) {
    store(most + i, splat(-INFINITY));
    store(sums + i, Vec{});
  }
  const int64_t end = seen_keys(shape, first + count - 1);
  for (int64_t begin = 0; begin < end; begin += kKeyBlock) {
    const int64_t keys = end - begin < kKeyBlock ? end - begin : kKeyBlock;
    const int64_t rows = round_up(keys, Engine::kUnit);
    // As many as were packed together: the turned values' rows are that long.
    const int64_t together =
        round_up(shape.keys - begin < kKeyBlock ? shape.keys - begin : kKeyBlock, Engine::kUnit);
    Engine::multiply(s.scores, s.packed.keys + begin * d_padded, s.queries, rows, columns,
                     multiplied, d_padded, false);
    mask_scores(s.scores, columns, shape.first_key + begin, keys, rows, shape.first_query + first);
    for (int64_t i = 0; i < columns; i += 2 * kLanes) {
      Vec top[2] = {splat(-INFINITY), splat(-INFINITY)}, base[2], sum[2] = {};
      for (int64_t j = 0; j < rows; j++)
        for (int64_t half = 0; half < 2; half++)
          top[half] = larger(load(s.scores + j * columns + i + half * kLanes), top[half]);
      for (int64_t half = 0; half < 2; half++) {
        const int64_t at = i + half * kLanes;
        const Vec before = load(most + at), now = larger(top[half] * shape.scale, before);
        // it sees no key yet: e^-inf is 0, not a NaN
        base[half] = now == splat(-INFINITY) ? Vec{} : now;
        const Vec shrink = exp_of(before - base[half]);
        store(most + at, now);
        store(sums + at, load(sums + at) * shrink);
        if (begin > 0)
          for (int64_t e = 0; e < d; e++)
            store(s.out + e * columns + at, load(s.out + e * columns + at) * shrink);
      }
      for (int64_t j = 0; j < rows; j += 2) {
        Vec p[2][2];
        for (int64_t row = 0; row < 2; row++)
          for (int64_t half = 0; half < 2; half++) {
            p[row][half] = exp_as<typename Engine::Element>(
                load(s.scores + (j + row) * columns + i + half * kLanes), shape.scale, base[half]);
            sum[half] += p[row][half];
          }
        Engine::put_b(s.weights, rows, columns, j, i, p);
      }
      for (int64_t half = 0; half < 2; half++)
        store(sums + i + half * kLanes, load(sums + i + half * kLanes) + sum[half]);
    }
    Engine::multiply(s.out, s.packed.turned + begin * d_padded, s.weights, multiplied, columns,
                     rows, together, true);
  }
  float* log_sums = call.log_sums + (sequence * shape.query_heads + head) * shape.queries + first;
  for (int64_t i = 0; i < count; i++) {
    inverse[i] = sums[i] > 0 ? 1.0f / sums[i] : 0.0f;
    log_sums[i] = sums[i] > 0 ? most[i] + std::log(sums[i]) : -INFINITY;
  }
  write_rows<Engine>(HeadRows(call.out, sequence * shape.queries + first, head, d), s.out, columns,
                     inverse, count, d, false);
}

// Queries [first, first + count) of all heads that share a key/value head.
template <typename Engine>
void attention_of_head(const AttentionCall& call, int64_t sequence, int64_t kv_head, int64_t first,
                       int64_t count, CpuScratch& scratch) {
  using Element = typename Engine::Element;
  const AttentionShape& shape = call.shape;
  const int64_t d = shape.head_size, d_padded = round_up(d, Engine::kUnit),
                group = shape.query_heads / shape.kv_heads;
  const int64_t keys = seen_keys(shape, first + count - 1), all_keys = round_up(keys, kKeyBlock);
  ForwardScratch<Engine> s;
  for (char* memory : {static_cast<char*>(nullptr), static_cast<char*>(scratch.memory())}) {
    Carver carver(memory);
    s.packed.keys = carver.take<Element>(all_keys * d_padded);
    s.packed.turned = carver.take<Element>(all_keys * d_padded);
    s.queries = carver.take<Element>(d_padded * kQueryBlock);
    s.weights = carver.take<Element>(kKeyBlock * kQueryBlock);
    s.scores = carver.take<float>(kKeyBlock * kQueryBlock);
    s.out = carver.take<float>(d_padded * kQueryBlock);
    if (carver.used() > scratch.bytes()) {
      scratch.reserve(carver.used());
      return attention_of_head<Engine>(call, sequence, kv_head, first, count, scratch);
    }
  }
  AttentionCall seen = call;
  seen.shape.keys = keys;
  const int64_t first_key = sequence * shape.keys;
  pack_keys<Engine>(s.packed, HeadRows(call.k, first_key, kv_head, d),
                    HeadRows(call.v, first_key, kv_head, d), true, keys, d);
  for (int64_t head = kv_head * group; head < (kv_head + 1) * group; head++)
    for (int64_t begin = first; begin < first + count; begin += kQueryBlock)
      attention_block<Engine>(
          seen, s, sequence, head, begin,
          first + count - begin < kQueryBlock ? first + count - begin : kQueryBlock);
}

}  // namespace
}  // namespace sennit::trainer
