// judge_test.cpp: what digests of simulated calls show: the boundary that is slow or the rank that
// is late, once that has held, and nothing while all is well; and that it is withdrawn.
// ctest not-under-tsan: it has one thread
#include "watch/judge.hpp"

#include <algorithm>
#include <functional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/index.hpp"
#include "diagnose/recorded/simulated.hpp"
#include "plan/planner.hpp"
#include "tests/support/seed.hpp"
#include "tests/support/trials.hpp"
#include "tests/watch/recorded_digests.hpp"
#include "topology/source.hpp"

namespace sennit::watch {
namespace {

constexpr uint64_t kNsPerS = 1'000'000'000;
constexpr size_t kCallsEach = 5;  // that a digest has

diagnose::SimulatedJob job_on(const std::string& spec) {
  diagnose::SimulatedJob job;
  job.fabric = *synthetic_fabric(spec);
  job.placements = ranks_on_all_hosts(job.fabric, 1);
  job.request.collective = Collective::all_reduce;
  job.request.count = 4 << 20;
  job.plan = *make_plan(job.request, *contract(job.fabric, job.placements), {});
  constexpr uint32_t kFewChunks = 16;  // simulated in a moment
  job.plan.parameters.chunks = std::min(job.plan.parameters.chunks, kFewChunks);
  job.noise = 0.05;
  job.seed = sennit_test::steady_seed();
  return job;
}

int group_called(const diagnose::SimulatedJob& job, const std::string& name) {
  const TierTree tree = *contract(job.fabric, job.placements);
  for (size_t g = 0; g < tree.groups.size(); g++)
    if (tree.groups[g].name == name) return static_cast<int>(g);
  ADD_FAILURE() << "no group is called " << name;
  return 0;
}

// Here a second is one in name, and the solver's own time is real: it is not held against it.
JudgeRules without_budget() {
  JudgeRules rules;
  rules.solver_part = 0;
  return rules;
}

// A coordinator that gets, second after second, what the job's ranks tell.
class Coordinator {
 public:
  explicit Coordinator(const diagnose::SimulatedJob& job)
      : without_core(job.placements.size()),
        judge_(job.fabric.to_text(), job.placements, without_budget()) {
    const diagnose::JobRecording recording = *simulated_recording(job);
    for (const auto& [id, members] : recording.communicators)
      judge_.note(0, CommunicatorNote{id, members});
    for (const auto& [key, plan] : recording.plans) judge_.note(0, plan);
  }
  // Of as many digests of each rank as the job has calls for.
  std::vector<LiveVerdict> hear(const diagnose::SimulatedJob& job) {
    const diagnose::JobRecording recording = *simulated_recording(job);
    std::vector<LiveVerdict> told;
    std::vector<std::vector<Digest>> digests;
    for (int rank = 0; rank < recording.size; rank++)
      digests.push_back(digests_of(recording, rank, calls_each));
    for (size_t d = 0; d < digests[0].size(); d++) {
      now_ns_ += kNsPerS;
      for (int rank = 0; rank < recording.size; rank++) {
        Digest& digest = digests[index(rank)][d];
        digest.without_core_ns =
            static_cast<uint64_t>(without_core[index(rank)] * static_cast<double>(digest.span_ns));
        digest.cores_between = cores_between;
        for (DigestPlan& plan : digest.plans)
          if (quickest_ns > 0) plan.quickest_ns = quickest_ns;
      }
      // What does not fit into one is left out, as on its way.
      for (int rank = 0; rank < recording.size; rank++)
        judge_.digest(rank, *decode_digest(encode(digests[index(rank)][d])), now_ns_);
      for (LiveVerdict& verdict : judge_.look(now_ns_)) told.push_back(std::move(verdict));
    }
    return told;
  }

  std::vector<double> without_core;     // by rank: part of its time
  std::optional<double> cores_between;  // that every rank uses
  uint64_t quickest_ns = 0;             // of the calls in a digest; 0: as it was
  size_t calls_each = kCallsEach;       // in a digest

