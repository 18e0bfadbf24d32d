// rotate.cpp: rotary positions, in place (see trainer/device/device.hpp).
#include "trainer/device/cpu/cpu_device.hpp"

namespace sennit::trainer {

void CpuDevice::rotate(Matrix x, int64_t head_size, const float* cosines, const float* sines,
                       const int32_t* positions, bool backwards) {
  pieces(x.rows, rows_of_piece(x.columns), [&](int64_t first, int64_t count) {
    for (int64_t row = first; row < first + count; row++) {
      const int64_t table_row = positions[row] * (head_size / 2);
      kernels_.rotate(at(x, row), x.type, x.columns / head_size, head_size, cosines + table_row,
                      sines + table_row, backwards ? -1.0f : 1.0f);
    }
  });
}

}  // namespace sennit::trainer
