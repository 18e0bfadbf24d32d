// `sennit`: dispatches to its subcommands. Exit status: 0 done, 1 done and something is wrong, 2 the call was
// off, 3 the machine lacks something.
#include "commands.hpp"

int main(int argc, char** argv) {
  CLI::App app("topology-aware collective communication");
  app.require_subcommand(1);
  int exit_code = 0;
  sennit::add_emulate_command(app, &exit_code);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  return exit_code;
}