 private:
  Judge judge_;
  uint64_t now_ns_ = kNsPerS;
};

diagnose::SimulatedJob slow(diagnose::SimulatedJob job, const std::string& name, bool egress,
                            double factor) {
  job.slow = {{{group_called(job, name), egress}, factor}};
  return job;
}

diagnose::SimulatedJob lasting(diagnose::SimulatedJob job, size_t digests) {
  job.calls = digests * kCallsEach;
  return job;
}

// Of links that the same messages cross one is as good as another.
bool blames(const LiveVerdict& verdict, const std::string& link) {
  return std::find(verdict.links.begin(), verdict.links.end(), link) != verdict.links.end();
}

constexpr const char* kTree = "racks=4,4,4;nic=400Mbit/s;oversubscription=4";

// Which messages wait for which is chance in one call. Of calls that are so long that a digest has
// one, some digests say together what is slow.
TEST(Judge, OfLongCallsSomeDigestsAreTakenTogether) {
  constexpr int kTrials = sennit_test::trials(20);
  int named = 0;
  for (int trial = 1; trial <= kTrials; trial++) {
    diagnose::SimulatedJob well = job_on(kTree);
    well.noise = 0.4;
    well.seed = static_cast<uint64_t>(trial);
    Coordinator coordinator(well);
    coordinator.calls_each = 1;
    well.calls = 20;
    EXPECT_TRUE(coordinator.hear(well).empty()) << "trial " << trial;
    diagnose::SimulatedJob ill = slow(well, "rack1", false, 1.6);
    ill.calls = 10;
    const std::vector<LiveVerdict> told = coordinator.hear(ill);
    named += !told.empty() && blames(told.front(), "into rack1");
  }
  EXPECT_GE(20 * named, 19 * kTrials);
}

TEST(Judge, NamesTheSlowBoundaryOnceItHasHeldAndTakesItBack) {
  const diagnose::SimulatedJob well = job_on(kTree);
  Coordinator coordinator(well);
  EXPECT_TRUE(coordinator.hear(lasting(well, 6)).empty());
  const diagnose::SimulatedJob ill = slow(well, "rack1", true, 3);
  EXPECT_TRUE(coordinator.hear(lasting(ill, 2)).empty()) << "it has not held for long";
  const std::vector<LiveVerdict> told = coordinator.hear(lasting(ill, 3));
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].about, VerdictAbout::link);
  EXPECT_FALSE(told[0].withdrawn);
  EXPECT_TRUE(blames(told[0], "out of rack1")) << told[0].sentence;
  EXPECT_NEAR(told[0].factor, 3, 0.3);
  EXPECT_NE(told[0].sentence.find("% of its capacity"), std::string::npos) << told[0].sentence;
  EXPECT_NE(json_of(told[0]).find("\"blamed_links\":[\"out of rack1\""), std::string::npos);
  EXPECT_TRUE(coordinator.hear(lasting(ill, 6)).empty()) << "it is told once";
  const std::vector<LiveVerdict> taken_back = coordinator.hear(lasting(well, 6));
  ASSERT_EQ(taken_back.size(), 1u);
  EXPECT_TRUE(taken_back[0].withdrawn);
  EXPECT_EQ(taken_back[0].links, told[0].links);
}

// What was slower by too little to be named, just before, is not what calls take while all is well.
TEST(Judge, WhatBeginsToBeSlowIsNotTakenForWell) {
  const diagnose::SimulatedJob well = job_on(kTree);
  Coordinator coordinator(well);
  EXPECT_TRUE(coordinator.hear(lasting(well, 3)).empty());
  EXPECT_TRUE(coordinator.hear(lasting(slow(well, "rack1", true, 1.2), 2)).empty());
  const std::vector<LiveVerdict> told =
      coordinator.hear(lasting(slow(well, "rack1", true, 1.45), 6));
  ASSERT_EQ(told.size(), 1u);
  EXPECT_TRUE(blames(told[0], "out of rack1")) << told[0].sentence;
  EXPECT_NEAR(told[0].factor, 1.45, 0.15);
}

TEST(Judge, NamesAHostThatWasSlowFromTheStart) {
  const diagnose::SimulatedJob ill = slow(job_on(kTree), "h5", false, 4);
  const std::vector<LiveVerdict> told = Coordinator(ill).hear(lasting(ill, 6));
  ASSERT_EQ(told.size(), 1u);
  EXPECT_TRUE(blames(told[0], "into h5")) << told[0].sentence;
}

