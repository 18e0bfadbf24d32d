// plan.hpp: what `sennit plan` and `sennit simulate` share: a collective on a fabric, from the
// command line.
//
// Nothing runs and nothing is sent: both are pure functions of a fabric file, a preset, or what
// this host's sources say. Ranks are one per GPU, or one per host where no GPUs are known, in the
// fabric's order.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "command/command_line.hpp"
#include "plan/planner.hpp"
#include "simulate/count.hpp"
#include "topology/fabric/fabric.hpp"
#include "topology/fabric/tier_tree.hpp"

namespace sennit::plan {

// What was asked for on the command line; texts as they were typed.
struct Arguments {
  std::string collective, bytes, fabric, type, op;  // empty: not given
  int ranks = 0, ranks_per_host = 0, root = -1;     // -1: not given
  int groups = 0;                                   // ranks that do it together; 0: all
  std::string algorithm;
  uint32_t chunks = 0;  // 0: the planner's choice
  std::vector<uint16_t> radices;
  int whole_stages = -1;
  std::string post, latency, reduce;  // of the model; empty: its defaults
};
void add_arguments(const Command& command, Arguments* arguments);

// The same, read and checked.
struct Problem {
  std::string fabric;  // its name
  Fabric graph;
  std::vector<Placement> places;  // by rank
  TierTree tree;
  Request request;
  uint64_t bytes = 0;  // as the bounds define them
  PlanOptions options;
  // with a capacity that is unknown; the model's assumption stands in for it
  std::string assumed_tiers;
  bool on_gpus = false;  // a rank is a GPU: posting and reducing are theirs
  bool assumed() const { return !assumed_tiers.empty(); }
};
// Errors say which argument is wrong and what it may be.
Result<Problem> make_problem(const Arguments& arguments);
// The planner's choice, or what the arguments force.
Result<Plan> make_plan(const Problem& problem, const Arguments& arguments);
// A tier that has groups, and what it sets.
struct TierRow {
  size_t tier = 0;             // index into TierTree::tiers
  int groups = 0, first = -1;  // how many, and the first of them
  bool alike = true;           // all have the first one's egress
  uint64_t bound_ns = 0;       // that this tier alone sets; 0: none
};
// from the innermost outwards
std::vector<TierRow> tier_rows(const Problem& problem, const Plan& plan);

// One line for people: what is planned, and where.
std::string title(const Problem& problem);
std::string model_text(const Problem& problem);
// What the model assumes where the fabric does not say a capacity.
std::string assumption_text(const Problem& problem);
std::string time_text(uint64_t ns);
inline double us(uint64_t ns) { return static_cast<double>(ns) / 1e3; }  // for JSON
std::string bytes_text(double bytes);
std::string times_text(uint64_t a, uint64_t b);              // a / b; "-" where b is 0
std::string rate_text(const Capacity& capacity);             // four digits
std::string_view tier_name(const TierTree& tree, int tier);  // "-" where there is none

// Says what is wrong; the exit status: 2 for a call that was off.
int fail(const char* command, const Status& status);

// What the choice's programs come to. Not counted where that would take long, or more memory than
// there is: everybody to everybody among 24,576 ranks is 600 million messages.
struct Facts {
  bool counted = false;
  Counted programs;
  // How long the choice takes by the simulator, where that says so in a moment; else 0.
  uint64_t simulated_ns = 0;
};
Result<Facts> count(const Problem& problem, const Plan& plan);

// For programs; keys in src/command/plan/OUTPUT.md. Unknown figures are null.
std::string json_text(const Problem& problem, const Plan& plan, const Facts& facts);
// One self-contained page.
std::string page_of(const Problem& problem, const Plan& plan, const Facts& facts);

}  // namespace sennit::plan
