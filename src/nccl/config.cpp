// config.cpp: see nccl/config.hpp.
#include "nccl/config.hpp"

#include <cstddef>

namespace sennit::nccl {

Outcome read_config(const ncclConfig_t* given, const Settings& defaults, Settings* settings) {
  *settings = defaults;
  if (!given) return {};
  if (given->magic != NCCL_CONFIG_MAGIC ||
      given->size < offsetof(ncclConfig_t, blocking) + sizeof given->blocking)
    return {ncclInvalidArgument,
            "the ncclConfig_t was not initialised: start from NCCL_CONFIG_INITIALIZER"};
  if (given->blocking == kNcclUndefinedInt) return {};
  if (given->blocking != 0 && given->blocking != 1)
    return {ncclInvalidArgument,
            "ncclConfig_t: blocking is " + std::to_string(given->blocking) + ": expected 0 or 1"};
  settings->blocking = given->blocking == 1;
  return {};
}

}  // namespace sennit::nccl
