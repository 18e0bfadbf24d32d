// lldp.hpp: what the switches at a host's other end say of themselves over LLDP: the leaf of every
// Ethernet NIC.
#pragma once

#include <string>
#include <string_view>

#include "topology/fabric/fabric.hpp"

namespace sennit {

// What `lldpctl -f json` (or json0) says on `host`. NIC HOST/eth0 hangs on the switch that it
// hears, by that one's system name, else its management address, else its chassis id, at the rate
// that the two ends negotiated, where one is said. Neighbours that are hosts are left out; so are
// ports of less than a tenth of the fastest one's rate, for such are of a management network, which
// would join all hosts: that is noted in Fabric::conflicts.
Result<Fabric> parse_lldp(std::string_view text, const std::string& file, const std::string& host);

}  // namespace sennit
