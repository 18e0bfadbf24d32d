// expected.cpp: see diagnose/expected.hpp.
#include "diagnose/expected.hpp"

#include <algorithm>
#include <climits>
#include <iterator>
#include <vector>

#include "base/index.hpp"
#include "diagnose/edges.hpp"
#include "simulate/long_ring.hpp"
#include "simulate/simulate.hpp"
#include "simulate/symmetry.hpp"

namespace sennit::diagnose {
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

// How exactly is simulated what is expected: the more ranks, the longer it takes.
struct Effort {
  int most_ranks;
  uint32_t most_chunks;
  double parts;  // of a call: its times are multiples of one
};
constexpr Effort kEfforts[] = {{kMostRanksFinely, kMostChunks, 32768},
                               {64, kMostChunks, 8192},
                               {256, kMostChunks, 4096},
                               {INT_MAX, 2, 1024}};
// Of so many ranks every message is simulated, also of a ring, and each rank by itself. Where
// pieces differ by an element, ranks that do the same get out of step, and links idle while one
// waits for another: a call may take a tenth longer than one rank for all shows.
constexpr int kEachByItself = 64;

// A recording's service begins when both ends are ready, whoever has asked whom before.
SimulateOptions without_asking() {
  SimulateOptions options;
  options.cost.asking_latencies = 0;
  return options;
}

ExpectedPlan expected_ring(const TierTree& tree, const PlanNote& plan, uint64_t turns) {
  ExpectedPlan expected;
  const SimulatedTime time =
      simulation::ring_time(tree, plan.request, turns, plan.parameters.chunks, without_asking());
  expected.time_ns = static_cast<double>(time.time_ns);
  const std::vector<uint64_t> hops_ns =
      simulation::ring_hops_ns(tree, plan.request, turns, time.time_ns, without_asking().cost);
  for (int position = 0; position < tree.ranks(); position++)
    expected.service_ns[{position, (position + 1) % tree.ranks()}] =
        static_cast<double>(hops_ns[index(position)]);
  return expected;
}

}  // namespace

ExpectedPlan expected_of(const TierTree& tree, const PlanNote& plan, const Blueprint& blueprint,
                         double took_ns) {
  const Algorithm* const algorithm = find_algorithm(plan.algorithm);
  const uint64_t turns = algorithm ? algorithm->turns_around_ring(plan.request) : 0;
  if (turns > 0 && plan.request.counts.empty() && tree.ranks() > kEachByItself)
    return expected_ring(tree, plan, turns);
  const Effort& effort =
      *std::find_if(std::begin(kEfforts), std::end(kEfforts) - 1,
                    [&](const Effort& one) { return tree.ranks() <= one.most_ranks; });
  double scale_ns = took_ns;
  if (plan.predicted_ns > 0) scale_ns = std::min(scale_ns, static_cast<double>(plan.predicted_ns));
  return expected_edges(
      tree, plan.request, blueprint, std::min(plan.parameters.chunks, effort.most_chunks),
      tree.ranks() > kEachByItself, static_cast<uint64_t>(scale_ns / effort.parts));
}

ExpectedPlan expected_edges(const TierTree& tree, const Request& request,
                            const Blueprint& blueprint, uint32_t chunks, bool one_for_all,
                            uint64_t grain_ns) {
  Messages messages;
  SimulateOptions options = without_asking();
  const simulation::GroupCall call = simulation::whole_tree(tree, request, chunks, blueprint);
  options.symmetry = one_for_all && simulation::one_class(tree, call).has_value();
  options.grain_ns = grain_ns;
  options.observe = [&](const SimulatedMessage& message) {
    messages[{message.from, message.to}].push_back(message);
  };
  const Result<SimulatedTime> simulated = simulate(tree, request, blueprint, chunks, options);
  if (!simulated) return {};
  ExpectedPlan expected;
  expected.time_ns = static_cast<double>(simulated->time_ns);
  for (const auto& [edge, of_edge] : messages) expected.messages += of_edge.size();
  if (options.symmetry) {
    take_for_all(call, messages, &expected);
  } else {
    for (auto& [edge, of_edge] : messages)
      expected.service_ns[edge] = service_ns(std::move(of_edge));
  }
  return expected;
}

}  // namespace sennit::diagnose
