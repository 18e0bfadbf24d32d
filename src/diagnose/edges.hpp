// edges.hpp: how long messages between two ranks took in calls that ran one plan.
//
// What counts is *service*: from when a message could move, both ends being ready and the one
// before it between the same ranks being through, until it was there. What one end waited for the
// other is no service, so a late rank makes no way slow.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "topology/fabric/tier_tree.hpp"

namespace sennit::diagnose {

// A boundary of the tree in one direction.
struct DirectedGroup {
  int group = 0;
  bool egress = true;
  bool operator==(const DirectedGroup&) const = default;
  auto operator<=>(const DirectedGroup&) const = default;
};
using Slower = std::vector<std::pair<DirectedGroup, double>>;  // by so many times
TierTree slowed_down(const TierTree& tree, const Slower& slower);
// What a message between two positions crosses.
std::vector<DirectedGroup> way_of(const TierTree& tree, int from, int to);

// A stretch of time, on a clock that all ranks' times were brought to.
struct Stretch {
  double begin_ns = 0, end_ns = 0;
};
// All messages of one call from one position to another.
struct EdgeTime {
  int from = 0, to = 0;  // positions
  uint64_t bytes = 0;
  double service_ns = 0;         // the sum of:
  std::vector<Stretch> serving;  // ascending, apart
};

// Adds up the service of the messages of one edge, which come by the time at which they were there.
class Service {
 public:
  void add(double could_move_ns, double there_ns, uint64_t bytes) {
    edge_.bytes += bytes;
    const double from = std::max(could_move_ns, last_ns_);
    last_ns_ = std::max(last_ns_, there_ns);
    if (there_ns <= from) return;
    edge_.service_ns += there_ns - from;
    if (!edge_.serving.empty() && edge_.serving.back().end_ns >= from)
      edge_.serving.back().end_ns = there_ns;
    else
      edge_.serving.push_back({from, there_ns});
  }
  EdgeTime of(const std::pair<int, int>& edge) const {
    EdgeTime whole = edge_;
    std::tie(whole.from, whole.to) = edge;
    return whole;
  }

 private:
  double last_ns_ = 0;
  EdgeTime edge_;
};

// Of all edges, in the same order in each call of a plan. Calls may have thousands, so copies share
// them.
using CallEdges = std::shared_ptr<const std::vector<EdgeTime>>;
// Calls of one plan on one communicator, of which all messages are recorded at both ends.
struct ObservedPlan {
  uint32_t comm = 0;
  uint64_t plan = 0;
  std::vector<uint32_t> calls;   // their numbers, ascending
  std::vector<CallEdges> edges;  // by call
  std::vector<double> time_ns;   // by call: from the last begin to the last end
  // Where times are means over several calls: the shortest that a call took. 0: not known.
  double quickest_ns = 0;
  // What one took when nothing was slow, and how long each edge was served then, by positions; 0
  // and empty: not known.
  double well_ns = 0;
  std::map<std::pair<int, int>, double> well_service_ns;
  size_t well_calls = 0;  // in so many calls; 0: not known
};
// The fewest bytes over an edge, in a call, whose time says something of the edge's rate: that of
// fewer is their latency.
inline constexpr uint64_t kLeastEdgeBytes = 64 * 1024;
}  // namespace sennit::diagnose
