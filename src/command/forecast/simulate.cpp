// The calls of `sennit job` at flow level: every kind of call, all groups of it at once, with the
// schedules that the planner chooses. Messages of a pipeline are broadcasts in groups of two. Cost:
// of concurrent/concurrent.hpp; groups of more than 512 take minutes, and are left out unless asked
// for.
#include <algorithm>

#include "base/index.hpp"
#include "command/forecast/job.hpp"
#include "concurrent/concurrent.hpp"
#include "cost/rates.hpp"

namespace sennit::forecast {
namespace {

// Each member sends to the next, the last to the first. A root is a place in fabric order: those
// that send forwards in it are one call, those that send backwards another.
std::vector<ConcurrentCall> ring_calls(const Traffic& traffic, const Groups& groups,
                                       const std::vector<int>& positions) {
  std::vector<ConcurrentCall> calls(2);
  for (int root = 0; root < 2; root++) {
    calls[index(root)].request.collective = Collective::broadcast;
    calls[index(root)].request.type = DataType::uint8;
    calls[index(root)].request.count = static_cast<uint64_t>(traffic.bytes);
    calls[index(root)].request.root = root;
  }
  for (const std::vector<int>& group : groups)
    for (size_t i = 0; i < group.size(); i++) {
      const int from = positions[index(group[i])],
                to = positions[index(group[(i + 1) % group.size()])];
      calls[from < to ? 0 : 1].groups.push_back({from, to});
    }
  std::erase_if(calls, [](const ConcurrentCall& call) { return call.groups.empty(); });
  return calls;
}

std::vector<ConcurrentCall> calls_of(const Traffic& traffic, const Groups& groups,
                                     const std::vector<int>& positions) {
  if (traffic.axis == Axis::pipeline) return ring_calls(traffic, groups, positions);
  ConcurrentCall call;
  call.request.type = DataType::uint8;
  const double members = static_cast<double>(groups[0].size());
  const bool gather = traffic.collective == "all_gather",
             scatter = traffic.collective == "reduce_scatter";
  call.request.collective = gather    ? Collective::all_gather
                            : scatter ? Collective::reduce_scatter
                                      : Collective::all_reduce;
  call.request.count =
      static_cast<uint64_t>(gather || scatter ? traffic.bytes / members : traffic.bytes);
  for (const std::vector<int>& group : groups) {
    std::vector<int>& members_at = call.groups.emplace_back();
    for (const int gpu : group) members_at.push_back(positions[index(gpu)]);
  }
  return {call};
}

}  // namespace

Status simulate_calls(const Problem& problem, bool all, Answer* answer) {
  constexpr size_t kMostMembers = 512;
  const std::vector<int> positions = placements(problem.tree, problem.job.mesh.gpus())[0].positions;
  SimulateOptions options;
  options.in_flight_bytes = kInFlightBytes;
  options.cost = gpu_cost();
  options.cost.reduce_bytes_per_s = static_cast<uint64_t>(problem.job.gpu.memory_bytes_per_s.value);
  for (size_t i = 0; i < answer->calls.size(); i++) {
    Call& call = answer->calls[i];
    const Call* before = i > 0 ? &answer->calls[i - 1] : nullptr;
    if (before && before->traffic.axis == Axis::pipeline && call.traffic.axis == Axis::pipeline) {
      call.simulated_s = before->simulated_s;  // the other direction
      continue;
    }
    const std::vector<Axis> axes = call.traffic.axis == Axis::data
                                       ? std::vector<Axis>{Axis::data, Axis::context}
                                       : std::vector<Axis>{call.traffic.axis};
    const Groups groups = groups_of(problem.job.mesh, axes);
    if (!all && call.traffic.axis != Axis::pipeline && groups[0].size() > kMostMembers) continue;
    const std::vector<ConcurrentCall> set = calls_of(call.traffic, groups, positions);
    const Result<SimulatedSet> simulated = simulate_concurrent(problem.tree, set, options);
    if (!simulated)
      return simulated.status().with_context(call.traffic.groups + " " + call.traffic.collective);
    call.simulated_s = static_cast<double>(simulated->all.time_ns) * 1e-9;
  }
  return {};
}

}  // namespace sennit::forecast
