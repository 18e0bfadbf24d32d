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

struct FabricCase {
  std::string_view name, spec;  // spec: synthetic
  int slow_host = -1;           // this one's NIC has a quarter of the others' rate
  uint64_t uplink_latency_ns = 0;
};
std::span<const FabricCase> fabric_cases();

struct Ground {  // a fabric, with a rank on every GPU, or on every host that has none
  std::string name;
  Fabric fabric;
  TierTree tree;
  int every = 1;  // or on one in so many
};
Result<Ground> make_ground(const FabricCase& which, int every = 1);

// Of `bytes` as sennit bench means them: of the larger buffer. The root is a rank in the middle.
Request make_request(const Ground& ground, Collective collective, uint64_t bytes);

struct Verdict {
  Parameters parameters;
  double sennit_s = 0, simgrid_s = 0;
  uint64_t messages = 0;
  double replay_s = 0, simulate_s = 0;  // of processor time
  double ratio() const { return sennit_s / simgrid_s; }
};
// The planner's parameters for this algorithm; both with the cost model's defaults, posting and
// reducing included.
Result<Verdict> judge(const Ground& ground, const Request& request, std::string_view algorithm,
                      const ReplayOptions& options);

}  // namespace sennit::judge
