// sodium_ready.hpp: starts libsodium, whose lock no forked child inherits.
#pragma once

#include <sodium.h>

#include "base/process/forked.hpp"

namespace sennit {

inline bool sodium_ready() {
  const ForeignCall call;
  return sodium_init() >= 0;
}

}  // namespace sennit
