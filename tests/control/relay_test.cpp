// relay_test.cpp: the thread that serves unique ids' ports rests where nobody can be taken in; a
// maker that does not answer is not waited for by who wants it no more.
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

TEST(Relay, ToTellAMakerThatDoesNotAnswerIsInterrupted) {
  const Result<int> silent = listen_on(*parse_address("127.0.0.1", 0));
  ASSERT_TRUE(silent.ok());
  int asked = 0;
  const Status status =
      tell_maker({local_address(*silent)}, {kJob, std::vector<std::byte>(kSecretBytes), false}, 2,
                 {local_address(*silent)}, kPatienceMs, Interruption([&] { return ++asked == 3; }));
  EXPECT_EQ(status.kind(), SENNIT_ABORTED) << status.text();
  EXPECT_EQ(asked, 3);
  close_socket(*silent);
}

// No connection begins, as where there is no way to it yet: nobody connects to all at once.
TEST(Relay, ToTellAMakerThatNoWayLeadsToIsInterrupted) {
  const Address nowhere = *parse_address("255.255.255.255", 1);
  int asked = 0;
  const Status status =
      tell_maker({nowhere}, {kJob, std::vector<std::byte>(kSecretBytes), false}, 2, {nowhere},
                 kPatienceMs, Interruption([&] { return ++asked == 2; }));
  EXPECT_EQ(status.kind(), SENNIT_ABORTED) << status.text();
  EXPECT_EQ(asked, 2);
}

}  // namespace
}  // namespace sennit::control
