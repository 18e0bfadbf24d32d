// rails.hpp: cables in the wrong rail.
#pragma once

#include <vector>

#include "command/topo/model/model.hpp"
#include "topology/fabric/fabric.hpp"

namespace sennit::topo {

// A link of a host or switch towards the spine; vertices by their index in the fabric.
struct UpLink {
  int lower = -1, upper = -1;
  int device = -1;  // the NIC, or `lower`
  int plane = 0;
};
// Hosts with several NICs whose leaves are not those that the same NICs of other hosts are on.
// Hosts of one class are those that are held against each other; -1: of none.
std::vector<Suspect> wrong_rails(const Fabric& fabric, const std::vector<UpLink>& links,
                                 const std::vector<int>& class_of_vertex);

}  // namespace sennit::topo
