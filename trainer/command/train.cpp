// `sennit train CONFIG`: a training run, as launched (mpirun, srun, torchrun), on local processes,
// or alone.
#include <fmt/format.h>

#include "command/bench/bench.hpp"
#include "command/commands.hpp"
#include "trainer/base/launcher.hpp"
#include "trainer/command/dry_run.hpp"
#include "trainer/run/run.hpp"

namespace sennit {
namespace {

using namespace trainer;  // NOLINT: this file is its command line

constexpr int kEndedBySignal = 128;  // and the signal's number: as shells say it

struct Arguments {
  std::string config;
  std::vector<std::string> values;  // by setting
  std::vector<Argument> options;    // says whether it was given: "" is a value, too
  int local = 0;
  bool dry_run = false;
  DryRun plan;
};

bool first_of_ranks() { return !launched() || launchers_rank() == "0"; }

Status settings_of(const Arguments& arguments, TrainConfig* config) {
  SENNIT_RETURN_IF_ERROR(read_train_config(arguments.config, config));
  for (size_t i = 0; i < arguments.values.size(); i++)
    if (arguments.options[i].given())
      SENNIT_RETURN_IF_ERROR(set_from_text(train_settings()[i], arguments.values[i], config));
  return check_train_config(*config);
}

// What is planned and not run: for --ranks, or for the ranks that this call would start or was
// started with.
Status plan(const TrainConfig& config, const Arguments& arguments) {
  if (!first_of_ranks()) return {};
  DryRun asked = arguments.plan;
  if (asked.ranks == 0) asked.ranks = arguments.local;
  if (asked.ranks == 0 && launched()) asked.ranks = launchers_ranks();
  return dry_run(config, asked);
}

// Said before any rank is started. Those of --local are started without MPI.
Status can_start_locally(const Arguments& arguments) {
  TrainConfig config;
  SENNIT_RETURN_IF_ERROR(settings_of(arguments, &config));
  if (config.backend != "mpi") return {};
  return invalid(
      "--backend mpi: --local starts no MPI: start the ranks by mpirun, or by srun with a PMI that "
      "Open MPI knows");
}

// The processes of --local itself have as many.
Status no_other_launcher(const Arguments& arguments) {
  const int ranks = launched() ? launchers_ranks() : 0;
  if (arguments.local == 0 || ranks == 0 || ranks == arguments.local) return {};
  if (ranks == 1)
    return invalid(fmt::format(
        "--local {0} in the only task of a launcher, as a shell of srun --pty is: have that "
        "launcher start {0}, without --local, or hide it from these: env -u {1} sennit train ...",
        arguments.local, fmt::join(variables_of_launchers(), " -u ")));
  return invalid(fmt::format("--local {}, but a launcher started {}: leave --local out under one",
                             arguments.local, ranks));
}

// MPI that the launcher did not start (as torchrun does not) makes a job of its own of every rank,
// and each would train the whole model alone.
Status one_job(const Communicator& job, int ranks) {
  if (ranks == 0 || job.size() == ranks) return {};
  return invalid(fmt::format(
      "--backend mpi: the launcher started {} ranks, and MPI sees {}: start it by mpirun, or by "
      "srun with a PMI that Open MPI knows (torchrun starts no MPI)",
      ranks, job.size()));
}

// Gives the signal that stopped the run, or 0.
Result<int> train(const Arguments& arguments) {
  TrainConfig config;
  // No rank is connected yet: the launcher's number says who speaks for all.
  Status settings = settings_of(arguments, &config);
  if (settings.ok() && !arguments.dry_run) settings = no_other_launcher(arguments);
  if (!settings.ok()) return first_of_ranks() ? settings : Status(settings.kind(), "");
  if (arguments.dry_run) {
    SENNIT_RETURN_IF_ERROR(plan(config, arguments));
    return 0;
  }
  const bool speaks = first_of_ranks();  // MPI sets variables of its own
  const int ranks = launched() ? launchers_ranks() : 0;
  Traffic traffic;
  Result<std::unique_ptr<Communicator>> job =
      config.backend == "mpi" ? open_mpi(&traffic) : open_sennit(&traffic);
  if (!job) return job.status();
  if (const Status one = one_job(**job, ranks); !one.ok())
    return speaks ? one : Status(one.kind(), "");
  return run_training(config, *std::move(job), &traffic);
}

// Gives the exit status. Of several ranks one has a text.
int told(const Status& status) {
  std::fflush(stdout);  // what it tells of comes first
  if (!status.text().empty()) fmt::print(stderr, "sennit train: {}\n", status.text());
  return bench::exit_status(status);
}

}  // namespace

void add_train_command(CommandLine& line, char** argv) {
  const Command command = line.command("train", "train a Llama on text");
  const auto arguments = std::make_shared<Arguments>();
  command.option("config", arguments->config, "JSON file of settings; options win over it")
      .required();
  const Argument local =
      command.option("--local", arguments->local, "start so many ranks on this machine")
          .within(1, 4096);
  const Argument dry_run =
      command.flag("--dry-run", arguments->dry_run,
                   "say mesh, memory, traffic by tier and predicted step time; train nothing");
  const auto of_dry_run = [&](const Argument& option) { option.needs(dry_run); };
  of_dry_run(
      command
          .option("--ranks", arguments->plan.ranks,
                  "of the dry run; default: those of --local or of the launcher, or as many as "
                  "the mesh has")
          .within(1, 1 << 20)
          .excludes(local));
  of_dry_run(command.option(
      "--fabric", arguments->plan.fabric,
      "of the dry run: a fabric's file, or synthetic:SPEC, as sennit topo takes it"));
  of_dry_run(
      command
          .option("--memory-per-rank", arguments->plan.memory_per_rank,
                  "of the dry run: bytes (64G) that must be enough for a rank; default: its share "
                  "of this host's, unknown with --fabric")
          .size(Argument::Kilo::is_1000));
  arguments->values.resize(train_settings().size());
  for (size_t i = 0; i < train_settings().size(); i++)
    // "" wins over the file's text, too.
    arguments->options.push_back(
        command.option(train_settings()[i].option(), arguments->values[i], train_settings()[i].help)
            .may_be_empty());
  command.action([=] {
    if (arguments->local > 1 && !launched() && !arguments->dry_run) {
      if (const Status can = can_start_locally(*arguments); !can.ok()) return told(can);
      return bench::run_local_processes("sennit train", arguments->local, argv, true);
    }
    const Result<int> trained = train(*arguments);
    if (!trained) return told(trained.status());
    return *trained == 0 ? 0 : kEndedBySignal + *trained;
  });
}

}  // namespace sennit
