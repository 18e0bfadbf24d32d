// `sennit plan`: which schedule a communicator would take on a fabric, how far from the bound it
// is, and why the others lost.
//
//   sennit plan all_reduce --bytes 1G --fabric meta24k
//   sennit plan all_gather -b 64M --fabric /etc/sennit/fabric --json -
#include <algorithm>
#include <memory>

#include <fmt/core.h>

#include "command/commands.hpp"
#include "command/plan/plan.hpp"
#include "command/write.hpp"
#include "plan/planner.hpp"

namespace sennit {
namespace {

using namespace plan;  // NOLINT: this file is the command itself

struct PlanArguments : Arguments {
  std::string json, html;
};

// Tiers from the innermost outwards: what bounds them, and what the choice puts on them.
std::string tier_table(const Problem& problem, const Plan& plan, const Facts& facts) {
  const TierTree& tree = problem.tree;
  std::string text = fmt::format("{:<12} {:>7} {:>16} {:>8} {:>12} {:>14}\n", "tier", "groups",
                                 "egress each", "over-sub", "bound", "sent out of it");
  for (const TierRow& row : tier_rows(problem, plan)) {
    const Capacity& egress = tree.groups[static_cast<size_t>(row.first)].egress;
    const double over = tree.oversubscription(row.first);
    text += fmt::format(
        "{:<12} {:>7} {:>16} {:>8} {:>12} {:>14}{}\n", tree.tiers[row.tier].name, row.groups,
        rate_text(egress) + (row.alike ? "" : "*"), over > 0 ? fmt::format("{:.3g}:1", over) : "-",
        row.bound_ns ? time_text(row.bound_ns) : "-",
        facts.counted ? bytes_text(static_cast<double>(facts.programs.tier_bytes[row.tier])) : "-",
        plan.bound.known && plan.bound.binding_tier == static_cast<int>(row.tier) ? "  binds" : "");
  }
  if (text.find('*') != text.npos) text += "*: of the first; they differ\n";
  return text;
}

std::string candidates_text(const Plan& plan) {
  std::string text = fmt::format("{:<24} {:<44} {:>12} {:>7}  {}\n", "candidate", "parameters",
                                 "predicted", "x bound", "why not");
  for (const Candidate& c : plan.candidates)
    text += fmt::format("{:<24} {:<44} {:>12} {:>7}  {}\n", c.algorithm, c.parameters.to_text(),
                        time_text(c.predicted_ns),
                        plan.bound.known ? times_text(c.predicted_ns, plan.bound.time_ns) : "-",
                        c.rejected.empty() ? "chosen" : c.rejected);
  return text;
}

std::string text_of(const Problem& problem, const Plan& plan, const Facts& facts) {
  std::string text = title(problem) + "\nmodel: " + model_text(problem) + "\n";
  if (problem.assumed())
    text += fmt::format(
        "ASSUMED: the fabric does not say the capacity of {}: the model assumes {}, so predictions "
        "compare, and promise nothing\n",
        problem.assumed_tiers, assumption_text(problem));
  text += "\n" + tier_table(problem, plan, facts) + "\n";
  if (plan.bound.known)
    text += fmt::format("lower bound {}: {}\n", time_text(plan.bound.time_ns), plan.bound.why);
  else
    text += fmt::format("lower bound unknown{}{}\n", plan.bound.why.empty() ? "" : ": ",
                        plan.bound.why);
  text += fmt::format("choice: {}, {}: predicted {}", plan.algorithm, plan.parameters.to_text(),
                      time_text(plan.predicted_ns));
  if (facts.simulated_ns > 0) text += fmt::format(" (simulated {})", time_text(facts.simulated_ns));
  if (plan.bound.known)
    text += fmt::format(", {} x bound", times_text(plan.predicted_ns, plan.bound.time_ns));
  text += "\n";
  if (facts.counted)
    text +=
        fmt::format("per chunk: {} rounds, {} messages by all ranks; a rank's scratch at most {}\n",
                    facts.programs.rounds, facts.programs.messages,
                    bytes_text(static_cast<double>(facts.programs.scratch_bytes)));
  else
    text += "rounds and bytes per tier are not counted: too many messages, or ranks\n";
  return text + "\n" + candidates_text(plan);
}

}  // namespace

void add_plan_command(CommandLine& line) {
  const auto options = std::make_shared<PlanArguments>();
  const Command command = line.command(
      "plan", "which schedule a collective would take on a fabric, its bound, and why");
  add_arguments(command, options.get());
  command.option("--json", options->json, "write it for programs; - is standard output");
  command.option("--html", options->html, "draw it as a self-contained page");
  command.action([=] {
    Status status = check_outputs({{"--json", options->json}, {"--html", options->html}});
    if (!status.ok()) return fail("plan", status);
    const Result<Problem> problem = make_problem(*options);
    if (!problem) return fail("plan", problem.status());
    const Result<Plan> plan = plan::make_plan(*problem, *options);
    if (!plan) return fail("plan", plan.status());
    const Result<Facts> facts = count(*problem, *plan);
    if (!facts) return fail("plan", facts.status());
    for (const auto& [file, text] :
         {std::pair(&options->json, &json_text), {&options->html, &page_of}})
      if (!file->empty())
        if (status = write_text(*file, text(*problem, *plan, *facts)); !status.ok())
          return fail("plan", status);
    if (options->json != "-" && options->html != "-")
      fmt::print("{}", text_of(*problem, *plan, *facts));
    return 0;
  });
}

}  // namespace sennit
