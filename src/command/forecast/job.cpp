// `sennit job`: a whole training job on a fabric, before it runs: process groups and what they
// share, memory, step time, days, money, and what another order of the mesh or another fabric would
// change.
//
//   sennit job llama3-405b --fabric meta24k --gpus 16384 --mesh tp8,pp16,dp128
//   sennit job config.json --fabric meta24k --gpus 2048 --gpu h200 --json -
#include <memory>

#include <fmt/core.h>

#include "command/commands.hpp"
#include "command/forecast/job.hpp"
#include "command/plan/plan.hpp"
#include "command/write.hpp"
#include "topology/source.hpp"

namespace sennit {
namespace {

struct Options : forecast::Arguments {
  std::string json, html;
  bool no_curve = false;
};

constexpr int kMost = 1 << 20;
constexpr double kLeastEffective = 0.01;  // part of the time that is worth calling training

// What is trained, and how it is laid out.
void add_job_options(const Command& command, Options* o) {
  command.option(
      "model", o->model,
      "llama3-405b, llama3-70b, llama3-8b, or a file: JSON or YAML with the keys of a Hugging Face "
      "config.json");
  command.option("--fabric", o->fabric,
                 fmt::format("a fabric file, a topology.conf, or a synthetic tree ({}); else what "
                             "this host's sources say",
                             kSyntheticPresets));
  command.option("--gpus", o->gpus, "how many (default: what the mesh multiplies to, else all)")
      .within(1, kMost);
  command
      .option("--gpus-per-host", o->gpus_per_host,
              "default: as many as the fabric says, at least one")
      .within(1, 4096);
  command.option(
      "--mesh", o->mesh,
      "sizes of the parallel dimensions, from the fastest network outwards: tp8,cp2,pp16,dp64 "
      "(default: the fastest that fits)");
  command.option("--gpu", o->gpu, "which accelerator; `list` prints the table of them")
      .show_default();
  command.option("--sequence", o->sequence, "tokens of a sequence").show_default();
  command
      .option("--batch", o->batch,
              "sequences of each data-parallel group, a step (default: what makes 16.8 M "
              "tokens a step)")
      .within(1, forecast::kMostBatch);
  command.option("--microbatch", o->microbatch, "sequences that go through the pipeline together")
      .show_default();
  command
      .option("--interleave", o->interleave,
              "chunks of layers on each pipeline stage of --mesh (default: one layer a chunk)")
      .within(1, kMost);
  command.option("--tokens", o->tokens, "to train on, in all; K, M, B, T are powers of ten")
      .show_default();
  command
      .option("--zero", o->zero,
              "0: nothing is sharded over data-parallel ranks; 1: the optimizer; 2: and gradients; "
              "3: and weights")
      .show_default();
  command
      .option(
          "--recompute", o->recompute,
          "none: keep all activations; cheap: compute norms and gates again; full: whole layers")
      .show_default();
  command.flag("--assume", o->assume,
               "go on where the fabric does not say its capacities, and mark it");
}

// What it costs to run, and what is told of it.
void add_operation_options(const Command& command, Options* o) {
  command.option("--gpu-hour-usd", o->usd_per_gpu_hour, "what a GPU costs an hour");
  command.option("--staff", o->staff,
                 "PEOPLE:USD, how many and what each costs a year, such as 100:400000");
  command.option("--power", o->watts,
                 "W for each GPU with its share of the server (default: the table's)");
  command.option("--pue", o->pue, "power usage effectiveness of the building").show_default();
  command.option(
      "--mtbf", o->mtbf_hours,
      "hours between unexpected interruptions of the job (default: Llama 3's rate for each GPU)");
  command.option("--restart", o->restart, "time until training goes on after an interruption")
      .show_default();
  command.option("--checkpoint-interval", o->interval,
                 "time between checkpoints (default: the best)");
  command.option("--storage", o->storage, "rate at which a checkpoint is written").show_default();
  command.option("--constants", o->constants,
                 "what the times rest on, as measured elsewhere: matmul=0.6,network=0.9 "
                 "(shares of the peaks)");
  command
      .option("--switch-ports", o->switch_ports,
              "ports of a switch at a NIC's rate, to count switches")
      .show_default();
  command.flag("--simulate", o->simulate,
               "simulate calls of groups of more than 512 as well, which can take minutes");
  command.flag("--no-curve", o->no_curve, "leave out other numbers of GPUs and other fabrics");
  command.option("--json", o->json, "write it for programs; - is standard output");
  command.option("--html", o->html, "draw it as a self-contained page");
}

}  // namespace

void add_job_command(CommandLine& line) {
  const auto options = std::make_shared<Options>();
  const Command command = line.command("job",
                                       "a whole training job on a fabric: groups, memory, step "
                                       "time, days, money, and what would change them");
  add_job_options(command, options.get());
  add_operation_options(command, options.get());
  command.action([=] {
    const auto off = [](const Status& status) { return plan::fail("job", status); };
    if (options->gpu == "list") {
      if (!options->json.empty() || !options->html.empty())
        return off(invalid("--gpu list prints the table as text: leave out --json and --html"));
      for (const Argument& option : command.options())
        if (option.given() && option.name() != "--gpu")
          return off(invalid(fmt::format(
              "--gpu list prints the table and nothing else: leave out {}", option.name())));
      fmt::print("{}", forecast::accelerators_text());
      return 0;
    }
    if (const Status status = check_outputs({{"--json", options->json}, {"--html", options->html}});
        !status.ok())
      return off(status);
    for (const Argument& option : command.options())
      if (option.name() == "--mtbf" && option.given() && options->mtbf_hours == 0)
        return off(
            invalid("--mtbf 0: expected hours above 0; without it Llama 3's rate for each GPU"));
    const Result<forecast::Problem> problem = forecast::make_problem(*options);
    if (!problem) return off(problem.status());
    forecast::Answer answer = forecast::answer_of(*problem, !options->no_curve);
    if (answer.cost.effective < kLeastEffective)
      return off(invalid(fmt::format(
          "an interruption every {}, {} to restart and a checkpoint that takes {} leave {:.2g}% of "
          "the time for training: change --mtbf, --restart, --storage or --checkpoint-interval",
          forecast::duration_text(answer.cost.mtbf_s),
          forecast::duration_text(problem->operation.restart_s),
          forecast::duration_text(answer.cost.checkpoint_s), 100 * answer.cost.effective)));
    if (const Status status = forecast::simulate_calls(*problem, options->simulate, &answer);
        !status.ok())
      return off(status);
    for (const auto& [file, text] :
         {std::pair(&options->json, &forecast::json_of), {&options->html, &forecast::page_of}})
      if (!file->empty())
        if (const Status status = write_text(*file, text(*problem, answer)); !status.ok())
          return off(status);
    if (options->json != "-" && options->html != "-")
      fmt::print("{}", forecast::text_of(*problem, answer));
    return 0;
  });
}

}  // namespace sennit
