// simulate.hpp: what `sennit simulate` shares between one collective and process groups at the
// same time. That is its arguments, the messages that were watched, and how a run is told.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "command/plan/plan.hpp"
#include "cost/rates.hpp"
#include "diagnose/recorded/verdict.hpp"
#include "plan/anew.hpp"
#include "simulate/simulate.hpp"
#include "topology/fabric/slow_boundary.hpp"

namespace sennit::plan {

// What was asked for on the command line; files by name, empty: not asked for.
struct SimulateArguments : Arguments {
  std::string json, trace;
  bool fluid = false, every_rank = false, diagnose = false;
  double tolerance = SimulateOptions{}.tolerance;
  int stride = 0;                 // of the groups' members; 0: not given
  int links = 0;                  // so many of the busiest are told one by one
  uint64_t cable_hash = 0;        // SimulateOptions::cable_hash
  std::vector<std::string> slow;  // links that carry less than the schedule was planned for
};

// Says on the terminal how far a simulation is, once a second.
class Progress {
 public:
  void operator()(uint64_t done, uint64_t all);
  static void wipe();  // when it is over

 private:
  std::chrono::steady_clock::time_point told_ = std::chrono::steady_clock::now();
};

// All messages of the ranks that were simulated. Where the fabric does not say a capacity, loads
// are parts of the one that the model assumes. The tree must outlive it.
class Watch {
 public:
  Watch(const TierTree& tree, const CostModel& cost)
      : tree_(tree), rates_(planning_rates(tree, cost)) {}
  void operator()(const SimulatedMessage& message) { messages_.push_back(message); }
  // By tier and slice of the time: part of the capacity of all its groups' egress that is in use.
  std::vector<std::vector<double>> load(uint64_t time_ns) const;
  std::string trace() const;

  // A group's boundary in one direction. Only where every rank was simulated is its load its own.
  struct LinkLoad {
    int group = 0;
    bool egress = true;
    double bytes = 0;
    std::vector<double> load;  // by slice of the time: part of the capacity
  };
  // Those that are used most, in parts of their capacity; at most `limit`.
  std::vector<LinkLoad> busiest(uint64_t time_ns, size_t limit) const;

 private:
  // Bytes/s of a group's boundary in one direction, as the simulator has it.
  double rate_of(size_t group, bool egress) const {
    return static_cast<double>((egress ? rates_.egress : rates_.ingress)[group]);
  }

  const TierTree& tree_;
  const GroupRates rates_;
  std::vector<SimulatedMessage> messages_;
};

// What the problem has no use for is refused, not passed over: of one collective or of --groups.
Status check_use(const SimulateArguments& arguments, const TierTree& tree);
// What the simulator is told of the problem.
SimulateOptions simulate_options(const Problem& problem, const SimulateArguments& arguments);
// `load` is Watch's; unused under --fluid, and where the time is a formula's: nobody watched.
std::string tiers_text(const TierTree& tree, const SimulatedTime& simulated,
                       const std::vector<std::vector<double>>& load, bool fluid);
nlohmann::ordered_json tiers_json(const TierTree& tree, const SimulatedTime& simulated,
                                  const std::vector<std::vector<double>>& load, bool fluid);

// A line a link, for people; and the same for programs.
std::string links_text(const TierTree& tree, const std::vector<Watch::LinkLoad>& links);
nlohmann::ordered_json links_json(const TierTree& tree, const std::vector<Watch::LinkLoad>& links);

// With --slow (command/plan/simulate_slow.cpp): links of the tree, by what they still carry. Errors
// name the text that is off.
Result<std::vector<SlowBoundary>> parse_slow(const std::vector<std::string>& texts,
                                             const TierTree& tree);
// What planning anew would bring, a line for people; and the same for programs.
std::string anew_text(const PlannedAnew& anew, const TierTree& tree);
nlohmann::ordered_json anew_json(const PlannedAnew& anew);

// With --diagnose (command/plan/simulate_diagnose.cpp): what the diagnosis says of a job that makes
// such calls, first as planned and then with what is slow. Errors: too many ranks.
Result<diagnose::Verdict> diagnosis_of(const Problem& problem, const Plan& plan,
                                       const std::vector<SlowBoundary>& slow, uint64_t cable_hash);
std::string diagnosis_text(const diagnose::Verdict& verdict);
nlohmann::ordered_json diagnosis_json(const diagnose::Verdict& verdict);

// With --groups (command/plan/simulate_groups.cpp).
Status simulate_groups(const SimulateArguments& arguments);

}  // namespace sennit::plan
