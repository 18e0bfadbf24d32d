// gradient_sums.hpp: gradients, from where a layer adds to them to their sums over the replica
// group, whatever ZeRO keeps of them.
//
// Zero 0 all-reduces them and zero 1 reduce-scatters them; both sum them over micro-batches first
// and reduce them in the last one, as soon as a unit's are complete, while the units before it are
// still computed. With zero 0 the embedding's, behind which nothing is left to compute, is only
// reduce-scattered, which is enough for the norm, and gathered while the others are updated. Zero 2
// and 3 reduce-scatter a unit's after each micro-batch, out of memory of the pool, and add them up
// in the own part: up to three units' at a time.
#pragma once

#include <deque>
#include <vector>

#include "trainer/device/pool.hpp"
#include "trainer/model/parameter_shards.hpp"

namespace sennit::trainer {

class GradientSums {
 public:
  // All are used for as long as this lives.
  GradientSums(const ParameterShards& shards, const Mesh& mesh, Pool& pool);

  // Between these a unit's gradients can be added to. `last`: of the step's micro-batches.
  void open(int unit);
  void close(int unit, bool last);
  float* at(const ParameterPlace& place) const;  // of a unit that is open

  void clear();
  // Waits for all reductions; sums those of a tied table's copies. Owned parts are complete then.
  void finish();
  // For an update, after finish(): starts to make whole what is still in parts, and waits until a
  // unit's are.
  void gather_rest();
  void wait(size_t u);

 private:
  struct SummedUnit {
    float* whole = nullptr;
    PooledMatrix opened, reduced;  // with zero 2 and 3: the whole unit, the own part of its sum
    Transfer transfer;
  };
  bool reduced_last(size_t u) const;
  void finish_reduction(size_t u);
  void limit_open_reductions(size_t most);

  const ParameterShards& shards_;
  const Mesh& mesh_;
  Pool& pool_;
  std::vector<SummedUnit> units_;
  std::deque<size_t> reducing_;  // units, oldest first
};

}  // namespace sennit::trainer
