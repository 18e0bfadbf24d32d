// command_emulate_run.hpp: `sennit emulate run`: what each rank is told, and trees that live as long as a
// command.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "command_emulate.hpp"

namespace sennit::emulate {

struct RunOptions {
  int ranks_per_host = 1;
  std::string order = "fabric";
  bool no_fabric = false;
  bool slurm = false;
  LaunchOptions launch;
  std::vector<std::string> command;
};

Result<int> run_on(const Instance& instance, const RunOptions& options);

using Action = std::function<Result<int>(const Instance&)>;
Result<int> with_tree(const TreeOptions& tree, const Action& action);      // up, action, down
Result<int> with_instance(const std::string& name, const Action& action);  // one that is up

}  // namespace sennit::emulate
