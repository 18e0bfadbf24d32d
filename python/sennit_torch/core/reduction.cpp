// reduction.cpp: see python/sennit_torch/core/reduction.hpp.
#include "core/reduction.hpp"

#include <cmath>

#include <ATen/ATen.h>

namespace sennit_torch {
namespace {

sennit_type_t type_of(const char* call, at::ScalarType type) {
  switch (type) {
    case at::kChar:
      return SENNIT_INT8;
    case at::kByte:
    case at::kBool:
      return SENNIT_UINT8;
    case at::kInt:
      return SENNIT_INT32;
    case at::kLong:
      return SENNIT_INT64;
    case at::kHalf:
      return SENNIT_FLOAT16;
    case at::kBFloat16:
      return SENNIT_BFLOAT16;
    case at::kFloat:
      return SENNIT_FLOAT32;
    case at::kDouble:
      return SENNIT_FLOAT64;
    case at::kFloat8_e4m3fn:
      return SENNIT_FLOAT8_E4M3;
    case at::kFloat8_e5m2:
      return SENNIT_FLOAT8_E5M2;
    case at::kUInt32:
      return SENNIT_UINT32;
    case at::kUInt64:
      return SENNIT_UINT64;
    default:
      break;
  }
  TORCH_CHECK(false, "sennit: ", call, ": elements of ", type, ", which nobody can reduce");
}

// Of what lies on a device only the type is known.
bool is_whole(const c10d::NCCLPreMulSumSupplement& of) {
  const at::Tensor& given = of.tensor_factor;
  if (!given.defined()) return std::fmod(of.double_factor, 1.0) == 0;
  if (c10::isIntegralType(given.scalar_type(), true)) return true;
  return given.is_cpu() && given.detach().to(at::kDouble).fmod(1.0).eq(0).all().item<bool>();
}

// Of a sum of products with a number. One that lies on a device is waited for where the tensor is
// in host memory.
void set_factor(const char* call, const c10d::ReduceOp& op, const at::Tensor& tensor,
                TorchReduction* r) {
  const auto* const of = dynamic_cast<const c10d::NCCLPreMulSumSupplement*>(op.supplement_.get());
  TORCH_CHECK(of, "sennit: a sum of products without the number to multiply by");
  const auto type =
      tensor.is_complex() ? c10::toRealValueType(tensor.scalar_type()) : tensor.scalar_type();
  const at::Tensor& given = of->tensor_factor;
  const at::ScalarType its_type = given.defined() ? given.scalar_type() : at::kDouble;
  TORCH_CHECK(!c10::isComplexType(its_type), "sennit: ", call,
              ": a sum of products with a complex number; it must be a real one");
  TORCH_CHECK(!c10::isIntegralType(type, false) || is_whole(*of), "sennit: ", call,
              ": a sum of products of ", type, " with a number",
              given.defined() && !given.is_cpu() ? " of a type" : "", " that is not whole, which ",
              type, " cannot hold");
  if (!given.defined())
    r->factor = at::scalar_tensor(of->double_factor, at::dtype(type));
  else if (given.is_cuda() && tensor.is_cuda())
    r->factor_on_device = given.detach().to(tensor.device(), type);
  else
    r->factor = given.detach().to(at::kCPU, type);
}

}  // namespace

TorchReduction reduction_of(const char* call, const at::Tensor& tensor, const c10d::ReduceOp& op) {
  const bool is_bool = tensor.scalar_type() == at::kBool;
  const auto kind = static_cast<c10d::ReduceOp::RedOpType>(op);
  TorchReduction r{SENNIT_UINT8, SENNIT_SUM, static_cast<size_t>(tensor.numel())};
  if (tensor.is_complex()) {
    TORCH_CHECK(kind == c10d::ReduceOp::SUM || kind == c10d::ReduceOp::AVG ||
                    kind == c10d::ReduceOp::PREMUL_SUM,
                "sennit: ", call,
                ": complex numbers have no order, and only sums and averages of them are made");
    r.type = type_of(call, c10::toRealValueType(tensor.scalar_type()));
    r.count *= 2;
  } else {
    r.type = type_of(call, tensor.scalar_type());
  }
  TORCH_CHECK_TYPE(!is_bool || (kind != c10d::ReduceOp::AVG && kind != c10d::ReduceOp::PREMUL_SUM),
                   "sennit: ", call, ": truth values have no average and no products with numbers");
  switch (kind) {
    case c10d::ReduceOp::SUM:
      r.op = is_bool ? SENNIT_MAX : SENNIT_SUM;
      return r;
    case c10d::ReduceOp::PRODUCT:
      r.op = is_bool ? SENNIT_MIN : SENNIT_PROD;
      return r;
    case c10d::ReduceOp::MIN:
      r.op = SENNIT_MIN;
      return r;
    case c10d::ReduceOp::MAX:
      r.op = SENNIT_MAX;
      return r;
    case c10d::ReduceOp::AVG:
      r.op = SENNIT_AVG;
      return r;
    case c10d::ReduceOp::BAND:
      r.op = SENNIT_BAND;
      return r;
    case c10d::ReduceOp::BOR:
      r.op = SENNIT_BOR;
      return r;
    case c10d::ReduceOp::BXOR:
      r.op = SENNIT_BXOR;
      return r;
    case c10d::ReduceOp::PREMUL_SUM:
      set_factor(call, op, tensor, &r);
      return r;
    default:
      break;
  }
  TORCH_CHECK(false, "sennit: ", call, ": an operation that it does not have");
}

}  // namespace sennit_torch
