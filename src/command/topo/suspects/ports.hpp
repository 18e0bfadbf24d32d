// ports.hpp: ports below their width or speed, and cables that the routing leaves idle or crowds.
#pragma once

#include <string>
#include <vector>

#include "command/topo/model/model.hpp"
#include "topology/fabric/fabric.hpp"

namespace sennit::topo {

// Whether a source saw each of a link's cables.
bool seen_by_port(const Link& link);

// What looks wrong, and what is no more than worth a note.
struct PortReport {
  std::vector<Suspect> suspects;
  std::vector<std::string> notes;
};
// Of links of one kind, each towards the spine.
PortReport slow_ports(const Fabric& fabric, const std::vector<const Link*>& alike);
// Where forwarding tables were read: cables of links of one kind that are the way to nothing, or to
// more than twice the average.
std::vector<Suspect> uneven_routes(const Fabric& fabric, const std::vector<const Link*>& alike);

}  // namespace sennit::topo
