// See perf/simgrid/replay.hpp: the child process, its limit and its answer.
#include "perf/simgrid/replay.hpp"

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <iostream>

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fmt/core.h>

#include "perf/simgrid/ranks.hpp"

namespace sennit::judge {
namespace {

struct Answer {
  Replayed replayed;
  int status = SENNIT_OK;
  char text[256] = {};
};

Answer answer_of(const Fabric& fabric, const TierTree& tree, const Request& request,
                 const Blueprint& blueprint, uint32_t chunks, const ReplayOptions& options) {
  Answer answer;
  const auto engine = new_engine();
  Platform platform;
  Status status = platform.build(fabric);
  const int places = (platform.ranks() + options.every - 1) / options.every;
  if (status.ok() && places != tree.ranks())
    status = invalid(fmt::format("judge: the fabric has places for {} ranks, the tree {}", places,
                                 tree.ranks()));
  if (status.ok()) {
    Ranks ranks(platform, tree, request, blueprint, std::max(1u, chunks), options);
    status = ranks.run(*engine);
    answer.replayed = {ranks.time_s(), ranks.messages(),
                       static_cast<double>(clock()) / static_cast<double>(CLOCKS_PER_SEC)};
  }
  answer.status = status.kind();
  std::strncpy(answer.text, status.text().c_str(), sizeof answer.text - 1);
  return answer;
}

// Ends the process in the end, without the destructors of what it shares with its parent.
[[noreturn]] void child(int out, const ReplayOptions& options, const auto& work) {
  const rlimit limit{options.limit_s, options.limit_s + 1};
  const rlimit no_core{0, 0};
  setrlimit(RLIMIT_CPU, &limit);
  setrlimit(RLIMIT_CORE, &no_core);
  const Answer answer = work();
  const bool told = write(out, &answer, sizeof answer) == static_cast<ssize_t>(sizeof answer);
  _exit(told ? 0 : 1);
}

}  // namespace

Result<Replayed> replay(const Fabric& fabric, const TierTree& tree, const Request& request,
                        const Blueprint& blueprint, uint32_t chunks, const ReplayOptions& options) {
  int ends[2];
  if (pipe(ends) != 0)
    return Status(SENNIT_OUT_OF_RESOURCES, fmt::format("judge: pipe: {}", std::strerror(errno)));
  std::cout.flush();
  std::fflush(nullptr);  // else the child's end writes it again
  const pid_t process = fork();
  if (process < 0) {
    close(ends[0]);
    close(ends[1]);
    return Status(SENNIT_OUT_OF_RESOURCES, fmt::format("judge: fork: {}", std::strerror(errno)));
  }
  if (process == 0)
    child(ends[1], options,
          [&] { return answer_of(fabric, tree, request, blueprint, chunks, options); });
  close(ends[1]);
  Answer answer;
  const ssize_t got = read(ends[0], &answer, sizeof answer);
  close(ends[0]);
  int how = 0;
  while (waitpid(process, &how, 0) < 0 && errno == EINTR) {
  }
  if (WIFSIGNALED(how) && (WTERMSIG(how) == SIGXCPU || WTERMSIG(how) == SIGKILL))
    return Status(SENNIT_TIMED_OUT, fmt::format("judge: took more than {} s", options.limit_s));
  if (got != static_cast<ssize_t>(sizeof answer))
    return Status(SENNIT_INTERNAL, "judge: SimGrid's process ended without an answer");
  if (answer.status != SENNIT_OK) return Status(static_cast<ErrorKind>(answer.status), answer.text);
  return answer.replayed;
}

}  // namespace sennit::judge
