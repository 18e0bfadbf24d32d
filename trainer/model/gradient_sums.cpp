// gradient_sums.cpp: see trainer/model/gradient_sums.hpp.
#include "trainer/model/gradient_sums.hpp"

#include "base/index.hpp"

namespace sennit::trainer {
namespace {
constexpr size_t kOpenReductions = 2;  // units whose gradients are on their way, with zero 2 and 3
}  // namespace

GradientSums::GradientSums(const ParameterShards& shards, const Mesh& mesh, Pool& pool)
    : shards_(shards), mesh_(mesh), pool_(pool), units_(shards.units()) {
  for (size_t u = 0; u < units_.size(); u++) units_[u].whole = shards[u].gradients;
}

void GradientSums::open(int unit) {
  if (shards_.zero() < 2) return;
  SummedUnit& mine = units_[index(unit)];
  finish_reduction(index(unit));
  mine.opened = pool_.take(Type::f32, 1, shards_.size(index(unit)));
  mine.whole = mine.opened->f32();
  shards_.device().zero(mine.whole, mine.opened->bytes());
}

void GradientSums::close(int unit, bool last) {
  const size_t u = index(unit);
  SummedUnit& mine = units_[u];
  const int zero = shards_.zero();
  if (zero < 2 && !last) return;
  if (mesh_.tensor->size() > 1)
    for (const auto& [first, elements] : shards_.layout().units[u].tensor_sums)
      mesh_.tensor->all_reduce(mine.whole + first, index(elements), Element::f32).wait();
  if (shards_.count() == 1) return;
  const size_t part = index(shards_.part(u));
  if (zero == 0 && !reduced_last(u)) {
    mine.transfer = mesh_.replica->all_reduce(mine.whole, index(shards_.size(u)), Element::f32);
  } else if (zero < 2) {
    mine.transfer =
        mesh_.replica->reduce_scatter(mine.whole, shards_[u].owned_gradients, part, Element::f32);
  } else {
    mine.reduced = pool_.take_f32(shards_.part(u));
    mine.transfer =
        mesh_.replica->reduce_scatter(mine.whole, mine.reduced->f32(), part, Element::f32);
    reducing_.push_back(u);
    limit_open_reductions(kOpenReductions);
  }
}

float* GradientSums::at(const ParameterPlace& place) const {
  const SummedUnit& unit = units_[index(place.unit)];
  SENNIT_CHECK(unit.whole != nullptr);
  return unit.whole + place.first;
}

// Zero 0: whether it is the embedding, which is complete when the backward pass ends. A tied
// table's copies are summed whole, so they are not meant; nor layers, where the buckets' size would
// say who owns, and with that sums, what.
bool GradientSums::reduced_last(size_t u) const {
  return shards_.zero() == 0 && shards_.count() > 1 && !shards_.layout().units[u].tied_copies &&
         u == index(shards_.layout().embedding.unit);
}

// The sums of micro-batches are added in their order, because a unit's are finished before its next
// begin.
void GradientSums::finish_reduction(size_t u) {
  SummedUnit& unit = units_[u];
  unit.transfer.wait();
  if (!unit.reduced) return;
  shards_.device().add(matrix_at(shards_[u].owned_gradients, Type::f32, 1, shards_.part(u)),
                       unit.reduced);
  unit.reduced.reset();
  unit.opened.reset();
  unit.whole = nullptr;
  std::erase(reducing_, u);
}

void GradientSums::limit_open_reductions(size_t most) {
  while (reducing_.size() > most) finish_reduction(reducing_.front());
}

void GradientSums::clear() {
  for (size_t u = 0; u < units_.size(); u++) {
    const UnitMemory& memory = shards_[u];
    const bool whole = memory.gradients != nullptr;
    shards_.device().zero(whole ? memory.gradients : memory.owned_gradients,
                          index(whole ? shards_.size(u) : shards_.part(u)) * bytes_of(Type::f32));
  }
}

void GradientSums::finish() {
  for (size_t u = 0; u < units_.size(); u++) finish_reduction(u);
  for (size_t u = 0; u < units_.size(); u++) {
    if (!shards_.layout().units[u].tied_copies) continue;
    // Both copies are cut alike, so that part and part meet.
    float* const mine = shards_.zero() == 0 ? shards_[u].gradients : shards_[u].owned_gradients;
    mesh_.ends->all_reduce(mine, index(shards_.kept(u).count), Element::f32).wait();
  }
}

void GradientSums::gather_rest() {
  for (size_t u = units_.size(); u-- > 0;)
    if (reduced_last(u))
      units_[u].transfer = mesh_.replica->all_gather(
          shards_[u].owned_gradients, shards_[u].gradients, index(shards_.part(u)), Element::f32);
}

void GradientSums::wait(size_t u) { units_[u].transfer.wait(); }

}  // namespace sennit::trainer
