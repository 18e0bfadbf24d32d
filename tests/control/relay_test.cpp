// relay_test.cpp: the thread that serves unique ids' ports rests where nobody can be taken in.
#include "control/relay.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <ctime>
#include <thread>

namespace sennit::control {
namespace {

using std::chrono::milliseconds;

constexpr uint64_t kJob = 71;
constexpr size_t kSecretBytes = 32;
constexpr int64_t kPatienceMs = 60'000;

milliseconds used_by_process() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return std::chrono::duration_cast<milliseconds>(std::chrono::seconds(time.tv_sec) +
                                                  std::chrono::nanoseconds(time.tv_nsec));
}

// As where the kernel has no memory for a connection: the error stays, and so does who knocks.
TEST(Relay, RestsWhileAnErrorStays) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()), 0);
  ASSERT_EQ(::send(ends[1], "", 1, 0), 1);
  // no listener: always ready, and never gives a connection
  Relay::of_process().keep({kJob, std::vector<std::byte>(kSecretBytes), false}, ends[0],
                           kPatienceMs);
  const milliseconds before = used_by_process();
  constexpr milliseconds kWatched{300};
  std::this_thread::sleep_for(kWatched);
  EXPECT_LT(used_by_process() - before, kWatched / 3);
  Relay::of_process().forget(kJob);
  // Both are open still: close_socket() leaves alone what the library has not opened.
  for (const int end : ends) ::close(end);
}

}  // namespace
}  // namespace sennit::control
