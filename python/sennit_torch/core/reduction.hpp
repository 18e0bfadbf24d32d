// reduction.hpp: a reduction of PyTorch's as one of sennit's: which type, which operation, how many
// elements. What is only moved is moved as bytes, and needs none of this.
#pragma once

#include <cstddef>

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include "sennit/sennit.h"

namespace sennit_torch {

// What a call of sennit's is given.
struct TorchReduction {
  sennit_type_t type;
  sennit_op_t op;
  size_t count;
  // One element in host memory: each rank's are multiplied by it first.
  at::Tensor factor = {};
  // In its place one on the tensor's device, which the call reads when its stream comes to it.
  at::Tensor factor_on_device = {};
};

// A complex number's parts add up one by one; a bool's sum is "or", its product "and". Throws, and
// names the call, where sennit has no such reduction.
TorchReduction reduction_of(const char* call, const at::Tensor& tensor, const c10d::ReduceOp& op);

// Makes a call with the reduction's operation, which may have to be made for it.
template <typename Call>
sennit_status_t with_operation(const TorchReduction& r, sennit_comm_t comm, const Call& call) {
  const bool on_device = r.factor_on_device.defined();
  if (!on_device && !r.factor.defined()) return call(r.op);
  sennit_op_t product_sum = SENNIT_SUM;
  const sennit_status_t made =
      on_device ? sennit_op_create_premul_sum_in_stream(&product_sum, r.factor_on_device.data_ptr(),
                                                        r.type, comm)
                : sennit_op_create_premul_sum(&product_sum, r.factor.data_ptr(), r.type, comm);
  if (made != SENNIT_OK) return made;
  const sennit_status_t status = call(product_sum);
  sennit_op_destroy(product_sum, comm);
  return status;
}

}  // namespace sennit_torch
