// parameters.cpp: see trainer/model/parameters.hpp.
#include "trainer/model/parameters.hpp"

#include <cmath>
#include <iterator>

#include "base/index.hpp"

namespace sennit::trainer {

Parameters::Parameters(std::unique_ptr<ParameterShards> shards, const Mesh& mesh, Pool& pool)
    : mesh_(mesh),
      shards_(std::move(shards)),
      weights_(*shards_, mesh, pool),
      gradients_(*shards_, mesh, pool) {}

Result<std::unique_ptr<Parameters>> Parameters::create(ParameterLayout layout, const Mesh& mesh,
                                                       Device& device, Pool& pool, Type type,
                                                       int zero, uint64_t seed) {
  Result<std::unique_ptr<ParameterShards>> shards = ParameterShards::create(
      std::move(layout), mesh.replica->size(), mesh.replica->rank(), device, type, zero);
  if (!shards) return shards.status();
  std::unique_ptr<Parameters> parameters(new Parameters(*std::move(shards), mesh, pool));
  parameters->start_from(seed);
  return parameters;
}

void Parameters::start_from(uint64_t seed) {
  std::vector<float> values;
  for (size_t u = 0; u < shards_->units(); u++)
    for (const ParameterBox& box : layout().units[u].boxes) {
      const ElementRange mine = within(box, shards_->kept(u));
      values.resize(index(mine.count));
      if (values.empty()) continue;
      initialize(box, seed, mine.first - box.first, values);
      shards_->device().upload(shards_->at(State::master, u, mine.first), values.data(),
                               values.size() * sizeof(float));
    }
  publish();
}

double Parameters::squared_norm() const {
  double sum = 0;
  for (size_t u = 0; u < shards_->units(); u++)
    for (const ParameterBox& box : layout().units[u].boxes) {
      const ElementRange mine = within(box, shards_->owned(u));
      if (mine.count == 0 || box.second || (box.whole && mesh_.at.tensor != 0)) continue;
      sum += shards_->device().sum_of_squares(shards_->at(State::gradient, u, mine.first),
                                              index(mine.count));
    }
  return sum;
}

void Parameters::update(size_t u, const AdamW& parameters) {
  for (const ParameterBox& box : layout().units[u].boxes) {
    const ElementRange mine = within(box, shards_->kept(u));
    if (mine.count == 0) continue;
    AdamW own = parameters;
    if (!box.decays()) own.weight_decay = 0;
    const auto at = [&](State state) { return shards_->at(state, u, mine.first); };
    shards_->device().adamw(
        at(State::master), at(State::first_moment), at(State::second_moment), at(State::gradient),
        shards_->type() == Type::f32 ? nullptr : shards_->weight_at(u, mine.first), shards_->type(),
        index(mine.count), own);
  }
}

void Parameters::update(const AdamW& parameters) {
  const size_t units = shards_->units();
  weights_.begin_update();
  gradients_.gather_rest();
  for (size_t i = 0; i < units; i++) {
    // Those whose gradients are still coming last; else first what is gathered first.
    const size_t u = zero() == 0 ? units - 1 - i : i;
    gradients_.wait(u);
    weights_.wait(u);                             // what is on its way is old
    if (mesh_.world->traffic().failed()) return;  // what has come is no gradient
    weights_.forget(u);
    update(u, parameters);
    if (u == 0) weights_.start_first();  // while the others are updated
  }
}

std::vector<TensorPiece> Parameters::pieces(State state) const {
  shards_->device().synchronize();
  return pieces_of(*shards_, state, true, mesh_.at.tensor, mesh_.shape.tensor);
}

std::vector<TensorPiece> Parameters::pieces_to_load(State state) {
  weights_.wait_for_all();  // in f32 what is on its way reads the masters
  shards_->device().synchronize();
  return pieces_of(*shards_, state, false, mesh_.at.tensor, mesh_.shape.tensor);
}

std::vector<TensorPiece> Parameters::pieces_of_all(bool to_load) {
  std::vector<TensorPiece> all;
  for (const State state : {State::master, State::first_moment, State::second_moment}) {
    std::vector<TensorPiece> some = to_load ? pieces_to_load(state) : pieces(state);
    std::move(some.begin(), some.end(), std::back_inserter(all));
  }
  return all;
}

std::string Parameters::first_not_finite(State state) const {
  for (size_t u = 0; u < shards_->units(); u++)
    for (const ParameterBox& box : layout().units[u].boxes) {
      const ElementRange mine = within(box, shards_->owned(u));
      if (mine.count > 0 && !std::isfinite(shards_->device().sum_of_squares(
                                shards_->at(state, u, mine.first), index(mine.count))))
        return box.name;
    }
  return {};
}

}  // namespace sennit::trainer
