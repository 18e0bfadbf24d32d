// processes.hpp: a job of n ranks as real processes of this host, for tests that kill, stop and
// starve them.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <fmt/core.h>

#include "base/net/reserved_port.hpp"
#include "sennit/sennit.h"
#include "tests/support/process.hpp"

namespace sennit_test {

// Forks ranks 0 to n - 1, but for `absent`, which must be before this process has threads of its
// own. Each child runs f(rank) with torchrun's variables and those of `environment` set, and
// reports what f returns through a pipe; reports() collects that until a deadline. The end of this
// kills what is left.
class Processes {
 public:
  using Environment = std::map<std::string, std::string>;
  Processes(int n, const std::function<std::string(int)>& f, const Environment& environment = {},
            int absent = -1)
      : ranks_(static_cast<size_t>(n)) {
    for (int rank = 0; rank < n; rank++) {
      if (rank == absent) continue;
      ranks_[static_cast<size_t>(rank)] = Process([&] {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        set_environment(rank, n, environment);
        return f(rank);
      });
    }
  }
  ~Processes() {
    for (const Process& rank : ranks_) rank.signal(SIGKILL);  // all at once, stopped ones too
  }

  void signal(int rank, int number) { ranks_[static_cast<size_t>(rank)].signal(number); }
  int size() const { return static_cast<int>(ranks_.size()); }
  pid_t pid(int rank) const { return ranks_[static_cast<size_t>(rank)].pid(); }

  // What each rank reported; nothing for one that was killed, or had not ended when the time was
  // over.
  std::vector<std::optional<std::string>> reports(std::chrono::milliseconds limit) {
    const auto end = std::chrono::steady_clock::now() + limit;
    const auto speaks = [](const Process& rank) { return rank.out() >= 0; };
    while (std::any_of(ranks_.begin(), ranks_.end(), speaks)) {
      std::vector<pollfd> fds;
      for (const Process& rank : ranks_) fds.push_back({rank.out(), POLLIN, 0});
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
          end - std::chrono::steady_clock::now());
      if (left.count() <= 0 || poll(fds.data(), fds.size(), static_cast<int>(left.count())) <= 0)
        break;
      for (size_t r = 0; r < fds.size(); r++)
        if (fds[r].revents) ranks_[r].listen();
    }
    std::vector<std::optional<std::string>> results(ranks_.size());
    for (size_t r = 0; r < ranks_.size(); r++)
      if (!speaks(ranks_[r]) && !ranks_[r].said().empty()) results[r] = ranks_[r].said();
    return results;
  }

 private:
  // torchrun's, for a job of this host.
  void set_environment(int rank, int n, const Environment& more) const {
    Environment variables = {{"RANK", std::to_string(rank)},
                             {"WORLD_SIZE", std::to_string(n)},
                             {"LOCAL_RANK", std::to_string(rank)},
                             {"LOCAL_WORLD_SIZE", std::to_string(n)},
                             {"MASTER_ADDR", "127.0.0.1"},
                             {"MASTER_PORT", std::to_string(port_.number())},
                             {"SENNIT_SECRET", "a secret for the tests"}};
    for (const auto& [name, value] : more) variables[name] = value;
    for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
  }

  const sennit::ReservedPort port_;
  std::vector<Process> ranks_;
};

// Ends the function of such a rank with a report where a condition does not hold.
#define REQUIRE(condition) \
  if (!(condition))        \
  return fmt::format("line {}: {} ({})", __LINE__, #condition, sennit_last_error())

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
  int count() const { return *count_; }
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
