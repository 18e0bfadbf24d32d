// job.hpp: what the parts of `sennit job` share: a training job on a fabric, from the command line,
// and what the model says of it.
//
// Nothing runs and nothing is sent. Everything but reading the arguments' files is pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "forecast/cost.hpp"
#include "forecast/curve.hpp"
#include "forecast/memory.hpp"
#include "forecast/network.hpp"
#include "forecast/step.hpp"
#include "topology/fabric/tier_tree.hpp"

namespace sennit::forecast {

// What was asked for on the command line; texts as they were typed.
struct Arguments {
  std::string model, fabric, mesh, gpu = "h100", recompute = "cheap", tokens = "15.6T", staff,
                                   constants;
  int gpus = 0, gpus_per_host = 0, sequence = 8192, batch = 0, microbatch = 1, zero = 1,
      interleave = 0;
  bool assume = false, simulate = false;
  double usd_per_gpu_hour = 0, watts = 0, pue = 1.08, mtbf_hours = 0;
  std::string restart = "600s", interval, storage = "2TB/s";
  int switch_ports = 128;
};

// The same, read and checked.
struct Problem {
  std::string fabric;  // its name
  TierTree tree;
  std::string assumed_tiers;  // whose capacities are assumed; empty: all known
  // of messages whose latency the fabric does not declare; empty: it declares all
  std::string assumed_latencies;
  Job job;
  bool mesh_chosen = false;  // by the search, not by the caller
  Operation operation;
  int switch_ports = 128;
};
Result<Problem> make_problem(const Arguments& arguments);

// One order of the mesh at one placement.
struct Option {
  Mesh mesh;
  std::string placement;
  StepTime step;
};
struct Call {  // with its times, all groups of the dimension at once
  Traffic traffic;
  SetBound bound;
  double predicted_s = 0;
  double simulated_s = 0;  // of sennit's own schedules at flow level; 0: not simulated
};
// A stretch of a step in which several kinds of groups communicate at once.
struct Phase {
  std::string name, calls;  // "forward, first 16 microbatches"; what runs in it
  double seconds = 0;       // of computing beside it
  SetBound bound;           // of all of it together
};
struct Dimension {
  std::string name;  // "tp", "dp x cp"
  size_t groups = 0, members = 0;
  std::vector<Spread> spread;
};
struct Answer {
  StepTime step;
  Memory memory;
  Cost cost;
  std::vector<Dimension> dimensions;
  std::vector<Call> calls;
  SetBound all_calls;  // of everything that a step moves, were it all to run at once
  std::vector<Phase> phases;
  std::vector<Option> options;  // fastest first; the given mesh, packed, is among them
  size_t given = 0;             // index into options
  std::optional<Job> faster;    // another mesh that fits and takes less time for a token
  StepTime faster_step;
  std::vector<CurvePoint> curve;
};
Answer answer_of(const Problem& problem, bool with_curve);
// Fills in simulated_s: all groups of a kind at once, with the schedules that the planner chooses
// for each. Without `all` large groups are left out.
Status simulate_calls(const Problem& problem, bool all, Answer* answer);
// to a peer; the default of 512 KiB is no match for 50 GB/s
inline constexpr uint64_t kInFlightBytes = 4 << 20;

// The whole answer for a terminal, as JSON, whose keys are in command/forecast/json.cpp, and as a
// page of HTML.
std::string text_of(const Problem& problem, const Answer& answer);
std::string json_of(const Problem& problem, const Answer& answer);
std::string page_of(const Problem& problem, const Answer& answer);
// Tables of the accelerators that are known, with the source of each figure.
std::string accelerators_text();

// that binds; "-": none
std::string tier_name(const Problem& problem, const SetBound& bound);
std::string duration_text(double seconds);
std::string bytes_text(double bytes);  // decimal: GB
std::string count_text(double count);  // "16.8 M"

}  // namespace sennit::forecast
