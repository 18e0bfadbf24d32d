// cases.hpp: what SimGrid judges: eleven fabrics, and one collective by one algorithm on one of
// them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "perf/simgrid/replay.hpp"
#include "topology/fabric/fabric.hpp"
#include "topology/fabric/tier_tree.hpp"

namespace sennit::judge {

// A fabric as the specification of a synthetic one, and what differs from that.
struct FabricCase {
  std::string_view name, spec;
  int slow_host = -1;  // this one's NIC has a quarter of the others' rate; -1: none
  // of every link between two switches; takes the place of the specification's
  uint64_t uplink_latency_ns = 0;
};
// All of them, in a fixed order. They live as long as the program.
std::span<const FabricCase> fabric_cases();

// A fabric, with a rank on every GPU, or on every host that has none.
struct Ground {
  std::string name;
  Fabric fabric;
  TierTree tree;
  int every = 1;  // ranks are on one in so many of these places
};
// Fails where the case's specification is off or cannot be contracted to tiers.
Result<Ground> make_ground(const FabricCase& which, int every = 1);

// Of `bytes` as sennit bench means them: of the larger buffer. The root is a rank in the middle.
Request make_request(const Ground& ground, Collective collective, uint64_t bytes);

// What sennit's simulator and SimGrid say of one collective by one algorithm.
struct Verdict {
  Parameters parameters;  // that both ran with
  double sennit_s = 0, simgrid_s = 0;
  uint64_t messages = 0;
  double replay_s = 0, simulate_s = 0;  // what each of the two took, of processor time
  double ratio() const { return sennit_s / simgrid_s; }
};
// The planner's parameters for this algorithm; both with the cost model's defaults, posting and
// reducing included.
Result<Verdict> judge(const Ground& ground, const Request& request, std::string_view algorithm,
                      const ReplayOptions& options);

}  // namespace sennit::judge
