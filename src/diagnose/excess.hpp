// excess.hpp: how much longer than they should the messages of calls of one plan took, by edge, and
// the calls themselves.
//
// What an edge should take is what it took while all was well, or, where that is not known, what
// the simulator expects. Where neither says anything, edges of the same tier are held against one
// another. All excess is a logarithm: 0 is as it should be, and below that is faster.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "diagnose/edges.hpp"
#include "diagnose/expected.hpp"
#include "diagnose/link_traffic.hpp"
#include "topology/fabric/tier_tree.hpp"

namespace sennit::diagnose {

class Excess {
 public:
  // An edge over all calls.
  struct Edge {
    uint32_t at = 0;        // among those of a call
    double excess = 0;      // but for what all tiers are slower by
    double weight = 0;      // how much it says
    int tier = 0;           // that it crosses
    double service_ns = 0;  // of the middle call
    double chance = 0;  // the deviation of the excess, by how the edge differs from call to call
  };

  // `expected`: by what edges are held against; empty where that is not known, or what was before
  // is. References outlive it.
  Excess(const TierTree& tree, const ExpectedPlan& expected, const ObservedPlan& observed,
         const LinkTraffic& traffic);

  bool known_before() const { return !observed_.well_service_ns.empty(); }
  // Edges are held against what they should take, and not against one another.
  bool absolute() const { return known_before() || !expected_.service_ns.empty(); }
  // What a call takes where nothing is slow. 0: not known.
  double well_ns() const { return observed_.well_ns > 0 ? observed_.well_ns : expected_.time_ns; }
  const std::vector<Edge>& edges() const { return edges_; }

  // What there is to explain of an edge. Edges that are faster than they should be say nothing:
  // where all wait for one link, the others have more for themselves.
  double of(const Edge& edge) const { return std::max(0.0, edge.excess - usual_); }
  // By how much it is slower than the whole call is, for which it may have waited.
  double beyond_call(const Edge& edge) const { return std::max(0.0, of(edge) - of_call_); }
  // What there is to explain of the whole call; and of all edges together, with their weights, of
  // each as above.
  double of_call() const { return of_call_; }
  double of_all() const { return of_all_; }
  double all_beyond_call() const { return all_beyond_call_; }
  // Of whole calls, all of it; and by how much three of four edges of every tier are slower.
  double call_excess() const { return call_excess_; }
  double common() const { return common_; }

 private:
  double should_take(const std::pair<int, int>& edge) const;
  void measure();
  void pool_before(std::vector<double>* logs);
  void weigh();
  double usual_excess() const;

  const TierTree& tree_;
  const ExpectedPlan& expected_;
  const ObservedPlan& observed_;
  const LinkTraffic& traffic_;
  std::vector<Edge> edges_;
  double call_excess_ = 0, common_ = 0;
  double usual_ = 0;  // of the middle edge of every tier, where that is little
  double of_call_ = 0, of_all_ = 0, all_beyond_call_ = 0;
};

}  // namespace sennit::diagnose
