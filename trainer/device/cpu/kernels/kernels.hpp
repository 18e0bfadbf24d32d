// kernels.hpp: the loops of the CPU device, compiled once per instruction set and picked at run
// time.
//
// The same text (this folder's headers) gives each table; a vector is 16 floats everywhere, so that
// the order of sums is the same on every instruction set (the rounding is not: only some have fused
// multiply-add).
#pragma once

#include "trainer/device/device.hpp"

namespace sennit::trainer {

// Memory that a thread works in: grown when more is asked for, never shared.
class CpuScratch {
 public:
  CpuScratch() = default;
  ~CpuScratch();
  CpuScratch(const CpuScratch&) = delete;
  CpuScratch& operator=(const CpuScratch&) = delete;
  void* reserve(size_t bytes_needed);  // aligned to 64 bytes; what was there may be lost
  void* memory() const { return memory_; }
  size_t bytes() const { return bytes_; }

 private:
  void* memory_ = nullptr;
  size_t bytes_ = 0;
};

// One attention or attention_gradient of Device, whole, with its arguments. All threads that work
// on it share it.
struct AttentionCall {
  Matrix out, q, k, v, dout, dq, dk, dv;  // out: forward; dout, dq, dk, dv: gradient
  float* log_sums = nullptr;
  const float* dots = nullptr;
  AttentionShape shape;
  bool accumulate = false;  // into dq, dk and dv
};

// The loops of one instruction set, which compute what Device says of the operations of these
// names. One call works on one row, or on n elements, without gaps, in the calling thread; threads
// and the cut into parts are the business of the sources above this folder.
struct CpuKernels {
  const char* name;

  // n elements
  void (*add)(void* y, Type y_type, const void* x, Type x_type, int64_t n);
  void (*convert)(void* y, Type y_type, const void* x, Type x_type, int64_t n);
  void (*multiply_by)(void* y, Type type, float factor, int64_t n);
  double (*sum_of_squares)(const float* x, int64_t n);
  void (*adamw)(float* master, float* first, float* second, const float* gradient, void* weight,
                Type type, int64_t n, const AdamW& parameters);
  void (*swiglu)(void* y, const void* gate, const void* up, Type type, int64_t n);
  void (*swiglu_gradient)(void* dgate, void* dup, const void* dy, const void* gate, const void* up,
                          Type type, int64_t n);

  // one row of n elements
  void (*rms_norm)(void* y, float* inverse_rms, const void* x, const void* weight, Type type,
                   int64_t n, float epsilon);
  void (*rms_norm_gradient)(void* dx, Type dx_type, bool accumulate, float* dweight, const void* dy,
                            const void* x, const void* weight, Type type, float inverse_rms,
                            int64_t n);
  void (*rotate)(void* x, Type type, int64_t heads, int64_t head_size, const float* cosines,
                 const float* sines,
                 float direction);  // +1 forwards, -1 backwards
  float (*largest)(const void* x, Type type, int64_t n);
  float (*sum_exp)(const void* x, Type type, int64_t n, float largest);
  void (*softmax_gradient)(void* dx, Type dx_type, const void* x, Type type, int64_t n,
                           float largest, float factor);
  float (*dot)(const void* a, Type a_type, const void* b, Type b_type, int64_t n);
  void (*join)(float* out, float out_factor, const void* other, Type other_type, float other_factor,
               int64_t n);

  // what shares one key/value head of a sequence: queries [first, first + count) of its heads, or
  // all of them
  void (*attention)(const AttentionCall& call, int64_t sequence, int64_t kv_head, int64_t first,
                    int64_t count, CpuScratch& scratch);
  void (*attention_gradient)(const AttentionCall& call, int64_t sequence, int64_t kv_head,
                             CpuScratch& scratch);
};

extern const CpuKernels kCpuGeneric, kCpuAvx2, kCpuAvx512, kCpuAvx512Bf16;

// The best of this machine.
const CpuKernels& cpu_kernels();

}  // namespace sennit::trainer
