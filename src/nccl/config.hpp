// config.hpp: reading an ncclConfig_t, whatever version of NCCL's header it was built with.
#pragma once

#include "nccl/communicator.hpp"

namespace sennit::nccl {

// What of a config matters here; the rest is about GPUs and NVIDIA's networks.
struct Settings {
  bool blocking = true;
};

// `given` may be null: the defaults, or the parent's settings where there is a parent. Refused: a
// config without NCCL_CONFIG_INITIALIZER's magic, one too short to be any version's, a `blocking`
// that is neither 0 nor 1.
Outcome read_config(const ncclConfig_t* given, const Settings& defaults, Settings* settings);

}  // namespace sennit::nccl
