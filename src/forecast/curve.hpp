// curve.hpp: the same job on more and fewer GPUs, and on fabrics of the same shape whose outermost
// tier is oversubscribed more or less, with what such a fabric is built of.
//
// A fabric of a tree's shape: hosts and racks as its first ones, as many of the outermost groups as
// are needed. Switches and cables are counted by ports at a NIC's rate: a group's switches have a
// port for every cable that comes from below and every one that leaves upwards. Pure. Cost: of
// laying the mesh out, for each point.
#pragma once

#include <string>
#include <vector>

#include "forecast/cost.hpp"
#include "forecast/memory.hpp"
#include "forecast/network.hpp"
#include "forecast/step.hpp"

namespace sennit::forecast {

inline constexpr double kOversubscriptions[] = {1, 3, 7};

// A fabric by what its groups of each tier are like.
struct Shape {
  int ranks_per_host = 1;
  std::vector<int> children;                      // from the hosts of a rack outwards: 2, 192
  double nic_bytes_per_s = 0;                     // of a host; 0: it is all that there is
  std::vector<double> oversubscription;           // by tier above the host: 1, 7
  uint64_t latency_ns = 0, local_latency_ns = 0;  // 0: nobody declared it
  Wire wire = Wire::unknown;
};
// Of the first group at each tier; the outermost number of groups is left open.
Shape shape_of(const TierTree& tree);

// What the network is built of.
struct Parts {
  int64_t switches = 0, cables = 0;  // cables between hosts and switches, and between switches
};
Parts parts_of(const Shape& shape, int gpus, double oversubscription, int switch_ports);

// The job at one number of GPUs, on fabrics that are oversubscribed more and less.
struct CurvePoint {
  int gpus = 0;
  Mesh mesh;
  int batch = 0;
  double tokens_per_step = 0;
  bool fits = true;  // else no mesh does, and the rest is empty
  double memory_bytes = 0;
  struct Fabric {
    double oversubscription = 1;
    StepTime step, reversed;  // in the mesh's order, and in the reverse
    Cost cost;
    Parts parts;
  };
  std::vector<Fabric> fabrics;  // by kOversubscriptions; one where no tier is left to oversubscribe
};
// 512 to 98,304 GPUs and the job's own number, for which its mesh is kept. For others it is the
// fastest that fits with as many tensor ranks (others where none does) and as many tokens a step,
// or little more. Empty where the tree is one host, which says nothing of what joins several.
std::vector<CurvePoint> curve(const Job& job, const Operation& operation, const TierTree& tree,
                              int switch_ports);

}  // namespace sennit::forecast
