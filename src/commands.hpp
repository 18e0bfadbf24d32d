// commands.hpp: the subcommands of `sennit`. Each lives in src/command_NAME*.cpp and adds itself to the app;
// command_main.cpp only calls these and returns *exit_code.
//
// Contract: the callback that CLI11 runs sets *exit_code to 0 done, 1 done and something is wrong, 2 the call
// was off, 3 the machine lacks something. Both arguments outlive parsing.
#pragma once

#include <CLI/CLI.hpp>

namespace sennit {

// argv as main() got it: the command starts itself again for local processes.
void add_bench_command(CLI::App& app, char** argv, int* exit_code);
void add_emulate_command(CLI::App& app, int* exit_code);
void add_job_command(CLI::App& app, int* exit_code);
void add_export_command(CLI::App& app, int* exit_code);
void add_plan_command(CLI::App& app, int* exit_code);
void add_simulate_command(CLI::App& app, int* exit_code);
void add_checkpoint_command(CLI::App& app, int* exit_code);  // with the trainer, as is the next
void add_tokenize_command(CLI::App& app, int* exit_code);
void add_topo_command(CLI::App& app, int* exit_code);
void add_train_command(CLI::App& app, char** argv, int* exit_code);  // with the trainer
void add_tune_command(CLI::App& app, char** argv, int* exit_code);

}  // namespace sennit
