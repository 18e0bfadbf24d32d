// parameters_state.cpp: the state of Parameters: how it starts, is updated, and is handed out in
// boxes.
#include <algorithm>
#include <cmath>
#include <iterator>

#include "base/index.hpp"
#include "trainer/model/parameters.hpp"

namespace sennit::trainer {
namespace {

// The part of a box that lies in elements [first, first + count) of its unit.
struct Cut {
  int64_t begin, elements;  // of the unit
};
Cut cut(const ParameterBox& box, int64_t first, int64_t count) {
  const int64_t begin = std::max(box.first, first);
  return {begin, std::max<int64_t>(0, std::min(box.first + box.elements, first + count) - begin)};
}

}  // namespace

float* Parameters::state_at(State state, size_t u, int64_t element) const {
  const Memory& m = memory_[u];
  switch (state) {
    case State::master:
      return m.master + (element - first_kept(u));
    case State::first_moment:
      return m.first_moment + (element - first_kept(u));
    case State::second_moment:
      return m.second_moment + (element - first_kept(u));
    case State::gradient:
      return owned_gradient(u) + (element - first_owned(u));
  }
  return nullptr;
}

void Parameters::start_from(uint64_t seed) {
  std::vector<float> values;
  for (size_t u = 0; u < memory_.size(); u++)
    for (const ParameterBox& box : layout_.units[u].boxes) {
      const Cut mine = cut(box, first_kept(u), kept(u));
      values.resize(index(mine.elements));
      if (values.empty()) continue;
      initialize(box, seed, mine.begin - box.first, values);
      device_.upload(state_at(State::master, u, mine.begin), values.data(),
                     values.size() * sizeof(float));
    }
  publish();
}

double Parameters::squared_norm() const {
  double sum = 0;
  for (size_t u = 0; u < memory_.size(); u++)
    for (const ParameterBox& box : layout_.units[u].boxes) {
      const Cut mine = cut(box, first_owned(u), part(u));
      if (mine.elements == 0 || box.second || (box.whole && mesh_.at.tensor != 0)) continue;
      sum += device_.sum_of_squares(state_at(State::gradient, u, mine.begin), index(mine.elements));
    }
  return sum;
}

void Parameters::update(const AdamW& parameters) {
  gathered_ = 0;
  for (size_t u = memory_.size(); u-- > 0;)
    if (Memory& m = memory_[u]; reduced_last(u))
      m.reducing =
          mesh_.replica->all_gather(owned_gradient(u), m.gradients, index(part(u)), Element::f32);
  for (size_t i = 0; i < memory_.size(); i++) {
    // Those whose gradients are still coming last; else first what is gathered first.
    const size_t u = zero_ == 0 ? memory_.size() - 1 - i : i;
    Memory& m = memory_[u];
    m.reducing.wait();
    m.gathering.wait();                           // what is on its way is old
    if (mesh_.world->traffic().failed()) return;  // what has come is no gradient
    m.gathered.reset();
    char* const weights = static_cast<char*>(zero_ == 3 ? m.weights_part : m.weights);
    const int64_t weights_begin = zero_ == 3 ? first_kept(u) : 0;
    for (const ParameterBox& box : layout_.units[u].boxes) {
      const Cut mine = cut(box, first_kept(u), kept(u));
      if (mine.elements == 0) continue;
      AdamW own = parameters;
      if (!box.decays()) own.weight_decay = 0;
      void* const weight = type_ == Type::f32
                               ? nullptr
                               : weights + index(mine.begin - weights_begin) * bytes_of(type_);
      device_.adamw(
          state_at(State::master, u, mine.begin), state_at(State::first_moment, u, mine.begin),
          state_at(State::second_moment, u, mine.begin), state_at(State::gradient, u, mine.begin),
          weight, type_, index(mine.elements), own);
    }
    if (u == 0) {  // what the next step begins with, while the others are updated
      if (zero_ == 3) start_gather(0);
      if (zero_ == 1 || zero_ == 2) gather_up_to(0);
    }
  }
}

std::vector<TensorPiece> Parameters::pieces_between(State state, bool owned) const {
  const char* const prefix = state == State::first_moment    ? kFirstMoment
                             : state == State::second_moment ? kSecondMoment
                                                             : "";
  device_.synchronize();
  std::vector<TensorPiece> pieces;
  for (size_t u = 0; u < memory_.size(); u++)
    for (const ParameterBox& box : layout_.units[u].boxes) {
      const Cut mine = owned ? cut(box, first_owned(u), part(u)) : cut(box, first_kept(u), kept(u));
      if (owned && box.second) continue;
      TensorPiece whole;
      whole.name = prefix + box.name;
      whole.shape = box.shape;
      whole.offset = box.offset;
      whole.extent = box.extent;
      if (owned && box.whole) {
        whole.replica = mesh_.at.tensor;
        whole.replicas = mesh_.shape.tensor;
      }
      for (TensorPiece& piece : pieces_of_range(whole, mine.begin - box.first, mine.elements,
                                                state_at(state, u, mine.begin)))
        pieces.push_back(std::move(piece));
    }
  return pieces;
}

std::vector<TensorPiece> Parameters::pieces(State state) const {
  return pieces_between(state, true);
}
std::vector<TensorPiece> Parameters::pieces_to_load(State state) {
  for (Memory& m : memory_) m.gathering.wait();  // in f32 it reads the masters
  return pieces_between(state, false);
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
  for (size_t u = 0; u < memory_.size(); u++)
    for (const ParameterBox& box : layout_.units[u].boxes) {
      const Cut mine = cut(box, first_owned(u), part(u));
      if (mine.elements > 0 && !std::isfinite(device_.sum_of_squares(state_at(state, u, mine.begin),
                                                                     index(mine.elements))))
        return box.name;
    }
  return {};
}

}  // namespace sennit::trainer
