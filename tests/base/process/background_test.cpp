// background_test.cpp: tasks in the background are done one after the other, on a thread that lets
// others go first, and ends without those that wait.
#include "base/process/background.hpp"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <optional>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

using namespace std::chrono_literals;

namespace sennit {
namespace {

void wait_for(const std::atomic<bool>& flag) {
  while (!flag) std::this_thread::sleep_for(1ms);
}

TEST(Background, TasksAreDoneInTurnAndOthersGoFirst) {
  constexpr int kTasks = 1000, kNicest = 19;
  std::vector<int> done;
  int niceness = 0;
  std::atomic<bool> over = false;
  Background background("background");
  for (int task = 0; task < kTasks; task++) background.post([&, task] { done.push_back(task); });
  background.post([&] {
    niceness = getpriority(PRIO_PROCESS, 0);
    over = true;
  });
  wait_for(over);
  ASSERT_EQ(done.size(), size_t{kTasks});
  EXPECT_TRUE(std::is_sorted(done.begin(), done.end()));
  const int own = getpriority(PRIO_PROCESS, 0);
  EXPECT_EQ(niceness, std::min(kNicest, own + Background::kNicer));
}

TEST(Background, TheEndWaitsForWhatIsUnderWayAndForNothingElse) {
  std::atomic<bool> began = false, done = false, later = false;
  Background background("background");
  background.post([&] {
    began = true;
    std::this_thread::sleep_for(50ms);
    done = true;
  });
  background.post([&] { later = true; });
  wait_for(began);
  background.end();
  EXPECT_TRUE(done);
  background.post([&] { later = true; });
  background.end();
  std::this_thread::sleep_for(20ms);
  EXPECT_FALSE(later);
}

TEST(Background, WithoutTasksThereIsNothingToEnd) { Background("background").end(); }

// Whether it works or waits, the thread is the parent's.
TEST(Background, AForkedChildLeavesItAlone) {
  for (const bool works : {true, false}) {
    std::atomic<bool> began = false, go_on = !works;
    std::optional<Background> background("background");
    background->post([&] {
      began = true;
      wait_for(go_on);
    });
    wait_for(began);
    std::this_thread::sleep_for(20ms);
    const pid_t child = fork();
    if (child == 0) {
      background.reset();
      _exit(0);
    }
    int status = -1;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    go_on = true;
  }
}

}  // namespace
}  // namespace sennit
