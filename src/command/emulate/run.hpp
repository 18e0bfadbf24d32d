// run.hpp: `sennit emulate run`: what each rank is told, and trees that live as long as a command.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "command/emulate/emulate.hpp"
#include "command/emulate/peers.hpp"
#include "command/emulate/state.hpp"
#include "topology/fabric/tier_tree.hpp"

namespace sennit::emulate {

// What is run on a tree, and by whom it is started.
struct RunOptions {
  int ranks_per_host = 1;
  std::string order = "fabric";
  // ranks renumbered into the fabric order that sennit finds for that placement
  bool recommended = false;
  bool no_fabric = false;
  // not empty: ranks probe what they are not told, and keep the result there
  std::string probe_cache;
  bool slurm = false;
  std::string peer;     // its benchmark program is run with `command` as arguments
  std::string setting;  // of the peer; empty: its first
  bool mpirun = false;  // `command` is started by Open MPI's mpirun, not by us
  LaunchOptions launch;
  std::vector<std::string> command;
};

// Hosts of the ranks 0, 1, ... as `options` ask, and the tiers that sennit makes of them.
Result<std::vector<int>> hosts_of_ranks(const Tree& tree, const RunOptions& options);
Result<TierTree> tier_tree(const Tree& tree, const std::vector<int>& hosts_of_ranks);
Result<int> run_on(const Instance& instance, const RunOptions& options);

// What to start to have a launcher, which is `program`, start `command` once per entry of `hosts`,
// in that order; and the agent that its remote shell calls: HOST WORDS...
Result<std::vector<std::string>> mpirun_command(const Instance& instance,
                                                const ScratchFolder& scratch,
                                                const std::vector<int>& hosts, Launcher launcher,
                                                const std::string& program,
                                                const std::vector<std::string>& command);
int agent(std::vector<std::string> words);
std::string own_program();  // this one's path

using Action = std::function<Result<int>(const Instance&)>;
// Brings a tree up for this one action, and down again whatever became of it. Needs the privilege
// that gain_privilege() gets.
Result<int> with_tree(const TreeOptions& tree, const Action& action);
// The action on an instance that is up and stays so. SENNIT_NOT_FOUND: there is none of that name.
Result<int> with_instance(const std::string& name, const Action& action);

}  // namespace sennit::emulate
