// report.cpp: what `sennit tune` tells of a size: a table on the screen, and JSON lines.
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <limits>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "base/text/json.hpp"
#include "command/plan/plan.hpp"
#include "command/tune/tune.hpp"
#include "plan/planner.hpp"

namespace sennit::tuned {
namespace {

bool same_plan(const TimedPlan& a, const TimedPlan& b) {
  return a.request == b.request && a.algorithm == b.algorithm && a.parameters == b.parameters;
}

}  // namespace

void Trace::add(const Trials& trials, const Request& request) {
  for (size_t i = 0; i < plans_.size(); i++)
    if (plans_[i].request == request) kept_[i] = false;
  const size_t n = trials.plans().size();
  for (size_t i = 0; i < n; i++) {
    plans_.push_back({request, trials.plans()[i].algorithm, trials.plans()[i].parameters,
                      static_cast<uint64_t>(trials.measured_us()[i] * 1e3)});
    std::vector<double>& turns = turns_us_.emplace_back();
    for (size_t at = i; at < trials.times_us().size(); at += n)
      turns.push_back(trials.times_us()[at]);
    kept_.push_back(i == trials.winner());
  }
}

const TimedPlan* find(const std::vector<TimedPlan>& plans, const TimedPlan& wanted) {
  for (const TimedPlan& timed : plans)
    if (same_plan(timed, wanted)) return &timed;
  return nullptr;
}

FILE* screen(const std::string& json) { return json == "-" ? stderr : stdout; }

void print_heading(FILE* to, const char* what, size_t rounds, int ranks) {
  fmt::print(
      to,
      "{}: {} ranks; typical of {} times of the slowest rank\n{:<15} {:>12} {:<20} {:<32} {:>11} "
      "{:>11} {:>6}\n",
      what, ranks, rounds, "collective", "bytes", "algorithm", "parameters", "predicted",
      "measured", "ratio");
}

void print(FILE* to, const Trials& trials, const bench::Case& what) {
  for (size_t i = 0; i < trials.plans().size(); i++) {
    const Plan& plan = trials.plans()[i];
    const double measured_us = trials.measured_us()[i];
    fmt::print(to, "{:<15} {:>12} {:<20} {:<32} {:>11} {:>11} {:>6.2f}  {}\n",
               i == 0 ? name(what.collective) : "", i == 0 ? fmt::format("{}", what.bytes()) : "",
               plan.algorithm, plan.parameters.to_text(), plan::time_text(plan.predicted_ns),
               plan::time_text(static_cast<uint64_t>(measured_us * 1e3)),
               static_cast<double>(plan.predicted_ns) / (measured_us * 1e3),
               i == trials.winner() ? (i == 0 ? "kept" : "kept: faster than predicted best") : "");
  }
  std::fflush(to);
}

void print_choices(FILE* to, const char* which, const std::vector<TimedPlan>& choices,
                   const std::vector<TimedPlan>& trace, int ranks) {
  double worst = 1, sum = 0, judged = 0;
  std::string where;
  for (const TimedPlan& choice : choices) {
    const TimedPlan* const chosen = find(trace, choice);
    if (!chosen) continue;  // a plan that was hopeless when it was the turn of its request
    double best = std::numeric_limits<double>::infinity();
    for (const TimedPlan& timed : trace)
      if (timed.request == choice.request)
        best = std::min(best, static_cast<double>(timed.measured_ns));
    const double factor = static_cast<double>(chosen->measured_ns) / best;
    sum += factor;
    judged++;
    if (factor > worst)
      where = fmt::format(", of {} of {} bytes", name(choice.request.collective),
                          payload_bytes(choice.request, ranks));
    worst = std::max(worst, factor);
  }
  if (judged > 0)
    fmt::print(
        to,
        "{} the model's own choice takes {:.2f} x the fastest that was tried on average, {:.2f} x "
        "at worst{}\n",
        which, sum / judged, worst, where);
}

Status write_json(const std::string& path, const Communicator& inside, const PlanOptions& before,
                  const PlanOptions& after, const Choices& choices, const Trace& trace) {
  const bool standard = path == "-";
  FILE* const file = standard ? stdout : std::fopen(path.c_str(), "w");
  if (!file) return invalid(fmt::format("--json {}: {}", path, std::strerror(errno)));
  for (size_t i = 0; i < trace.plans().size(); i++) {
    const TimedPlan& timed = trace.plans()[i];
    const auto us = [&](const PlanOptions& options) {
      const uint64_t ns =
          predicted_ns(timed.request, inside.tree(), options, timed.algorithm, timed.parameters);
      return static_cast<double>(ns) / 1e3;
    };
    const Bound bound = lower_bound(timed.request, inside.tree());
    const nlohmann::json line = {
        {"collective", name(timed.request.collective)},
        {"bytes", payload_bytes(timed.request, inside.size())},
        {"algorithm", timed.algorithm},
        {"chunks", timed.parameters.chunks},
        {"radices", timed.parameters.radices},
        {"whole_stages", timed.parameters.whole_stages},
        {"measured_us", static_cast<double>(timed.measured_ns) / 1e3},
        {"bound_us", bound.known ? nlohmann::json(bound.time_ns / 1e3) : nlohmann::json()},
        {"predicted_us", us(before)},
        {"calibrated_us", us(after)},
        {"turns_us", trace.turns_us(i)},
        {"planned", find(choices.planned, timed) != nullptr},
        {"calibrated", find(choices.calibrated, timed) != nullptr},
        {"kept", trace.kept(i)}};
    fmt::print(file, "{}\n", json_to_text(line));
  }
  const bool failed = std::ferror(file) != 0;
  if ((standard ? std::fflush(file) : std::fclose(file)) != 0 || failed)
    return invalid(fmt::format("--json {}: {}", path, std::strerror(errno)));
  return {};
}

}  // namespace sennit::tuned
