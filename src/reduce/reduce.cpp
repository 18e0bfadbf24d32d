// reduce.cpp: picks the kernels for this machine once, and the kernel for type and op in each call.
#include "reduce/reduce.hpp"

#include <array>
#include <cstring>
#include <string>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "base/options.hpp"
#include "base/status.hpp"
#include "reduce/table.hpp"

namespace sennit {
namespace {

static_assert(kKernelTypes == SENNIT_TYPE_COUNT);

constexpr std::array<std::string_view, 3> kIsas = {"avx512", "avx2", "generic"};  // best first

#if defined(__x86_64__)
bool has_f16c() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}
#endif

// The best one that the machine has and SENNIT_ISA allows.
std::string_view choose_isa() {
  const std::string limit = option_text("SENNIT_ISA");
  bool allowed = limit.empty();
  for (const std::string_view isa : kIsas) {
    allowed |= isa == limit;
    if (allowed && reduce_table(isa) != nullptr) return isa;
  }
  return "generic";
}

const ReduceTable& table() {
  static const ReduceTable& chosen = *reduce_table(reduce_isa());
  return chosen;
}

}  // namespace

KernelOp kernel_op(Op op, uint64_t divisor) {
  switch (op) {
    case Op::prod:
      return KernelOp::prod;
    case Op::min:
      return KernelOp::min;
    case Op::max:
      return KernelOp::max;
    case Op::avg:
      return divisor == 1 ? KernelOp::sum : KernelOp::average;
    case Op::band:
      return KernelOp::band;
    case Op::bor:
      return KernelOp::bor;
    case Op::bxor:
      return KernelOp::bxor;
    case Op::sum:
    case Op::premul_sum:
      break;
  }
  return KernelOp::sum;
}

const ReduceTable* reduce_table(std::string_view isa) {
  if (isa == "generic") return &kReduceGeneric;
#if defined(__x86_64__)
  if (isa == "avx2" && __builtin_cpu_supports("avx2") && has_f16c()) return &kReduceAvx2;
  if (isa == "avx512" && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
    return &kReduceAvx512;
#endif
  return nullptr;
}

std::string_view reduce_isa() {
  static const std::string_view chosen = choose_isa();
  return chosen;
}

void reduce(DataType type, Op op, void* out, std::span<const void* const> inputs, size_t count,
            uint64_t divisor) {
  SENNIT_CHECK(!inputs.empty() && divisor != 0 && applies(op, type));
  const KernelOp kernel = kernel_op(op, divisor);
  if (count == 0) return;
  if (inputs.size() == 1 && kernel != KernelOp::average) {
    if (out != inputs[0]) std::memcpy(out, inputs[0], count * type_bytes(type));
    return;
  }
  table().reduce[static_cast<size_t>(type)][static_cast<size_t>(kernel)](
      out, inputs.data(), inputs.size(), count, divisor);
}

void scale(DataType type, void* out, const void* in, const void* scalar, size_t count) {
  table().scale[static_cast<size_t>(type)](out, in, scalar, count);
}

}  // namespace sennit
