// told_verdicts_test.cpp: of what was told of a job while it ran, what still holds.
//
// ctest not-under-tsan: it has one thread
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "diagnose/job.hpp"
#include "diagnose/recorded/verdict.hpp"

namespace sennit::diagnose {
namespace {

// What a job's ranks noted, one after the other.
class ToldOf : public testing::Test {
 protected:
  ToldOf() {
    job_.size = 2;
    for (int number = 0; number < job_.size; number++) {
      RankRecording& rank = job_.ranks.emplace_back();
      rank.rank = number;
      rank.state = RankState::running;
    }
    job_.index();
  }
  VerdictNote& note(VerdictAbout about, const std::string& sentence) {
    VerdictNote& note = job_.verdicts.emplace_back(0, VerdictNote()).second;
    note.when_ns = ++now_ns_;
    note.about = about;
    note.sentence = sentence;
    return note;
  }
  void link(const std::string& name) { note(VerdictAbout::link, name + " is slow").links = {name}; }
  void link_is_well(const std::string& name) {
    link(name);
    job_.verdicts.back().second.withdrawn = true;
  }
  void hang(const std::string& sentence) { note(VerdictAbout::hang, sentence).ranks = {1}; }
  // The sentence; empty: nothing was told, or it was withdrawn.
  std::string last(VerdictAbout about) const {
    const VerdictNote* const note = job_.last_told(about);
    return note ? note->sentence : "";
  }
  bool holds(VerdictAbout about) const { return told_still(job_, about) != nullptr; }

