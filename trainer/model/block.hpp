// block.hpp: one decoder layer, forward and backward:
//
//   n1 = norm(x);  qkv = n1 Wqkv^T, q and k rotated;  a = attention(qkv);  x2 = x  + a Wo^T
//   n2 = norm(x2); gu  = n2 Wgu^T;                     s = silu(g) * u;     y  = x2 + s Wd^T
//
// Tensor parallelism (all-gather before the two first products, reduce-scatter after the two last,
// and the same mirrored backward) and context parallelism (in the attention) are the only
// communication. What the backward pass needs is kept in a Kept; with recompute that is x alone,
// and the rest is computed again with the same operations, so with the same bits.
#pragma once

#include "trainer/model/environment.hpp"

namespace sennit::trainer {

// Of one layer and micro-batch. `n1`, `n2`: all rows; x, x2: own rows.
struct Kept {
  PooledMatrix x, inverse_rms1, n1, qkv, log_sums, attention, x2, inverse_rms2, n2, gate_up, swiglu;
};

// x: own rows. Gives y, own rows too; fills `kept` (with recompute: x alone).
PooledMatrix block_forward(Environment& environment, const LayerPlaces& layer, PooledMatrix x,
                           bool recompute, Kept* kept);
// dy becomes dx. The gradients of both halves' units are open where they are needed: the
// feed-forward half's are complete when `between` is called, the attention's are touched after it
// alone.
void block_backward(Environment& environment, const LayerPlaces& layer, Matrix dy, Kept kept,
                    const std::function<void()>& between);

}  // namespace sennit::trainer
