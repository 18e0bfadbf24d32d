// numbers.cpp: see nccl/numbers.hpp.
#include "nccl/numbers.hpp"

#include <array>
#include <cstddef>

namespace sennit::nccl {
namespace {

constexpr std::array<sennit_type_t, ncclNumTypes> kTypes = {
    SENNIT_INT8,    SENNIT_UINT8,    SENNIT_INT32,       SENNIT_UINT32,
    SENNIT_INT64,   SENNIT_UINT64,   SENNIT_FLOAT16,     SENNIT_FLOAT32,
    SENNIT_FLOAT64, SENNIT_BFLOAT16, SENNIT_FLOAT8_E4M3, SENNIT_FLOAT8_E5M2};
constexpr std::array<size_t, ncclNumTypes> kBytes = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
constexpr std::array<sennit_op_t, ncclNumOps> kOps = {SENNIT_SUM, SENNIT_PROD, SENNIT_MAX,
                                                      SENNIT_MIN, SENNIT_AVG};

}  // namespace

std::optional<sennit_type_t> type_of(ncclDataType_t type) {
  const auto index = static_cast<size_t>(type);
  if (index >= kTypes.size()) return std::nullopt;
  return kTypes[index];
}

size_t bytes_of(ncclDataType_t type) {
  const auto index = static_cast<size_t>(type);
  return index < kBytes.size() ? kBytes[index] : 0;
}

std::optional<sennit_op_t> op_of(ncclRedOp_t op) {
  const auto number = static_cast<int>(op);
  if (number < 0 || number >= ncclNumOps) return std::nullopt;
  return kOps[static_cast<size_t>(number)];
}

ncclResult_t result_of(sennit_status_t status) {
  switch (status) {
    case SENNIT_OK:
      return ncclSuccess;
    case SENNIT_IN_PROGRESS:
      return ncclInProgress;
    case SENNIT_INVALID_ARGUMENT:
    case SENNIT_NOT_FOUND:
      return ncclInvalidArgument;
    case SENNIT_MISMATCH:
    case SENNIT_UNSUPPORTED:
      return ncclInvalidUsage;
    case SENNIT_LINK_FAILED:
    case SENNIT_PEER_FAILED:
    case SENNIT_TIMED_OUT:
    case SENNIT_ABORTED:
      return ncclRemoteError;
    case SENNIT_OUT_OF_RESOURCES:
    case SENNIT_REFUSED:
      return ncclSystemError;
    case SENNIT_INTERNAL:
      return ncclInternalError;
  }
  return ncclInternalError;
}

const char* text_of(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "unhandled cuda error";
    case ncclSystemError:
      return "unhandled system error";
    case ncclInternalError:
      return "internal error";
    case ncclInvalidArgument:
      return "invalid argument";
    case ncclInvalidUsage:
      return "invalid usage";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    case ncclInProgress:
      return "NCCL operation in progress";
    case ncclTimeout:
      return "timeout";
  }
  return "unknown result code";
}

}  // namespace sennit::nccl
