// environment.hpp: what every part of the model works with: the device, its memory, this rank's
// groups and parameters, and the shape of the micro-batches at hand.
//
// Tokens of a micro-batch on one rank are rows: of context rank c of n, chunks c and 2n - 1 - c of
// each sequence's 2n (causal attention costs then the same on all of them); row = (half * batch +
// sequence) * chunk + position in the chunk. Without context parallelism there is one half: the
// sequence. Between blocks a tensor rank holds a run of rows / tensor of these rows (sequence
// parallelism, arXiv 2205.05198); inside of a block, all rows and its share of heads or columns.
#pragma once

#include <functional>
#include <string>

#include "trainer/model/parameters.hpp"

namespace sennit::trainer {

// The shape of the micro-batches under way.
struct TokenShape {
  int64_t batch = 0, length = 0;  // whole sequences
  int contexts = 1;
  int halves() const { return contexts > 1 ? 2 : 1; }
  int64_t chunk() const { return length / (contexts * halves()); }
  int64_t rows() const { return batch * chunk() * halves(); }  // of this context rank
  // Number of the chunk that is half h of context rank c.
  int chunk_of(int c, int h) const { return h == 0 ? c : 2 * contexts - 1 - c; }
};

// One a rank, for its one thread; what it refers to lives as long. `model` has the whole sizes.
// This rank's shares of heads, columns and tokens are in the parameters' layout.
struct Environment {
  Device& device;
  Pool& pool;
  const Mesh& mesh;
  Parameters& parameters;
  const LlamaConfig& model;
  Type type;
  TokenShape tokens;
  // f32, head_size / 2 a position; position of each row.
  const float* cosines = nullptr;
  const float* sines = nullptr;
  PooledMatrix positions;
  // Where set, sees every tensor of the forward pass: to find the first that is not finite.
  std::function<void(const std::string& name, Matrix matrix)> watch;

  int64_t rows() const { return tokens.rows(); }
  int64_t own_rows() const { return rows() / mesh.shape.tensor; }
  PooledMatrix take(int64_t rows, int64_t columns) { return pool.take(type, rows, columns); }
  void see(const std::string& name, Matrix matrix) const {
    if (watch) watch(name, matrix);
  }
  int32_t* positions_data() const { return static_cast<int32_t*>(positions->data); }

  // All rows of what every tensor rank has its own rows of, and back: each row summed over the
  // tensor ranks. Without tensor parallelism these are the same matrix: nothing is copied. `memory`
  // holds what is new.
  Matrix gather_rows(Matrix own, PooledMatrix* memory);
  PooledMatrix scatter_rows(PooledMatrix partial);
};

// Sets shape and positions. The shape must divide (check_mesh).
void set_tokens(Environment& environment, int64_t batch, int64_t length);
// Writes this rank's tokens of a micro-batch, [batch, length + 1] whole sequences, into rows:
// `shift` 0 gives inputs, 1 targets.
void lay_out_tokens(const TokenShape& shape, int context, const int32_t* tokens, int shift,
                    int32_t* rows);

// Host tables of cos and sin by position, `positions` rows of head_size / 2.
void rotary_tables(const LlamaConfig& model, int64_t positions, std::vector<float>* cosines,
                   std::vector<float>* sines);

}  // namespace sennit::trainer
