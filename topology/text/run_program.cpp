// run_program.cpp: see topology/text/run_program.hpp. posix_spawn, for a fork of a process with
// much registered memory is dear.
#include "topology/text/run_program.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <string_view>

namespace sennit {
namespace {

constexpr size_t kMaxBytes = 16 << 20;

std::string find_program(const std::string& name) {
  const char* const path = std::getenv("PATH");
  std::string folders = std::string(path != nullptr ? path : "") + ":/usr/sbin:/sbin";
  for (size_t at = 0; at <= folders.size();) {
    const size_t colon = std::min(folders.find(':', at), folders.size());
    std::string program = folders.substr(at, colon - at) + "/" + name;
    if (program.front() == '/' && colon > at && access(program.c_str(), X_OK) == 0) return program;
    at = colon + 1;
  }
  return {};
}

// Takes what has come; false at the end, or where it is too much.
bool drain(int fd, std::string* text) {
  char buffer[65536];
  const ssize_t got = ::read(fd, buffer, sizeof buffer);
  if (got <= 0) return false;
  text->append(buffer, static_cast<size_t>(got));
  return text->size() <= kMaxBytes;
}

}  // namespace

std::optional<ProgramOutput> run_program(const std::vector<std::string>& words, int timeout_ms) {
  const std::string program = find_program(words[0]);
  if (program.empty()) return std::nullopt;
  std::array<int, 2> out{}, error{};
  if (pipe2(out.data(), O_CLOEXEC) != 0) return std::nullopt;
  if (pipe2(error.data(), O_CLOEXEC) != 0) {
    close(out[0]);
    close(out[1]);
    return std::nullopt;
  }
  std::vector<char*> arguments;
  arguments.reserve(words.size() + 1);
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, out[1], 1);
  posix_spawn_file_actions_adddup2(&actions, error[1], 2);
  pid_t child = -1;
  const int failed =
      posix_spawn(&child, program.c_str(), &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(out[1]);
  close(error[1]);

  ProgramOutput output;
  if (failed == 0) {
    using Clock = std::chrono::steady_clock;
    const Clock::time_point end = Clock::now() + std::chrono::milliseconds(timeout_ms);
    std::array<pollfd, 2> ends = {pollfd{out[0], POLLIN, 0}, pollfd{error[0], POLLIN, 0}};
    bool in_time = true;
    while (in_time && (ends[0].fd >= 0 || ends[1].fd >= 0)) {
      const auto left =
          std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
      const int ready = left > 0 ? poll(ends.data(), ends.size(), static_cast<int>(left)) : 0;
      if (ready < 0 && errno == EINTR) continue;
      in_time = ready > 0;
      for (size_t i = 0; i < ends.size() && in_time; i++)
        if (ends[i].fd >= 0 && ends[i].revents != 0 &&
            !drain(ends[i].fd, i == 0 ? &output.out : &output.error))
          ends[i].fd = -1;
    }
    int status = 0;
    pid_t ended = 0;  // it may close both and go on
    while (in_time && (ended = waitpid(child, &status, WNOHANG)) == 0) {
      in_time = Clock::now() < end;
      poll(nullptr, 0, 2);
    }
    if (!in_time) {
      kill(child, SIGKILL);
      waitpid(child, &status, 0);
      output.error = "no answer in time";
    }
    output.exit_code = in_time && ended == child && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  close(out[0]);
  close(error[0]);
  return failed == 0 ? std::optional<ProgramOutput>(std::move(output)) : std::nullopt;
}

}  // namespace sennit
