// block.cpp: see trainer/model/block.hpp.
#include "trainer/model/block.hpp"

#include <fmt/core.h>

#include "trainer/model/context_attention.hpp"

namespace sennit::trainer {
namespace {

// Sizes and weights of one layer on this rank.
class Block {
 public:
  Block(Environment& environment, const LayerPlaces& places)
      : e_(environment),
        places_(places),
        hidden_(environment.model.hidden),
        query_(environment.parameters.layout().heads * environment.model.head_size),
        key_(environment.parameters.layout().kv_heads * environment.model.head_size),
        ffn_(environment.parameters.layout().ffn) {}

  PooledMatrix forward(Kept& kept) {
    PooledMatrix x2 = attention_half(kept);
    PooledMatrix y = ffn_half(kept, x2);
    kept.x2 = std::move(x2);
    return y;
  }

  void backward(Matrix dy, const Kept& kept, const std::function<void()>& between) {
    ffn_backward(dy, kept);
    between();
    attention_backward(dy, kept);
  }

 private:
  PooledMatrix attention_half(Kept& kept) {
    kept.n1 = norm(kept.x, places_.attention_norm, &kept.inverse_rms1);
    see("input_layernorm", kept.n1);
    kept.qkv = e_.take(e_.rows(), query_ + 2 * key_);
    e_.device.multiply(kept.qkv, kept.n1, false, qkv_weights(), true, false);
    rotate(kept.qkv, false);
    see("self_attn.qkv", kept.qkv);
    kept.attention = e_.take(e_.rows(), query_);
    kept.log_sums = e_.pool.take_f32(e_.rows() * e_.parameters.layout().heads);
    context_attention(e_, kept.attention, kept.log_sums->f32(), kept.qkv);
    see("self_attn", kept.attention);
    PooledMatrix partial = e_.take(e_.rows(), hidden_);
    e_.device.multiply(partial, kept.attention, false, output_weights(), true, false);
    PooledMatrix x2 = e_.scatter_rows(std::move(partial));
    e_.device.add(x2, kept.x);
    see("self_attn.o_proj", x2);
    return x2;
  }

  PooledMatrix ffn_half(Kept& kept, const PooledMatrix& x2) {
    kept.n2 = norm(x2, places_.ffn_norm, &kept.inverse_rms2);
    see("post_attention_layernorm", kept.n2);
    kept.gate_up = e_.take(e_.rows(), 2 * ffn_);
    e_.device.multiply(kept.gate_up, kept.n2, false, gate_up_weights(), true, false);
    see("mlp.gate_up", kept.gate_up);
    kept.swiglu = e_.take(e_.rows(), ffn_);
    e_.device.swiglu(kept.swiglu, columns_of(kept.gate_up, 0, ffn_),
                     columns_of(kept.gate_up, ffn_, ffn_));
    PooledMatrix partial = e_.take(e_.rows(), hidden_);
    e_.device.multiply(partial, kept.swiglu, false, down_weights(), true, false);
    PooledMatrix y = e_.scatter_rows(std::move(partial));
    e_.device.add(y, x2);
    see("mlp.down_proj", y);
    return y;
  }

  // dy becomes the gradient of x2.
  void ffn_backward(Matrix dy, const Kept& kept) {
    Device& device = e_.device;
    PooledMatrix memory;
    const Matrix all = e_.gather_rows(dy, &memory);
    PooledMatrix dswiglu = e_.take(e_.rows(), ffn_);
    device.multiply(dswiglu, all, false, down_weights(), false, false);
    device.multiply(gradient(places_.down, hidden_, ffn_), all, true, kept.swiglu, false, true);
    PooledMatrix dgate_up = e_.take(e_.rows(), 2 * ffn_);
    device.swiglu_gradient(columns_of(dgate_up, 0, ffn_), columns_of(dgate_up, ffn_, ffn_), dswiglu,
                           columns_of(kept.gate_up, 0, ffn_), columns_of(kept.gate_up, ffn_, ffn_));
    dswiglu.reset();
    PooledMatrix partial = e_.take(e_.rows(), hidden_);
    device.multiply(partial, dgate_up, false, gate_up_weights(), false, false);
    device.multiply(gradient(places_.gate_up, 2 * ffn_, hidden_), dgate_up, true, kept.n2, false,
                    true);
    const PooledMatrix dn2 = e_.scatter_rows(std::move(partial));
    device.rms_norm_gradient(dy, true, e_.parameters.gradient(places_.ffn_norm), dn2, kept.x2,
                             e_.parameters.weights(places_.ffn_norm), kept.inverse_rms2->f32());
    e_.mesh.world->traffic().poll();
  }

