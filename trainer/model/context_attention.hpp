// context_attention.hpp: causal attention over sequences that are cut over the context ranks: keys
// and values go round a ring (arXiv 2310.01889), and each rank holds an early and a late chunk of
// every sequence, so that all have the same work (arXiv 2311.09431, zig-zag).
//
// Forward: n - 1 rounds; the next rank's keys and values travel while those at hand are used;
// results over different keys are joined by their log-sums. Backward: once more round with keys and
// values; their gradients follow a round behind, each rank adding its part, and come home with the
// n-th. Bytes a rank sends: (n - 1) rows * 2 kv columns forward; the same again and n times that in
// f32 backward. One rank alone: one call.
#pragma once

#include "trainer/model/environment.hpp"

namespace sennit::trainer {

// qkv: this rank's rows; columns of all query heads, then of the keys', then of the values'.
// out: compute type; log_sums: f32, rows * query heads.
void context_attention(Environment& environment, Matrix out, float* log_sums, Matrix qkv);
// dqkv: compute type, written.
void context_attention_gradient(Environment& environment, Matrix dqkv, Matrix dout, Matrix out,
                                Matrix qkv, const float* log_sums);

}  // namespace sennit::trainer
