// commands.hpp: the subcommands of `sennit`. Each lives in a folder of command/ and adds itself to
// the app; those of the trainer live in trainer/command/, and are a program of their own that
// main.cpp runs.
//
// Contract: the callback that CLI11 runs sets *exit_code to 0 done, 1 done and something is wrong,
// 2 the call was off, 3 the machine lacks something. Both arguments outlive parsing.
#pragma once

#include <vector>

#include <CLI/CLI.hpp>

namespace sennit {

// argv as main() got it: the command starts itself again for local processes.
void add_bench_command(CLI::App& app, char** argv, int* exit_code);
void add_emulate_command(CLI::App& app, int* exit_code);
void add_job_command(CLI::App& app, int* exit_code);
void add_export_command(CLI::App& app, int* exit_code);
void add_plan_command(CLI::App& app, int* exit_code);
void add_simulate_command(CLI::App& app, int* exit_code);
void add_topo_command(CLI::App& app, int* exit_code);
void add_tune_command(CLI::App& app, char** argv, int* exit_code);

// The trainer's.
void add_checkpoint_command(CLI::App& app, int* exit_code);
void add_tokenize_command(CLI::App& app, int* exit_code);
void add_train_command(CLI::App& app, char** argv, int* exit_code);

// Parses the arguments, which runs the command that they name, and gives the program's exit status.
int run_command(CLI::App& app, const std::vector<const char*>& arguments, const int* exit_code);

}  // namespace sennit
