// norm.cpp: RMSNorm and its gradient (see trainer/device/device.hpp). The gradient of the weight is
// summed over the rows of each of at most 64 parts, then over the parts in their order.
#include "trainer/device/cpu/cpu_device.hpp"

namespace sennit::trainer {

void CpuDevice::rms_norm(Matrix y, float* inverse_rms, Matrix x, const void* weight,
                         float epsilon) {
  SENNIT_CHECK(y.type == x.type);
  pieces(x.rows, rows_of_piece(x.columns), [&](int64_t first, int64_t count) {
    for (int64_t row = first; row < first + count; row++)
      kernels_.rms_norm(at(y, row), inverse_rms + row, at(x, row), weight, x.type, x.columns,
                        epsilon);
  });
}

void CpuDevice::rms_norm_gradient(Matrix dx, bool accumulate_dx, float* dweight, Matrix dy,
                                  Matrix x, const void* weight, const float* inverse_rms) {
  SENNIT_CHECK(dy.type == x.type);
  const int64_t piece = std::max<int64_t>(rows_of_piece(x.columns), (x.rows + 63) / 64);
  const int64_t parts = (x.rows + piece - 1) / piece;
  std::vector<float> partial(static_cast<size_t>(parts * x.columns));
  pieces(x.rows, piece, [&](int64_t first, int64_t count) {
    float* sum = partial.data() + first / piece * x.columns;
    for (int64_t row = first; row < first + count; row++)
      kernels_.rms_norm_gradient(at(dx, row), dx.type, accumulate_dx, sum, at(dy, row), at(x, row),
                                 weight, x.type, inverse_rms[row], x.columns);
  });
  for (int64_t part = 0; part < parts; part++)
    kernels_.add(dweight, Type::f32, partial.data() + part * x.columns, Type::f32, x.columns);
}

}  // namespace sennit::trainer
