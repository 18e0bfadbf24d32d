// weight_gathers.cpp: see trainer/model/weight_gathers.hpp.
#include "trainer/model/weight_gathers.hpp"

#include "base/index.hpp"

namespace sennit::trainer {
namespace {
constexpr size_t kGathersAhead = 2;  // units whose weights are on their way beside the one in use
}  // namespace

WeightGathers::WeightGathers(const ParameterShards& shards, const Mesh& mesh, Pool& pool)
    : shards_(shards), mesh_(mesh), pool_(pool), units_(shards.units()) {
  for (size_t u = 0; u < units_.size(); u++) units_[u].whole = shards[u].weights;
}

void WeightGathers::start(size_t u) {
  GatheredUnit& unit = units_[u];
  if (shards_.zero() == 3) {
    unit.memory = pool_.take(shards_.type(), 1, shards_.size(u));
    unit.whole = unit.memory->data;
  }
  unit.transfer = mesh_.replica_weights->all_gather(
      shards_[u].kept_weights, unit.whole, index(shards_.part(u)), element_of(shards_.type()));
}

// Zero 1, 2: starts the gathers of the units up to u that were not yet.
void WeightGathers::start_up_to(size_t u) {
  for (; started_ <= u && started_ < units_.size(); started_++) start(started_);
}

void WeightGathers::acquire(int unit, int next) {
  GatheredUnit& mine = units_[index(unit)];
  const int zero = shards_.zero();
  if (zero == 1 || zero == 2) start_up_to(index(unit) + kGathersAhead);
  if (zero == 3 && !mine.memory) start(index(unit));
  mine.users++;
  if (zero == 3 && next >= 0 && !units_[index(next)].memory) start(index(next));
  mine.transfer.wait();
}

void WeightGathers::release(int unit) {
  GatheredUnit& mine = units_[index(unit)];
  SENNIT_CHECK(mine.users > 0);
  if (--mine.users > 0 || shards_.zero() < 3) return;
  mine.memory.reset();
  mine.whole = nullptr;
}

const void* WeightGathers::at(const ParameterPlace& place) const {
  const GatheredUnit& unit = units_[index(place.unit)];
  SENNIT_CHECK(unit.users > 0);
  return static_cast<const char*>(unit.whole) + index(place.first) * bytes_of(shards_.type());
}

void WeightGathers::publish() {
  for (size_t u = 0; u < units_.size(); u++) {
    wait(u);  // what is on its way is old
    const int64_t kept = shards_.kept(u).count;
    if (shards_.type() != Type::f32)
      shards_.device().convert(matrix_at(shards_[u].kept_weights, shards_.type(), 1, kept),
                               matrix_at(shards_[u].master, Type::f32, 1, kept));
    forget(u);
  }
  begin_update();
  if (shards_.zero() == 1 || shards_.zero() == 2) start_up_to(0);
}

void WeightGathers::wait(size_t u) { units_[u].transfer.wait(); }

void WeightGathers::wait_for_all() {
  for (size_t u = 0; u < units_.size(); u++) wait(u);
}

void WeightGathers::begin_update() { started_ = 0; }

void WeightGathers::forget(size_t u) { units_[u].memory.reset(); }

void WeightGathers::start_first() {
  if (shards_.zero() == 3) start(0);
  if (shards_.zero() == 1 || shards_.zero() == 2) start_up_to(0);
}

}  // namespace sennit::trainer
