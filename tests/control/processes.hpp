// processes.hpp: a job whose ranks are forked processes, to be killed and stopped. Each reports
// what its control plane tells it through one pipe; times are comparable, the clock is the
// machine's.
#pragma once

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <csignal>
#include <deque>
#include <optional>

#include "base/reserved_port.hpp"
#include "base/socket.hpp"
#include "tests/control/fixture.hpp"

namespace sennit::test {

struct Event {
  enum Kind : int { started, start_failed, failed, link, communicator, left } kind = started;
  int rank = -1;
  int status = 0;
  int64_t ms = 0;
  int failed_count = 0;
  int failed_ranks[64] = {};
  char text[1500] = {};

  std::set<int> set() const { return {failed_ranks, failed_ranks + failed_count}; }
};
static_assert(sizeof(Event) <= 4096, "written to a pipe in one piece");

// Stays reserved while this program runs: what is only found free now is somebody else's a moment
// later, where other tests run beside this one.
inline uint16_t free_port() {
  static std::deque<ReservedPort> reserved;
  return static_cast<uint16_t>(reserved.emplace_back().number() + 1);
}

struct ProcessJob {
  std::vector<pid_t> pids;
  std::vector<int> commands;  // closing one has that rank leave
  int events = -1;
  BootstrapOptions base;
  std::vector<Event> log;

  explicit ProcessJob(int size, int64_t heartbeat_ms = 30'000,
                      std::function<void(BootstrapOptions&)> change = {}) {
    int pipe_fds[2];
    if (pipe(pipe_fds) != 0) std::abort();
    events = pipe_fds[0];
    base.size = size;
    base.root_host = "127.0.0.1";
    base.root_port = free_port();
    base.secret.assign(32, std::byte{7});
    base.heartbeat_timeout_ms = heartbeat_ms;
    base.arrival_timeout_ms = 20'000;
    if (change) change(base);
    for (int r = 0; r < size; r++) {
      int command[2];
      if (pipe2(command, O_CLOEXEC) != 0) std::abort();
      std::fflush(nullptr);
      const pid_t pid = fork();
      if (pid == 0) {
        for (const int fd : commands) close(fd);
        close(command[1]);
        close(events);
        run(r, pipe_fds[1], command[0]);
      }
      close(command[0]);
      pids.push_back(pid);
      commands.push_back(command[1]);
    }
    close(pipe_fds[1]);
  }
  ~ProcessJob() {
    for (const int fd : commands)
      if (fd >= 0) close(fd);
    for (const pid_t pid : pids)
      if (pid > 0) kill(pid, SIGKILL), waitpid(pid, nullptr, 0);
    close(events);
  }

  [[noreturn]] void run(int rank, int out, int command) {
    const auto tell = [&](Event::Kind kind, const Status& status,
                          const std::vector<int>& set = {}) {
      Event event;
      event.kind = kind, event.rank = rank, event.status = status.kind(), event.ms = clock_ms();
      for (const int r : set)
        if (event.failed_count < 64) event.failed_ranks[event.failed_count++] = r;
      std::strncpy(event.text, status.text().c_str(), sizeof event.text - 1);
      if (write(out, &event, sizeof event) != sizeof event) _exit(3);
    };
    BootstrapOptions options = base;
    options.rank = rank;
    Control::Callbacks callbacks;
    callbacks.peers_failed = [&](const std::vector<int>& set, const Status& status) {
      tell(Event::failed, status, set);
    };
    callbacks.link_failed = [&](int a, int b, const Status& status) {
      tell(Event::link, status, {a, b});
    };
    {
      auto control = Control::start(options, callbacks);
      tell(control.ok() ? Event::started : Event::start_failed, control.status());
      if (!control.ok()) _exit(1);
      char letter = 0;
      while (read(command, &letter, 1) == 1)
        (*control)->report_suspect(letter, "data connection reset");
      (*control)->leave();
      tell(Event::left, {});
    }
    _exit(0);
  }

  // Reads events until `enough` holds or the time is up.
  bool wait(int64_t ms, const std::function<bool()>& enough) {
    const int64_t deadline = clock_ms() + ms;
    while (!enough()) {
      const int64_t left = deadline - clock_ms();
      pollfd entry{events, POLLIN, 0};
      if (left <= 0 || poll(&entry, 1, static_cast<int>(left)) <= 0) return enough();
      Event event;
      if (read(events, &event, sizeof event) != sizeof event) {  // nobody is left to write
        usleep(1000);
        continue;
      }
      log.push_back(event);
    }
    return true;
  }
  size_t count(Event::Kind kind) const {
    size_t n = 0;
    for (const Event& event : log) n += event.kind == kind;
    return n;
  }
  bool all_started() {
    return wait(
               20'000,
               [&] { return count(Event::started) + count(Event::start_failed) >= pids.size(); }) &&
           count(Event::start_failed) == 0;
  }
  const Event* last(int rank, Event::Kind kind) const {
    for (auto it = log.rbegin(); it != log.rend(); ++it)
      if (it->rank == rank && it->kind == kind) return &*it;
    return nullptr;
  }
  void kill_ranks(const std::set<int>& ranks) {
    for (const int r : ranks) kill(pids[static_cast<size_t>(r)], SIGKILL);
    for (const int r : ranks)
      waitpid(pids[static_cast<size_t>(r)], nullptr, 0), pids[static_cast<size_t>(r)] = -1;
  }
  // All living ranks know exactly this failed set.
  bool all_know(const std::set<int>& dead, int64_t ms) {
    return wait(ms, [&] {
      for (int r = 0; r < base.size; r++) {
        if (dead.count(r)) continue;
        const Event* event = last(r, Event::failed);
        if (!event || event->set() != dead) return false;
      }
      return true;
    });
  }
  std::string knowledge() const {
    std::string text;
    for (int r = 0; r < base.size; r++)
      if (const Event* event = last(r, Event::failed)) {
        text += fmt::format("rank {}: {} dead: {}\n", r, event->failed_count, event->text);
      } else {
        text += fmt::format("rank {}: nothing\n", r);
      }
    return text;
  }
  void tell_leave(int rank) {
    close(commands[static_cast<size_t>(rank)]);
    commands[static_cast<size_t>(rank)] = -1;
  }
  // Everybody alive leaves; true if all ended by themselves with exit status 0.
  bool leave_all() {
    for (int r = 0; r < base.size; r++)
      if (commands[static_cast<size_t>(r)] >= 0) tell_leave(r);
    bool good = true;
    for (pid_t& pid : pids) {
      if (pid < 0) continue;
      int status = 0;
      for (int i = 0; i < 1000 && waitpid(pid, &status, WNOHANG) == 0; i++, status = -1)
        wait(10, [] { return false; });
      good = good && status == 0;
      if (status != -1) pid = -1;
    }
    return good;
  }
};

}  // namespace sennit::test