  // dy, the gradient of x2, becomes that of x.
  void attention_backward(Matrix dy, const Kept& kept) {
    Device& device = e_.device;
    PooledMatrix memory;
    const Matrix all = e_.gather_rows(dy, &memory);
    PooledMatrix dattention = e_.take(e_.rows(), query_);
    device.multiply(dattention, all, false, output_weights(), false, false);
    device.multiply(gradient(places_.output, hidden_, query_), all, true, kept.attention, false,
                    true);
    PooledMatrix dqkv = e_.take(e_.rows(), query_ + 2 * key_);
    context_attention_gradient(e_, dqkv, dattention, kept.attention, kept.qkv,
                               kept.log_sums->f32());
    dattention.reset();
    rotate(dqkv, true);
    PooledMatrix partial = e_.take(e_.rows(), hidden_);
    device.multiply(partial, dqkv, false, qkv_weights(), false, false);
    device.multiply(gradient(places_.qkv, query_ + 2 * key_, hidden_), dqkv, true, kept.n1, false,
                    true);
    const PooledMatrix dn1 = e_.scatter_rows(std::move(partial));
    device.rms_norm_gradient(dy, true, e_.parameters.gradient(places_.attention_norm), dn1, kept.x,
                             e_.parameters.weights(places_.attention_norm),
                             kept.inverse_rms1->f32());
    e_.mesh.world->traffic().poll();
  }

  // Of own rows; gives all rows.
  PooledMatrix norm(Matrix x, const ParameterPlace& weight, PooledMatrix* inverse_rms) {
    *inverse_rms = e_.pool.take_f32(x.rows);
    PooledMatrix own = e_.take(x.rows, hidden_);
    e_.device.rms_norm(own, (*inverse_rms)->f32(), x, e_.parameters.weights(weight),
                       e_.model.norm_epsilon);
    PooledMatrix all;
    e_.gather_rows(own, &all);
    return all ? std::move(all) : std::move(own);
  }
  void rotate(Matrix qkv, bool backwards) {
    e_.device.rotate(columns_of(qkv, 0, query_ + key_), e_.model.head_size, e_.cosines, e_.sines,
                     e_.positions_data(), backwards);
  }
  void see(const char* name, Matrix matrix) {
    if (e_.watch) e_.watch(fmt::format("model.layers.{}.{}", places_.layer, name), matrix);
  }
  Matrix qkv_weights() const {
    return e_.parameters.matrix(places_.qkv, query_ + 2 * key_, hidden_);
  }
  Matrix output_weights() const { return e_.parameters.matrix(places_.output, hidden_, query_); }
  Matrix gate_up_weights() const {
    return e_.parameters.matrix(places_.gate_up, 2 * ffn_, hidden_);
  }
  Matrix down_weights() const { return e_.parameters.matrix(places_.down, hidden_, ffn_); }
  Matrix gradient(const ParameterPlace& place, int64_t rows, int64_t columns) const {
    return e_.parameters.gradient_matrix(place, rows, columns);
  }

  Environment& e_;
  const LayerPlaces& places_;
  int64_t hidden_, query_, key_, ffn_;
};

}  // namespace

PooledMatrix block_forward(Environment& environment, const LayerPlaces& layer, PooledMatrix x,
                           bool recompute, Kept* kept) {
  Kept all;
  all.x = std::move(x);
  PooledMatrix y = Block(environment, layer).forward(all);
  if (recompute)
    kept->x = std::move(all.x);
  else
    *kept = std::move(all);
  return y;
}

void block_backward(Environment& environment, const LayerPlaces& layer, Matrix dy, Kept kept,
                    const std::function<void()>& between) {
  Block block(environment, layer);
  if (!kept.n1) block.forward(kept);
  block.backward(dy, kept, between);
}

}  // namespace sennit::trainer
