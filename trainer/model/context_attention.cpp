// context_attention.cpp: see trainer/model/context_attention.hpp.
#include "trainer/model/context_attention.hpp"

#include <cmath>

namespace sennit::trainer {
namespace {

// This rank's view of the ring.
class Ring {
 public:
  explicit Ring(Environment& environment)
      : environment_(environment),
        tokens_(environment.tokens),
        rank_(environment.mesh.at.context),
        heads_(environment.parameters.layout().heads),
        kv_heads_(environment.parameters.layout().kv_heads),
        query_columns_(heads_ * environment.model.head_size),
        key_columns_(kv_heads_ * environment.model.head_size) {}

  int rounds() const { return tokens_.contexts; }
  // Whose keys are at hand in this round.
  int owner(int round) const { return (rank_ - round + rounds()) % rounds(); }
  int next() const { return (rank_ + 1) % rounds(); }
  int previous() const { return (rank_ + rounds() - 1) % rounds(); }

  Matrix queries(Matrix qkv) const { return columns_of(qkv, 0, query_columns_); }
  Matrix keys_values(Matrix qkv) const { return columns_of(qkv, query_columns_, 2 * key_columns_); }
  Matrix keys(Matrix kv) const { return columns_of(kv, 0, key_columns_); }
  Matrix values(Matrix kv) const { return columns_of(kv, key_columns_, key_columns_); }
  int64_t half_rows() const { return tokens_.batch * tokens_.chunk(); }
  Matrix half(Matrix m, int h) const { return rows_of(m, h * half_rows(), half_rows()); }
  // Log-sums and dots are batch * heads * chunk a half.
  int64_t half_sums() const { return half_rows() * heads_; }

  bool sees(int query_half, int key_owner, int key_half) const {
    return tokens_.chunk_of(key_owner, key_half) <= tokens_.chunk_of(rank_, query_half);
  }
  AttentionShape shape(int query_half, int key_owner, int key_half) const {
    AttentionShape shape;
    shape.batch = tokens_.batch;
    shape.queries = shape.keys = tokens_.chunk();
    shape.first_query = tokens_.chunk_of(rank_, query_half) * tokens_.chunk();
    shape.first_key = tokens_.chunk_of(key_owner, key_half) * tokens_.chunk();
    shape.query_heads = heads_;
    shape.kv_heads = kv_heads_;
    shape.head_size = environment_.model.head_size;
    shape.scale = 1 / std::sqrt(static_cast<float>(shape.head_size));
    return shape;
  }
  PooledMatrix take_keys_values(Type type) {
    return environment_.pool.take(type, tokens_.rows(), 2 * key_columns_);
  }

  // A buffer goes to the next rank and another comes from the previous one.
  struct Exchange {
    Transfer sent, received;
    void wait() {
      sent.wait();
      received.wait();
    }
  };
  Exchange start(const PooledMatrix& out, const PooledMatrix& in) {
    Communicator& ring = *environment_.mesh.context;
    const auto count = static_cast<size_t>(out->rows * out->columns);
    Exchange exchange;
    exchange.received = ring.receive(in->data, count, element_of(in->type), previous());
    exchange.sent = ring.send(out->data, count, element_of(out->type), next());
    if (!ring.traffic().overlap()) exchange.wait();
    return exchange;
  }

