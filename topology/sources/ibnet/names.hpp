// names.hpp: what InfiniBand node descriptions say: hosts, their adapters, switches. Pure.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "topology/sources/ibnet/ibnet.hpp"

namespace sennit {

// "h2" before "h10".
bool natural_less(std::string_view a, std::string_view b);

// A host, by its adapters.
struct IbHost {
  std::string name;
  // Device and node, by device; hca0, hca1, ... by GUID where the description names none.
  std::vector<std::pair<std::string, int>> adapters;
};
// In natural order. Adapters inside of switches, which sum for collectives ("Aggregation Node"),
// are no hosts.
std::vector<IbHost> ib_hosts(const IbSubnet& subnet);

// Unique names of these nodes: of "MF0;isw1:MQM8700/U1" isw1, else the whole description, else with
// the GUID.
std::vector<std::string> ib_switch_names(const IbSubnet& subnet, const std::vector<int>& nodes);

}  // namespace sennit
