// parameters.hpp: this rank's weights, gradients and optimiser state, and what ZeRO does with them
// (arXiv 1910.02054).
//
// Three parts have a file each: what a rank keeps (parameter_shards.hpp), weights made whole where
// they are used (weight_gathers.hpp), gradients summed (gradient_sums.hpp). Here they make a step:
// gradients are cleared, opened and closed by the layers, finished; and the optimiser updates unit
// after unit.
//
// Bytes a parameter, bf16 (f32): zero 0: 2 + 4 + 12 (4 + 4 + 8); 1: 2 + 4 + 12/S; 2: 2 + 16/S; 3:
// 18/S; with 2 and 3 three units' gradients, with 3 also three units' weights on top.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "trainer/model/gradient_sums.hpp"
#include "trainer/model/parameter_shards.hpp"
#include "trainer/model/weight_gathers.hpp"

namespace sennit::trainer {

class Parameters {
 public:
  // Allocates, and starts from the seed's weights. Mesh, device and pool are used for as long as
  // this lives. Errors: the device's memory.
  static Result<std::unique_ptr<Parameters>> create(ParameterLayout layout, const Mesh& mesh,
                                                    Device& device, Pool& pool, Type type, int zero,
                                                    uint64_t seed);
  const ParameterLayout& layout() const { return shards_->layout(); }
  int zero() const { return shards_->zero(); }
  size_t bytes() const { return shards_->bytes(); }  // for the whole run, without the pool's

  // ---- for the model ----
  // Between acquire() and release() a unit's weights are there; calls nest. `next`: the unit that
  // is needed after it, or -1.
  void acquire(int unit, int next) { weights_.acquire(unit, next); }
  void release(int unit) { weights_.release(unit); }
  const void* weights(const ParameterPlace& place) const { return weights_.at(place); }
  Matrix matrix(const ParameterPlace& place, int64_t rows, int64_t columns) const {
    return matrix_at(weights(place), shards_->type(), rows, columns);
  }
  // Between these a unit's gradients can be added to. `last`: of the step's micro-batches.
  void open_gradient(int unit) { gradients_.open(unit); }
  void close_gradient(int unit, bool last) { gradients_.close(unit, last); }
  float* gradient(const ParameterPlace& place) const { return gradients_.at(place); }
  Matrix gradient_matrix(const ParameterPlace& place, int64_t rows, int64_t columns) const {
    return matrix_at(gradient(place), Type::f32, rows, columns);
  }

  // ---- for a step ----
  void clear_gradients() { gradients_.clear(); }
  // Waits for all reductions; sums those of a tied table's copies. Owned parts are complete then.
  void finish_gradients() { gradients_.finish(); }
  // Of the parts that this rank owns and counts: to be summed over all ranks.
  double squared_norm() const;
  // parameters.weight_decay: of those that decay. Where a transfer has failed it ends before the
  // unit that needed it, so that weights and optimiser belong to no one step any more: the run is
  // over.
  void update(const AdamW& parameters);

  // ---- state, for checkpoints and tests ----
  // They look at the device's memory themselves: what pieces point to is at rest until the
  // trainer's next call. Boxes of the owned parts: those of all ranks tile every tensor, but for
  // replicas, which the pieces say.
  std::vector<TensorPiece> pieces(State state) const;
  // As above, but all that this rank keeps: to be filled, and then publish() be called.
  std::vector<TensorPiece> pieces_to_load(State state);
  // Of all that a checkpoint has: masters and both moments.
  std::vector<TensorPiece> pieces_of_all(bool to_load);
  void publish() { weights_.publish(); }  // masters were set: weights follow
  // The first parameter (or gradient) of the owned parts that has a number that is not finite, or
  // empty.
  std::string first_not_finite(State state) const;

 private:
  Parameters(std::unique_ptr<ParameterShards> shards, const Mesh& mesh, Pool& pool);
  void start_from(uint64_t seed);
  void update(size_t u, const AdamW& parameters);

  const Mesh& mesh_;
  std::unique_ptr<ParameterShards> shards_;
  WeightGathers weights_;
  GradientSums gradients_;
};

}  // namespace sennit::trainer
