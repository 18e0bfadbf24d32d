// calls: how long each of a rank's calls takes, one line a call, while a fabric changes beneath
// them. Run by replanning.py, as every rank of a job on an emulated tree.
#include <chrono>
#include <cstdint>
#include <vector>

#include <fmt/core.h>

#include "command/command_line.hpp"
#include "sennit/sennit.h"

namespace {

using Clock = std::chrono::system_clock;

double seconds(Clock::duration time) { return std::chrono::duration<double>(time).count(); }

// Prints, at rank 0, when each call began, in seconds since 1970, and how long it took.
int fail() {
  fmt::print(stderr, "calls: {}\n", sennit_last_error());
  return 1;
}

// Prints, at rank 0, when each call began, in seconds since 1970, and how long it took.
int run(size_t bytes, double for_s) {
  sennit_comm_t comm = nullptr;
  int rank = 0, size = 0;
  if (sennit_comm_init_env(&comm, nullptr) != SENNIT_OK) return fail();
  sennit_comm_rank(comm, &rank);
  sennit_comm_size(comm, &size);
  std::vector<float> in(bytes / sizeof(float), 1.0F), out(in.size());
  const Clock::time_point first = Clock::now();
  int32_t go_on = 1;
  while (go_on != 0) {
    const Clock::time_point begin = Clock::now();
    if (sennit_all_reduce(in.data(), out.data(), in.size(), SENNIT_FLOAT32, SENNIT_SUM, comm) !=
        SENNIT_OK)
      return fail();
    const Clock::time_point end = Clock::now();
    if (rank == 0) {
      fmt::print("call {:.3f} {:.4f}\n", seconds(begin.time_since_epoch()), seconds(end - begin));
      std::fflush(stdout);
    }
    for (const float sum : out)
      if (sum != static_cast<float>(size)) {
        fmt::print(stderr, "calls: rank {} got a wrong sum\n", rank);
        return 1;
      }
    go_on = seconds(end - first) < for_s ? 1 : 0;
    if (sennit_broadcast(&go_on, &go_on, 1, SENNIT_INT32, 0, comm) != SENNIT_OK) return fail();
  }
  if (sennit_comm_finalize(comm) != SENNIT_OK) return fail();
  sennit_comm_destroy(comm);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  size_t bytes = 16'000'000;
  double for_s = 30;
  sennit::CommandLine line("times every all_reduce of a job", "calls");
  const sennit::Command command = line.itself();
  command.option("-b,--bytes", bytes, "of one call").show_default();
  command.option("-t,--time", for_s, "seconds in which calls begin").show_default();
  command.action([&] { return run(bytes, for_s); });
  return line.run({argv, argv + argc});
}
