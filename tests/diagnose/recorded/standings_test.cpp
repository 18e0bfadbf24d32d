// standings_test.cpp: at which moment what ranks do is looked at: by their own clocks, whatever the
// real time is on their hosts.
//
// ctest not-under-tsan: it has one thread
#include "diagnose/recorded/standings.hpp"

#include <set>
#include <string>

#include <gtest/gtest.h>

namespace sennit::diagnose {
namespace {

constexpr uint64_t kS = 1'000'000'000, kNow = 5000 * kS;

// Hosts a and b, whose monotonic clock is a hundred seconds ahead, and whose real time is an hour.
class MomentsOf : public testing::Test {
 protected:
  static constexpr uint64_t kAhead = 100 * kS;

  // Of a rank that runs, and began a call at that moment of its clock.
  RankRecording& add(const std::string& host, uint64_t begun_ns) {
    RankRecording& rank = job_.ranks.emplace_back();
    rank.rank = job_.size++;
    rank.host = host;
    rank.state = RankState::running;
    rank.monotonic_ns = kS;
    rank.realtime_ns = host == "b" ? 3600 * kS : 0;
    TraceEvent begin;
    begin.kind = EventKind::call_begin;
    begin.posted_ns = begun_ns;
    rank.events.push_back(begin);
    return rank;
  }
  // As the control plane measured it, against rank 0's.
  static void measure(RankRecording* rank, uint64_t ahead_ns) {
    rank->clock = {static_cast<int64_t>(ahead_ns), 0, rank->events.front().posted_ns, 0};
    rank->clock.check = rank->clock.expected_check();
  }
  Standings look() {
    job_.index();
    Plans plans(job_);
    return standings_of(job_, plans);
  }
  JobRecording job_;
};

TEST_F(MomentsOf, AnotherHostWhoseClockWasMeasured) {
  job_.ranks.reserve(3);
  RankRecording& here = add("a", kNow - 3 * kS);
  RankRecording& there = add("b", kNow + kAhead - 2 * kS);
  RankRecording& gone = add("a", kNow - 3 * kS);
  here.as_of_ns = kNow;
  gone.state = RankState::gone;
  measure(&here, 0);
  measure(&there, kAhead);
  const Standings standings = look();
  EXPECT_EQ(standings.by_rank[0].now_ns, kNow);
  EXPECT_EQ(standings.by_rank[1].now_ns, kNow + kAhead);
  EXPECT_EQ(standings.by_rank[2].now_ns, kNow);
  EXPECT_TRUE(standings.undated.empty());
}

TEST_F(MomentsOf, AnotherHostWhoseClockIsNotKnown) {
  job_.ranks.reserve(2);
  add("a", kNow - 3 * kS).as_of_ns = kNow;
  add("b", kNow - 50 * kS);
  const Standings standings = look();
  EXPECT_EQ(standings.by_rank[0].now_ns, kNow);
  EXPECT_EQ(standings.by_rank[1].now_ns, kNow - 50 * kS) << "when it recorded something last";
  EXPECT_EQ(standings.undated, std::set<int>{1});
}

TEST_F(MomentsOf, HostsOfWhichNoneIsThisOne) {
  job_.ranks.reserve(2);
  RankRecording &one = add("a", kNow - 3 * kS), &other = add("b", kNow + kAhead);
  measure(&one, 0);
  measure(&other, kAhead);
  const Standings standings = look();
  EXPECT_EQ(standings.by_rank[0].now_ns, kNow) << "the other one has recorded something since";
  EXPECT_EQ(standings.by_rank[1].now_ns, kNow + kAhead);
  EXPECT_EQ(standings.undated, (std::set<int>{0, 1}));
  one.state = other.state = RankState::gone;
  EXPECT_TRUE(look().undated.empty()) << "of what has ended there is no now";
}

}  // namespace
}  // namespace sennit::diagnose
