// `sennit-trainer`: `sennit train`, `sennit tokenize` and `sennit checkpoint`. The command `sennit`
// becomes this program where it is called for one of them, with the same arguments.
#include <vector>

#include "command/commands.hpp"
#include "sennit/sennit.h"

int main(int argc, char** argv) {
  CLI::App app("sennit: topology-aware collective communication", "sennit");
  app.set_version_flag("--version", sennit_version());
  app.require_subcommand(1);
  int exit_code = 0;
  sennit::add_tokenize_command(app, &exit_code);
  sennit::add_checkpoint_command(app, &exit_code);
  sennit::add_train_command(app, argv, &exit_code);
  return sennit::run_command(app, std::vector<const char*>(argv, argv + argc), &exit_code);
}
