// message_cost.cpp: see message_cost.hpp.
#include "message_cost.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <system_error>
#include <thread>

namespace sennit {
namespace {

constexpr int kSeries = 50, kRounds = 8;
constexpr int kPatienceMs = 200;  // for one message: this process may be stopped, or share a core with many
constexpr std::chrono::milliseconds kTime(100);  // for all series, once there is one
constexpr uint64_t kWhole = 3, kOfLoopback = 2;  // what a message takes over what a bounce does

struct Pair {
  int ends[2] = {-1, -1};
  Pair() = default;
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;
  ~Pair() {
    for (const int end : ends)
      if (end >= 0) ::close(end);
  }
};

bool connect_over_loopback(Pair& pair) {
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (listener < 0) return false;
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  const bool listens = ::bind(listener, any, length) == 0 && ::listen(listener, 1) == 0 &&
                       ::getsockname(listener, any, &length) == 0;
  sockaddr_in mine = {}, theirs = {};
  if (listens) {
    pair.ends[0] = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    // A connection to a listener of this host is made without its help.
    if (pair.ends[0] >= 0 && ::connect(pair.ends[0], any, length) == 0 &&
        ::getsockname(pair.ends[0], reinterpret_cast<sockaddr*>(&mine), &length) == 0)
      pair.ends[1] = ::accept4(listener, reinterpret_cast<sockaddr*>(&theirs), &length, SOCK_CLOEXEC);
  }
  ::close(listener);
  if (pair.ends[1] < 0 || mine.sin_port != theirs.sin_port) return false;  // a stranger was faster
  const int one = 1;
  for (const int end : pair.ends) ::setsockopt(end, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  return true;
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

bool send_one(int end) {
  const char message[64] = {};
  return ::send(end, message, sizeof message, MSG_NOSIGNAL) == sizeof message;
}
bool receive_one(int end) {
  char message[64];
  pollfd ready = {end, POLLIN, 0};
  return ::poll(&ready, 1, kPatienceMs) == 1 &&
         ::recv(end, message, sizeof message, MSG_WAITALL) == sizeof message;
}

}  // namespace

uint64_t measure_message_cpu_ns() {
  using Clock = std::chrono::steady_clock;
  Pair pair;
  if (!connect_over_loopback(pair)) return 0;
  int64_t best = 0;
  sigset_t all, before;  // signals are for the threads of the user
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    std::jthread echo([&] {
      keep_to_core(1);
      while (receive_one(pair.ends[1]) && send_one(pair.ends[1])) {
      }
    });
    // A thread of its own, so that this one keeps its cores.
    std::jthread asking([&] {
      keep_to_core(0);
      const auto until = Clock::now() + kTime;
      for (int series = 0; series < kSeries && (best == 0 || Clock::now() < until); series++) {
        const auto began = Clock::now();
        for (int round = 0; round < kRounds; round++)
          if (!send_one(pair.ends[0]) || !receive_one(pair.ends[0])) return;
        const int64_t took = (Clock::now() - began).count();
        if (series > 0) best = best == 0 ? took : std::min(best, took);  // the first wakes everything up
      }
    });
    asking.join();
    ::shutdown(pair.ends[0], SHUT_RDWR);
  } catch (const std::system_error&) {
    best = 0;  // no thread to be had
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return static_cast<uint64_t>(best) * kWhole / kOfLoopback / (2 * kRounds);
}

}  // namespace sennit
