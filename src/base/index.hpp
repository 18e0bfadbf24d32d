// index.hpp: a rank, a position, a tier or a number of elements, where a size_t is wanted.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sennit {

constexpr size_t index(int64_t i) { return static_cast<size_t>(i); }

}  // namespace sennit