// Each finds it in every look, for which there is less time than that takes: what was not used
// before is enough for some of them alone.
TEST(Judge, AllCommunicatorsGetTheirTurn) {
  // The solver's time is real: under a sanitizer there would not be enough of it for eight.
  constexpr uint32_t kComms = sennit_test::kSanitized ? 6 : 8;
  constexpr size_t kDigests = 24;
  const diagnose::SimulatedJob ill = lasting(slow(job_on(kTree), "h5", false, 4), kDigests);
  const diagnose::JobRecording recording = *simulated_recording(ill);
  JudgeRules rules;
  rules.solver_part = 1;
  Judge judge(ill.fabric.to_text(), ill.placements, rules);
  for (uint32_t comm = 1; comm <= kComms; comm++) {
    for (const auto& [id, members] : recording.communicators)
      judge.note(0, CommunicatorNote{comm, members});
    for (auto [key, plan] : recording.plans) {
      plan.comm = comm;
      judge.note(0, plan);
    }
  }
  std::vector<std::vector<Digest>> digests;
  for (int rank = 0; rank < recording.size; rank++)
    digests.push_back(digests_of(recording, rank, kCallsEach));
  std::set<uint32_t> told;
  for (size_t d = 0; d < kDigests; d++) {
    const uint64_t now_ns = (2 + d) * kNsPerS;
    for (int rank = 0; rank < recording.size; rank++)
      for (uint32_t comm = 1; comm <= kComms; comm++) {
        Digest digest = digests[index(rank)][d];
        for (DigestPlan& plan : digest.plans) plan.comm = comm;
        for (DigestPace& pace : digest.paces) pace.comm = comm;
        judge.digest(rank, std::move(digest), now_ns);
      }
    for (const LiveVerdict& verdict : judge.look(now_ns))
      if (verdict.about == VerdictAbout::link) told.insert(verdict.comm);
  }
  EXPECT_EQ(told.size(), kComms);
}

// Groups of a split are known by one number: the note tells them apart.
TEST(Judge, WhatIsNotedHasTheLowestMember) {
  LiveVerdict verdict;
  verdict.comm = 3;
  EXPECT_EQ(note_of(verdict).first_member, -1);
  verdict.members = {5, 2, 7};
  EXPECT_EQ(note_of(verdict).comm, 3u);
  EXPECT_EQ(note_of(verdict).first_member, 2);
}

TEST(Judge, SaysNothingWhileAllIsWell) {
  for (const char* const spec :
       {kTree, "racks=4,4;nic=400Mbit/s;oversubscription=7", "racks=6;nic=400Mbit/s"}) {
    diagnose::SimulatedJob job = job_on(spec);
    constexpr int kRuns = 3;
    for (int run = 0; run < kRuns; run++, job.seed++)
      for (const LiveVerdict& verdict : Coordinator(job).hear(lasting(job, 20)))
        ADD_FAILURE() << spec << ": " << verdict.sentence;
  }
}

TEST(Judge, NamesTheLateRankAndNoLink) {
  diagnose::SimulatedJob job = job_on(kTree);
  Coordinator coordinator(job);
  job.late = {{5, kNsPerS / 2}};
  const std::vector<LiveVerdict> told = coordinator.hear(lasting(job, 6));
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].about, VerdictAbout::late_ranks);
  EXPECT_EQ(told[0].ranks, std::vector<int>{5});
  EXPECT_NEAR(told[0].late_ns, 0.5e9, 0.01e9);
  EXPECT_EQ(told[0].sentence.find("meanwhile"), std::string::npos) << "that is not known";
  job.late.clear();
  const std::vector<LiveVerdict> taken_back = coordinator.hear(lasting(job, 6));
  ASSERT_EQ(taken_back.size(), 1u);
  EXPECT_TRUE(taken_back[0].withdrawn);
}

// What a job tells of its ranks that are in no call for so many nanoseconds before each.
std::vector<LiveVerdict> told_of(int ranks, int looks, const std::function<double(int)>& between) {
  const Fabric fabric = *synthetic_fabric(fmt::format("racks={};nic=400Mbit/s", ranks));
  Judge judge(fabric.to_text(), ranks_on_all_hosts(fabric, 1), without_budget());
  CommunicatorNote all;
  all.id = 1;
  for (int rank = 0; rank < ranks; rank++) all.members.push_back(rank);
  judge.note(0, all);
  std::vector<LiveVerdict> told;
  for (int look = 1; look <= looks; look++) {
    const uint64_t now_ns = static_cast<uint64_t>(look) * kNsPerS;
    for (int rank = 0; rank < ranks; rank++) {
      Digest digest;
      digest.span_ns = kNsPerS;
      digest.paces = {{1, 1, static_cast<uint64_t>(between(rank)), kNsPerS}};
      judge.digest(rank, digest, now_ns);
    }
    for (LiveVerdict& verdict : judge.look(now_ns)) told.push_back(std::move(verdict));
  }
  return told;
}

