// core_time_test.cpp: a thread that wakes late finds out for how long its process did not run.
// ctest not-under-tsan: it has one thread
#include "watch/core_time.hpp"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <thread>

#include <gtest/gtest.h>

#include "base/clock.hpp"

using namespace std::chrono_literals;

namespace sennit::watch {
namespace {

constexpr uint64_t kMs = 1'000'000;

TEST(CoreTime, OneThatWakesInTimeWasNotPaused) {
  CoreTime time;
  EXPECT_FALSE(time.slept(100 * kMs, 110 * kMs, 112 * kMs));
  EXPECT_FALSE(time.slept(100 * kMs, 110 * kMs, 103 * kMs)) << "woken before";
  EXPECT_EQ(time.take_ns(), 0u);
}

TEST(CoreTime, OneThatWakesLateWas) {
  CoreTime time;
  EXPECT_EQ(time.slept(100 * kMs, 110 * kMs, 210 * kMs), (Pause{105 * kMs, 210 * kMs}));
  EXPECT_EQ(time.slept(300 * kMs, 310 * kMs, 405 * kMs), (Pause{305 * kMs, 405 * kMs}));
  EXPECT_EQ(time.take_ns(), 205 * kMs);
  EXPECT_EQ(time.take_ns(), 0u) << "since the last time";
}

// A real process that sleeps, again and again, is stopped three times for 100 ms.
TEST(CoreTime, AProcessThatIsStoppedKnowsForHowLong) {
  int pipe_ends[2], end_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  ASSERT_EQ(pipe2(end_ends, O_NONBLOCK), 0);
  const pid_t child = fork();
  if (child == 0) {
    close(end_ends[1]);
    CoreTime time;
    uint64_t begin = now_ns();
    if (write(pipe_ends[1], "", 1) != 1) _exit(1);          // from now on it watches itself
    for (char end = 0; read(end_ends[0], &end, 1) != 0;) {  // until the parent has closed it
      std::this_thread::sleep_for(CoreTime::kSleep);
      const uint64_t now = now_ns();
      time.slept(begin, begin + std::chrono::nanoseconds(CoreTime::kSleep).count(), now);
      begin = now;  // wherever it is stopped
    }
    const uint64_t sum = time.take_ns();
    _exit(write(pipe_ends[1], &sum, sizeof sum) == sizeof sum ? 0 : 1);
  }
  char begun = 0;
  ASSERT_EQ(read(pipe_ends[0], &begun, 1), 1);
  for (int i = 0; i < 3; i++) {
    kill(child, SIGSTOP);
    std::this_thread::sleep_for(100ms);
    kill(child, SIGCONT);
    std::this_thread::sleep_for(100ms);
  }
  close(end_ends[1]);
  uint64_t sum = 0;
  EXPECT_EQ(read(pipe_ends[0], &sum, sizeof sum), static_cast<ssize_t>(sizeof sum));
  EXPECT_GE(sum, 3 * 90 * kMs);
  waitpid(child, nullptr, 0);
  close(pipe_ends[0]);
  close(pipe_ends[1]);
  close(end_ends[0]);
}

}  // namespace
}  // namespace sennit::watch