  JobRecording job_;
  uint64_t now_ns_ = 0;
};

// By the calls of two communicators.
TEST_F(ToldOf, OneOfTwoThatIsWithdrawnLeavesTheOther) {
  link("out of rack1");
  link("into h3");
  EXPECT_EQ(last(VerdictAbout::link), "into h3 is slow");
  link_is_well("into h3");
  EXPECT_EQ(last(VerdictAbout::link), "out of rack1 is slow");
  EXPECT_EQ(last(VerdictAbout::late_ranks), "");
  link_is_well("out of rack1");
  EXPECT_EQ(last(VerdictAbout::link), "");
}

// Both have calls that cross the link, and one of them is freed.
TEST_F(ToldOf, WhatAnotherCommunicatorShowsOfTheSameLinkIsWithdrawnByItself) {
  link("out of rack1");
  link("out of rack1");
  job_.verdicts.back().second.comm = 2;
  link_is_well("out of rack1");
  job_.verdicts.back().second.comm = 2;
  EXPECT_EQ(last(VerdictAbout::link), "out of rack1 is slow");
  link_is_well("out of rack1");
  EXPECT_EQ(last(VerdictAbout::link), "");
}

// The groups of a split are known by one number.
TEST_F(ToldOf, WhatAnotherGroupOfASplitShowsIsWithdrawnByItself) {
  const auto by_group_of = [this](int first_member) {
    job_.verdicts.back().second.comm = 3;
    job_.verdicts.back().second.first_member = first_member;
  };
  for (const int first_member : {0, 1}) {
    link("out of rack1");
    by_group_of(first_member);
  }
  link_is_well("out of rack1");
  by_group_of(1);
  EXPECT_EQ(last(VerdictAbout::link), "out of rack1 is slow");
  link_is_well("out of rack1");
  by_group_of(0);
  EXPECT_EQ(last(VerdictAbout::link), "");
}

TEST_F(ToldOf, WhatIsWithdrawnAfterTheClockWasSetBackIsOver) {
  link("out of rack1");
  link_is_well("out of rack1");
  job_.verdicts[0].second.when_ns = 100;
  job_.verdicts[1].second.when_ns = 40;
  EXPECT_EQ(last(VerdictAbout::link), "");
}

// What is told after the clock was set right has its own time.
TEST_F(ToldOf, WhatWasToldWhileTheClockWasAheadDatesNothingElse) {
  RankRecording rank;
  for (const uint64_t when_ns : {100, 40}) {
    link("out of rack1");
    job_.verdicts.back().second.when_ns = when_ns;
  }
  for (const auto& [by, note] : std::exchange(job_.verdicts, {})) rank.notes.emplace_back(note);
  job_.take_notes(rank);
  ASSERT_NE(job_.last_told(VerdictAbout::link), nullptr);
  EXPECT_EQ(job_.last_told(VerdictAbout::link)->when_ns, 40u);
}

TEST_F(ToldOf, WhatIsToldAnewOfTheSameIsWithdrawnOnce) {
  link("rack1");
  link("out of rack1");
  link_is_well("out of rack1");
  EXPECT_EQ(last(VerdictAbout::link), "");
  for (const std::vector<int>& ranks : {std::vector{1, 2}, std::vector{2, 3}})
    note(VerdictAbout::late_ranks, "they come late").ranks = ranks;
  note(VerdictAbout::late_ranks, "they come late").ranks = {2, 3};
  job_.verdicts.back().second.withdrawn = true;
  EXPECT_EQ(last(VerdictAbout::late_ranks), "");
}

// Every rank notes it. Who was stopped does not note that it is over.
TEST_F(ToldOf, AHangIsWithdrawnForAll) {
  hang("rank 1 is behind");
  job_.verdicts.back().second.withdrawn = true;
  hang("rank 1 is behind; it is in no call");
  hang("rank 1 is behind; it is in no call");
  job_.verdicts[0].second.when_ns = ++now_ns_;
  job_.verdicts[1].first = job_.verdicts[2].first = 1;
  EXPECT_EQ(last(VerdictAbout::hang), "");
}

TEST_F(ToldOf, AHangIsOverWhereTheJobWentOnOrEnded) {
  hang("rank 1 is behind");
  EXPECT_TRUE(holds(VerdictAbout::hang));
  for (RankRecording& rank : job_.ranks) rank.state = RankState::ended;
  EXPECT_FALSE(holds(VerdictAbout::hang));
  for (RankRecording& rank : job_.ranks) rank.state = RankState::running;
  EXPECT_TRUE(holds(VerdictAbout::hang));
  TraceEvent end;
  end.kind = EventKind::call_end;
  end.posted_ns = ++now_ns_;
  job_.ranks[1].events.push_back(end);
  EXPECT_FALSE(holds(VerdictAbout::hang));
  EXPECT_EQ(last(VerdictAbout::hang), "rank 1 is behind") << "nobody has withdrawn it";
}

// By real time, which was set back since the rank began, it was told before the rank's last call.
TEST_F(ToldOf, WhetherARankWentOnIsToldByItsOwnClock) {
  hang("rank 1 is behind");
  job_.verdicts[0].second.noted_ns = 1000;
  RankRecording& behind = job_.ranks[1];
  behind.notes.emplace_back(job_.verdicts[0].second);
  TraceEvent end;
  end.kind = EventKind::call_end;
  end.posted_ns = 500;
  behind.events.push_back(end);
  EXPECT_TRUE(holds(VerdictAbout::hang));
  end.posted_ns = 2000;
  behind.events.push_back(end);
  EXPECT_FALSE(holds(VerdictAbout::hang));
}

// It was stopped, goes on, and ends its call before its watch gets round to what was told.
TEST_F(ToldOf, ARankThatNotesAHangLateWentOnBefore) {
  constexpr uint64_t kToldNs = 1000, kEndedNs = 2000, kNotedNs = 3000;
  hang("rank 1 is behind");
  VerdictNote note = job_.verdicts[0].second;
  RankRecording& told = job_.ranks[0];
  RankRecording& behind = job_.ranks[1];
  note.noted_ns = kNotedNs;
  behind.notes.emplace_back(note);
  TraceEvent end;
  end.kind = EventKind::call_end;
  end.posted_ns = kEndedNs;
  behind.events.push_back(end);
  EXPECT_TRUE(holds(VerdictAbout::hang)) << "nobody else says when it was told";
  note.noted_ns = kToldNs;
  told.notes.emplace_back(note);
  EXPECT_FALSE(holds(VerdictAbout::hang));
  // Between hosts it is told by what the control plane has measured of their clocks.
  told.host = "another";
  EXPECT_TRUE(holds(VerdictAbout::hang));
  for (RankRecording* const rank : {&told, &behind}) {
    rank->clock.root = 0;
    rank->clock.measured_ns = kNotedNs;
    rank->clock.ahead_ns = rank == &behind ? 1500 : 0;
    rank->clock.check = rank->clock.expected_check();
  }
  EXPECT_TRUE(holds(VerdictAbout::hang)) << "by its clock it was told at 2500";
  behind.clock.ahead_ns = 500;
  behind.clock.check = behind.clock.expected_check();
  EXPECT_FALSE(holds(VerdictAbout::hang));
}

// A copy is made once a hang is told, when it has not stood for long: what costs time, as a rank
// that is stopped in turns, is not what stops the job.
TEST_F(ToldOf, AHangComesBeforeWhatCostsTime) {
  constexpr uint64_t kMs = 1'000'000, kBegan = 1'000 * kMs;
  job_.ranks[0].monotonic_ns = job_.ranks[1].monotonic_ns = kBegan;
  for (uint64_t at = 0; at < 20; at++)
    job_.ranks[0].pauses.push_back({kBegan + 100 * at * kMs, kBegan + (100 * at + 50) * kMs});
  for (RankRecording& rank : job_.ranks) {
    TraceEvent& event = rank.events.emplace_back();
    event.kind = EventKind::call_end;
    event.posted_ns = kBegan + 2000 * kMs;
  }
  const auto judged = [this] {
    Plans plans(job_);
    return judge(job_, plans, {});
  };
  EXPECT_EQ(judged().kind, VerdictKind::starved_rank);
  hang("rank 1 is behind");
  job_.verdicts.back().second.when_ns = kBegan + 2100 * kMs;
  const Verdict verdict = judged();
  EXPECT_EQ(verdict.kind, VerdictKind::hang) << verdict.sentence;
  EXPECT_EQ(verdict.sentence, "rank 1 is behind");
  EXPECT_EQ(verdict.ranks, std::vector{1});
}

}  // namespace
}  // namespace sennit::diagnose
