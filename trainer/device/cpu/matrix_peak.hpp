// matrix_peak.hpp: the matrix products per second that this process gets out of its cores: what
// model FLOPs are held against (MFU).
//
// Measured, not nominal: oneDNN multiplies square matrices that fit the second cache, in the layout
// that oneDNN likes best, on as many threads as the device has, and the fastest of many repetitions
// counts. Products inside a model must also fetch and lay out their operands, so a model cannot
// reach this. Cost: about 0.3 s each.
//
// Where ranks outnumber the cores of their host, the fastest repetition may be one that no other
// rank disturbed: there all repetitions count, by the time that they took together, so that all
// ranks are the machine.
#pragma once

#include "trainer/device/device.hpp"

namespace sennit::trainer {

// Floating-point operations (a multiply-add is two) of all `threads` together.
struct MatrixPeak {
  double flops_per_s = 0;            // of the fastest repetition
  double sustained_flops_per_s = 0;  // of all
  int threads = 0;
};

// threads: 0: one per core that this process may run on. For bf16 on a processor without bf16
// products: that of f32, as the device then multiplies in f32.
MatrixPeak measure_matrix_peak(Type type, int threads);

// Of the cores that a rank's threads compute on when alone, the part that it has beside the other
// ranks of its host: 1 where there are cores for all of them. Pure.
double share_of_cores(int threads, int ranks, int cores);
// Of a rank of so many on a host with so many cores, from what was measured by all of them at once,
// or by one that had the host to itself. Pure.
double rank_peak(const MatrixPeak& peak, int ranks, int cores, bool at_once);

}  // namespace sennit::trainer
