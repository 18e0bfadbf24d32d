// processes.hpp: a job of n ranks as real processes of this host, for tests that kill, stop and
// starve them.
//
// Fork before the parent has threads of its own. Each child runs f(rank) with torchrun's variables
// set and reports what f returns through a pipe; the parent collects the reports until a deadline
// and kills what is left.
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/reserved_port.hpp"

namespace sennit_test {

class Processes {
 public:
  using Environment = std::map<std::string, std::string>;
  Processes(int n, const std::function<std::string(int)>& f, const Environment& environment = {},
            int absent = -1)
      : pids_(static_cast<size_t>(n), -1), pipes_(static_cast<size_t>(n), -1) {
    for (int rank = 0; rank < n; rank++) {
      if (rank == absent) continue;
      int ends[2];
      if (pipe2(ends, O_CLOEXEC) != 0) std::abort();
      const pid_t pid = fork();
      if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        setenv("RANK", std::to_string(rank).c_str(), 1);
        setenv("WORLD_SIZE", std::to_string(n).c_str(), 1);
        setenv("LOCAL_RANK", std::to_string(rank).c_str(), 1);
        setenv("LOCAL_WORLD_SIZE", std::to_string(n).c_str(), 1);
        setenv("MASTER_ADDR", "127.0.0.1", 1);
        setenv("MASTER_PORT", std::to_string(port_.number()).c_str(), 1);
        setenv("SENNIT_SECRET", "a secret for the tests", 1);
        for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
        const std::string report = f(rank);
        [[maybe_unused]] const ssize_t written = write(ends[1], report.data(), report.size());
        close(ends[1]);
        _exit(0);
      }
      close(ends[1]);
      pids_[static_cast<size_t>(rank)] = pid;
      pipes_[static_cast<size_t>(rank)] = ends[0];
    }
  }
  ~Processes() {
    for (const pid_t pid : pids_)
      if (pid > 0) kill(pid, SIGCONT), kill(pid, SIGKILL);
    for (const pid_t pid : pids_)
      if (pid > 0) waitpid(pid, nullptr, 0);
    for (const int fd : pipes_)
      if (fd >= 0) close(fd);
  }

  void signal(int rank, int number) { kill(pids_[static_cast<size_t>(rank)], number); }
  int size() const { return static_cast<int>(pids_.size()); }
  pid_t pid(int rank) const { return pids_[static_cast<size_t>(rank)]; }

  // What each rank reported; nothing for one that was killed, or had not ended when the time was
  // over.
  std::vector<std::optional<std::string>> reports(std::chrono::milliseconds limit) {
    std::vector<std::optional<std::string>> results(pids_.size());
    const auto end = std::chrono::steady_clock::now() + limit;
    std::vector<std::string> text(pids_.size());
    size_t open = 0;
    for (const int fd : pipes_) open += fd >= 0;
    while (open > 0) {
      std::vector<pollfd> fds;
      for (const int fd : pipes_) fds.push_back({fd, POLLIN, 0});
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
          end - std::chrono::steady_clock::now());
      if (left.count() <= 0 || poll(fds.data(), fds.size(), static_cast<int>(left.count())) <= 0)
        break;
      for (size_t r = 0; r < fds.size(); r++) {
        if (!fds[r].revents) continue;
        char buffer[4096];
        const ssize_t n = read(pipes_[r], buffer, sizeof buffer);
        if (n > 0) {
          text[r].append(buffer, static_cast<size_t>(n));
          continue;
        }
        close(pipes_[r]);
        pipes_[r] = -1;
        open--;
        if (!text[r].empty()) results[r] = text[r];
      }
    }
    return results;
  }

 private:
  std::vector<pid_t> pids_;
  std::vector<int> pipes_;
  const sennit::ReservedPort port_;
};

// How many of the forked ranks have come to a place.
class Arrivals {
 public:
  Arrivals()
      : count_(new (mmap(nullptr, sizeof *count_, PROT_READ | PROT_WRITE,
                         MAP_SHARED | MAP_ANONYMOUS, -1, 0)) std::atomic<int>(0)) {}
  ~Arrivals() { munmap(count_, sizeof *count_); }
  Arrivals(const Arrivals&) = delete;
  Arrivals& operator=(const Arrivals&) = delete;
  void add() { ++*count_; }
  bool await(int all, std::chrono::milliseconds limit) const {
    const auto end = std::chrono::steady_clock::now() + limit;
    while (*count_ < all && std::chrono::steady_clock::now() < end)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return *count_ >= all;
  }

 private:
  std::atomic<int>* count_;
};

}  // namespace sennit_test
