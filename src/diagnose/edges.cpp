// edges.cpp: see diagnose/edges.hpp.
#include "diagnose/edges.hpp"

#include <algorithm>
#include <map>

#include "base/index.hpp"
#include "simulate/simulate.hpp"
#include "simulate/symmetry.hpp"

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

namespace {

using Messages = std::map<std::pair<int, int>, std::vector<SimulatedMessage>>;  // by positions

double service_ns(std::vector<SimulatedMessage> messages) {
  std::stable_sort(messages.begin(), messages.end(),
                   [](const auto& a, const auto& b) { return a.delivered_ns < b.delivered_ns; });
  Service service;
  for (const SimulatedMessage& message : messages)
    service.add(static_cast<double>(message.begin_ns), static_cast<double>(message.delivered_ns),
                message.bytes);
  return service.of({}).service_ns;
}

// What one rank's messages take is what those of all take: the k-th peer of one is to it what the
// k-th peer of another is to that.
void take_for_all(const simulation::GroupCall& call, const Messages& of_one,
                  ExpectedPlan* expected) {
  if (of_one.empty()) return;
  const auto peers_of = [&](int position) {
    return simulation::look_at(call, call.blueprint->program(position), false).peers;
  };
  const int one = of_one.begin()->first.first;
  std::vector<double> service;
  for (const int peer : peers_of(one)) {
    const auto found = of_one.find({one, peer});
    service.push_back(found != of_one.end() ? service_ns(found->second) : 0);
  }
  for (const int position : call.positions) {
    const std::vector<int32_t> peers = peers_of(position);
    for (size_t k = 0; k < std::min(peers.size(), service.size()); k++)
      if (service[k] > 0) expected->service_ns[{position, peers[k]}] = service[k];
  }
}

}  // namespace

ExpectedPlan expected_edges(const TierTree& tree, const Request& request,
                            const Blueprint& blueprint, uint32_t chunks, uint64_t grain_ns) {
  Messages messages;
  SimulateOptions options;
  const simulation::GroupCall call = simulation::whole_tree(tree, request, chunks, blueprint);
  // Where pieces differ by an element, ranks that do the same get out of step, and links idle while
  // one waits for another: a call may take a tenth longer than one rank for all shows.
  constexpr int kEachByItself = 64;
  options.symmetry = tree.ranks() > kEachByItself && simulation::one_class(tree, call).has_value();
  options.grain_ns = grain_ns;
  options.observe = [&](const SimulatedMessage& message) {
    messages[{message.from, message.to}].push_back(message);
  };
  const Result<SimulatedTime> simulated = simulate(tree, request, blueprint, chunks, options);
  if (!simulated) return {};
  ExpectedPlan expected;
  expected.time_ns = static_cast<double>(simulated->time_ns);
  if (options.symmetry) {
    take_for_all(call, messages, &expected);
  } else {
    for (auto& [edge, of_edge] : messages)
      expected.service_ns[edge] = service_ns(std::move(of_edge));
  }
  return expected;
}

}  // namespace sennit::diagnose
