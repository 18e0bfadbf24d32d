// foreign.cpp: options of nccl-tests that `sennit bench` lacks. Each is known by its names, so
// that a script that was written for nccl-tests learns what to write instead of "not expected". A
// value that asks for what sennit does anyway is taken; any other is refused. Not in --help.
#include <string_view>

#include <fmt/format.h>

#include "command/bench/bench.hpp"
#include "command/commands.hpp"

namespace sennit::bench {
namespace {

struct Foreign {
  const char* names;       // as CLI11 takes them
  std::string_view means;  // in nccl-tests
  std::string_view taken;  // one digit per value that sennit does anyway
  std::string_view instead;
};

constexpr Foreign kForeign[] = {
    {"-m,--agg_iters", "calls grouped in one iteration", "1",
     "each call is timed by itself: leave it out"},
    {"-N,--run_cycles", "repetitions of the whole run", "1", "repeat the command in a shell loop"},
    {"-p,--parallel_init", "ranks joining at once or in turn", "1",
     "ranks always join at once: leave it out"},
    {"-u,--unalign", "unaligned buffers", "0",
     "any alignment is right, but is not measured: leave it out"},
    {"-y,--stream_null", "CUDA's default stream", "0",
     "no stream is used in host memory: leave it out"},
    {"-G,--cudagraph", "replays of a CUDA graph", "0",
     "calls run from the host: give the iterations with -n"},
    {"-C,--report_cputime", "time on the CPU, not on the GPU", "1",
     "times are always those that the caller sees: leave it out"},
    {"-a,--average", "which rank's time is shown", "3",
     "always the slowest rank's (-a 3), whose min, mean and max over the iterations are in --json"},
    {"-R,--local_register", "registered buffers", "1",
     "--memory sennit (the default) is registered, --memory malloc is not"},
    {"-x,--cta_policy", "how many thread blocks a kernel takes", "0",
     "there are no kernels: leave it out"},
    {"-D,--device_implementation", "collectives called from a kernel", "0", "--algorithm NAME"},
    {"-V,--device_cta_count", "thread blocks of -D", "", "there are no kernels: leave it out"},
    {"-T,--timeout", "seconds until a test is given up", "0",
     "timeout(1); a lost rank ends the run by itself"},
    {"-S,--report_timestamps", "the time of day on each line", "0", "pipe the table through ts(1)"},
    {"-M,--memory_report", "memory used", "1",
     "the last line of the table always has it: leave it out"},
    {"-F", "figures as CSV", "", "--json FILE"},
};

}  // namespace

void add_foreign_options(CLI::App& command) {
  for (const Foreign& foreign : kForeign) {
    const auto judge = [&foreign](const std::string& value) {
      if (value.size() == 1 && foreign.taken.find(value) != std::string_view::npos) return;
      const std::string_view names = foreign.names;
      throw CLI::ValidationError(
          "sennit bench",
          fmt::format(
              "{}{}{} is an option of nccl-tests ({}) that sennit does not have; instead: {}",
              names.substr(0, names.find(',')), value.empty() ? "" : " ", value, foreign.means,
              foreign.instead));
    };
    command.add_option_function<std::string>(foreign.names, judge)->expected(0, 1)->group("");
  }
}

}  // namespace sennit::bench
