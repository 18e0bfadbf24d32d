// exported.hpp: the functions of NCCL's interface, declared as C++ sees them: what libsennit_nccl
// defines, and what a program calls.
#pragma once

#include "nccl/functions.h"

#define SENNIT_NCCL_DECLARE(state, result, name, parameters, arguments)     \
  extern "C" __attribute__((visibility("default"))) result name parameters; \
  extern "C" __attribute__((visibility("default"))) result p##name parameters;
NCCL_FUNCTIONS(SENNIT_NCCL_DECLARE)
#undef SENNIT_NCCL_DECLARE
