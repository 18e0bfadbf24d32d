// death_test.cpp: death, with ranks as processes: killed at random, several at once, rank
// 0 and inner ranks of the tree among them; stopped and continued; leaving early. All survivors
// must name the same ranks, within two seconds.
//
// ctest quiet: it judges what happens within seconds of a kill
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <string>

#include "tests/control/processes.hpp"
#include "tests/support/eventually.hpp"
#include "tests/support/seed.hpp"

namespace sennit {
namespace {

using sennit_test::at_some_timeout;
using sennit_test::least_time;
using std::chrono::milliseconds;
using test::clock_ms;
using test::Event;
using test::ProcessJob;

constexpr auto kBound = std::chrono::seconds(2);

// When the last of them knew.
int64_t expect_all_know(ProcessJob& job, const std::set<int>& dead) {
  EXPECT_TRUE(job.all_know(dead)) << job.knowledge();
  if (testing::Test::HasFailure()) return 0;
  std::string text;
  int64_t last_ms = 0;
  for (int r = 0; r < job.base.size; r++) {
    if (dead.count(r)) continue;
    const Event* event = job.last(r, Event::failed);
    last_ms = std::max(last_ms, event->ms);
    EXPECT_EQ(event->status, SENNIT_PEER_FAILED);
    if (text.empty()) text = event->text;
    EXPECT_EQ(text, event->text) << "rank " << r;
    for (const int d : dead)
      EXPECT_NE(text.find(fmt::format("rank {} (host ", d)), text.npos) << text;
  }
  return last_ms;
}

// How long it took at most until all knew of a blow.
milliseconds kill_once(int size, const std::vector<std::set<int>>& blows) {
  ProcessJob job(size);
  EXPECT_TRUE(job.all_started());
  std::set<int> dead;
  int64_t longest_ms = 0;
  for (const std::set<int>& blow : blows) {
    if (testing::Test::HasFailure()) return {};
    const int64_t before = clock_ms();
    job.kill_ranks(blow);
    dead.insert(blow.begin(), blow.end());
    longest_ms = std::max(longest_ms, expect_all_know(job, dead) - before);
  }
  EXPECT_TRUE(job.leave_all());
  return milliseconds(longest_ms);
}

void kill_and_check(int size, const std::vector<std::set<int>>& blows) {
  SCOPED_TRACE(fmt::format("{} ranks, first victim {}", size, *blows[0].begin()));
  EXPECT_LT(least_time(kBound, [&] { return kill_once(size, blows); }), kBound);
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

std::string stop_for_less_than(int64_t timeout_ms) {
  ProcessJob job(18, timeout_ms);
  if (!job.all_started()) return "it does not start";
  for (const int r : {1, 0, 17}) {
    job.rank(r).signal(SIGSTOP);
    job.wait(timeout_ms * 65 / 100, [] { return false; });
    job.rank(r).signal(SIGCONT);
    job.wait(timeout_ms * 15 / 100, [] { return false; });
  }
  job.wait(timeout_ms * 5 / 4, [] { return false; });
  if (job.count(Event::failed) > 0) return job.knowledge();
  return job.leave_all() ? "" : "not all leave";
}

TEST(Stop, ShorterThanTheTimeoutIsSurvived) {
  EXPECT_EQ(at_some_timeout(2000, stop_for_less_than), "");
}

std::string stop_for_more_than(int64_t timeout_ms, int victim) {
  ProcessJob job(6, timeout_ms);
  if (!job.all_started()) return "it does not start";
  job.rank(victim).signal(SIGSTOP);
  if (!job.all_know({victim}, 8 * timeout_ms)) return job.knowledge();
  const std::string text = job.last(5, Event::failed)->text;
  if (text.find(fmt::format("no sign of life for {} ms", timeout_ms)) == text.npos) return text;
  job.rank(victim).signal(SIGCONT);
  // It learns that it is counted among the dead.
  if (!job.wait(60'000, [&] { return job.last(victim, Event::failed) != nullptr; }))
    return "it does not learn of it";
  return job.leave_all() ? "" : "not all leave";
}

TEST(Stop, LongerThanTheTimeoutIsDeath) {
  for (const int victim : {3, 0})
    EXPECT_EQ(at_some_timeout(800, [&](int64_t ms) { return stop_for_more_than(ms, victim); }), "");
}

// How long the others then took to notice a death.
milliseconds leave_early() {
  ProcessJob job(36);
  EXPECT_TRUE(job.all_started());
  for (const int r : {35, 1, 0, 5}) {  // leaves, an inner rank, rank 0
    job.tell_leave(r);
    EXPECT_TRUE(job.wait(60'000, [&] { return job.last(r, Event::left) != nullptr; })) << r;
  }
  job.wait(1000, [] { return false; });
  EXPECT_EQ(job.count(Event::failed), 0u) << job.knowledge();
  // The rest still notices a death.
  const int64_t before = clock_ms();
  job.kill_ranks({20});
  const std::set<int> dead = {20}, gone = {35, 1, 0, 5, 20};
  EXPECT_TRUE(job.wait(60'000, [&] {
    for (int r = 0; r < 36; r++)
      if (!gone.count(r) && !job.last(r, Event::failed)) return false;
    return true;
  })) << job.knowledge();
  if (testing::Test::HasFailure()) return {};
  int64_t last_ms = before;
  for (int r = 0; r < 36; r++)
    if (!gone.count(r)) {
      EXPECT_EQ(job.last(r, Event::failed)->set(), dead) << r;
      last_ms = std::max(last_ms, job.last(r, Event::failed)->ms);
    }
  EXPECT_TRUE(job.leave_all());
  return milliseconds(last_ms - before);
}

TEST(Leave, EarlyIsNoFailure) { EXPECT_LT(least_time(kBound, leave_early), kBound); }

TEST(Suspect, ThatLivesIsAFailedLink) {
  ProcessJob job(20);
  ASSERT_TRUE(job.all_started());
  const char peer = 18;
  ASSERT_EQ(write(job.commands[2], &peer, 1), 1);
  ASSERT_TRUE(job.wait(60'000, [&] { return job.count(Event::link) == 20; }));
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
