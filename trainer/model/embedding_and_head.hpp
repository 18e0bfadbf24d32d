// embedding_and_head.hpp: the two ends of the model: tokens to rows, and rows to the loss.
//
// The table of the embedding and the output layer are cut by tokens over the tensor ranks: each
// looks up its own and the rows are summed; each computes its own logits, and the cross entropy
// needs of the others only the largest logit and the sum of exponentials of each row. Logits, of
// the compute type (the softmax is in f32), are made for some rows at a time, and their gradient in
// their place: few enough that a large [rows, vocabulary] is never stored whole, and enough that
// the gradient of the output layer, which every such part adds to, is seldom passed over.
#pragma once

#include "trainer/model/environment.hpp"

namespace sennit::trainer {

constexpr int64_t kLogitBytes = int64_t{128} << 20;  // of logits at a time, at most

// tokens: of all rows of this context rank, in the device's memory. Gives own rows.
PooledMatrix embed_forward(Environment& environment, const int32_t* tokens);
void embed_backward(Environment& environment, const int32_t* tokens, Matrix dx);

// What head() gives: the loss of one micro-batch in nats, not scaled, and the same on all
// tensor ranks.
struct Head {
  double loss = 0;  // summed over this context rank's targets
  PooledMatrix dx;  // own rows; none without gradient
};
// Loss and, where `gradient`, its gradient times `scale`: that of x, and the parameters' at once
// (their unit and a tied table's are open).
Head head(Environment& environment, Matrix x, const int32_t* targets, bool gradient, float scale);

// Logits of one row of this context rank, over the whole vocabulary. For sampling; all tensor ranks
// call it.
std::vector<float> logits_of_row(Environment& environment, Matrix x, int64_t row);

}  // namespace sennit::trainer
