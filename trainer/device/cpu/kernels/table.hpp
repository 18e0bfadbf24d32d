// table.hpp: the table of one instruction set, for this folder's sources.
#pragma once

#include "trainer/device/cpu/kernels/attention_gradient.hpp"
#include "trainer/device/cpu/kernels/f32.hpp"
#include "trainer/device/cpu/kernels/rows.hpp"

#define SENNIT_CPU_TABLE(isa)                                                                 \
  {                                                                                           \
    isa, add, convert, multiply_by, sum_of_squares, adamw, swiglu, swiglu_gradient, rms_norm, \
        rms_norm_gradient, rotate, largest, sum_exp, softmax_gradient, dot, join,             \
        attention_of_head<EngineF32>, attention_gradient_of_head<EngineF32>                   \
  }
