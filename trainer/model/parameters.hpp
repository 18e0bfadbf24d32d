// parameters.hpp: this rank's weights, gradients and optimiser state, and what ZeRO does with them
// (arXiv 1910.02054).
//
// The ranks of a replica group (data x context) hold the same units. Each of the S ranks owns the
// S-th part of every unit's flat buffer:
//   zero 0   all hold everything; gradients are all-reduced
//   zero 1   masters and moments of the own part alone; gradients are reduce-scattered, weights
//            all-gathered
//   zero 2   gradients too: a unit's are reduce-scattered after each micro-batch and added up in
//            the own part
//   zero 3   weights too: a unit's are gathered before they are used, the next one's meanwhile
// Gradients with zero 0 and 1 are summed over micro-batches first and reduced in the last one, as
// soon as a unit's are complete, while the units before it are still computed. With zero 0 the
// embedding's, behind which nothing is left to compute, is only reduce-scattered, which is enough
// for the norm, and gathered while the others are updated. After an update the gathers of zero 1
// and 2 go on behind the next step, in the order in which units are needed and no more than a few
// at a time, because those under way share the network: acquire() starts the next ones and waits
// for its own.
//
// Bytes a parameter, bf16 (f32): zero 0: 2 + 4 + 12 (4 + 4 + 8); 1: 2 + 4 + 12/S; 2: 2 + 16/S; 3:
// 18/S; with 2 and 3 three units' gradients, with 3 also three units' weights on top.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "trainer/device/pool.hpp"
#include "trainer/model/parameter_layout.hpp"

namespace sennit::trainer {

enum class State : uint8_t { master, first_moment, second_moment, gradient };

class Parameters {
 public:
  // Allocates, and starts from the seed's weights.
  static Result<std::unique_ptr<Parameters>> create(Layout layout, const Mesh& mesh, Device& device,
                                                    Pool& pool, Type type, int zero, uint64_t seed);
  ~Parameters();
  const Layout& layout() const { return layout_; }
  int zero() const { return zero_; }
  size_t bytes() const { return held_bytes_; }

  // ---- for the model ----
  // Between acquire() and release() a unit's weights are there; calls nest. `next`: the unit that
  // is needed after it, or -1.
  void acquire(int unit, int next);
  void release(int unit);
  const void* weights(const ParameterPlace& place) const;
  Matrix matrix(const ParameterPlace& place, int64_t rows, int64_t columns) const {
    return matrix_at(weights(place), type_, rows, columns);
  }
  // Between these a unit's gradients can be added to. `last`: of the step's micro-batches.
  void open_gradient(int unit);
  void close_gradient(int unit, bool last);
  float* gradient(const ParameterPlace& place) const;
  Matrix gradient_matrix(const ParameterPlace& place, int64_t rows, int64_t columns) const {
    return matrix_at(gradient(place), Type::f32, rows, columns);
  }

  // ---- for a step ----
  void clear_gradients();
  // Waits for all reductions; sums those of a tied table's copies. Owned parts are complete then.
  void finish_gradients();
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
  void publish();  // masters were set: weights follow
  // The first parameter (or gradient) of the owned parts that has a number that is not finite, or
  // empty.
  std::string first_not_finite(State state) const;

 private:
  struct Memory {
    void* weights = nullptr;       // the whole unit; zero 3: while it is acquired
    void* weights_part = nullptr;  // zero 3: the own part
    float* gradients = nullptr;    // the whole unit; zero 2, 3: while it is open
    float* gradients_part = nullptr;
    float* master = nullptr;  // of [first_kept, first_kept + kept); f32: the weights themselves
    float* first_moment = nullptr;
    float* second_moment = nullptr;
    // zero 3's weights; zero 2 and 3's gradients, whole and own part
    Buffer gathered, opened, reduced;
    int users = 0;
    Transfer gathering, reducing;
  };
  Parameters(Layout layout, const Mesh& mesh, Device& device, Pool& pool, Type type, int zero);
  Status allocate();
  void start_from(uint64_t seed);
  template <typename T>
  Status allocate(T** memory, int64_t elements, size_t element_bytes);
  int64_t part(size_t u) const { return layout_.units[u].size / shards_; }  // elements
  int64_t kept(size_t u) const { return zero_ == 0 ? layout_.units[u].size : part(u); }
  int64_t first_owned(size_t u) const { return part(u) * shard_; }
  int64_t first_kept(size_t u) const { return zero_ == 0 ? 0 : first_owned(u); }
  float* owned_gradient(size_t u) const;
  float* state_at(State state, size_t u, int64_t element) const;
  void start_gather(size_t u);
  void gather_up_to(size_t u);
  bool reduced_last(size_t u) const;
  void finish_reduction(size_t u);
  void limit_open_reductions(size_t most);
  std::vector<TensorPiece> pieces_between(State state, bool owned) const;

  Layout layout_;
  const Mesh& mesh_;
  Device& device_;
  Pool& pool_;
  Type type_;
  int zero_, shards_, shard_;
  std::vector<Memory> memory_;
  std::vector<void*> allocations_;
  std::deque<size_t> reducing_;  // units, oldest first
  size_t gathered_ = SIZE_MAX;  // zero 1, 2: units whose gathers since the last update were started
  size_t held_bytes_ = 0;
};

}  // namespace sennit::trainer
