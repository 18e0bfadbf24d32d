// cross_entropy.cpp: the softmax over a vocabulary that may be cut over ranks, and its gradient
// (see trainer/device/device.hpp).
#include "trainer/device/cpu/cpu_device.hpp"

namespace sennit::trainer {
namespace {
float value_at(const Matrix& m, int64_t row, int64_t column) {
  if (m.type == Type::f32) return *static_cast<const float*>(at(m, row, column));
  const uint32_t bits = static_cast<uint32_t>(*static_cast<const uint16_t*>(at(m, row, column)))
                        << 16;
  return __builtin_bit_cast(float, bits);
}
}  // namespace

void CpuDevice::largest_logits(float* largest, Matrix logits) {
  pieces(logits.rows, rows_of_piece(logits.columns), [&](int64_t first, int64_t count) {
    for (int64_t row = first; row < first + count; row++)
      largest[row] = kernels_.largest(at(logits, row), logits.type, logits.columns);
  });
}

void CpuDevice::sum_logits(float* sums, float* target_logits, Matrix logits, const float* largest,
                           const int32_t* targets, int64_t first_token) {
  pieces(logits.rows, rows_of_piece(logits.columns), [&](int64_t first, int64_t count) {
    for (int64_t row = first; row < first + count; row++) {
      const int64_t target = targets[row] - first_token;
      const bool here = targets[row] >= 0 && target >= 0 && target < logits.columns;
      sums[row] = kernels_.sum_exp(at(logits, row), logits.type, logits.columns, largest[row]);
      target_logits[row] = here ? value_at(logits, row, target) : 0.0f;
    }
  });
}

void CpuDevice::cross_entropy_gradient(Matrix dlogits, Matrix logits, const float* largest,
                                       const float* sums, const int32_t* targets,
                                       int64_t first_token, float scale) {
  pieces(logits.rows, rows_of_piece(logits.columns), [&](int64_t first, int64_t count) {
    for (int64_t row = first; row < first + count; row++) {
      const int64_t target = targets[row] - first_token;
      const bool left_out = targets[row] < 0,
                 here = !left_out && target >= 0 && target < logits.columns;
      // Before the row is overwritten: the target's element is worked out in f32 and rounded once.
      float at_target = here ? value_at(logits, row, target) : 0.0f;
      if (here) {
        kernels_.softmax_gradient(&at_target, Type::f32, &at_target, Type::f32, 1, largest[row],
                                  scale / sums[row]);
        at_target -= scale;
      }
      kernels_.softmax_gradient(at(dlogits, row), dlogits.type, at(logits, row), logits.type,
                                logits.columns, largest[row], left_out ? 0.0f : scale / sums[row]);
      if (here) kernels_.convert(at(dlogits, row, target), dlogits.type, &at_target, Type::f32, 1);
    }
  });
}

}  // namespace sennit::trainer
