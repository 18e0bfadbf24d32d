// `sennit-trainer`: `sennit train`, `sennit tokenize` and `sennit checkpoint`. The command `sennit`
// becomes this program where it is called for one of them, with the same arguments.
#include <vector>

#include "command/commands.hpp"
#include "sennit/sennit.h"

int main(int argc, char** argv) {
  sennit::CommandLine line("sennit: topology-aware collective communication", "sennit",
                           sennit_version());
  sennit::add_tokenize_command(line);
  sennit::add_checkpoint_command(line);
  sennit::add_train_command(line, argv);
  return line.run(std::vector<const char*>(argv, argv + argc));
}