// Where work takes longer by turns, as it happens, somebody is the latest in every look.
TEST(Judge, WhoIsLateByChanceIsNotNamed) {
  constexpr int kJobs = sennit_test::trials(20), kLooks = 200;
  std::mt19937_64 draw(sennit_test::steady_seed());
  std::exponential_distribution<double> work(1.0 / (0.1 * kNsPerS));
  int accused = 0;
  for (int job = 0; job < kJobs; job++)
    for (const int ranks : {2, 4, 8, 32})
      accused += told_of(ranks, kLooks, [&](int) { return work(draw); }).empty() ? 0 : 1;
  EXPECT_LE(accused, 1 + kJobs / 10);
}

TEST(Judge, WhoIsLateAmongOthersThatAreByChanceIsNamed) {
  std::mt19937_64 draw(sennit_test::steady_seed());
  std::exponential_distribution<double> work(1.0 / (0.1 * kNsPerS));
  for (const int ranks : {8, 32}) {
    const std::vector<LiveVerdict> told =
        told_of(ranks, 60, [&](int rank) { return work(draw) + (rank == 5 ? 0.2 * kNsPerS : 0); });
    ASSERT_FALSE(told.empty());
    EXPECT_EQ(told[0].ranks, std::vector<int>{5});
  }
}

TEST(Judge, TellsALateRankThatComputesFromOneThatWaits) {
  const std::pair<double, std::string> kSaid[] = {
      {1.02, "; meanwhile it asks for 1.02 cores: it computes"},
      {0.5, "; meanwhile it asks for 0.50 cores"},
      {0.01, "; meanwhile it asks for 0.01 cores: it waits, as for input, a lock or a device"}};
  for (const auto& [cores, text] : kSaid) {
    diagnose::SimulatedJob job = job_on(kTree);
    job.late = {{5, kNsPerS / 2}};
    Coordinator coordinator(job);
    coordinator.cores_between = cores;
    const std::vector<LiveVerdict> told = coordinator.hear(lasting(job, 6));
    ASSERT_EQ(told.size(), 1u);
    EXPECT_TRUE(told[0].sentence.ends_with(text)) << told[0].sentence;
    EXPECT_NE(json_of(told[0]).find("\"cores\":"), std::string::npos);
  }
}

// While rank 4 does not run half of the time its host's way out seems slow, and rack1's: all wait.
TEST(Judge, NamesTheRankWithoutACoreAndNoLink) {
  diagnose::SimulatedJob job = slow(job_on(kTree), "h4", true, 2);
  job.late = {{4, kNsPerS / 2}};
  Coordinator coordinator(job);
  coordinator.without_core.assign(coordinator.without_core.size(), 0.02);
  coordinator.without_core[4] = 0.5;
  const std::vector<LiveVerdict> told = coordinator.hear(lasting(job, 6));
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].about, VerdictAbout::starved_ranks);
  EXPECT_EQ(told[0].ranks, std::vector<int>{4});
  EXPECT_NE(told[0].sentence.find("rank 4 gets no core for 50% of the time"), std::string::npos)
      << told[0].sentence;
  EXPECT_NE(json_of(told[0]).find("\"verdict\":\"starved_rank\""), std::string::npos);
  coordinator.without_core[4] = 0.02;
  job.late.clear();
  bool taken_back = false, link = false;
  for (const LiveVerdict& verdict : coordinator.hear(lasting(job, 8))) {
    taken_back |= verdict.withdrawn && verdict.about == VerdictAbout::starved_ranks;
    link |= verdict.about == VerdictAbout::link && blames(verdict, "out of h4");
  }
  EXPECT_TRUE(taken_back);
  EXPECT_TRUE(link) << "now that it runs its link is judged";
}

// On few cores all ranks are without one at times: that says nothing of any of them.
TEST(Judge, WhereAllGetFewCoresLinksAreStillJudged) {
  const diagnose::SimulatedJob ill = slow(job_on(kTree), "rack1", true, 3);
  Coordinator coordinator(ill);
  coordinator.without_core.assign(coordinator.without_core.size(), 0.4);
  const std::vector<LiveVerdict> told = coordinator.hear(lasting(ill, 6));
  ASSERT_EQ(told.size(), 1u);
  EXPECT_TRUE(blames(told[0], "out of rack1")) << told[0].sentence;
}

