// pool.cpp: see trainer/device/pool.hpp.
#include "trainer/device/pool.hpp"

#include <new>

namespace sennit::trainer {

void PooledMatrix::reset() {
  if (pool_) pool_->free_[bytes_].push_back(matrix_.data);
  pool_ = nullptr;
  matrix_ = {};
}

Pool::~Pool() {
  for (const auto& [bytes, memory] : free_)
    for (void* const block : memory) device_.release(block);
}

PooledMatrix Pool::take(Type type, int64_t rows, int64_t columns) {
  const size_t wanted = static_cast<size_t>(rows * columns) * bytes_of(type);
  const size_t bytes = (std::max<size_t>(wanted, 1) + 63) / 64 * 64;
  Matrix matrix{nullptr, type, rows, columns, columns};
  std::vector<void*>& free = free_[bytes];
  if (!free.empty()) {
    matrix.data = free.back();
    free.pop_back();
  } else {
    const Result<void*> memory = device_.allocate(bytes);
    if (!memory) {
      failure_ = memory.status();
      throw std::bad_alloc();
    }
    matrix.data = *memory;
    held_bytes_ += bytes;
  }
  return {this, bytes, matrix};
}

}  // namespace sennit::trainer
