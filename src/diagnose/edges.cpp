// edges.cpp: see diagnose/edges.hpp.
#include "diagnose/edges.hpp"

#include <algorithm>
#include <map>

#include "base/index.hpp"
#include "simulate/simulate.hpp"

namespace sennit::diagnose {

TierTree slowed_down(const TierTree& tree, const Slower& slower) {
  TierTree slowed = tree;
  for (const auto& [which, factor] : slower) {
    Group& group = slowed.groups[index(which.group)];
    Capacity& capacity = which.egress ? group.egress : group.ingress;
    capacity.bytes_per_s =
        static_cast<uint64_t>(std::max(1.0, static_cast<double>(capacity.bytes_per_s) / factor));
  }
  return slowed;
}

std::vector<DirectedGroup> way_of(const TierTree& tree, int from, int to) {
  std::vector<DirectedGroup> way;
  const auto climb = [&](int begin, int other, bool egress) {
    for (int g = tree.leaf_of_position[index(begin)];; g = tree.groups[index(g)].parent) {
      const Group& group = tree.groups[index(g)];
      if (other >= group.first && other < group.first + group.size) return;
      way.push_back({g, egress});
    }
  };
  climb(from, to, true);
  climb(to, from, false);
  return way;
}

ExpectedPlan expected_edges(const TierTree& tree, const Request& request,
                            const Blueprint& blueprint, uint32_t chunks, const Slower& slower,
                            uint64_t grain_ns) {
  const TierTree slowed = slowed_down(tree, slower);
  std::map<std::pair<int, int>, std::vector<SimulatedMessage>> messages;
  SimulateOptions options;
  options.symmetry = false;
  options.grain_ns = grain_ns;
  options.observe = [&](const SimulatedMessage& message) {
    messages[{message.from, message.to}].push_back(message);
  };
  const Result<SimulatedTime> simulated = simulate(slowed, request, blueprint, chunks, options);
  if (!simulated) return {};
  ExpectedPlan expected;
  expected.time_ns = static_cast<double>(simulated->time_ns);
  for (auto& [edge, of_edge] : messages) {
    std::stable_sort(of_edge.begin(), of_edge.end(),
                     [](const auto& a, const auto& b) { return a.delivered_ns < b.delivered_ns; });
    Service service;
    for (const SimulatedMessage& message : of_edge)
      service.add(static_cast<double>(message.begin_ns), static_cast<double>(message.delivered_ns),
                  message.bytes);
    expected.service_ns[edge] = service.of(edge).service_ns;
  }
  return expected;
}

}  // namespace sennit::diagnose