// The machine under all of them is halted now and then.
TEST(Judge, WhatTakesLongerAsNobodyRunsIsNoLink) {
  diagnose::SimulatedJob job = job_on(kTree);
  for (const char* const rack : {"rack0", "rack1", "rack2"})
    for (const bool egress : {true, false})
      job.slow.push_back({{group_called(job, rack), egress}, 1.5});
  Coordinator coordinator(job);
  const std::vector<LiveVerdict> told = coordinator.hear(lasting(job, 15));
  ASSERT_FALSE(told.empty());
  EXPECT_GE(told[0].tier, 0) << told[0].sentence;
  Coordinator halted(job);
  halted.without_core.assign(halted.without_core.size(), 0.35);
  for (const LiveVerdict& verdict : halted.hear(lasting(job, 15)))
    ADD_FAILURE() << verdict.sentence;
}

TEST(Judge, ATierThatCarriesAllInSomeCallsIsNotSlow) {
  const diagnose::SimulatedJob well = job_on(kTree);
  diagnose::SimulatedJob job = well;
  for (const char* const rack : {"rack0", "rack1", "rack2"})
    for (const bool egress : {true, false})
      job.slow.push_back({{group_called(job, rack), egress}, 1.5});
  Coordinator coordinator(job);
  coordinator.quickest_ns = static_cast<uint64_t>(diagnose::simulated_call(well)->time_ns);
  for (const LiveVerdict& verdict : coordinator.hear(lasting(job, 6)))
    ADD_FAILURE() << verdict.sentence;
}

// What differs from rank to rank by about as much anyway is nobody's fault.
TEST(Judge, WorkThatIsUnevenBlamesNobody) {
  diagnose::SimulatedJob job = job_on(kTree);
  const auto call_ns = static_cast<double>(diagnose::simulated_call(job)->time_ns);
  const double late[] = {0, 6, 12, 15, 18, 21, 15, 9, 3, 31, 30, 15};  // in hundredths of a call
  for (int rank = 0; rank < 12; rank++)
    job.late.emplace_back(rank, static_cast<uint64_t>(late[rank] / 100 * call_ns));
  for (const LiveVerdict& verdict : Coordinator(job).hear(lasting(job, 8)))
    ADD_FAILURE() << verdict.sentence;
}

// Where all ranks compute on few cores some get less of them than others for a while.
TEST(Judge, SomeOfManyOnFewCoresAreNotStarved) {
  const diagnose::SimulatedJob well = job_on(kTree);
  Coordinator coordinator(well);
  coordinator.without_core.assign(coordinator.without_core.size(), 0.25);
  for (const size_t rank : {1, 2, 3, 8}) coordinator.without_core[rank] = 0.4;
  for (const LiveVerdict& verdict : coordinator.hear(lasting(well, 8)))
    ADD_FAILURE() << verdict.sentence;
}

// What ranks tell of the calls of two communicators, in which these are late.
std::vector<LiveVerdict> hear_late(Judge& judge, const std::vector<int>& late, int looks) {
  constexpr uint64_t kPeriodNs = 10'000'000, kNow = kNsPerS;
  std::vector<LiveVerdict> told;
  for (int look = 0; look < looks; look++) {
    for (int rank = 0; rank < 8; rank++) {
      Digest digest;
      digest.span_ns = kNsPerS;
      const bool is_late = std::find(late.begin(), late.end(), rank) != late.end();
      for (const uint32_t comm : {1, 2})
        if (comm == 1 ? rank < 4 : rank > 0)
          digest.paces.push_back({comm, 50, is_late ? kPeriodNs / 2 : 1000, kPeriodNs});
      judge.digest(rank, digest, kNow);
    }
    for (LiveVerdict& verdict : judge.look(kNow)) told.push_back(std::move(verdict));
  }
  return told;
}

// Rank 1 is in both communicators, and told by the calls of one; rank 6 is in the other alone.
TEST(Judge, WhoIsToldByOtherCallsIsPassedOverAlone) {
  const diagnose::SimulatedJob job = job_on(kTree);
  Judge judge(job.fabric.to_text(), job.placements);
  judge.note(1, CommunicatorNote{1, {0, 1, 2, 3}});
  judge.note(1, CommunicatorNote{2, {1, 2, 3, 4, 5, 6, 7}});
  std::vector<LiveVerdict> told = hear_late(judge, {6}, 6);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].ranks, std::vector<int>{6});
  told = hear_late(judge, {1, 6}, 12);
  ASSERT_EQ(told.size(), 1u) << "rank 6 is late still";
  EXPECT_EQ(told[0].ranks, std::vector<int>{1});
  EXPECT_FALSE(told[0].withdrawn);
  told = hear_late(judge, {1}, 6);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].ranks, std::vector<int>{6});
  EXPECT_TRUE(told[0].withdrawn);
}

