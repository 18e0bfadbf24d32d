// told_verdicts_test.cpp: of what was told of a job while it ran, what still holds.
//
// ctest not-under-tsan: it has one thread
#include <string>
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
    VerdictNote& note = job_.verdicts.emplace_back();
    note.when_ns = ++now_ns_;
    note.about = about;
    note.sentence = sentence;
    return note;
  }
  void link(const std::string& name) { note(VerdictAbout::link, name + " is slow").links = {name}; }
  void link_is_well(const std::string& name) {
    link(name);
    job_.verdicts.back().withdrawn = true;
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

TEST_F(ToldOf, WhatIsToldAnewOfTheSameIsWithdrawnOnce) {
  link("rack1");
  link("out of rack1");
  link_is_well("out of rack1");
  EXPECT_EQ(last(VerdictAbout::link), "");
  for (const std::vector<int>& ranks : {std::vector{1, 2}, std::vector{2, 3}})
    note(VerdictAbout::late_ranks, "they come late").ranks = ranks;
  note(VerdictAbout::late_ranks, "they come late").ranks = {2, 3};
  job_.verdicts.back().withdrawn = true;
  EXPECT_EQ(last(VerdictAbout::late_ranks), "");
}

// Every rank notes it. Who was stopped does not note that it is over.
TEST_F(ToldOf, AHangIsWithdrawnForAll) {
  hang("rank 1 is behind");
  job_.verdicts.back().withdrawn = true;
  hang("rank 1 is behind; it is in no call");
  hang("rank 1 is behind; it is in no call");
  job_.verdicts[0].when_ns = ++now_ns_;
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

}  // namespace
}  // namespace sennit::diagnose
