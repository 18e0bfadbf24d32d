// attention_gradient.hpp: the backward pass of trainer/device/cpu/kernels/attention.hpp: scores are
// worked out again, block by block; dk and dv of a key/value head gather in scratch over all
// queries that share it.
#pragma once

#include "trainer/device/cpu/kernels/attention.hpp"

namespace sennit::trainer {
namespace {

// A thread's memory in the backward pass: keys, values, dk and dv of all keys of the head, else of
// one block. As operands weights_a is P, slopes_a and slopes_b are dS; `slopes` is dP.
template <typename Engine>
struct GradientScratch {
  using Element = typename Engine::Element;
  PackedKeys<Element> packed;
  Element *queries = nullptr, *queries_turned = nullptr, *douts = nullptr, *douts_turned = nullptr;
  Element *weights_a = nullptr, *slopes_a = nullptr, *slopes_b = nullptr;
  float *scores = nullptr, *slopes = nullptr, *dk = nullptr, *dv = nullptr, *dq = nullptr;
};

// weights and slopes of a block, as operands, out of its scores and the products of dout and
// values.
template <typename Engine>
SENNIT_INLINE void make_slopes(const GradientScratch<Engine>& s, int64_t rows, int64_t columns,
                               const float* log_sums, const float* dots, float scale) {
  for (int64_t i = 0; i < columns; i += 2 * kLanes) {
    const Vec log_sum[2] = {load(log_sums + i), load(log_sums + i + kLanes)};
    const Vec dot_here[2] = {load(dots + i), load(dots + i + kLanes)};
    for (int64_t j = 0; j < rows; j += 2) {
      Vec p[2][2], slope[2][2];
      for (int64_t row = 0; row < 2; row++)
        for (int64_t half = 0; half < 2; half++) {
          const int64_t at = (j + row) * columns + i + half * kLanes;
          p[row][half] =
              exp_as<typename Engine::Element>(load(s.scores + at), scale, log_sum[half]);
          slope[row][half] = p[row][half] * (load(s.slopes + at) - dot_here[half]) * scale;
        }
      Engine::put_a(s.weights_a, rows, columns, j, i, p);
      Engine::put_a(s.slopes_a, rows, columns, j, i, slope);
      Engine::put_b(s.slopes_b, rows, columns, j, i, slope);
    }
  }
}

// One block of queries of one head, at least one of which sees a key: its dq goes to call.dq, and
// what it adds to dk and dv to s.dk and s.dv.
template <typename Engine>
void gradient_block(const AttentionCall& call, const GradientScratch<Engine>& s, int64_t sequence,
                    int64_t head, int64_t first, int64_t count) {
  const AttentionShape& shape = call.shape;
  const int64_t d = shape.head_size, d_padded = round_up(d, Engine::kUnit),
                multiplied = round_up(d, Engine::kProductUnit),
                columns = round_up(count, Engine::kUnit);
  const int64_t end = seen_keys(shape, first + count - 1);
  const HeadRows q(call.q, sequence * shape.queries + first, head, d);
  const HeadRows dout(call.dout, sequence * shape.queries + first, head, d);
  Engine::pack_b(s.queries_turned, q.data, q.type, q.stride, true, d, count);
  Engine::pack_b(s.queries, q.data, q.type, q.stride, false, count, d);
  Engine::pack_b(s.douts_turned, dout.data, dout.type, dout.stride, true, d, count);
  Engine::pack_b(s.douts, dout.data, dout.type, dout.stride, false, count, d);
  alignas(64) float log_sums[kQueryBlock] = {}, dots[kQueryBlock] = {};
  const int64_t statistics = (sequence * shape.query_heads + head) * shape.queries + first;
  for (int64_t i = 0; i < count; i++) {
    const float value = call.log_sums[statistics + i];
    log_sums[i] = value == -INFINITY ? INFINITY : value;  // sees no key: all its weights are 0
    dots[i] = call.dots[statistics + i];
  }
  for (int64_t begin = 0; begin < end; begin += kKeyBlock) {
    const int64_t keys = end - begin < kKeyBlock ? end - begin : kKeyBlock, at = begin * d_padded;
    const int64_t rows = round_up(keys, Engine::kUnit);
    const int64_t together =
        round_up(shape.keys - begin < kKeyBlock ? shape.keys - begin : kKeyBlock, Engine::kUnit);
    Engine::multiply(s.scores, s.packed.keys + at, s.queries_turned, rows, columns, multiplied,
                     d_padded, false);
    Engine::multiply(s.slopes, s.packed.values + at, s.douts_turned, rows, columns, multiplied,
                     d_padded, false);
    mask_scores(s.scores, columns, shape.first_key + begin, keys, rows, shape.first_query + first);
    make_slopes<Engine>(s, rows, columns, log_sums, dots, shape.scale);
    Engine::multiply(s.dv + at, s.weights_a, s.douts, rows, d_padded, columns, columns, true);
    Engine::multiply(s.dk + at, s.slopes_a, s.queries, rows, d_padded, columns, columns, true);
    Engine::multiply(s.dq, s.packed.turned + at, s.slopes_b, multiplied, columns, rows, together,
                     begin > 0);
  }
  write_rows<Engine>(HeadRows(call.dq, sequence * shape.queries + first, head, d), s.dq, columns,
                     nullptr, count, d, call.accumulate);
}

// A head's rows: rows of `from`, `sums` of them, then zeros; or those are added.
inline void write_sums(const HeadRows& to, const float* from, int64_t from_stride, int64_t sums,
                       int64_t rows, int64_t d, bool accumulate) {
  for (int64_t i = 0; i < (accumulate ? sums : rows); i++)
    typed(const_cast<void*>(to.row(i)), to.type, [&](auto* row) {
      each_vector(d, [&](int64_t e, auto part) {
        const Vec sum = i < sums ? part.get(from + i * from_stride + e) : Vec{};
        part.put(row + e, accumulate ? part.get(row + e) + sum : sum);
      });
    });
}

// dq of all heads that share a key/value head, and that head's dk and dv: written, or added to. A
// query that sees no key has 0, and so has a key that none sees.
template <typename Engine>
void attention_gradient_of_head(const AttentionCall& call, int64_t sequence, int64_t kv_head,
                                CpuScratch& scratch) {
  using Element = typename Engine::Element;
  const AttentionShape& shape = call.shape;
  const int64_t d = shape.head_size, d_padded = round_up(d, Engine::kUnit),
                group = shape.query_heads / shape.kv_heads;
  const int64_t keys = seen_keys(shape, shape.queries - 1), all_keys = round_up(keys, kKeyBlock);
  GradientScratch<Engine> s;
  for (char* memory : {static_cast<char*>(nullptr), static_cast<char*>(scratch.memory())}) {
    Carver carver(memory);
    for (Element** packed : {&s.packed.keys, &s.packed.values, &s.packed.turned})
      *packed = carver.take<Element>(all_keys * d_padded);
    for (float** sum : {&s.dk, &s.dv}) *sum = carver.take<float>(all_keys * d_padded);
    for (Element** operand : {&s.queries, &s.queries_turned, &s.douts, &s.douts_turned})
      *operand = carver.take<Element>(kQueryBlock * d_padded);
    for (Element** operand : {&s.weights_a, &s.slopes_a, &s.slopes_b})
      *operand = carver.take<Element>(kKeyBlock * kQueryBlock);
    for (float** block : {&s.scores, &s.slopes})
      *block = carver.take<float>(kKeyBlock * kQueryBlock);
    s.dq = carver.take<float>(d_padded * kQueryBlock);
    if (carver.used() > scratch.bytes()) {
      scratch.reserve(carver.used());
      return attention_gradient_of_head<Engine>(call, sequence, kv_head, scratch);
    }
  }
  AttentionCall seen = call;
  seen.shape.keys = keys;
  const int64_t first_key = sequence * shape.keys;
  pack_keys<Engine>(s.packed, HeadRows(call.k, first_key, kv_head, d),
                    HeadRows(call.v, first_key, kv_head, d), false, keys, d);
  for (float* sum : {s.dk, s.dv})
    std::memset(sum, 0, static_cast<size_t>(all_keys * d_padded) * sizeof(float));
  for (int64_t head = kv_head * group; head < (kv_head + 1) * group; head++)
    for (int64_t first = 0; first < shape.queries; first += kQueryBlock) {
      const int64_t count =
          shape.queries - first < kQueryBlock ? shape.queries - first : kQueryBlock;
      if (seen_keys(shape, first + count - 1) > 0)
        gradient_block<Engine>(seen, s, sequence, head, first, count);
      else
        write_sums(HeadRows(call.dq, sequence * shape.queries + first, head, d), nullptr, 0, 0,
                   count, d, call.accumulate);
    }
  const auto write = [&](const Matrix& to, const float* sums) {
    write_sums(HeadRows(to, first_key, kv_head, d), sums, d_padded, keys, shape.keys, d,
               call.accumulate);
  };
  write(call.dk, s.dk);
  write(call.dv, s.dv);
}

}  // namespace
}  // namespace sennit::trainer
