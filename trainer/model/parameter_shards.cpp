// parameter_shards.cpp: see trainer/model/parameter_shards.hpp.
#include "trainer/model/parameter_shards.hpp"

#include <algorithm>

#include "base/index.hpp"

namespace sennit::trainer {

ParameterShards::ParameterShards(ParameterLayout layout, int shards, int shard, Device& device,
                                 Type type, int zero)
    : layout_(std::move(layout)),
      device_(device),
      type_(type),
      zero_(shards == 1 ? 0 : zero),
      shards_(shards),
      shard_(shard),
      memory_(layout_.units.size()) {}

ParameterShards::~ParameterShards() {
  for (void* const memory : allocations_) device_.release(memory);
}

Result<std::unique_ptr<ParameterShards>> ParameterShards::create(ParameterLayout layout, int shards,
                                                                 int shard, Device& device,
                                                                 Type type, int zero) {
  std::unique_ptr<ParameterShards> made(
      new ParameterShards(std::move(layout), shards, shard, device, type, zero));
  for (size_t u = 0; u < made->units(); u++) SENNIT_RETURN_IF_ERROR(made->allocate(u));
  return made;
}

template <typename T>
Status ParameterShards::allocate(T** memory, int64_t elements, Type type) {
  const size_t bytes = index(elements) * bytes_of(type);
  const Result<void*> block = device_.allocate(bytes);
  if (!block) return block.status();
  *memory = static_cast<T*>(*block);
  allocations_.push_back(*block);
  held_bytes_ += bytes;
  return {};
}

Status ParameterShards::allocate(size_t u) {
  UnitMemory& m = memory_[u];
  const ElementRange kept = this->kept(u);
  if (zero_ < 3) {
    SENNIT_RETURN_IF_ERROR(allocate(&m.weights, size(u), type_));
    m.kept_weights = static_cast<char*>(m.weights) + index(kept.first) * bytes_of(type_);
  } else {
    SENNIT_RETURN_IF_ERROR(allocate(&m.kept_weights, kept.count, type_));
  }
  if (type_ == Type::f32)
    m.master = static_cast<float*>(m.kept_weights);
  else
    SENNIT_RETURN_IF_ERROR(allocate(&m.master, kept.count, Type::f32));
  if (zero_ < 2) {
    SENNIT_RETURN_IF_ERROR(allocate(&m.gradients, size(u), Type::f32));
    m.owned_gradients = m.gradients + owned(u).first;
  } else {
    SENNIT_RETURN_IF_ERROR(allocate(&m.owned_gradients, part(u), Type::f32));
  }
  SENNIT_RETURN_IF_ERROR(allocate(&m.first_moment, kept.count, Type::f32));
  return allocate(&m.second_moment, kept.count, Type::f32);
}

float* ParameterShards::at(State state, size_t u, int64_t element) const {
  const UnitMemory& m = memory_[u];
  const int64_t of_kept = element - kept(u).first;
  switch (state) {
    case State::master:
      return m.master + of_kept;
    case State::first_moment:
      return m.first_moment + of_kept;
    case State::second_moment:
      return m.second_moment + of_kept;
    case State::gradient:
      return m.owned_gradients + (element - owned(u).first);
  }
  return nullptr;
}

void* ParameterShards::weight_at(size_t u, int64_t element) const {
  return static_cast<char*>(memory_[u].kept_weights) +
         index(element - kept(u).first) * bytes_of(type_);
}

ElementRange within(const ParameterBox& box, const ElementRange& range) {
  const int64_t first = std::max(box.first, range.first);
  const int64_t end = std::min(box.first + box.elements, range.first + range.count);
  return {first, std::max<int64_t>(0, end - first)};
}

std::vector<TensorPiece> pieces_of(const ParameterShards& shards, State state, bool owned,
                                   int tensor, int tensors) {
  const char* const prefix = state == State::first_moment    ? kFirstMoment
                             : state == State::second_moment ? kSecondMoment
                                                             : "";
  std::vector<TensorPiece> pieces;
  for (size_t u = 0; u < shards.units(); u++)
    for (const ParameterBox& box : shards.layout().units[u].boxes) {
      const ElementRange mine = within(box, owned ? shards.owned(u) : shards.kept(u));
      if (owned && box.second) continue;
      TensorPiece whole;
      whole.name = prefix + box.name;
      whole.shape = box.shape;
      whole.offset = box.offset;
      whole.extent = box.extent;
      if (owned && box.whole) {
        whole.replica = tensor;
        whole.replicas = tensors;
      }
      for (TensorPiece& piece : pieces_of_range(whole, mine.first - box.first, mine.count,
                                                shards.at(state, u, mine.first)))
        pieces.push_back(std::move(piece));
    }
  return pieces;
}

}  // namespace sennit::trainer
