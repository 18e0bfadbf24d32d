// `sennit`: dispatches to its subcommands; under the name of one of nccl-tests' programs it is that program.
// Exit status: 0 done, 1 done and something is wrong, 2 the call was off, 3 the machine lacks something.
#include <cstdio>
#include <string_view>
#include <utility>
#include <vector>

#include "commands.hpp"
#include "sennit/sennit.h"

namespace {

// nccl-tests' programs, and the collective that each measures.
constexpr std::pair<std::string_view, const char*> kPerfPrograms[] = {
    {"all_reduce_perf", "all_reduce"},
    {"all_gather_perf", "all_gather"},
    {"reduce_scatter_perf", "reduce_scatter"},
    {"broadcast_perf", "broadcast"},
    {"reduce_perf", "reduce"},
    {"alltoall_perf", "all_to_all"},
    {"gather_perf", "gather"},
    {"scatter_perf", "scatter"},
    {"sendrecv_perf", "send_recv"},
    {"hypercube_perf", "hypercube"}};

}  // namespace

int main(int argc, char** argv) {
  std::vector<const char*> arguments(argv, argv + argc);
  std::string_view program = argc > 0 ? argv[0] : "sennit";
  program = program.substr(program.rfind('/') + 1);
  for (const auto& [name, collective] : kPerfPrograms)
    if (program == name) arguments.insert(arguments.begin() + 1, {"bench", collective});

  CLI::App app("sennit: topology-aware collective communication", "sennit");
  app.set_version_flag("--version", sennit_version());
  app.require_subcommand(1);
  int exit_code = 0;
  sennit::add_bench_command(app, argv, &exit_code);
  sennit::add_emulate_command(app, &exit_code);
  try {
    app.parse(static_cast<int>(arguments.size()), arguments.data());
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  return exit_code;
}
