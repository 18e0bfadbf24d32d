// fixture.hpp: a job of control planes for tests: ranks as threads' objects of this process, or as
// forked processes that can be killed and stopped.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <map>
#include <set>
#include <thread>

#include <fmt/core.h>

#include "api/start/launch.hpp"
#include "base/mutex.hpp"
#include "control/control_plane.hpp"

namespace sennit::test {

// A clock that all processes of this machine share, and that nobody sets.
inline int64_t clock_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// What one rank was told, and what it says it is doing.
struct Recorder {
  Mutex mutex;
  Condition changed;
  std::vector<int> failed;
  Status peers;  // last of peers_failed
  int decisions = 0;
  std::map<uint32_t, Status> communicators;
  Status link;
  std::map<uint32_t, std::vector<int>> members;
  std::map<uint32_t, CallDescriptor> calls;
  std::map<int, std::vector<std::byte>> told;  // by rank: the last
  std::vector<std::vector<std::byte>> announced;

  Control::Callbacks callbacks() {
    Control::Callbacks result;
    result.peers_failed = [this](const std::vector<int>& set, const Status& status) {
      const MutexLock lock(mutex);
      failed = set;
      peers = status;
      decisions++;
      changed.notify_all();
    };
    result.communicator_failed = [this](uint32_t comm, int member, const Status& status) {
      const MutexLock lock(mutex);
      if (std::ranges::find(members[comm], member) == members[comm].end()) return;
      communicators[comm] = status;
      changed.notify_all();
    };
    result.link_failed = [this](int, int, const Status& status) {
      const MutexLock lock(mutex);
      link = status;
      changed.notify_all();
    };
    result.describe = [this](uint32_t comm, uint32_t, CallDescriptor* out) {
      const MutexLock lock(mutex);
      const auto call = calls.find(comm);
      if (call == calls.end()) return false;
      *out = call->second;
      return true;
    };
    result.members = [this](uint32_t comm) {
      const MutexLock lock(mutex);
      const auto found = members.find(comm);
      return found == members.end() ? std::vector<int>{} : found->second;
    };
    result.told = [this](int rank, uint8_t, const std::vector<std::byte>& blob) {
      const MutexLock lock(mutex);
      told[rank] = blob;
      changed.notify_all();
    };
    result.announced = [this](uint8_t, const std::vector<std::byte>& blob) {
      const MutexLock lock(mutex);
      announced.push_back(blob);
      changed.notify_all();
    };
    return result;
  }
  template <typename Condition>
  bool wait(int64_t ms, Condition condition) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(ms);
    MutexLock lock(mutex);
    while (!condition())
      if (changed.wait_until(lock, end) == std::cv_status::timeout) return condition();
    return true;
  }
};

// body(0) to body(count - 1), each on a thread of its own. Returns when all are over.
inline void in_threads(int count, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int i = 0; i < count; i++) threads.emplace_back(body, i);
  for (std::thread& thread : threads) thread.join();
}

// Ranks as objects of this process.
struct LocalJob {
  std::vector<BootstrapOptions> options;
  std::vector<Recorder> recorders;
  std::vector<std::unique_ptr<Control>> controls;
  std::vector<Status> statuses;

  explicit LocalJob(int size)
      : recorders(static_cast<size_t>(size)),
        controls(recorders.size()),
        statuses(recorders.size()) {
    const auto id = make_unique_id();
    for (int r = 0; r < size; r++) {
      options.push_back(options_from_unique_id(*id, r, size).value());
      options.back().root_host = "127.0.0.1";
      options.back().arrival_timeout_ms = 60'000;
    }
  }
  int size() const { return static_cast<int>(options.size()); }
  // Starts the ranks for which `comes` is true.
  bool start(const std::function<bool(int)>& comes = [](int) { return true; }) {
    in_threads(size(), [&](int r) {
      const auto i = static_cast<size_t>(r);
      if (!comes(r)) return;
      auto control = Control::start(options[i], recorders[i].callbacks());
      statuses[i] = control.status();
      if (control.ok()) controls[i] = std::move(*control);
    });
    for (const Status& status : statuses)
      if (!status.ok()) return false;
    return true;
  }
  void leave() {
    in_threads(size(), [&](int r) {
      if (controls[static_cast<size_t>(r)]) controls[static_cast<size_t>(r)]->leave();
    });
  }
  Control& operator[](int r) { return *controls[static_cast<size_t>(r)]; }
  Recorder& recorder(int r) { return recorders[static_cast<size_t>(r)]; }
};

}  // namespace sennit::test
