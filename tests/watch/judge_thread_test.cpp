// judge_thread_test.cpp: what the judge finds comes from its thread, which lets others go first and
// ends with what it has.
#include "watch/judge_thread.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "topology/source.hpp"

using namespace std::chrono_literals;

namespace sennit::watch {
namespace {

constexpr uint64_t kMs = 1'000'000;

// Three ranks, of which one is in no call for longer than the others.
class JudgeThreads : public testing::Test {
 protected:
  JudgeThreads()
      : fabric_(*synthetic_fabric("racks=3;nic=400Mbit/s")),
        thread_(std::make_unique<JudgeThread>(fabric_.to_text(), ranks_on_all_hosts(fabric_, 1))) {
    thread_->give({{0, 1, CommunicatorNote{1, {0, 1, 2}}}});
  }
  // Of a digest a second by the time that is given.
  void tell(int late) {
    std::vector<JudgeThread::Told> told;
    at_ns_ += 1000 * kMs;
    for (int rank = 0; rank < 3; rank++) {
      Digest digest;
      digest.span_ns = 1000 * kMs;
      digest.paces = {{1, 10, rank == late ? 50 * kMs : kMs, 100 * kMs}};
      told.push_back({rank, at_ns_, std::move(digest)});
    }
    thread_->give(std::move(told));
  }
  std::vector<LiveVerdict> tell_until_found(int late) {
    const auto begin = std::chrono::steady_clock::now();
    while (!thread_->has_found() && std::chrono::steady_clock::now() < begin + 20s) {
      tell(late);
      std::this_thread::sleep_for(5ms);
    }
    return thread_->take();
  }

  const Fabric fabric_;
  std::unique_ptr<JudgeThread> thread_;
  uint64_t at_ns_ = 0;
};

std::optional<int> niceness_of_thread(const std::string& name) {
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string its;
    std::getline(std::ifstream(task.path() / "comm"), its);
    const auto id = static_cast<id_t>(std::stoul(task.path().filename().string()));
    if (its == name) return getpriority(PRIO_PROCESS, id);
  }
  return std::nullopt;
}

TEST_F(JudgeThreads, WhatIsFoundIsTakenOnce) {
  const std::vector<LiveVerdict> found = tell_until_found(2);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].about, VerdictAbout::late_ranks);
  EXPECT_EQ(found[0].ranks, std::vector<int>{2});
  EXPECT_FALSE(thread_->has_found());
  EXPECT_TRUE(thread_->take().empty());
  const std::vector<LiveVerdict> taken_back = tell_until_found(-1);
  ASSERT_EQ(taken_back.size(), 1u);
  EXPECT_TRUE(taken_back[0].withdrawn);
}

TEST_F(JudgeThreads, OthersGoFirst) {
  tell_until_found(1);
  constexpr int kNicest = 19;
  EXPECT_EQ(niceness_of_thread(JudgeThread::kName),
            std::min(kNicest, getpriority(PRIO_PROCESS, 0) + JudgeThread::kNicer));
}

TEST_F(JudgeThreads, EndsWhateverItHasStillToLookAt) {
  for (int i = 0; i < 1000; i++) tell(i % 3);
  thread_.reset();
}

}  // namespace
}  // namespace sennit::watch
