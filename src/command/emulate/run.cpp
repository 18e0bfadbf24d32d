// What a rank is told: torchrun's variables, the job's secret, the interface, and the fabric as a
// file, by Slurm's variables, or not at all.
#include "command/emulate/run.hpp"

#include <sys/random.h>
#include <unistd.h>

#include <csignal>
#include <cstring>

#include <fmt/core.h>

#include "topology/fabric/fabric.hpp"

namespace sennit::emulate {
namespace {

uint64_t random_number() {
  uint64_t number = 0;
  while (getrandom(&number, sizeof number, 0) != static_cast<ssize_t>(sizeof number)) continue;
  return number;
}

// What another launcher, above us, says of ranks must not reach ours.
void forget_launchers() {
  std::vector<std::string> names;
  for (char** entry = environ; *entry; entry++)
    for (const char* prefix :
         {"OMPI_COMM_WORLD_", "PMIX_", "PMI_", "SLURM_", "SLURMD_", "SENNIT_FABRIC="})
      if (std::strncmp(*entry, prefix, std::strlen(prefix)) == 0)
        names.emplace_back(*entry, std::strcspn(*entry, "="));
  for (const std::string& name : names) unsetenv(name.c_str());
}

std::string hosts_text(const Tree& tree) {
  std::string text = "127.0.0.1 localhost\n";
  for (const Host& host : tree.hosts) text += fmt::format("{} {}\n", host.address(), host.name);
  return text;
}

}  // namespace

Result<TierTree> tier_tree(const Tree& tree, const std::vector<int>& hosts_of_ranks) {
  const Result<Fabric> fabric = parse_fabric(fabric_text(tree), "the emulated fabric");
  if (!fabric) return fabric.status();
  const std::vector<int> local = local_ranks(tree, hosts_of_ranks);
  std::vector<Placement> placements;
  placements.reserve(hosts_of_ranks.size());
  for (size_t r = 0; r < hosts_of_ranks.size(); r++)
    placements.push_back({.host = tree.hosts[static_cast<size_t>(hosts_of_ranks[r])].name,
                          .numa = -1,
                          .nic = interface_of(rail_of(tree, local[r]))});
  return contract(*fabric, placements);
}

Result<std::vector<int>> hosts_of_ranks(const Tree& tree, const RunOptions& options) {
  Result<std::vector<int>> placed = place_ranks(tree, options.ranks_per_host, options.order);
  if (!placed || !options.recommended) return placed;
  const Result<TierTree> tiers = tier_tree(tree, *placed);
  if (!tiers) return tiers.status();
  std::vector<int> hosts;
  hosts.reserve(placed->size());
  for (const int32_t rank : tiers->rank_of_position)
    hosts.push_back((*placed)[static_cast<size_t>(rank)]);
  return hosts;
}

namespace {

// Ports below the range that the kernel gives to outgoing connections.
constexpr unsigned kFirstPort = 20000, kPorts = 12000;

// What every rank finds in its environment.
Result<std::vector<std::string>> shared_environment(const Tree& tree, const std::vector<int>& hosts,
                                                    const RunOptions& options,
                                                    const ScratchFolder& scratch) {
  std::vector<std::string> shared = {
      fmt::format("WORLD_SIZE={}", hosts.size()),
      fmt::format("MASTER_ADDR={}", tree.hosts[static_cast<size_t>(hosts.front())].address()),
      fmt::format("MASTER_PORT={}", kFirstPort + random_number() % kPorts),
      fmt::format("SENNIT_SECRET=key:{:016x}{:016x}{:016x}{:016x}", random_number(),
                  random_number(), random_number(), random_number()),
  };
  if (options.slurm) {
    shared.push_back("SLURM_TOPOLOGY_ADDR_PATTERN=" + slurm_pattern(tree));
  } else if (!options.no_fabric) {
    const Result<std::string> fabric = scratch.write("fabric", fabric_text(tree));
    if (!fabric) return fabric.status();
    shared.push_back("SENNIT_FABRIC=" + *fabric);
  }
  if (!options.probe_cache.empty()) {
    shared.emplace_back("SENNIT_PROBE=1");
    shared.push_back("XDG_CACHE_HOME=" + options.probe_cache);
  }
  if (!options.peer.empty()) shared.push_back("GLOO_STORE=" + scratch.path());
  return shared;
}

// A process for each rank, as torchrun or Slurm would start it.
std::vector<Rank> ranks_of(const Tree& tree, const std::vector<int>& hosts,
                           const RunOptions& options, const std::vector<std::string>& shared,
                           const std::vector<std::string>& command) {
  std::vector<Rank> ranks;
  const std::vector<int> local = local_ranks(tree, hosts);
  for (size_t r = 0; r < hosts.size(); r++) {
    const auto host = static_cast<size_t>(hosts[r]);
    Rank rank{.host = hosts[r], .environment = shared, .command = command};
    rank.environment.push_back(fmt::format("RANK={}", r));
    rank.environment.push_back(fmt::format("LOCAL_RANK={}", local[r]));
    rank.environment.push_back(fmt::format("LOCAL_WORLD_SIZE={}", options.ranks_per_host));
    rank.environment.push_back("SENNIT_INTERFACE=" + interface_of(rail_of(tree, local[r])));
    if (options.slurm)
      rank.environment.push_back("SLURM_TOPOLOGY_ADDR=" + slurm_address(tree, tree.hosts[host]));
    ranks.push_back(std::move(rank));
  }
  return ranks;
}

// What is started on every host, and by whom.
struct Started {
  Launcher launcher = Launcher::ours;
  std::string program;  // of the launcher
  std::vector<std::string> command;
};

// For a program of the caller's under mpirun: what Open MPI needs to reach the hosts, and nothing
// that another library of that program would read.
void tell_openmpi(std::vector<std::string>* shared) {
  const Peer* openmpi = find_peer("openmpi");
  for (const auto& environment : {openmpi->environment, openmpi->settings.front().environment})
    for (const std::string& variable : environment)
      if (variable.starts_with("OMPI_MCA_")) shared->push_back(variable);
}

// Adds to `shared` what the peer's setting wants in the environment.
Result<Started> start_by(const RunOptions& options, std::vector<std::string>* shared) {
  Started started{.launcher = options.mpirun ? Launcher::orte : Launcher::ours,
                  .program = "mpirun",
                  .command = options.command};
  if (options.peer.empty()) {
    if (!options.setting.empty()) return invalid("--setting is of a peer, and no --peer is given");
    if (options.mpirun) tell_openmpi(shared);
    return started;
  }
  if (options.mpirun)
    return invalid("--mpirun is for a program of your own; a --peer has its own launcher");
  const Result<std::string> program = peer_program(options.peer);
  if (!program) return program.status();
  const Peer* peer = find_peer(options.peer);
  started.command.insert(started.command.begin(), *program);
  started.launcher = peer->launcher;
  started.program = launcher_of(*program);
  const PeerSetting* setting = peer->find(options.setting);
  if (!setting)
    return invalid(
        fmt::format("--setting {}: {} has {}", options.setting, peer->name, peer->setting_names()));
  shared->insert(shared->end(), peer->environment.begin(), peer->environment.end());
  shared->insert(shared->end(), setting->environment.begin(), setting->environment.end());
  return started;
}

}  // namespace

Result<int> run_on(const Instance& instance, const RunOptions& options) {
  const Tree& tree = instance.tree;
  const bool by_others = !options.peer.empty() || options.mpirun;
  if (by_others && tree.rails > 1)
    return invalid(fmt::format(
        "{}: '{}' has {} rails, and other libraries are told of one NIC a host; bring a "
        "tree up without --rails for that",
        options.mpirun ? "--mpirun" : "--peer " + options.peer, instance.name, tree.rails));
  const Result<std::vector<int>> hosts = hosts_of_ranks(tree, options);
  if (!hosts) return hosts.status();
  SENNIT_RETURN_IF_ERROR(join_owner(instance));
  const Result<ScratchFolder> scratch = ScratchFolder::make();
  if (!scratch) return scratch.status();
  LaunchOptions launch_options = options.launch;
  const Result<std::string> hosts_file = scratch->write("hosts", hosts_text(tree));
  if (!hosts_file) return hosts_file.status();
  launch_options.hosts_file = *hosts_file;
  forget_launchers();
  Result<std::vector<std::string>> shared = shared_environment(tree, *hosts, options, *scratch);
  if (!shared) return shared.status();
  const Result<Started> started = start_by(options, &*shared);
  if (!started) return started.status();
  if (started->launcher == Launcher::ours)
    return launch(instance, ranks_of(tree, *hosts, options, *shared, started->command),
                  launch_options);
  shared->push_back("SENNIT_INTERFACE=" + interface_of(0));
  const Result<std::vector<std::string>> words = mpirun_command(
      instance, *scratch, *hosts, started->launcher, started->program, started->command);
  if (!words) return words.status();
  launch_options.namespaces_folder = scratch->path();
  std::erase_if(*shared,
                [](const std::string& variable) { return variable.starts_with("WORLD_SIZE="); });
  return launch(instance, {{.host = hosts->front(), .environment = *shared, .command = *words}},
                launch_options);
}

Result<int> with_tree(const TreeOptions& tree_options, const Action& action) {
  const Result<Tree> tree = make_tree(tree_options);
  if (!tree) return tree.status();
  SENNIT_RETURN_IF_ERROR(gain_privilege());
  const Result<Instance> instance = create(fmt::format("run-{}", getpid()), *tree);
  if (!instance) return instance.status();
  Result<int> status = action(*instance);
  destroy(*instance);
  return status;
}

Result<int> with_instance(const std::string& name, const Action& action) {
  const Result<Instance> instance = find(name);
  if (!instance)
    return instance.status().kind() == SENNIT_NOT_FOUND
               ? Status(SENNIT_NOT_FOUND,
                        instance.status().text() +
                            "; or give this command a tree (--racks, --hosts, ...)")
               : instance.status();
  SENNIT_RETURN_IF_ERROR(check_up(*instance));
  return action(*instance);
}

}  // namespace sennit::emulate
