// `sennit export`: a schedule of all ranks as GOAL text, for LogGOPSim, ATLAHS and what else reads
// it.
//
//   sennit export all_reduce --bytes 1M --fabric meta24k --ranks 64 --output all_reduce.goal
//
// What was written is read back and checked before anybody else gets it.
#include <memory>

#include <fmt/core.h>

#include "collectives/algorithm.hpp"
#include "command/commands.hpp"
#include "command/plan/plan.hpp"
#include "command/write.hpp"
#include "goal/goal.hpp"
#include "plan/planner.hpp"

namespace sennit {
namespace {

using namespace plan;  // NOLINT: this file is the command itself

struct ExportArguments : Arguments {
  std::string output = "-";
};

Status run(const ExportArguments& options) {
  const Result<Problem> problem = make_problem(options);
  if (!problem) return problem.status();
  const Result<Plan> plan = plan::make_plan(*problem, options);
  if (!plan) return plan.status();
  const std::unique_ptr<Blueprint> blueprint =
      find_algorithm(plan->algorithm)->prepare(problem->tree, problem->request, plan->parameters);
  const uint32_t chunks = std::max(1u, plan->parameters.chunks);
  const Result<Goal> goal =
      make_goal(problem->tree, problem->request, *blueprint, chunks, problem->options.cost);
  if (!goal) return goal.status();
  const std::string text = goal->to_text();
  const Result<Goal> again = parse_goal(text, options.output == "-" ? "export" : options.output);
  if (!again) return {SENNIT_INTERNAL, "the text cannot be read back: " + again.status().text()};
  if (*again != *goal)
    return {SENNIT_INTERNAL, "the text says something else when it is read back"};
  const Result<GoalFacts> facts = check_goal(*again);
  if (!facts) return {SENNIT_INTERNAL, facts.status().text()};
  SENNIT_RETURN_IF_ERROR(check_bytes(*again, problem->tree, problem->request, *blueprint, chunks));
  SENNIT_RETURN_IF_ERROR(write_text(options.output, text));
  if (options.output == "-") return {};
  fmt::print("{}: {}\n", options.output, title(*problem));
  fmt::print("schedule: {}, {}\n", plan->algorithm, plan->parameters.to_text());
  fmt::print("{} operations, {} of text; {} messages of {} in all, {} in the longest chain\n",
             goal->operations(), bytes_text(static_cast<double>(text.size())), facts->messages,
             bytes_text(static_cast<double>(facts->bytes)), facts->rounds);
  fmt::print(
      "read back: every send has its receive, nothing waits for itself, and every two ranks "
      "exchange what the schedule says\n");
  return {};
}

}  // namespace

void add_export_command(CommandLine& line) {
  const auto options = std::make_shared<ExportArguments>();
  const Command command =
      line.command("export", "a schedule of all ranks as GOAL text (LogGOPSim, ATLAHS)");
  add_arguments(command, options.get());
  command.option("--output", options->output, "the file; - is standard output").show_default();
  command.action([=] {
    const Status status = run(*options);
    return status.ok() ? 0 : fail("export", status);
  });
}

}  // namespace sennit
