// hangs: a job that hangs on purpose, and how long each rank waits to be told who is behind. Run by
// hangs.py, as every rank of a job on an emulated tree.
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include <fmt/core.h>

#include "command/command_line.hpp"
#include "sennit/sennit.h"

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kStopped{8000};

struct Options {
  std::string kind = "absent";
  int rank = 1, calls = 20;
  size_t bytes = 1'000'000;
  double for_s = 20;
};

int fail() {
  fmt::print(stderr, "hangs: {}\n", sennit_last_error());
  return 1;
}

// What this rank is told of the hang, and when it began to wait.
struct Waiting {
  int rank = 0;
  std::atomic<int64_t> since_ns{0};
  std::atomic<bool> told{false};
};

int64_t clock_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch())
      .count();
}

void told(const char* json, void* user) {
  auto* const waiting = static_cast<Waiting*>(user);
  const bool hang =
      std::string(json).find("\"verdict\":\"hang\",\"withdrawn\":false") != std::string::npos;
  if (!hang || waiting->told.exchange(true)) return;
  constexpr double kNsPerS = 1e9;
  fmt::print(stderr, "told {} {:.3f} {}\n", waiting->rank,
             static_cast<double>(clock_ns() - waiting->since_ns) / kNsPerS, json);
}

// This process stops, and goes on a while later.
void stop_for_a_while() {
  const pid_t self = getpid();
  if (fork() == 0) {
    usleep(static_cast<useconds_t>(std::chrono::microseconds(kStopped).count()));
    kill(self, SIGCONT);
    _exit(0);
  }
  kill(self, SIGSTOP);
}

sennit_status_t call(sennit_comm_t comm, std::vector<float>& values) {
  return sennit_all_reduce(values.data(), values.data(), values.size(), SENNIT_FLOAT32, SENNIT_MAX,
                           comm);
}

// Calls, of which one does not end; each rank prints when it was told so, and ends.
int run(const Options& options) {
  sennit_comm_t comm = nullptr, other = nullptr;
  Waiting waiting;
  if (sennit_comm_init_env(&comm, nullptr) != SENNIT_OK) return fail();
  sennit_comm_rank(comm, &waiting.rank);
  if (sennit_comm_dup(comm, &other) != SENNIT_OK) return fail();
  sennit_comm_on_verdict(comm, told, &waiting);
  const bool behind = waiting.rank == options.rank;
  std::vector<float> values(options.bytes / sizeof(float), 1.0F);
  std::thread calls([&] {
    for (int i = 0; i < options.calls; i++) {
      waiting.since_ns = clock_ns();  // of a message that is lost (SENNIT_FAULTS)
      if (call(comm, values) != SENNIT_OK) return;
    }
    waiting.since_ns = clock_ns();
    if (behind && options.kind == "stopped") stop_for_a_while();
    if (behind && options.kind == "absent") return;
    do {
      waiting.since_ns = clock_ns();
    } while (call(behind && options.kind == "other" ? other : comm, values) == SENNIT_OK);
  });
  const Clock::time_point end = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                                   std::chrono::duration<double>(options.for_s));
  while (!waiting.told && Clock::now() < end) std::this_thread::sleep_for(milliseconds(10));
  if (!waiting.told) fmt::print(stderr, "untold {}\n", waiting.rank);
  std::this_thread::sleep_for(milliseconds(1500));  // until all have been told
  _exit(0);                                         // the call does not end
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  sennit::CommandLine line("a job that hangs on purpose", "hangs");
  const sennit::Command command = line.itself();
  command.option("--kind", options.kind, "absent, other, stopped or lost").show_default();
  command.option("--rank", options.rank, "that is behind").show_default();
  command.option("--calls", options.calls, "before it hangs").show_default();
  command.option("-b,--bytes", options.bytes, "of one call").show_default();
  command.option("-t,--time", options.for_s, "seconds until it ends by itself").show_default();
  command.action([&] { return run(options); });
  return line.run({argv, argv + argc});
}
