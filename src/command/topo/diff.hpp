// diff.hpp: `sennit topo --diff A B`: what one fabric has and the other has not, and figures that
// differ, by name.
#pragma once

#include <string>

#include "topology/fabric/fabric.hpp"

namespace sennit::topo {

// What changed from one fabric to another: lines for people, and how many vertices and links it is.
struct Difference {
  std::string text;
  int changes = 0;
};
// Lines that say the same of several vertices or links fold. Who said a figure is not compared, how
// well founded it is (measured, declared, assumed) is. Cost: O(links log links).
Difference diff(const Fabric& a, const Fabric& b);

}  // namespace sennit::topo
