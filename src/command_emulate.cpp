// `sennit emulate`: a tree of hosts in network namespaces on this machine, and commands run on it.
//
//   sennit emulate up --racks 2 --hosts 4 --nic 400Mbit/s --oversubscription 7
//   sennit emulate run --order dealt -- sennit bench all_reduce -b 16000000 -e 16000000
//   sennit emulate down
#include <algorithm>

#include <fmt/format.h>

#include "command_emulate_run.hpp"
#include "commands.hpp"

namespace sennit {
namespace {

using namespace emulate;  // NOLINT: this file is the command itself

struct Options {
  TreeOptions tree;
  std::vector<CLI::Option*> tree_given;  // of `run`: any of these asks for a tree of its own
  std::string name = "default";
  bool all = false;
  RunOptions run;
};

// Errors of the call are 2, of the machine 3.
int fail(const Status& status) {
  fmt::print(stderr, "sennit: emulate: {}\n", status.text());
  return status.kind() == SENNIT_INVALID_ARGUMENT || status.kind() == SENNIT_NOT_FOUND ? 2 : 3;
}

std::vector<CLI::Option*> add_tree_options(CLI::App* command, TreeOptions* tree) {
  return {
      command->add_option("--racks", tree->racks,
                          "how many racks (2), each with --hosts hosts; or the hosts of each (1,2,3,2)"),
      command->add_option("--hosts", tree->hosts, "hosts per rack")->capture_default_str(),
      command->add_option("--pods", tree->pods,
                          "third tier: how many pods share the racks (2), or the racks of each (1,3)"),
      command->add_option("--nic", tree->nic, "rate of a host's link, or of each host's, separated by commas")
          ->capture_default_str(),
      command->add_option("--oversubscription", tree->oversubscription,
                          "of the racks, and of the pods (7 or 7,2); default 1: full bisection"),
      command->add_option("--uplink", tree->uplink,
                          "rate of a rack's uplink, or of each, instead (229Mbit/s)"),
      command->add_option("--pod-uplink", tree->pod_uplink, "rate of a pod's uplink, or of each, instead"),
  };
}

int up(const Options& options) {
  const Result<Tree> tree = make_tree(options.tree);
  if (!tree) return fail(tree.status());
  if (const Status status = gain_privilege(); !status.ok()) return fail(status);
  Result<Instance> instance = create(options.name, *tree);
  if (!instance) return fail(instance.status());
  if (const Status status = detach(&*instance); !status.ok()) return fail(status);
  fmt::print("'{}' is up: {}; hosts {} to {}\n", instance->name, describe(*tree),
             instance->tree.hosts.front().address, instance->tree.hosts.back().address);
  return 0;
}

int down(const Options& options) {
  if (options.all) {
    for (const Instance& instance : list()) destroy(instance);
    return 0;
  }
  const Result<Instance> instance = find(options.name);
  if (!instance) return fail(instance.status());
  destroy(*instance);
  return 0;
}

int show_list() {
  for (const Instance& instance : list()) fmt::print("{}: {}\n", instance.name, describe(instance.tree));
  return 0;
}

int run(const Options& options) {
  const bool own_tree = std::any_of(options.tree_given.begin(), options.tree_given.end(),
                                    [](const CLI::Option* o) { return o->count() > 0; });
  const Result<int> status =
      own_tree
          ? with_tree(options.tree, [&](const Instance& instance) { return run_on(instance, options.run); })
          : with_instance(options.name,
                          [&](const Instance& instance) { return run_on(instance, options.run); });
  return status ? *status : fail(status.status());
}

}  // namespace

void add_emulate_command(CLI::App& app, int* exit_code) {
  auto* options = new Options;  // lives as long as the process: CLI11 keeps references into it
  CLI::App* emulate = app.add_subcommand("emulate", "a tree of hosts in network namespaces on this machine");
  emulate->require_subcommand(1);
  const auto add_name = [&](CLI::App* command) {
    command->add_option("--name", options->name, "of the emulated fabric; several can be up")
        ->capture_default_str();
  };

  CLI::App* up_command = emulate->add_subcommand("up", "bring a tree up");
  add_tree_options(up_command, &options->tree);
  add_name(up_command);
  up_command->callback([=] { *exit_code = up(*options); });

  CLI::App* down_command = emulate->add_subcommand("down", "end a tree and every process on it");
  add_name(down_command);
  down_command->add_flag("--all", options->all, "all trees");
  down_command->callback([=] { *exit_code = down(*options); });

  CLI::App* list_command = emulate->add_subcommand("list", "the trees that are up");
  list_command->callback([=] { *exit_code = show_list(); });

  CLI::App* run_command =
      emulate->add_subcommand("run",
                              "run a command, one process per rank, on a tree that is up, or, given a tree's "
                              "options, on one that lives as long as the command");
  options->tree_given = add_tree_options(run_command, &options->tree);
  add_name(run_command);
  RunOptions* run_options = &options->run;
  run_command->add_option("--ranks-per-host", run_options->ranks_per_host, "ranks on every host")
      ->capture_default_str();
  run_command->add_option("--order", run_options->order, "where ranks go: fabric, dealt or random[:SEED]")
      ->capture_default_str();
  run_command->add_flag("--recommended", run_options->recommended,
                        "renumber the ranks into the fabric order that sennit finds for that order");
  run_command->add_flag("--no-fabric", run_options->no_fabric,
                        "do not tell the ranks the fabric's shape (SENNIT_FABRIC)");
  run_command->add_flag("--slurm", run_options->slurm,
                        "tell it by Slurm's variables instead: shape known, rates unknown");
  run_command->add_flag(
      "--tag", run_options->launch.tag,
      "output of all ranks, each line with its rank and host; else of rank 0, and all errors");
  run_command->add_option("--timeout", run_options->launch.timeout_s,
                          "end the command after this many seconds");
  run_command->add_option("--pids", run_options->launch.pids_file,
                          "write lines RANK HOST PID here when all ranks have started");
  run_command->add_option(
      "--peer", run_options->peer,
      "run the benchmark program of another library, openmpi or gloo; what follows -- are its "
      "arguments");
  run_command->add_flag("--mpirun", run_options->mpirun, "start the command with Open MPI's mpirun");
  run_command
      ->add_option("--mpirun-argument", run_options->mpirun_arguments, "given to mpirun; may be repeated")
      ->allow_extra_args(false);
  run_command->add_option("command", run_options->command, "after --: the command and its arguments")
      ->required();
  run_command->callback([=] { *exit_code = run(*options); });

  CLI::App* agent_command =
      emulate->add_subcommand("agent", "")->group("");  // of mpirun, in the place of ssh
  agent_command->add_option("words", options->run.command)->required();
  agent_command->callback([=] { *exit_code = agent(options->run.command); });
}

}  // namespace sennit
