// message_cost.cpp: see plan/message_cost.hpp.
#include "plan/message_cost.hpp"

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <stop_token>
#include <system_error>
#include <thread>

#include "base/net/socket.hpp"
#include "base/process/signals_blocked.hpp"

namespace sennit {
namespace {

// The first ones wake everything up.
constexpr int kFirst = 8, kBounces = 400;
// for one message: this process may be stopped, or share a core with many
constexpr int kPatienceMs = 200;
constexpr std::chrono::milliseconds kTime(100), kMostTime(400);  // for all bounces
// No machine takes so long: other processes had the cores, and it is tried for longer.
constexpr int64_t kTooLongNs = 400'000;
// What a message takes over what a bounce over loopback does: 3 / 2.
constexpr uint64_t kOfMessage = 3, kOfLoopback = 2;

// Two ends of a connection over the loopback interface.
struct Pair {
  std::array<int, 2> ends = {-1, -1};
  Pair() = default;
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;
  ~Pair() {
    for (const int end : ends)
      if (end >= 0) close_socket(end);
  }
};

bool readable(int fd) {
  pollfd ready = {fd, POLLIN, 0};
  return ::poll(&ready, 1, kPatienceMs) == 1;
}

bool connect(Pair& pair) {
  const Result<int> listener = listen_on(*parse_address("127.0.0.1", 0));
  if (!listener) return false;
  int error = 0;
  Address from;
  const Result<int> asking = connect_to(local_address(*listener), &error);
  if (asking) pair.ends[0] = *asking;
  if (asking && readable(*listener)) pair.ends[1] = accept_from(*listener, &from);
  close_socket(*listener);
  // or a stranger was faster
  return pair.ends[1] >= 0 && from == local_address(pair.ends[0]);
}

// To one of the cores that this process may run on; where it has fewer, nothing changes.
void keep_to_core(int which) {
  cpu_set_t all, one;
  CPU_ZERO(&one);
  if (sched_getaffinity(0, sizeof all, &all) != 0) return;
  for (int core = 0; core < CPU_SETSIZE; core++)
    if (CPU_ISSET(core, &all) && which-- == 0) {
      CPU_SET(core, &one);
      pthread_setaffinity_np(pthread_self(), sizeof one, &one);
      return;
    }
}

// Keeps a core from sleeping while it lives. In a job the cores are busy; one that sleeps may take
// several messages' time to wake up where a hypervisor lends it. Whatever else wants to run there
// runs at once.
class Awake {
 public:
  explicit Awake(int core)
      : thread_([core](const std::stop_token& done) {
          keep_to_core(core);
          if (pthread_setschedparam(pthread_self(), SCHED_IDLE, &kNone) != 0) return;
          while (!done.stop_requested()) {
          }
        }) {}
  Awake(const Awake&) = delete;
  Awake& operator=(const Awake&) = delete;
  ~Awake() {
    thread_.request_stop();
    // Where others keep the core busy it would come to see that only after a second.
    pthread_setschedparam(thread_.native_handle(), SCHED_OTHER, &kNone);
  }

 private:
  static constexpr sched_param kNone = {};
  std::jthread thread_;
};

bool send_one(int end) {
  const char message[64] = {};
  return ::send(end, message, sizeof message, MSG_NOSIGNAL) == sizeof message;
}
bool receive_one(int end) {
  char message[64];
  return readable(end) && ::recv(end, message, sizeof message, 0) == sizeof message;
}

}  // namespace

uint64_t measure_message_cpu_ns() {
  using Clock = std::chrono::steady_clock;
  Pair pair;
  if (!connect(pair)) return 0;
  int64_t best = 0;
  const SignalsBlocked blocked;
  try {
    const Awake first(0), second(1);
    std::jthread echo([&] {
      keep_to_core(1);
      while (receive_one(pair.ends[1]) && send_one(pair.ends[1])) {
      }
    });
    // A thread of its own, so that this one keeps its cores.
    std::jthread asking([&] {
      keep_to_core(0);
      const auto start = Clock::now();
      for (int bounce = 0; bounce < kBounces; bounce++) {
        const auto began = Clock::now();
        if (began > start + (best > 0 && best < kTooLongNs ? kTime : kMostTime)) break;
        if (!send_one(pair.ends[0]) || !receive_one(pair.ends[0])) return;
        const int64_t took = (Clock::now() - began).count();
        if (bounce >= kFirst) best = best == 0 ? took : std::min(best, took);
      }
    });
    asking.join();
    ::shutdown(pair.ends[0], SHUT_RDWR);
  } catch (const std::system_error&) {
    best = 0;  // no thread to be had
  }
  if (best >= kTooLongNs) return 0;
  return static_cast<uint64_t>(best) * kOfMessage / kOfLoopback / 2;
}

}  // namespace sennit
