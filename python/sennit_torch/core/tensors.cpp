// tensors.cpp: see python/sennit_torch/core/tensors.hpp.
#include "core/tensors.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "core/device.hpp"

namespace sennit_torch {
namespace {

void usable(const char* call, const Tensor& tensor) {
  TORCH_CHECK(tensor.device().is_cpu() || tensor.device().is_cuda(), "sennit: ", call,
              ": a tensor on ", tensor.device(),
              "; sennit works on host memory and on CUDA devices");
  TORCH_CHECK(tensor.layout() == at::kStrided, "sennit: ", call, ": a tensor of layout ",
              tensor.layout(), "; it must be dense");
}

}  // namespace

Tensor& only(const char* call, Tensors& tensors) {
  TORCH_CHECK(tensors.size() == 1, "sennit: ", call, ": ", tensors.size(),
              " tensors; a rank has one");
  return tensors[0];
}

Tensor dense(const char* call, const Tensor& tensor) {
  const at::NoGradGuard no_grad;
  usable(call, tensor);
  return tensor.contiguous();
}

size_t bytes_of(const Tensor& tensor) { return tensor.nbytes(); }

Tensor joined(const char* call, const Tensors& tensors, bool with_contents) {
  const at::NoGradGuard no_grad;
  device_of(call, tensors);  // they have one
  int64_t elements = 0;
  for (const Tensor& tensor : tensors) {
    usable(call, tensor);
    TORCH_CHECK(tensor.scalar_type() == tensors[0].scalar_type(), "sennit: ", call, ": tensors of ",
                tensors[0].scalar_type(), " and ", tensor.scalar_type());
    elements += tensor.numel();
  }
  Tensor all = at::empty({elements}, tensors[0].options());
  if (!with_contents) return all;
  int64_t at = 0;
  for (const Tensor& tensor : tensors) {
    all.narrow(0, at, tensor.numel()).copy_(tensor.reshape({-1}));
    at += tensor.numel();
  }
  return all;
}

void scattered(const Tensor& all, const Tensors& tensors) {
  const at::NoGradGuard no_grad;
  int64_t at = 0;
  for (const Tensor& tensor : tensors) {
    tensor.copy_(all.narrow(0, at, tensor.numel()).view(tensor.sizes()));
    at += tensor.numel();
  }
}

std::function<void()> back_into(const Tensor& tensor, const Tensor& dense_one) {
  if (tensor.is_same(dense_one) || tensor.data_ptr() == dense_one.data_ptr()) return nullptr;
  return [tensor, dense_one] {
    const at::NoGradGuard no_grad;
    tensor.copy_(dense_one);
  };
}

void equal_sizes(const char* call, const Tensors& tensors, int64_t elements, int ranks) {
  TORCH_CHECK(tensors.size() == static_cast<size_t>(ranks), "sennit: ", call, ": ", tensors.size(),
              " tensors for ", ranks, " ranks");
  for (const Tensor& tensor : tensors)
    TORCH_CHECK(tensor.numel() == elements, "sennit: ", call, ": tensors of ", tensor.numel(),
                " and ", elements, " elements");
}

void equal_types(const char* call, const Tensor& from, const Tensor& to) {
  TORCH_CHECK(from.scalar_type() == to.scalar_type(), "sennit: ", call, ": ", from.scalar_type(),
              " into ", to.scalar_type());
}

}  // namespace sennit_torch
