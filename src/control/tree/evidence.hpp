// evidence.hpp: why a rank is suspected to be dead.
#pragma once

#include <cstdint>
#include <string>

#include <fmt/core.h>

namespace sennit::control {

// Bits.
enum Evidence : uint8_t {
  kClosed = 1,   // its tree connection ended without goodbye
  kRefused = 2,  // nobody listens where it should
  kSilent = 4,   // no heartbeat for the time-out
  kBroken = 8,   // a data connection to it broke
  kOrphan = 16,  // its parent is gone and it has not come to the coordinator
};

// For an answer of a rank that is asked whether it lives, or will be the parent.
inline constexpr int64_t kProbeMs = 1000;

// What is said of one that was silent for the time-out, with the option that sets it.
inline std::string no_sign_of_life(int64_t timeout_ms) {
  return fmt::format("no sign of life for {} ms (SENNIT_HEARTBEAT_TIMEOUT)", timeout_ms);
}

}  // namespace sennit::control
