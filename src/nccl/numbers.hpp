// numbers.hpp: NCCL's numbers of types, operations and results, and sennit's.
//
// Pure. They differ where one would not expect it: NCCL's float32 is 7, sennit's 8; NCCL's max is
// 2, sennit's 3.
#pragma once

#include <cstddef>
#include <optional>

#include "nccl/abi.h"
#include "sennit/sennit.h"

namespace sennit::nccl {

// Nothing: not a type of NCCL's.
std::optional<sennit_type_t> type_of(ncclDataType_t type);
// Of one element; 0: not a type of NCCL's.
size_t bytes_of(ncclDataType_t type);

// Nothing: not an operation of NCCL's own.
std::optional<sennit_op_t> op_of(ncclRedOp_t op);

// What a program that knows NCCL's results expects: a dead peer and a broken link are
// ncclRemoteError, calls that differ between ranks ncclInvalidUsage.
ncclResult_t result_of(sennit_status_t status);

// "unhandled system error"; never null.
const char* text_of(ncclResult_t result);

}  // namespace sennit::nccl
