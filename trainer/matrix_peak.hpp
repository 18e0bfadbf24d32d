// matrix_peak.hpp: the matrix products per second that this process gets out of its cores: what model FLOPs
// are held against (MFU).
//
// Measured, not nominal: oneDNN multiplies square matrices that fit the second cache, in the layout that
// oneDNN likes best, on as many threads as the device has, and the fastest of many repetitions counts.
// Products inside a model must also fetch and lay out their operands, so a model cannot reach this. Cost:
// about 0.3 s each.
#pragma once

#include "device.hpp"

namespace sennit::trainer {

struct MatrixPeak {
  double flops_per_s = 0;
  int threads = 0;
};

// threads: 0: one per core that this process may run on. For bf16 on a processor without bf16 products: that
// of f32, as the device then multiplies in f32.
MatrixPeak measure_matrix_peak(Type type, int threads);

}  // namespace sennit::trainer
