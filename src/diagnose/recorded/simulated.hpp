// simulated.hpp: what ranks would have recorded of calls that the simulator ran, on a fabric of
// which something is slower than all believe: for trying the diagnosis where the truth is known.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "diagnose/edges.hpp"
#include "diagnose/job.hpp"
#include "schedule/plan.hpp"
#include "schedule/request.hpp"
#include "simulate/simulate.hpp"
#include "topology/fabric/fabric.hpp"

namespace sennit::diagnose {

// Calls of one plan, and what is wrong while they run.
struct SimulatedJob {
  Fabric fabric;  // as all believe it to be
  std::vector<Placement> placements;
  Request request;
  Plan plan;
  // What is slower, and by how much.
  Slower slow;
  std::vector<std::pair<int, uint64_t>> late;  // world ranks, and nanoseconds before each call
  size_t calls = 10;
  size_t well_calls = 0;  // before them, when nothing was wrong yet
  // Deviations of logarithms: of every message's time, and once more of all times of a call; and of
  // what an edge takes in a call, which observed_of() alone adds.
  double noise = 0, edge_noise = 0;
  uint64_t seed = 1;      // of the noise
  uint64_t grain_ns = 0;  // SimulateOptions::grain_ns
  CostModel cost = {};
  bool records_messages = true;  // else only when calls begin and end
  // SimulateOptions' too: which cables messages take, and which of those are slow.
  uint64_t cable_hash = 0;
  std::vector<SlowCable> slow_cables = {};
};
// One call without noise, in which all come at once.
struct SimulatedCall {
  std::vector<SimulatedMessage> messages;
  uint64_t time_ns = 0;
};
// Errors: what the fabric or the simulator says.
Result<SimulatedCall> simulated_call(const SimulatedJob& job);
// The same while nothing is wrong yet.
Result<SimulatedCall> simulated_well_call(const SimulatedJob& job);
// What its ranks record if all of its calls run like this one, and those before like `well`.
JobRecording recording_of(const SimulatedJob& job, const SimulatedCall& call,
                          const SimulatedCall& well);
// What its messages take, without a recording of each.
ObservedPlan observed_of(const SimulatedJob& job, const SimulatedCall& call,
                         const SimulatedCall& well);
// All of that. Errors: simulated_call()'s.
Result<JobRecording> simulated_recording(const SimulatedJob& job);

}  // namespace sennit::diagnose
