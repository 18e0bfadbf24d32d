// tune.hpp: what `sennit tune` has timed, and how it is shown: on the screen, and a line of JSON a
// plan.
#pragma once

#include <cstdio>
#include <string>
#include <vector>

#include "api/communicator.hpp"
#include "command/bench/bench.hpp"
#include "plan/planner.hpp"
#include "plan/tuning/calibration.hpp"

namespace sennit::tuned {

// All plans that were timed, in the order of their trials; a request may have been tried twice.
class Trace {
 public:
  void add(const Trials& trials, const Request& request);
  const std::vector<TimedPlan>& plans() const { return plans_; }
  // The times of plan number i, one a round: how far apart they are is what noise amounts to.
  const std::vector<double>& turns_us(size_t i) const { return turns_us_[i]; }
  bool kept(size_t i) const { return kept_[i]; }  // it is in the tuning file now

 private:
  std::vector<TimedPlan> plans_;
  std::vector<std::vector<double>> turns_us_;
  std::vector<bool> kept_;
};

// Null where `plans` does not have it.
const TimedPlan* find(const std::vector<TimedPlan>& plans, const TimedPlan& wanted);

// What the model would choose for each request before and after it was calibrated.
struct Choices {
  std::vector<TimedPlan> planned, calibrated;
};

// Where the table goes: standard error, where standard output is the JSON's ("-").
FILE* screen(const std::string& json);
// The line above a table of so many rounds among so many ranks.
void print_heading(FILE* to, const char* what, size_t rounds, int ranks);
void print(FILE* to, const Trials& trials, const bench::Case& what);
// How far the model's choices are from the fastest that was tried, request by request.
void print_choices(FILE* to, const char* which, const std::vector<TimedPlan>& choices,
                   const std::vector<TimedPlan>& trace, int ranks);
// With what the model said before and after, and which plans it chose.
Status write_json(const std::string& path, const Communicator& inside, const PlanOptions& before,
                  const PlanOptions& after, const Choices& choices, const Trace& trace);

}  // namespace sennit::tuned
