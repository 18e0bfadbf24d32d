// swiglu.cpp: SwiGLU and its gradient (see trainer/device/device.hpp).
#include "trainer/device/cpu/cpu_device.hpp"

namespace sennit::trainer {

void CpuDevice::swiglu(Matrix y, Matrix gate, Matrix up) {
  SENNIT_CHECK(y.type == gate.type && y.type == up.type);
  pieces(y.rows, rows_of_piece(y.columns), [&](int64_t first, int64_t count) {
    for (int64_t row = first; row < first + count; row++)
      kernels_.swiglu(at(y, row), at(gate, row), at(up, row), y.type, y.columns);
  });
}

void CpuDevice::swiglu_gradient(Matrix dgate, Matrix dup, Matrix dy, Matrix gate, Matrix up) {
  SENNIT_CHECK(dgate.type == dup.type && dgate.type == dy.type && dgate.type == gate.type &&
               dgate.type == up.type);
  pieces(dy.rows, rows_of_piece(dy.columns), [&](int64_t first, int64_t count) {
    for (int64_t row = first; row < first + count; row++)
      kernels_.swiglu_gradient(at(dgate, row), at(dup, row), at(dy, row), at(gate, row),
                               at(up, row), dy.type, dy.columns);
  });
}

}  // namespace sennit::trainer
