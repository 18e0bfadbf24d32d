// index.hpp: a rank, a position or a number of a tier, where a container wants a size_t.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sennit {

constexpr size_t index(int64_t i) { return static_cast<size_t>(i); }

}  // namespace sennit
