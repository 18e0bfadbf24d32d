// ways.hpp: which cables a message takes through an InfiniBand subnet, by the switches' forwarding
// tables. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "topology/sources/ibnet/ibnet.hpp"

namespace sennit {

// Over one cable, from one node's port to another's.
struct IbHop {
  int from = -1, from_port = 0;  // node: index into IbSubnet::nodes
  int to = -1, to_port = 0;
};

// From an adapter to another, by the first port of each that is in the subnet. Empty where the
// tables do not lead there, or were not read.
std::vector<IbHop> ib_way(const IbSubnet& subnet, int from, int to);

}  // namespace sennit
