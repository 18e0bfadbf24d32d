// See perf/simgrid/cases.hpp.
#include "perf/simgrid/cases.hpp"
#include "plan/planner.hpp"

#include <ctime>

#include <fmt/core.h>

#include "collectives/algorithm.hpp"
#include "simulate/simulate.hpp"
#include "topology/source.hpp"

namespace sennit::judge {
namespace {

// Oversubscription is that of racks, then of pods.
constexpr FabricCase kFabrics[] = {
    {"8, one switch", "hosts=8;nic=10Gbit/s;latency=12us"},
    {"2 x 4 at 7:1", "racks=2x4;nic=400Mbit/s;oversubscription=7;latency=60us"},
    {"1, 2, 3, 2 at 5:1", "racks=1,2,3,2;nic=400Mbit/s;oversubscription=5;latency=60us"},
    {"4 x 4 at 1:1", "racks=4x4;nic=25Gbit/s;oversubscription=1;latency=10us", -1, 2'000},
    {"5, 3, 9, 7 at 3:1, a slow host", "racks=5,3,9,7;nic=10Gbit/s;oversubscription=3;latency=20us",
     6},
    {"2 x 4 x 4 at 2:1, 4:1", "pods=2x4x4;nic=100Gbit/s;oversubscription=2,4;latency=8us", -1,
     1'500},
    {"8 x 8 at 16:1", "racks=8x8;nic=25Gbit/s;oversubscription=16;latency=15us"},
    {"pods of 128 hosts, unequal, 1:1, 7:1",
     "pods=(3x16),(12,4,20),(8,2x12,12);nic=50GB/s;oversubscription=1,7;latency=14us"},
    {"4 x 8 x 8 at 3:1, 2:1", "pods=4x8x8;nic=200Gbit/s;oversubscription=3,2;latency=14us", -1,
     1'000},
    {"8 x 8 x 8 at 1:1, 7:1", "pods=8x8x8;nic=50GB/s;oversubscription=1,7;latency=14us"},
    {"2 x 4 hosts of 4 GPUs at 4:1",
     "racks=2x4;ranks=4;nic=100GB/s;local=150GB/"
     "s;oversubscription=4;latency=14us;local_latency=3.4us"},
};

void slow_down(Fabric* fabric, const FabricCase& which) {
  for (Link& link : fabric->links) {
    const Vertex& from = fabric->vertices[static_cast<size_t>(link.from)];
    const Vertex& to = fabric->vertices[static_cast<size_t>(link.to)];
    if (from.kind == VertexKind::switch_ && to.kind == VertexKind::switch_)
      link.latency_ns = which.uplink_latency_ns;
    const std::string slow = fmt::format("h{}", which.slow_host);
    if (from.name == slow || to.name == slow) link.capacity.bytes_per_s /= 4;
  }
}

double processor_s() { return static_cast<double>(clock()) / static_cast<double>(CLOCKS_PER_SEC); }

}  // namespace

std::span<const FabricCase> fabric_cases() { return kFabrics; }

Result<Ground> make_ground(const FabricCase& which, int every) {
  Result<Fabric> fabric = synthetic_fabric(which.spec);
  if (!fabric) return fabric.status();
  slow_down(&*fabric, which);
  const std::vector<Placement> all = ranks_on_all_hosts(*fabric, 0);
  std::vector<Placement> places;
  for (size_t i = 0; i < all.size(); i += static_cast<size_t>(every)) places.push_back(all[i]);
  Result<TierTree> tree = contract(*fabric, places);
  if (!tree) return tree.status();
  return Ground{std::string(which.name), *std::move(fabric), *std::move(tree), every};
}

Request make_request(const Ground& ground, Collective collective, uint64_t bytes) {
  const auto ranks = static_cast<uint64_t>(ground.tree.ranks());
  Request request;
  request.collective = collective;
  const bool vector = collective == Collective::all_reduce || collective == Collective::broadcast ||
                      collective == Collective::reduce;
  request.count = collective == Collective::barrier
                      ? 0
                      : bytes / type_bytes(request.type) / (vector ? 1 : ranks);
  if (has_root(collective)) request.root = ground.tree.ranks() / 3;
  return request;
}

Result<Verdict> judge(const Ground& ground, const Request& request, std::string_view algorithm,
                      const ReplayOptions& options) {
  PlanOptions planning;
  planning.cost = options.cost;
  planning.algorithm = algorithm;
  const Result<Plan> plan = make_plan(request, ground.tree, planning);
  if (!plan) return plan.status();
  SimulateOptions simulating;
  simulating.cost = options.cost;
  simulating.in_flight_bytes = options.in_flight_bytes;
  const double before_s = processor_s();
  const Result<SimulatedTime> simulated = simulate(ground.tree, request, *plan, simulating);
  if (!simulated) return simulated.status();
  Verdict verdict;
  verdict.simulate_s = processor_s() - before_s;
  verdict.parameters = plan->parameters;
  verdict.sennit_s = static_cast<double>(simulated->time_ns) * 1e-9;
  const auto blueprint = find_algorithm(algorithm)->prepare(ground.tree, request, plan->parameters);
  ReplayOptions replaying = options;
  replaying.every = ground.every;
  const Result<Replayed> replayed =
      replay(ground.fabric, ground.tree, request, *blueprint, plan->parameters.chunks, replaying);
  if (!replayed) return replayed.status();
  verdict.simgrid_s = replayed->time_s;
  verdict.messages = replayed->messages;
  verdict.replay_s = replayed->processor_s;
  return verdict;
}

}  // namespace sennit::judge
