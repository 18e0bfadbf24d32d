// death_test.cpp: death, with ranks as processes: killed at random, several at once, rank
// 0 and inner ranks of the tree among them; stopped and continued; leaving early. All survivors
// must name the same ranks, within two seconds.
//
// ctest quiet: it judges what happens within seconds of a kill
#include <gtest/gtest.h>

#include <random>

#include "tests/control/processes.hpp"
#include "tests/support/seed.hpp"

namespace sennit {
namespace {

using test::clock_ms;
using test::Event;
using test::ProcessJob;

constexpr int64_t kBoundMs = 2000;

void expect_all_know(ProcessJob& job, const std::set<int>& dead, int64_t killed_ms) {
  ASSERT_TRUE(job.all_know(dead, 10'000)) << job.knowledge();
  std::string text;
  for (int r = 0; r < job.base.size; r++) {
    if (dead.count(r)) continue;
    const Event* event = job.last(r, Event::failed);
    EXPECT_LT(event->ms - killed_ms, kBoundMs) << "rank " << r;
    EXPECT_EQ(event->status, SENNIT_PEER_FAILED);
    if (text.empty()) text = event->text;
    EXPECT_EQ(text, event->text) << "rank " << r;
    for (const int d : dead)
      EXPECT_NE(text.find(fmt::format("rank {} (host ", d)), text.npos) << text;
  }
}

void kill_and_check(int size, const std::vector<std::set<int>>& blows) {
  SCOPED_TRACE(fmt::format("{} ranks, first victim {}", size, *blows[0].begin()));
  ProcessJob job(size);
  ASSERT_TRUE(job.all_started());
  std::set<int> dead;
  for (const std::set<int>& blow : blows) {
    const int64_t before = clock_ms();
    job.kill_ranks(blow);
    dead.insert(blow.begin(), blow.end());
    expect_all_know(job, dead, before);
    if (::testing::Test::HasFailure()) return;
  }
  EXPECT_TRUE(job.leave_all());
}

TEST(Death, OfALeaf) { kill_and_check(8, {{5}}); }
TEST(Death, OfRank0) { kill_and_check(8, {{0}}); }
TEST(Death, OfRank0AndItsHeir) { kill_and_check(20, {{0, 1}}); }
TEST(Death, OfAnInnerRankAndItsChild) { kill_and_check(36, {{1, 18}}); }
TEST(Death, OfRank0AndALeafElsewhere) { kill_and_check(36, {{0, 33}}); }
TEST(Death, OfManyOneAfterTheOther) { kill_and_check(24, {{3}, {0}, {1, 2}, {20}}); }
TEST(Death, OfAllButOne) { kill_and_check(8, {{0, 1, 2, 3, 4, 5, 6}}); }

TEST(Death, AtRandom) {
  std::mt19937_64 random(sennit_test::seed());
  for (int trial = 0; trial < 25; trial++) {
    const int size = trial % 2 ? 8 : static_cast<int>(17 + random() % 12);
    std::vector<std::set<int>> blows;
    std::set<int> victims;
    for (uint64_t n = 1 + random() % 2; n > 0; n--) {
      std::set<int> blow;
      while (blow.size() < 1 + random() % 2)
        if (const int r = static_cast<int>(
                random() % 4 == 0 ? random() % 3 : random() % static_cast<uint64_t>(size));
            victims.insert(r).second)
          blow.insert(r);
      blows.push_back(blow);
    }
    kill_and_check(size, blows);
    ASSERT_FALSE(HasFailure()) << "trial " << trial;
  }
}

TEST(Stop, ShorterThanTheTimeoutIsSurvived) {
  ProcessJob job(18, 2000);
  ASSERT_TRUE(job.all_started());
  for (const int r : {1, 0, 17}) {
    job.rank(r).signal(SIGSTOP);
    job.wait(1300, [] { return false; });
    job.rank(r).signal(SIGCONT);
    job.wait(300, [] { return false; });
  }
  job.wait(2500, [] { return false; });
  EXPECT_EQ(job.count(Event::failed), 0u) << job.knowledge();
  EXPECT_TRUE(job.leave_all());
}

TEST(Stop, LongerThanTheTimeoutIsDeath) {
  for (const int victim : {3, 0}) {
    ProcessJob job(6, 800);
    ASSERT_TRUE(job.all_started());
    job.rank(victim).signal(SIGSTOP);
    ASSERT_TRUE(job.all_know({victim}, 6000)) << job.knowledge();
    EXPECT_NE(std::string(job.last(5, Event::failed)->text).find("no sign of life for 800 ms"),
              std::string::npos);
    job.rank(victim).signal(SIGCONT);
    // It learns that it is counted among the dead.
    EXPECT_TRUE(job.wait(5000, [&] { return job.last(victim, Event::failed) != nullptr; }));
    EXPECT_TRUE(job.leave_all());
  }
}

TEST(Leave, EarlyIsNoFailure) {
  ProcessJob job(36);
  ASSERT_TRUE(job.all_started());
  for (const int r : {35, 1, 0, 5}) {  // leaves, an inner rank, rank 0
    job.tell_leave(r);
    ASSERT_TRUE(job.wait(4000, [&] { return job.last(r, Event::left) != nullptr; })) << r;
  }
  job.wait(1000, [] { return false; });
  EXPECT_EQ(job.count(Event::failed), 0u) << job.knowledge();
  // The rest still notices a death.
  const int64_t before = clock_ms();
  job.kill_ranks({20});
  const std::set<int> dead = {20}, gone = {35, 1, 0, 5, 20};
  EXPECT_TRUE(job.wait(5000, [&] {
    for (int r = 0; r < 36; r++)
      if (!gone.count(r) && !job.last(r, Event::failed)) return false;
    return true;
  })) << job.knowledge();
  for (int r = 0; r < 36; r++)
    if (!gone.count(r)) {
      EXPECT_EQ(job.last(r, Event::failed)->set(), dead) << r;
      EXPECT_LT(job.last(r, Event::failed)->ms - before, kBoundMs);
    }
  EXPECT_TRUE(job.leave_all());
}

TEST(Suspect, ThatLivesIsAFailedLink) {
  ProcessJob job(20);
  ASSERT_TRUE(job.all_started());
  const char peer = 18;
  ASSERT_EQ(write(job.commands[2], &peer, 1), 1);
  ASSERT_TRUE(job.wait(3000, [&] { return job.count(Event::link) == 20; }));
  for (const Event& event : job.log)
    if (event.what == Event::link) {
      EXPECT_EQ(event.status, SENNIT_LINK_FAILED);
      EXPECT_EQ(event.set(), (std::set<int>{2, 18}));
      EXPECT_NE(std::string(event.text).find("data connection reset"), std::string::npos);
    }
  EXPECT_EQ(job.count(Event::failed), 0u);
  EXPECT_TRUE(job.leave_all());
}

}  // namespace
}  // namespace sennit
