// adamw.cpp: the optimiser's step, element by element (see trainer/device/device.hpp). Bound by
// memory: 28 bytes an element are read or written, 30 with a bf16 weight.
#include "trainer/device/cpu/cpu_device.hpp"

namespace sennit::trainer {

void CpuDevice::adamw(float* master, float* first_moment, float* second_moment,
                      const float* gradient, void* weight, Type weight_type, size_t n,
                      const AdamW& parameters) {
  pieces(static_cast<int64_t>(n), kPieceElements, [&](int64_t first, int64_t count) {
    void* rounded =
        weight ? static_cast<char*>(weight) + static_cast<size_t>(first) * bytes_of(weight_type)
               : nullptr;
    kernels_.adamw(master + first, first_moment + first, second_moment + first, gradient + first,
                   rounded, weight_type, count, parameters);
  });
}

}  // namespace sennit::trainer
