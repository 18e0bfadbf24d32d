// commands.hpp: the subcommands of `sennit`. Each lives in a folder of command/ and adds itself to
// the command line; those of the trainer live in trainer/command/, and are a program of their own
// that main.cpp becomes.
#pragma once

#include "command/command_line.hpp"

namespace sennit {

// argv as main() got it: the command starts itself again for local processes.
void add_bench_command(CommandLine& line, char** argv);
void add_diagnose_command(CommandLine& line);
// Returned, so that those of faults can be added to it: they lie in a folder above it.
Command add_emulate_command(CommandLine& line);
void add_fault_commands(const Command& emulate);
void add_exec_command(CommandLine& line);
void add_job_command(CommandLine& line);
void add_export_command(CommandLine& line);
void add_plan_command(CommandLine& line);
void add_simulate_command(CommandLine& line);
void add_top_command(CommandLine& line);
void add_topo_command(CommandLine& line);
void add_trace_command(CommandLine& line);
void add_tune_command(CommandLine& line, char** argv);

// The trainer's.
void add_checkpoint_command(CommandLine& line);
void add_tokenize_command(CommandLine& line);
void add_train_command(CommandLine& line, char** argv);

}  // namespace sennit
