// pool.hpp: the device's memory for activations: taken and given back many times a step, always in
// the same few sizes, so that after the first step nothing is allocated.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "trainer/device/device.hpp"

namespace sennit::trainer {

class Pool;

// A matrix of a pool's memory, or none. The memory is not zeroed, and goes back to the pool with
// this: the next take() may give it to others, so transfers of it must have ended.
class PooledMatrix {
 public:
  PooledMatrix() = default;
  PooledMatrix(Pool* pool, size_t bytes, Matrix matrix)
      : pool_(pool), bytes_(bytes), matrix_(matrix) {}
  PooledMatrix(PooledMatrix&& other) noexcept
      : pool_(std::exchange(other.pool_, nullptr)),
        bytes_(other.bytes_),
        matrix_(std::exchange(other.matrix_, Matrix())) {}
  PooledMatrix& operator=(PooledMatrix&& other) noexcept {
    std::swap(pool_, other.pool_);
    std::swap(bytes_, other.bytes_);
    std::swap(matrix_, other.matrix_);
    return *this;
  }
  PooledMatrix(const PooledMatrix&) = delete;
  PooledMatrix& operator=(const PooledMatrix&) = delete;
  ~PooledMatrix() { reset(); }
  void reset();

  explicit operator bool() const { return matrix_.data != nullptr; }
  operator Matrix() const { return matrix_; }  // NOLINT: a buffer is used as its matrix
  const Matrix& operator*() const { return matrix_; }
  const Matrix* operator->() const { return &matrix_; }

 private:
  Pool* pool_ = nullptr;
  size_t bytes_ = 0;
  Matrix matrix_;
};

// The device's memory in blocks, which go back to the device with the pool alone. take() throws
// std::bad_alloc where the device has no more; the trainer catches that at its border, and
// failure() has the text. One thread.
class Pool {
 public:
  explicit Pool(Device& device) : device_(device) {}
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  // Rows without gaps. It goes back when the matrix does, which must be before the pool.
  PooledMatrix take(Type type, int64_t rows, int64_t columns);
  PooledMatrix take_f32(int64_t n) { return take(Type::f32, 1, n); }
  size_t bytes() const { return held_bytes_; }        // from the device
  const Status& failure() const { return failure_; }  // why take() last threw

 private:
  friend class PooledMatrix;
  Device& device_;
  std::map<size_t, std::vector<void*>> free_;  // by size
  size_t held_bytes_ = 0;
  Status failure_;
};

// Columns [first, first + columns) of a matrix; rows [first, first + rows).
inline Matrix columns_of(Matrix m, int64_t first, int64_t columns) {
  m.data = static_cast<char*>(m.data) + static_cast<size_t>(first) * bytes_of(m.type);
  m.columns = columns;
  return m;
}
inline Matrix rows_of(Matrix m, int64_t first, int64_t rows) {
  m.data = static_cast<char*>(m.data) + static_cast<size_t>(first * m.stride) * bytes_of(m.type);
  m.rows = rows;
  return m;
}
inline Matrix matrix_at(const void* data, Type type, int64_t rows, int64_t columns) {
  return {const_cast<void*>(data), type, rows, columns, columns};
}

}  // namespace sennit::trainer
