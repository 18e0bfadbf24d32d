// platform.hpp: a fabric's graph as a SimGrid platform: star zones in star zones, two directed
// links between each and the next.
//
// Built from the Fabric alone, not from the TierTree that sennit contracts it to, so that a replay
// judges the contraction too. One link stands for all parallel cables, which is ideal ECMP. Links
// carry no latency in SimGrid, whose CM02 shares a link between flows by their latencies.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <simgrid/s4u.hpp>

#include "base/status.hpp"
#include "topology/fabric/fabric.hpp"

namespace sennit::judge {

// An engine configured for plain max-min fairness, without what SimGrid adds by default: factors on
// latency and bandwidth, a cap by window size, traffic of acknowledgements, weights by round trip.
// The caller owns it.
std::unique_ptr<simgrid::s4u::Engine> new_engine();

// The platform of one fabric, with a SimGrid host for each rank. It belongs to the process's one
// engine, which must be made before. latency_s() is the latency of the whole way, for a timer.
class Platform {
 public:
  // Once. Ranks lie on a host's GPUs, or on the host where it has none, in the order of the text.
  // An invalid argument where the fabric is no tree, has no switch or a capacity is unknown.
  Status build(const Fabric& fabric);
  int ranks() const { return static_cast<int>(places_.size()); }
  simgrid::s4u::Host* host(int rank) const { return places_[static_cast<size_t>(rank)].host; }
  double latency_s(int from, int to) const;
  bool same_machine(int from, int to) const;

 private:
  struct RankVertex {
    int vertex = 0, machine = 0;
    simgrid::s4u::Host* host = nullptr;
  };
  struct Node {
    int parent = -1;
    int depth = 0;
    uint64_t up_bytes_per_s = 0, down_bytes_per_s = 0;  // to and from the parent
    uint64_t up_ns = 0, down_ns = 0;
    std::vector<int> children;
  };
  Status hang(const Fabric& fabric);
  void place_ranks(const Fabric& fabric);
  // What is below the vertex; the zone's gateway.
  simgrid::kernel::routing::NetPoint* add_zone(int vertex, simgrid::s4u::NetZone* zone,
                                               const Fabric& fabric);
  simgrid::s4u::Host* add_host(int vertex, simgrid::s4u::NetZone* zone);
  Status check_ways(const Fabric& fabric) const;
  // Calls up(v) for every v whose link to its parent is on the way, and down(v) likewise.
  void walk(int from, int to, const std::function<void(int)>& up,
            const std::function<void(int)>& down) const;

  std::vector<Node> nodes_;         // by vertex
  std::vector<int> order_;          // parents first
  std::vector<RankVertex> places_;  // by rank
  std::vector<int> rank_at_;        // by vertex, or -1
};

}  // namespace sennit::judge