 private:
  Environment& environment_;
  const TokenShape& tokens_;
  int rank_;
  int64_t heads_, kv_heads_, query_columns_, key_columns_;
};

}  // namespace

void context_attention(Environment& environment, Matrix out, float* log_sums, Matrix qkv) {
  Device& device = environment.device;
  Ring ring(environment);
  if (ring.rounds() == 1) {
    const Matrix kv = ring.keys_values(qkv);
    device.attention(out, log_sums, ring.queries(qkv), ring.keys(kv), ring.values(kv),
                     ring.shape(0, 0, 0));
    return;
  }
  Pool& pool = environment.pool;
  PooledMatrix at_hand = ring.take_keys_values(qkv.type);
  device.convert(at_hand, ring.keys_values(qkv));
  PooledMatrix joined = pool.take(Type::f32, out.rows, out.columns);
  PooledMatrix part = pool.take(Type::f32, ring.half_rows(), out.columns);
  PooledMatrix part_sums = pool.take_f32(ring.half_sums());
  for (int round = 0; round < ring.rounds(); round++) {
    PooledMatrix coming;
    Ring::Exchange exchange;
    if (round + 1 < ring.rounds()) {
      coming = ring.take_keys_values(qkv.type);
      exchange = ring.start(at_hand, coming);
    }
    const int owner = ring.owner(round);
    for (int q = 0; q < 2; q++)
      for (int k = 0; k < 2; k++) {
        if (!ring.sees(q, owner, k)) continue;
        const AttentionShape shape = ring.shape(q, owner, k);
        const Matrix queries = ring.half(ring.queries(qkv), q), kv = ring.half(at_hand, k);
        const Matrix result = ring.half(joined, q);
        float* const sums = log_sums + q * ring.half_sums();
        if (round == 0 && k == 0) {  // the first that these queries see
          device.attention(result, sums, queries, ring.keys(kv), ring.values(kv), shape);
          continue;
        }
        device.attention(part, part_sums->f32(), queries, ring.keys(kv), ring.values(kv), shape);
        device.attention_join(result, sums, part, part_sums->f32(), shape);
      }
    environment.mesh.context->traffic().poll();
    exchange.wait();
    if (coming) at_hand = std::move(coming);
  }
  device.convert(out, joined);
}

void context_attention_gradient(Environment& environment, Matrix dqkv, Matrix dout, Matrix out,
                                Matrix qkv, const float* log_sums) {
  Device& device = environment.device;
  Ring ring(environment);
  PooledMatrix dots = environment.pool.take_f32(ring.half_sums() * environment.tokens.halves());
  if (ring.rounds() == 1) {
    const AttentionShape shape = ring.shape(0, 0, 0);
    const Matrix kv = ring.keys_values(qkv), dkv = ring.keys_values(dqkv);
    device.attention_dots(dots->f32(), dout, out, shape);
    device.attention_gradient(ring.queries(dqkv), ring.keys(dkv), ring.values(dkv), false, dout,
                              ring.queries(qkv), ring.keys(kv), ring.values(kv), log_sums,
                              dots->f32(), shape);
    return;
  }
  const PooledMatrix dq = environment.pool.take(Type::f32, dout.rows, dout.columns);
  device.zero(dq->data, dq->bytes());
  for (int q = 0; q < 2; q++)
    device.attention_dots(dots->f32() + q * ring.half_sums(), ring.half(dout, q), ring.half(out, q),
                          ring.shape(q, 0, 0));
  PooledMatrix at_hand = ring.take_keys_values(qkv.type);
  device.convert(at_hand, ring.keys_values(qkv));
  PooledMatrix leaving, arriving;  // gradients of keys and values, on their way round
  Ring::Exchange gradients;
  for (int round = 0; round < ring.rounds(); round++) {
    PooledMatrix coming;
    Ring::Exchange exchange;
    if (round + 1 < ring.rounds()) {
      coming = ring.take_keys_values(qkv.type);
      exchange = ring.start(at_hand, coming);
    }
    const int owner = ring.owner(round);
    PooledMatrix mine = ring.take_keys_values(Type::f32);
    device.zero(mine->data, mine->bytes());
    for (int q = 0; q < 2; q++)
      for (int k = 0; k < 2; k++) {
        if (!ring.sees(q, owner, k)) continue;
        const Matrix kv = ring.half(at_hand, k), dkv = ring.half(mine, k);
        device.attention_gradient(ring.half(dq, q), ring.keys(dkv), ring.values(dkv), true,
                                  ring.half(dout, q), ring.half(ring.queries(qkv), q),
                                  ring.keys(kv), ring.values(kv), log_sums + q * ring.half_sums(),
                                  dots->f32() + q * ring.half_sums(), ring.shape(q, owner, k));
      }
    environment.mesh.context->traffic().poll();
    exchange.wait();
    gradients.wait();  // what the ranks before added to this owner's
    if (arriving) device.add(mine, arriving);
    leaving = std::move(mine);
    arriving = ring.take_keys_values(Type::f32);
    gradients = ring.start(leaving, arriving);
    if (coming) at_hand = std::move(coming);
  }
  device.convert(ring.queries(dqkv), dq);
  gradients.wait();  // this rank's own, home again
  device.convert(ring.keys_values(dqkv), arriving);
}

}  // namespace sennit::trainer
