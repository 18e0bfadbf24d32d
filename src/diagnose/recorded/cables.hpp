// cables.hpp: the NICs, ports and cables of a slow link, and by a subnet's forwarding tables the
// slow one of the cables.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "diagnose/job.hpp"
#include "diagnose/links.hpp"
#include "diagnose/plans.hpp"
#include "topology/sources/ibnet/ibnet.hpp"

namespace sennit::diagnose {

// The cables that join what the fabric calls so, a host or a switch, with what is above it:
// "h5/mlx5_0 port 1 to leaf3 port 7". Empty where the fabric has nothing of this name. `hosts`: of
// the job; where one of them has a switch to itself, that switch's cables are its as well.
std::vector<std::string> cables_above(const Fabric& fabric, const std::string& name,
                                      const std::set<std::string>& hosts);

// A cable that crosses a suspect.
struct CableTime {
  std::string cable;  // "leaf3 port 7 to spine1 port 2", as messages go
  int ways = 0;       // of messages between two ranks, that take it
  double slower = 1;  // how many times as long as they should the middle one of these takes
};
// The slowest first. Empty where the tables do not tell: of a whole tier, and of ranks whose
// adapters are not in this subnet, or whose host has several and nobody says which one they take.
std::vector<CableTime> cable_times(const IbSubnet& subnet, const SlowLink& slow, uint32_t comm,
                                   const JobRecording& job, Plans& plans);

// Those that are slow, where others are not. Empty: all alike, or there is one.
std::vector<std::string> slow_cables(const std::vector<CableTime>& times);

}  // namespace sennit::diagnose
