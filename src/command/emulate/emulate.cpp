// `sennit emulate`: a tree of hosts in network namespaces on this machine, and commands run on it.
//
//   sennit emulate up --racks 2 --hosts 4 --nic 400Mbit/s --oversubscription 7
//   sennit emulate run --order dealt -- sennit bench all_reduce -b 16000000 -e 16000000
//   sennit emulate down
#include <algorithm>
#include <fstream>
#include <utility>

#include <fmt/core.h>

#include "command/commands.hpp"
#include "command/emulate/compare.hpp"
#include "command/emulate/run.hpp"
#include "command/emulate/state.hpp"
#include "command/write.hpp"

namespace sennit {
namespace emulate {

int fail(const Status& status) {
  fmt::print(stderr, "sennit emulate: {}\n", status.text());
  return status.kind() == SENNIT_INVALID_ARGUMENT || status.kind() == SENNIT_NOT_FOUND ? 2 : 3;
}

Argument add_name(const Command& command, std::string* name) {
  return command.option("--name", *name, "of the emulated fabric; several can be up")
      .show_default();
}

}  // namespace emulate

namespace {

using namespace emulate;  // NOLINT: this file is the command itself

constexpr double kMostSeconds = 2e6;  // poll() counts milliseconds in an int

struct Options {
  TreeOptions tree;
  std::vector<Argument> tree_given;  // of `run`, `compare`: any of these asks for a tree of its own
  std::string name = "default";
  bool name_given = false;   // of `run` and `compare`
  bool ranks_given = false;  // of `run`: --ranks-per-host
  bool all = false;
  RunOptions run;
  CompareOptions compare;
  std::string record, page;
};

std::vector<Argument> add_tree_options(const Command& command, TreeOptions* tree) {
  return {
      command.option("--racks", tree->racks,
                     "how many racks (2), each with --hosts hosts; or the hosts of each (1,2,3,2)"),
      command.option("--hosts", tree->hosts, "hosts per rack").show_default(),
      command.option("--pods", tree->pods,
                     "third tier: how many pods share the racks (2), or the racks of each (1,3)"),
      command
          .option("--nic", tree->nic,
                  "rate of a host's link, or of each host's, separated by commas")
          .show_default(),
      command.option("--oversubscription", tree->oversubscription,
                     "of the racks, and of the pods (7 or 7,2); default 1: full bisection"),
      command.option("--uplink", tree->uplink,
                     "rate of a rack's uplink, or of each, instead (229Mbit/s)"),
      command.option("--pod-uplink", tree->pod_uplink,
                     "rate of a pod's uplink, or of each, instead"),
  };
}

Argument add_rails(const Command& command, TreeOptions* tree) {
  return command
      .option("--rails", tree->rails,
              "NICs of every host, each on a leaf of its own in the rack; rates and "
              "oversubscription are those of one rail")
      .show_default();
}

int up(const Options& options) {
  const Result<Tree> tree = make_tree(options.tree);
  if (!tree) return fail(tree.status());
  if (const Status status = gain_privilege(); !status.ok()) return fail(status);
  Result<Instance> instance = create(options.name, *tree);
  if (!instance) return fail(instance.status());
  if (const Status status = detach(&*instance); !status.ok()) return fail(status);
  std::string addresses;
  for (size_t rail = 0; rail < static_cast<size_t>(tree->rails); rail++)
    addresses +=
        fmt::format("{}{} to {}", rail ? ", " : "", instance->tree.hosts.front().nics[rail].address,
                    instance->tree.hosts.back().nics[rail].address);
  fmt::print("'{}' is up: {}; hosts {}\n", instance->name, describe(*tree), addresses);
  return 0;
}

int down(const Options& options) {
  if (options.all) {
    const Result<std::vector<Instance>> instances = list();
    if (!instances) return fail(instances.status());
    for (const Instance& instance : *instances) destroy(instance);
    return 0;
  }
  const Result<Instance> instance = find(options.name);
  if (!instance) return fail(instance.status());
  destroy(*instance);
  return 0;
}

int show_list() {
  const Result<std::vector<Instance>> instances = list();
  if (!instances) return fail(instances.status());
  for (const Instance& instance : *instances) {
    fmt::print("{}: {}\n", instance.name, describe(instance.tree));
    for (const std::string& line : describe_faults(instance.tree)) fmt::print("  {}\n", line);
  }
  return 0;
}

bool given(const std::vector<Argument>& options) {
  return std::any_of(options.begin(), options.end(), [](const Argument& o) { return o.given(); });
}

Status check_tree(const Options& options) {
  if (!options.name_given || !given(options.tree_given)) return {};
  return invalid(
      fmt::format("--name {} is a tree that is up, and --racks, --hosts and their like bring up "
                  "another for this command alone: give the one or the other",
                  options.name));
}

int on_tree(const Options& options, const Action& action) {
  const Result<int> status = given(options.tree_given) ? with_tree(options.tree, action)
                                                       : with_instance(options.name, action);
  return status ? *status : fail(status.status());
}

int run_compare(const Options& options) {
  if (const Status status = check_tree(options); !status.ok()) return fail(status);
  if (!given(options.tree_given))
    return on_tree(options,
                   [&](const Instance& instance) { return compare(instance, options.compare); });
  const Result<Tree> tree = make_tree(options.tree);
  if (!tree) return fail(tree.status());
  bool emulated = false;
  const Result<int> status = with_tree(options.tree, [&](const Instance& instance) {
    emulated = true;
    return compare(instance, options.compare);
  });
  if (status) return *status;
  if (emulated || status.status().kind() != SENNIT_UNSUPPORTED) return fail(status.status());
  const Result<int> simulated = compare_simulated(*tree, options.compare, status.status().text());
  return simulated ? *simulated : fail(simulated.status());
}

int write_report(const Options& options) {
  const Result<Comparison> comparison = Comparison::read(options.record);
  if (!comparison) return fail(comparison.status());
  const Result<std::string> page = report_page(*comparison);
  if (!page) return fail(page.status());
  const Status written = write_text(options.page, *page);
  return written.ok() ? 0 : fail(written);
}

int run(const Options& options) {
  if (const Status status = check_tree(options); !status.ok()) return fail(status);
  return on_tree(options, [&](const Instance& instance) {
    RunOptions run = options.run;
    if (!options.ranks_given) run.ranks_per_host = instance.tree.rails;
    return run_on(instance, run);
  });
}

// As typed, for the record.
std::string command_line() {
  std::ifstream file("/proc/self/cmdline");
  std::string text = "sennit", word;
  std::getline(file, word, '\0');  // the program, wherever it lies
  while (std::getline(file, word, '\0'))
    text += word.find(' ') == word.npos ? " " + word : " '" + word + "'";
  return text;
}

void add_run(const Command& emulate, Options* options) {
  const Command command =
      emulate.command("run",
                      "run a command, one process per rank, on a tree that is up or, "
                      "given a tree's options, on one that lives "
                      "as long as the command");
  std::vector<Argument> tree = add_tree_options(command, &options->tree);
  tree.push_back(add_rails(command, &options->tree));
  const Argument existing = add_name(command, &options->name);
  RunOptions* run_options = &options->run;
  const Argument ranks =
      command
          .option("--ranks-per-host", run_options->ranks_per_host,
                  "ranks on every host; where hosts have several NICs, one for each if not given")
          .show_default();
  command.option("--order", run_options->order, "where ranks go: fabric, dealt or random[:SEED]")
      .show_default();
  command.flag("--recommended", run_options->recommended,
               "renumber the ranks into the fabric order that sennit finds for that order");
  command.flag("--no-fabric", run_options->no_fabric,
               "do not tell the ranks the fabric's shape (SENNIT_FABRIC)");
  command.flag("--slurm", run_options->slurm,
               "tell it by Slurm's variables instead: shape known, rates unknown");
  command.flag(
      "--tag", run_options->launch.tag,
      "output of all ranks, each line with its rank and host; else of rank 0, and all errors");
  command
      .option("--timeout", run_options->launch.timeout_s,
              "end the command after this many seconds; 0: never")
      .share_within(0, kMostSeconds);
  command.option("--pids", run_options->launch.pids_file,
                 "write lines RANK HOST PID here once all have started");
  command.option(
      "--peer", run_options->peer,
      "run the benchmark program of another library; what follows -- are its arguments: " +
          peer_names());
  command.option("--setting", run_options->setting,
                 "of the peer: one of its short list, of which a wrong name tells the others");
  command.flag("--mpirun", run_options->mpirun, "start the command with Open MPI's mpirun");
  command
      .rest("command", run_options->command,
            "the command and its arguments; -- may stand before it")
      .required();
  command.action([=] {
    options->tree_given = tree;
    options->name_given = existing.given();
    options->ranks_given = ranks.given();
    return run(*options);
  });
}

void add_compare(const Command& emulate, Options* options) {
  const Command command = emulate.command(
      "compare",
      "measure libraries in turns on one tree: medians over the rounds, beside the lower bound");
  const std::vector<Argument> tree = add_tree_options(command, &options->tree);
  const Argument existing = add_name(command, &options->name);
  CompareOptions* compare_options = &options->compare;
  const auto list = [&](const char* name, std::vector<std::string>* values,
                        const std::string& help) {
    command.option(name, *values, help).separated_by_commas().show_default();
  };
  list("--libraries", &compare_options->libraries, "of sennit, " + peer_names());
  list("--orders", &compare_options->orders, "of fabric, dealt, random[:SEED]");
  list("--collectives", &compare_options->collectives,
       "all_reduce, all_gather, reduce_scatter, broadcast, all_to_all");
  list("--sizes", &compare_options->sizes, "SIZE or FIRST:LAST:FACTOR");
  command.option("--rounds", compare_options->rounds, "times that each library has its turn")
      .within(1, kMostRounds)
      .show_default();
  command.option("--iterations", compare_options->iterations,
                 "per turn and size (default: 50 up to 1 MiB, 3 above)");
  command.flag("--one-setting", compare_options->one_setting,
               "peers by the first of their settings alone, not by each in turns");
  command.option("--ranks-per-host", compare_options->run.ranks_per_host, "ranks on every host")
      .show_default();
  command.flag("--recommended", compare_options->recommended,
               "where ranks are not in fabric order, also Open MPI with the hostfile in the order "
               "that sennit finds");
  command.flag(
      "--probed", compare_options->probed,
      "where ranks are not in fabric order, also sennit with nothing declared: it measures the "
      "tree first; sizes from 1 MB");
  command.flag("--slurm", compare_options->run.slurm,
               "tell sennit the shape by Slurm's variables, not the rates");
  command.flag("--no-fabric", compare_options->run.no_fabric, "tell sennit nothing of the fabric");
  command.option("--json", compare_options->json,
                 "write the record here, for `sennit emulate report`");
  command.action([=] {
    options->tree_given = tree;
    options->name_given = existing.given();
    compare_options->command = command_line();
    return run_compare(*options);
  });
}

}  // namespace

Command add_emulate_command(CommandLine& line) {
  static Options kept;  // lives as long as the process, as the values of options must
  Options* const options = &kept;
  const Command emulate =
      line.command("emulate", "a tree of hosts in network namespaces on this machine");
  emulate.require_command();

  const Command up_command = emulate.command("up", "bring a tree up");
  add_tree_options(up_command, &options->tree);
  add_rails(up_command, &options->tree);
  add_name(up_command, &options->name);
  up_command.action([=] { return up(*options); });

  const Command down_command = emulate.command("down", "end a tree and every process on it");
  add_name(down_command, &options->name);
  down_command.flag("--all", options->all, "all trees");
  down_command.action([=] { return down(*options); });

  const Command list_command =
      emulate.command("list", "the trees that are up, and the faults on them");
  list_command.action([=] { return show_list(); });

  add_run(emulate, options);
  add_compare(emulate, options);

  const Command report_command =
      emulate.command("report", "draw a comparison's record as one HTML page");
  report_command.option("record", options->record, "what compare --json wrote").required();
  report_command.option("page", options->page, "the HTML file").required();
  report_command.action([=] { return write_report(*options); });

  // of mpirun, in the place of ssh
  const Command agent_command = emulate.hidden_command("agent");
  agent_command.rest("words", options->run.command).required();
  agent_command.action([=] { return agent(options->run.command); });
  return emulate;
}

}  // namespace sennit
