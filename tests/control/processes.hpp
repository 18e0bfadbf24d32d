// processes.hpp: a job whose ranks are forked processes, to be killed and stopped.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <deque>

#include "base/net/reserved_port.hpp"
#include "base/net/socket.hpp"
#include "tests/control/fixture.hpp"
#include "tests/support/process.hpp"

namespace sennit::test {

// What a rank's control plane told it, as it goes through the rank's pipe. `ms` is clock_ms(), so
// those of all ranks compare.
struct Event {
  enum What : int { started, start_failed, failed, link, communicator, left } what = started;
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

// Starts the ranks at once, each a child that tells what happens to it. Nothing is read from them
// but in wait() and what calls it, which put it into `log`. Make it while this process has no other
// thread. Its end kills whoever lives.
struct ProcessJob {
  using Process = sennit_test::Process;

  std::vector<Process> ranks;
  // A byte into one is a rank that this one is to suspect; closing it has this rank leave.
  std::vector<int> commands;
  BootstrapOptions base;
  std::vector<Event> log;

  explicit ProcessJob(int size, int64_t heartbeat_ms = 30'000) {
    base.size = size;
    base.root_host = "127.0.0.1";
    base.root_port = free_port();
    base.secret.assign(32, std::byte{7});
    base.heartbeat_timeout_ms = heartbeat_ms;
    base.arrival_timeout_ms = 60'000;
    ranks.reserve(static_cast<size_t>(size));
    std::fflush(nullptr);
    for (int r = 0; r < size; r++) {
      int command[2];
      if (pipe2(command, O_CLOEXEC) != 0) std::abort();
      ranks.emplace_back([&](const Process::Voice& voice) {
        for (const int fd : commands) close(fd);
        for (const Process& other : ranks) close(other.out());
        close(command[1]);
        run(r, voice, command[0]);
      });
      close(command[0]);
      commands.push_back(command[1]);
    }
  }
  ~ProcessJob() {
    for (const int fd : commands)
      if (fd >= 0) close(fd);
    for (const Process& rank : ranks) rank.signal(SIGKILL);  // all at once
  }

  const Process& rank(int r) const { return ranks[static_cast<size_t>(r)]; }

  // In the child.
  void run(int rank, const Process::Voice& voice, int command) const {
    const auto tell = [&](Event::What what, const Status& status,
                          const std::vector<int>& set = {}) {
      Event event;
      event.what = what;
      event.rank = rank;
      event.status = status.kind();
      event.ms = clock_ms();
      for (const int r : set)
        if (event.failed_count < static_cast<int>(std::size(event.failed_ranks)))
          event.failed_ranks[event.failed_count++] = r;
      std::strncpy(event.text, status.text().c_str(), sizeof event.text - 1);
      voice.say({reinterpret_cast<const char*>(&event), sizeof event});
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
    auto control = Control::start(options, callbacks);
    tell(control.ok() ? Event::started : Event::start_failed, control.status());
    if (!control.ok()) _exit(1);
    char letter = 0;
    while (read(command, &letter, 1) == 1)
      (*control)->report_suspect(letter, "data connection reset");
    (*control)->leave();
    tell(Event::left, {});
  }

  // Reads events until `enough` holds or the time is up.
  bool wait(int64_t ms, const std::function<bool()>& enough) {
    const int64_t deadline = clock_ms() + ms;
    while (!enough()) {
      std::vector<pollfd> fds;
      for (const Process& rank : ranks) fds.push_back({rank.out(), POLLIN, 0});
      const int64_t left = deadline - clock_ms();
      if (left <= 0 || poll(fds.data(), fds.size(), static_cast<int>(left)) <= 0) return enough();
      for (size_t r = 0; r < fds.size(); r++) {
        if (!fds[r].revents) continue;
        const std::string text = ranks[r].read_some(sizeof(Event));
        if (text.size() != sizeof(Event)) continue;  // it has ended
        std::memcpy(&log.emplace_back(), text.data(), text.size());
      }
    }
    return true;
  }
  size_t count(Event::What what) const {
    return static_cast<size_t>(std::ranges::count(log, what, &Event::what));
  }
  bool all_started() {
    const auto all = [&] {
      return count(Event::started) + count(Event::start_failed) >= ranks.size();
    };
    return wait(90'000, all) && count(Event::start_failed) == 0;
  }
  const Event* last(int rank, Event::What what) const {
    for (auto it = log.rbegin(); it != log.rend(); ++it)
      if (it->rank == rank && it->what == what) return &*it;
    return nullptr;
  }
  void kill_ranks(const std::set<int>& victims) {
    for (const int r : victims) rank(r).signal(SIGKILL);
    for (const int r : victims) ranks[static_cast<size_t>(r)].stop();
  }
  // All living ranks know exactly this failed set.
  bool all_know(const std::set<int>& dead, int64_t ms = 60'000) {
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
    int& command = commands[static_cast<size_t>(rank)];
    if (command >= 0) close(std::exchange(command, -1));
  }
  // Everybody alive leaves; true if all ended by themselves with exit status 0.
  bool leave_all() {
    for (int r = 0; r < base.size; r++) tell_leave(r);
    bool good = true;
    for (Process& rank : ranks) {
      if (rank.pid() < 0) continue;
      int state = 0;
      bool over = rank.ended(&state);
      for (const int64_t end = clock_ms() + 60'000; !over && clock_ms() < end;) {
        wait(10, [] { return false; });
        over = rank.ended(&state);
      }
      good = good && over && state == 0;
    }
    return good;
  }
};

}  // namespace sennit::test
