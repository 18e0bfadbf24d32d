// parameters.cpp: see trainer/model/parameters.hpp: weights on demand, and gradients on their way.
#include "trainer/model/parameters.hpp"

#include <cmath>

#include "base/index.hpp"

namespace sennit::trainer {
namespace {
constexpr size_t kGathersAhead = 2;    // units whose weights are on their way beside the one in use
constexpr size_t kOpenReductions = 2;  // units whose gradients are on their way, with zero 2 and 3
}  // namespace

Parameters::Parameters(Layout layout, const Mesh& mesh, Device& device, Pool& pool, Type type,
                       int zero)
    : layout_(std::move(layout)),
      mesh_(mesh),
      device_(device),
      pool_(pool),
      type_(type),
      zero_(mesh.replica->size() == 1 ? 0 : zero),
      shards_(mesh.replica->size()),
      shard_(mesh.replica->rank()),
      memory_(layout_.units.size()) {}

Parameters::~Parameters() {
  memory_.clear();
  for (void* const memory : allocations_) device_.release(memory);
}

template <typename T>
Status Parameters::allocate(T** memory, int64_t elements, size_t element_bytes) {
  const Result<void*> block = device_.allocate(index(elements) * element_bytes);
  if (!block) return block.status();
  *memory = static_cast<T*>(*block);
  allocations_.push_back(*block);
  held_bytes_ += index(elements) * element_bytes;
  return {};
}

Status Parameters::allocate() {
  for (size_t u = 0; u < memory_.size(); u++) {
    Memory& m = memory_[u];
    const int64_t whole = layout_.units[u].size;
    const bool f32 = type_ == Type::f32;
    if (zero_ < 3) SENNIT_RETURN_IF_ERROR(allocate(&m.weights, whole, bytes_of(type_)));
    if (zero_ == 3 && !f32)
      SENNIT_RETURN_IF_ERROR(allocate(&m.weights_part, part(u), bytes_of(type_)));
    if (f32 && zero_ < 3)
      m.master = static_cast<float*>(m.weights) + first_kept(u);
    else
      SENNIT_RETURN_IF_ERROR(allocate(&m.master, kept(u), bytes_of(Type::f32)));
    if (f32 && zero_ == 3) m.weights_part = m.master;
    if (zero_ < 2)
      SENNIT_RETURN_IF_ERROR(allocate(&m.gradients, whole, bytes_of(Type::f32)));
    else
      SENNIT_RETURN_IF_ERROR(allocate(&m.gradients_part, part(u), bytes_of(Type::f32)));
    SENNIT_RETURN_IF_ERROR(allocate(&m.first_moment, kept(u), bytes_of(Type::f32)));
    SENNIT_RETURN_IF_ERROR(allocate(&m.second_moment, kept(u), bytes_of(Type::f32)));
  }
  return {};
}

Result<std::unique_ptr<Parameters>> Parameters::create(Layout layout, const Mesh& mesh,
                                                       Device& device, Pool& pool, Type type,
                                                       int zero, uint64_t seed) {
  std::unique_ptr<Parameters> parameters(
      new Parameters(std::move(layout), mesh, device, pool, type, zero));
  SENNIT_RETURN_IF_ERROR(parameters->allocate());
  parameters->start_from(seed);
  return parameters;
}

// ---- weights ----

void Parameters::start_gather(size_t u) {
  Memory& m = memory_[u];
  const void* own = m.weights_part;
  if (zero_ == 3) {
    m.gathered = pool_.take(type_, 1, layout_.units[u].size);
    m.weights = m.gathered->data;
  } else {
    own = static_cast<char*>(m.weights) + index(first_owned(u)) * bytes_of(type_);
  }
  m.gathering =
      mesh_.replica_weights->all_gather(own, m.weights, index(part(u)), element_of(type_));
}

// Zero 1, 2: starts the gathers of the units up to u that were not yet.
void Parameters::gather_up_to(size_t u) {
  for (; gathered_ <= u && gathered_ < memory_.size(); gathered_++) start_gather(gathered_);
}

void Parameters::acquire(int unit, int next) {
  Memory& m = memory_[index(unit)];
  if (zero_ == 1 || zero_ == 2) gather_up_to(index(unit) + kGathersAhead);
  if (zero_ == 3 && !m.gathered) start_gather(index(unit));
  m.users++;
  if (zero_ == 3 && next >= 0 && !memory_[index(next)].gathered) start_gather(index(next));
  m.gathering.wait();
}

void Parameters::release(int unit) {
  Memory& m = memory_[index(unit)];
  SENNIT_CHECK(m.users > 0);
  if (--m.users > 0 || zero_ < 3) return;
  m.gathered.reset();
  m.weights = nullptr;
}

const void* Parameters::weights(const ParameterPlace& place) const {
  const Memory& m = memory_[index(place.unit)];
  SENNIT_CHECK(m.users > 0);
  return static_cast<const char*>(m.weights) + index(place.first) * bytes_of(type_);
}

void Parameters::publish() {
  for (size_t u = 0; u < memory_.size(); u++) {
    Memory& m = memory_[u];
    m.gathering.wait();  // what is on its way is old
    void* const own = zero_ == 3
                          ? m.weights_part
                          : static_cast<char*>(m.weights) + index(first_kept(u)) * bytes_of(type_);
    if (type_ != Type::f32)
      device_.convert(matrix_at(own, type_, 1, kept(u)),
                      matrix_at(m.master, Type::f32, 1, kept(u)));
    m.gathered.reset();
  }
  gathered_ = 0;
  if (zero_ == 1 || zero_ == 2) gather_up_to(0);
}

// ---- gradients ----

void Parameters::open_gradient(int unit) {
  Memory& m = memory_[index(unit)];
  if (zero_ < 2) return;
  finish_reduction(index(unit));
  m.opened = pool_.take(Type::f32, 1, layout_.units[index(unit)].size);
  m.gradients = m.opened->f32();
  device_.zero(m.gradients, m.opened->bytes());
}

void Parameters::close_gradient(int unit, bool last) {
  const size_t u = index(unit);
  Memory& m = memory_[u];
  if (zero_ < 2 && !last) return;
  if (mesh_.tensor->size() > 1)
    for (const auto& [first, elements] : layout_.units[u].tensor_sums)
      mesh_.tensor->all_reduce(m.gradients + first, index(elements), Element::f32).wait();
  if (shards_ == 1) return;
  if (zero_ == 0 && !reduced_last(u)) {
    m.reducing = mesh_.replica->all_reduce(m.gradients, index(layout_.units[u].size), Element::f32);
  } else if (zero_ < 2) {
    m.reducing = mesh_.replica->reduce_scatter(m.gradients, m.gradients + first_owned(u),
                                               index(part(u)), Element::f32);
  } else {
    m.reduced = pool_.take_f32(part(u));
    m.reducing =
        mesh_.replica->reduce_scatter(m.gradients, m.reduced->f32(), index(part(u)), Element::f32);
    reducing_.push_back(u);
    limit_open_reductions(kOpenReductions);
  }
}

// Zero 0: whether it is the embedding, which is complete when the backward pass ends. A tied
// table's copies are summed whole, so they are not meant; nor layers, where the buckets' size would
// say who owns, and with that sums, what.
bool Parameters::reduced_last(size_t u) const {
  return zero_ == 0 && shards_ > 1 && !layout_.units[u].tied_copies &&
         u == index(layout_.embedding.unit);
}

// The sums of micro-batches are added in their order, because a unit's are finished before its next
// begin.
void Parameters::finish_reduction(size_t u) {
  Memory& m = memory_[u];
  m.reducing.wait();
  if (!m.reduced) return;
  device_.add(matrix_at(m.gradients_part, Type::f32, 1, part(u)), m.reduced);
  m.reduced.reset();
  m.opened.reset();
  m.gradients = nullptr;
  std::erase(reducing_, u);
}

void Parameters::limit_open_reductions(size_t most) {
  while (reducing_.size() > most) finish_reduction(reducing_.front());
}

float* Parameters::gradient(const ParameterPlace& place) const {
  const Memory& m = memory_[index(place.unit)];
  SENNIT_CHECK(m.gradients != nullptr);
  return m.gradients + place.first;
}

void Parameters::clear_gradients() {
  for (size_t u = 0; u < memory_.size(); u++) {
    if (zero_ < 2)
      device_.zero(memory_[u].gradients, index(layout_.units[u].size) * bytes_of(Type::f32));
    else
      device_.zero(memory_[u].gradients_part, index(part(u)) * bytes_of(Type::f32));
  }
}

float* Parameters::owned_gradient(size_t u) const {
  return zero_ < 2 ? memory_[u].gradients + first_owned(u) : memory_[u].gradients_part;
}

void Parameters::finish_gradients() {
  for (size_t u = 0; u < memory_.size(); u++) finish_reduction(u);
  for (size_t u = 0; u < memory_.size(); u++) {
    if (!layout_.units[u].tied_copies) continue;
    // Both copies are cut alike, so that part and part meet.
    float* const mine = zero_ == 0 ? memory_[u].gradients : owned_gradient(u);
    mesh_.ends->all_reduce(mine, index(kept(u)), Element::f32).wait();
  }
}

}  // namespace sennit::trainer