// Second after second, what four ranks tell of the calls of communicators that all of them are in.
// Rank 1 is late to those of 1 and 2, and nobody to those of 3.
class LateJob {
 public:
  LateJob() : judge_(job_.fabric.to_text(), job_.placements) {
    for (const uint32_t comm : {1, 2, 3}) judge_.note(0, CommunicatorNote{comm, {0, 1, 2, 3}});
  }
  void passes(uint64_t seconds) { now_ns_ += seconds * kNsPerS; }
  std::vector<LiveVerdict> hears_of(const std::vector<uint32_t>& comms, int seconds = 1) {
    constexpr uint64_t kPeriodNs = 10'000'000;
    std::vector<LiveVerdict> told;
    for (int second = 0; second < seconds; second++) {
      passes(1);
      for (int rank = 0; rank < 4; rank++) {
        Digest digest;
        digest.span_ns = kNsPerS;
        for (const uint32_t comm : comms)
          digest.paces.push_back(
              {comm, 50, rank == 1 && comm < 3 ? kPeriodNs / 2 : 1000, kPeriodNs});
        judge_.digest(rank, digest, now_ns_);
      }
      for (LiveVerdict& verdict : judge_.look(now_ns_)) told.push_back(std::move(verdict));
    }
    return told;
  }

 private:
  const diagnose::SimulatedJob job_ = job_on(kTree);
  Judge judge_;
  uint64_t now_ns_ = 1000 * kNsPerS;
};

// One that was freed says nothing more, and what was told by its calls must not stand for ever, nor
// keep others' calls from telling it.
TEST(Judge, WhatWasToldByACommunicatorThatIsNotUsedAnyMoreIsTakenBack) {
  LateJob job;
  std::vector<LiveVerdict> told = job.hears_of({1}, 6);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].comm, 1u);
  told = job.hears_of({2}, 15);
  ASSERT_EQ(told.size(), 2u);
  EXPECT_EQ(told[0].comm, 1u);
  EXPECT_TRUE(told[0].withdrawn);
  EXPECT_EQ(told[1].comm, 2u);
  EXPECT_EQ(told[1].ranks, std::vector<int>{1});
  EXPECT_FALSE(told[1].withdrawn);
}

TEST(Judge, WhileNobodyCallsNothingIsTakenBack) {
  LateJob job;
  ASSERT_EQ(job.hears_of({1, 2}, 6).size(), 1u);
  job.passes(600);
  EXPECT_TRUE(job.hears_of({2}).empty()) << "it is told of the other one a moment later";
  EXPECT_TRUE(job.hears_of({1, 2}, 6).empty());
}

TEST(Judge, OfACommunicatorThatIsUsedNowAndThenNothingIsTakenBackBetween) {
  LateJob job;
  std::vector<LiveVerdict> told;
  for (int step = 0; step < 12; step++) {
    for (LiveVerdict& verdict : job.hears_of({1, 3})) told.push_back(std::move(verdict));
    for (LiveVerdict& verdict : job.hears_of({3}, 5)) told.push_back(std::move(verdict));
  }
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].comm, 1u);
  EXPECT_FALSE(told[0].withdrawn);
}

TEST(Judge, WhatMakesNoSenseIsPassedOver) {
  const diagnose::SimulatedJob job = job_on(kTree);
  Judge judge(job.fabric.to_text(), job.placements);
  judge.note(3, CommunicatorNote{1, {0, 1, 2}});  // of others
  judge.note(0, CommunicatorNote{2, {0, 0}});     // twice the same
  judge.note(0, CommunicatorNote{3, {0, 99}});    // no such rank
  judge.note(0, CommunicatorNote{4, {0, 1}});
  Digest digest;
  digest.span_ns = kNsPerS;
  DigestPlan plan;
  plan.comm = 4;
  plan.calls = plan.alone = 9;
  plan.edges = {{77, 1 << 30, 1}, {-1, 1 << 30, 1}};
  digest.plans = {plan};
  digest.paces = {{4, 9, 0, 0}, {7, 1, 1, 1}};
  for (int round = 1; round < 9; round++) {
    for (const int rank : {0, 1, 2}) judge.digest(rank, digest, kNsPerS);
    EXPECT_TRUE(judge.look(round * kNsPerS).empty());
  }
}

}  // namespace
}  // namespace sennit::watch
