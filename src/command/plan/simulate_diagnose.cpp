// `sennit simulate --slow h3=0.5 --diagnose`: what `sennit diagnose` would say of a job whose calls
// run like the simulated one.
#include <algorithm>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "base/index.hpp"
#include "command/plan/simulate.hpp"
#include "diagnose/links.hpp"
#include "diagnose/plans.hpp"
#include "diagnose/recorded/simulated.hpp"

namespace sennit::plan {
namespace {

diagnose::Slower slower_links(const TierTree& tree, const std::vector<SlowBoundary>& slow) {
  constexpr double kWhole = 1000;
  diagnose::Slower links;
  for (const SlowBoundary& boundary : slow)
    for (size_t g = 1; g < tree.groups.size(); g++)
      if (tree.groups[g].name == boundary.group)
        links.push_back({{static_cast<int>(g), boundary.egress}, kWhole / boundary.permille});
  return links;
}

}  // namespace

Result<diagnose::Verdict> diagnosis_of(const Problem& problem, const Plan& plan,
                                       const std::vector<SlowBoundary>& slow, uint64_t cable_hash) {
  constexpr size_t kCalls = 10;
  if (problem.tree.ranks() > diagnose::kMostRanksJudged)
    return invalid(fmt::format("--diagnose: {} ranks; links of at most {} are judged: use --ranks",
                               problem.tree.ranks(), diagnose::kMostRanksJudged));
  diagnose::SimulatedJob job;
  job.fabric = problem.graph;
  job.placements = problem.places;
  job.request = problem.request;
  job.plan = plan;
  job.cost = problem.options.cost;
  job.slow = slower_links(problem.tree, slow);
  job.calls = job.well_calls = kCalls;
  job.cable_hash = cable_hash;
  const Result<diagnose::JobRecording> recording = diagnose::simulated_recording(job);
  if (!recording) return recording.status();
  diagnose::Plans plans(*recording);
  return diagnose::judge(*recording, plans, {});
}

std::string diagnosis_text(const diagnose::Verdict& verdict) {
  std::string text =
      "\nby `sennit diagnose`, of ten calls as they were planned for and ten as they are: " +
      diagnose::headline(verdict) + "\n";
  for (const std::string& line : diagnose::reasons(verdict)) text += "  " + line + "\n";
  return text;
}

nlohmann::ordered_json diagnosis_json(const diagnose::Verdict& verdict) {
  return {{"verdict", diagnose::name(verdict.kind)},
          {"sentence", verdict.sentence},
          {"blamed_links", verdict.links},
          {"factor", verdict.factor},
          {"cost", verdict.cost},
          {"confidence", verdict.confidence}};
}

}  // namespace sennit::plan
