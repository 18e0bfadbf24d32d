// cluster.hpp: clusters out of round trips, or of rates. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "topology/probe/round.hpp"

namespace sennit::probe {

// By item: the lowest item of its set. Sets are what joins before the first clear drop of affinity
// (larger: nearer); where there is none, all is one set. Pure.
std::vector<int> nearest_sets(int items, const std::function<double(int, int)>& affinity);

// Nested partitions of n items by distances (n x n, symmetric): groups[0] is all of them. Pure.
std::vector<Group> cluster(int items, std::span<const uint64_t> distances);

}  // namespace sennit::probe
