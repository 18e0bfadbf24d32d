// background_judge_test.cpp: what the judge finds comes from the background, also what it finds
// last; what it finds no time for is lost, but for what ranks tell once.
#include "watch/background_judge.hpp"

#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "topology/source.hpp"

using namespace std::chrono_literals;

namespace sennit::watch {
namespace {

constexpr uint64_t kMs = 1'000'000;

// Three ranks, of which one is in no call for longer than the others.
class BackgroundJudges : public testing::Test {
 protected:
  BackgroundJudges()
      : fabric_(*synthetic_fabric("racks=3;nic=400Mbit/s")),
        judge_(fabric_.to_text(), ranks_on_all_hosts(fabric_, 1)) {}
  void introduce() { judge_.give({{0, 1, CommunicatorNote{1, {0, 1, 2}}}}); }
  // Of a digest a second by the time that is given.
  void tell(int late) {
    std::vector<BackgroundJudge::Told> told;
    at_ns_ += 1000 * kMs;
    for (int rank = 0; rank < 3; rank++) {
      Digest digest;
      digest.span_ns = 1000 * kMs;
      digest.paces = {{1, 10, rank == late ? 50 * kMs : kMs, 100 * kMs}};
      told.push_back({rank, at_ns_, std::move(digest)});
    }
    judge_.give(std::move(told));
  }
  void tell_until_found(int late) {
    const auto begin = std::chrono::steady_clock::now();
    while (!judge_.has_found() && std::chrono::steady_clock::now() < begin + 20s) {
      tell(late);
      std::this_thread::sleep_for(5ms);
    }
  }

  const Fabric fabric_;
  BackgroundJudge judge_;
  uint64_t at_ns_ = 0;
};

TEST_F(BackgroundJudges, WhatIsFoundIsTakenOnce) {
  introduce();
  tell_until_found(2);
  const std::vector<LiveVerdict> found = judge_.take();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].about, VerdictAbout::late_ranks);
  EXPECT_EQ(found[0].ranks, std::vector<int>{2});
  EXPECT_FALSE(judge_.has_found());
  EXPECT_TRUE(judge_.take().empty());
  tell_until_found(-1);
  const std::vector<LiveVerdict> taken_back = judge_.take();
  ASSERT_EQ(taken_back.size(), 1u);
  EXPECT_TRUE(taken_back[0].withdrawn);
  EXPECT_TRUE(judge_.end().empty());
}

TEST_F(BackgroundJudges, WhatIsFoundLastIsNotLost) {
  introduce();
  tell_until_found(1);
  const std::vector<LiveVerdict> found = judge_.end();
  ASSERT_FALSE(found.empty());
  EXPECT_EQ(found[0].ranks, std::vector<int>{1});
}

// Of thousands of digests most are dropped, and the note that comes between them is not.
TEST_F(BackgroundJudges, WhatIsToldOnceIsKeptWhereThereIsNoTimeForAll) {
  constexpr int kMany = 5000;
  for (int i = 0; i < kMany; i++) tell(0);
  introduce();
  tell_until_found(0);
  const std::vector<LiveVerdict> found = judge_.take();
  ASSERT_FALSE(found.empty());
  EXPECT_EQ(found[0].ranks, std::vector<int>{0});
}

}  // namespace
}  // namespace sennit::watch
