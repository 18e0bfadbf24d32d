// `sennit`: dispatches to its subcommands; under the name of one of nccl-tests' programs it is that
// program. Exit status: 0 done, 1 done and something is wrong, 2 the call was off, 3 the machine
// lacks something.
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "command/commands.hpp"
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
    {"sendrecv_perf", "send_recv"}};

// These are another program, so that this one needs none of the trainer's packages.
constexpr std::pair<const char*, const char*> kOfTheTrainer[] = {
    {"tokenize", "text to shards of tokens for sennit train"},
    {"checkpoint", "verify, export and time checkpoints of sennit train"},
    {"train", "train a Llama on text"}};

// Becomes the trainer's program where the command is one of its own. Comes back only where that is
// not there.
int run_trainer(char** argv) {
  std::error_code unknown;
  const std::filesystem::path here =
      std::filesystem::read_symlink("/proc/self/exe", unknown).parent_path();
  const std::string program = (here / "sennit-trainer").string();
  execv(program.c_str(), argv);
  std::fprintf(stderr,
               "sennit %s: %s: %s. It is the trainer, which is built where oneDNN, sentencepiece, "
               "zlib and xxhash are\n",
               argv[1], program.c_str(), std::strerror(errno));
  return 3;
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<const char*> arguments(argv, argv + argc);
  std::string_view program = argc > 0 ? argv[0] : "sennit";
  program = program.substr(program.rfind('/') + 1);
  for (const auto& [name, does] : kOfTheTrainer)
    if (argc > 1 && std::string_view(argv[1]) == name) return run_trainer(argv);
  sennit::CommandLine line("sennit: topology-aware collective communication", "sennit",
                           sennit_version());
  for (const auto& [name, collective] : kPerfPrograms)
    if (program == name) {
      arguments.insert(arguments.begin() + 1, {"bench", collective});
      line.call_itself(std::string(name));
    }
  sennit::add_bench_command(line, argv);
  sennit::add_fault_commands(sennit::add_emulate_command(line));
  sennit::add_exec_command(line);
  sennit::add_topo_command(line);
  sennit::add_trace_command(line);
  sennit::add_diagnose_command(line);
  sennit::add_top_command(line);
  sennit::add_tune_command(line, argv);
  sennit::add_plan_command(line);
  sennit::add_simulate_command(line);
  sennit::add_export_command(line);
  sennit::add_job_command(line);
  for (const auto& [name, does] : kOfTheTrainer) line.command(name, does);
  return line.run(arguments);
}
