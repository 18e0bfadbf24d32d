// parameter_shards.hpp: which elements of every unit this rank keeps, and their memory: weights,
// gradients, masters and moments (arXiv 1910.02054).
//
// The ranks of a replica group (data x context) hold the same units. Each of the S ranks *owns* the
// S-th part of every unit's flat buffer, and *keeps* what `zero` says:
//   zero 0   all of everything
//   zero 1   masters and moments of the own part alone
//   zero 2   gradients too
//   zero 3   weights too
// Bytes a parameter, bf16 (f32): zero 0: 2 + 4 + 12 (4 + 4 + 8); 1: 2 + 4 + 12/S; 2: 2 + 16/S; 3:
// 18/S. What is whole for a while only is not here: weight_gathers.hpp, gradient_sums.hpp.
#pragma once

#include <memory>
#include <vector>

#include "trainer/device/device.hpp"
#include "trainer/model/parameter_layout.hpp"

namespace sennit::trainer {

enum class State : uint8_t { master, first_moment, second_moment, gradient };

// What a rank keeps of one unit, in the device's memory; null where it keeps none.
struct UnitMemory {
  void* weights = nullptr;       // the whole unit; null with zero 3
  void* kept_weights = nullptr;  // of the elements whose masters are kept
  float* gradients = nullptr;    // the whole unit; null with zero 2 and 3
  float* owned_gradients = nullptr;
  // of the elements that are kept; in f32 these masters are the weights themselves
  float* master = nullptr;
  float* first_moment = nullptr;
  float* second_moment = nullptr;
};

// Elements [first, first + count) of a unit.
struct ElementRange {
  int64_t first = 0, count = 0;
};

// What this rank keeps of every unit. Elements are counted from the unit's first. u: below units().
class ParameterShards {
 public:
  // shards: ranks of the replica group, of which this is number `shard`. Where there is one, zero
  // is 0. Errors: the device's memory.
  static Result<std::unique_ptr<ParameterShards>> create(ParameterLayout layout, int shards,
                                                         int shard, Device& device, Type type,
                                                         int zero);
  ~ParameterShards();
  ParameterShards(const ParameterShards&) = delete;
  ParameterShards& operator=(const ParameterShards&) = delete;

  const ParameterLayout& layout() const { return layout_; }
  size_t units() const { return memory_.size(); }
  Device& device() const { return device_; }
  Type type() const { return type_; }  // of the weights
  int zero() const { return zero_; }
  int count() const { return shards_; }
  size_t bytes() const { return held_bytes_; }  // from the device

  ElementRange owned(size_t u) const { return {part(u) * shard_, part(u)}; }
  ElementRange kept(size_t u) const { return zero_ == 0 ? ElementRange{0, size(u)} : owned(u); }
  int64_t size(size_t u) const { return layout_.units[u].size; }
  int64_t part(size_t u) const { return size(u) / shards_; }

  const UnitMemory& operator[](size_t u) const { return memory_[u]; }
  // Of an element that is kept.
  float* at(State state, size_t u, int64_t element) const;
  void* weight_at(size_t u, int64_t element) const;

 private:
  ParameterShards(ParameterLayout layout, int shards, int shard, Device& device, Type type,
                  int zero);
  Status allocate(size_t u);
  template <typename T>
  Status allocate(T** memory, int64_t elements, Type type);

  ParameterLayout layout_;
  Device& device_;
  Type type_;
  int zero_, shards_, shard_;
  std::vector<UnitMemory> memory_;
  std::vector<void*> allocations_;
  size_t held_bytes_ = 0;
};

// Those of a box's elements that lie in a range of its unit.
ElementRange within(const ParameterBox& box, const ElementRange& range);

// Boxes of a rank's state, for checkpoints and tests; they point to the device's memory, which must
// be at rest. Of what it owns, those of all ranks tile every tensor, but for replicas, which the
// pieces say (by tensor rank `tensor` of `tensors`). Else of all that it keeps, to be filled.
std::vector<TensorPiece> pieces_of(const ParameterShards& shards, State state, bool owned,
                                   int tensor, int tensors);

}  // namespace sennit::trainer
