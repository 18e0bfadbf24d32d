// replanner_test.cpp: what the coordinator proposes to plan by, verdict after verdict.
#include "api/state/replanner.hpp"

#include <gtest/gtest.h>

#include "base/mutex.hpp"
#include "topology/source.hpp"

namespace sennit {
namespace {

// A coordinator of a job of two racks of four hosts, one rank each, at 7:1, whose calls are
// all-reduces of 16 MB. It takes what is proposed as what all ranks plan by from then on.
class Coordinator {
 public:
  Coordinator()
      : fabric_(*synthetic_fabric("racks=2x4;nic=400Mbit/s;oversubscription=7")),
        placements_(ranks_on_all_hosts(fabric_, 1)),
        replanner_(fabric_, placements_, options_,
                   {[this](auto slow) { take(std::move(slow)); },
                    [this] {
                      const MutexLock lock(mutex_);
                      return proposals_.empty() ? std::vector<SlowBoundary>() : proposals_.back();
                    }}) {
    const TierTree tree = *contract(fabric_, placements_);
    judged_.request.collective = Collective::all_reduce;
    judged_.request.count = 4'000'000;
    const Plan plan = *make_plan(judged_.request, tree, options_);
    judged_.algorithm = plan.algorithm;
    judged_.parameters = plan.parameters;
  }
  ~Coordinator() { replanner_.end(); }

  watch::LiveVerdict slow_link(const std::string& link, double factor) const {
    watch::LiveVerdict verdict;
    verdict.about = VerdictAbout::link;
    verdict.comm = 1;
    for (int rank = 0; rank < static_cast<int>(placements_.size()); rank++)
      verdict.members.push_back(rank);
    verdict.judged = judged_;
    verdict.links = {link};
    verdict.factor = factor;
    return verdict;
  }
  // The same, by the calls of the second rack's ranks alone.
  watch::LiveVerdict slow_in_rack1(const std::string& link, double factor) const {
    watch::LiveVerdict verdict = slow_link(link, factor);
    verdict.comm = 2;
    verdict.members = {4, 5, 6, 7};
    return verdict;
  }
  void hears(const watch::LiveVerdict& verdict) { replanner_.heard(verdict); }
  // As though that had been proposed.
  void plans_by(std::vector<SlowBoundary> slow) { take(std::move(slow)); }
  void hears_that_is_over(watch::LiveVerdict verdict) {
    verdict.withdrawn = true;
    replanner_.heard(verdict);
  }
  void ends() { replanner_.end(); }

  // All of them, once there are so many.
  std::vector<std::vector<SlowBoundary>> proposals(size_t count) {
    MutexLock lock(mutex_);
    while (proposals_.size() < count) more_.wait(lock);
    return proposals_;
  }
  // The last two, once nothing is to be planned around any more.
  std::vector<std::vector<SlowBoundary>> last_two() {
    MutexLock lock(mutex_);
    while (proposals_.size() < 2 || !proposals_.back().empty()) more_.wait(lock);
    return {proposals_.end() - 2, proposals_.end()};
  }

 private:
  void take(std::vector<SlowBoundary> slow) {
    const MutexLock lock(mutex_);
    proposals_.push_back(std::move(slow));
    more_.notify_all();
  }

  const Fabric fabric_;
  const std::vector<Placement> placements_;
  const PlanOptions options_;
  PlanNote judged_;
  Mutex mutex_;
  Condition more_;
  std::vector<std::vector<SlowBoundary>> proposals_ SENNIT_GUARDED_BY(mutex_);
  Replanner replanner_;
};

using Proposals = std::vector<std::vector<SlowBoundary>>;
const std::vector<SlowBoundary> kHostAtAQuarter = {{"h0", false, 250}, {"h0", true, 250}};

TEST(Replanner, PlansAroundASlowHostAndBack) {
  Coordinator coordinator;
  const watch::LiveVerdict slow = coordinator.slow_link("h0", 4);
  coordinator.hears(slow);
  coordinator.hears_that_is_over(slow);
  EXPECT_EQ(coordinator.proposals(2), (Proposals{kHostAtAQuarter, {}}));
}

// On two racks all that leaves one has to cross its uplink, however calls are planned.
TEST(Replanner, LeavesAllAsItIsWhereNothingIsToBeGained) {
  Coordinator coordinator;
  const watch::LiveVerdict uplink = coordinator.slow_link("rack0", 4);
  coordinator.hears(uplink);
  coordinator.hears_that_is_over(uplink);
  coordinator.hears(coordinator.slow_link("h0", 4));
  EXPECT_EQ(coordinator.proposals(1), Proposals{kHostAtAQuarter});
}

TEST(Replanner, NeverSwitchesForARateThatWobblesByATenth) {
  Coordinator coordinator;
  for (int second = 0; second < 5; second++) {
    const watch::LiveVerdict tenth = coordinator.slow_link("h0", 1 / 0.9);
    coordinator.hears(tenth);
    coordinator.hears_that_is_over(tenth);
  }
  for (const double share : {0.25, 0.275, 0.225, 0.25})
    coordinator.hears(coordinator.slow_link("h0", 1 / share));
  const watch::LiveVerdict slow = coordinator.slow_link("h0", 4);
  coordinator.hears_that_is_over(slow);
  EXPECT_EQ(coordinator.proposals(2), (Proposals{kHostAtAQuarter, {}}));
}

TEST(Replanner, TakesTheSlowerOfWhatTwoCommunicatorsSay) {
  Coordinator coordinator;
  const watch::LiveVerdict half = coordinator.slow_link("h0", 2);
  watch::LiveVerdict quarter = coordinator.slow_link("h0", 4);
  quarter.comm = 2;
  coordinator.hears(half);
  coordinator.hears(quarter);
  coordinator.hears_that_is_over(quarter);
  const std::vector<SlowBoundary> at_half = {{"h0", false, 500}, {"h0", true, 500}};
  EXPECT_EQ(coordinator.proposals(3), (Proposals{at_half, kHostAtAQuarter, at_half}));
}

// Its verdict is of calls that the other host, which is slow still, takes no part in.
TEST(Replanner, WhereOneOfTwoHealsItPlansForTheOtherAlone) {
  Coordinator coordinator;
  const watch::LiveVerdict first = coordinator.slow_link("h0", 4),
                           second = coordinator.slow_in_rack1("h4", 4);
  coordinator.hears(first);
  std::vector<SlowBoundary> both = coordinator.proposals(1).front();
  for (const bool egress : {false, true}) both.push_back({"h4", egress, 250});
  coordinator.plans_by(both);
  coordinator.hears(second);
  coordinator.hears_that_is_over(second);
  coordinator.hears_that_is_over(first);
  EXPECT_EQ(coordinator.last_two(), (Proposals{kHostAtAQuarter, {}}));
}

// How slow it is need not be known in the end.
TEST(Replanner, WhatIsWithdrawnIsOverHoweverItWasToldLast) {
  Coordinator coordinator;
  watch::LiveVerdict slow = coordinator.slow_link("h0", 4);
  coordinator.hears(slow);
  slow.factor = 0;
  coordinator.hears(slow);
  coordinator.hears_that_is_over(slow);
  EXPECT_EQ(coordinator.proposals(2), (Proposals{kHostAtAQuarter, {}}));
}

TEST(Replanner, PassesOverWhatCannotBePlannedFor) {
  Coordinator coordinator;
  watch::LiveVerdict late = coordinator.slow_link("h0", 4);
  late.about = VerdictAbout::late_ranks;
  coordinator.hears(late);
  coordinator.hears(coordinator.slow_link("the host of position 3", 4));  // it has no name
  coordinator.hears(coordinator.slow_link("h0", 0));                      // nor is a rate known
  coordinator.hears(coordinator.slow_link("out of h1", 4));
  EXPECT_EQ(coordinator.proposals(1), (Proposals{{{"h1", true, 250}}}));
}

TEST(Replanner, ProposesNothingOnceItHasEnded) {
  Coordinator coordinator;
  coordinator.ends();
  coordinator.hears(coordinator.slow_link("h0", 4));
  coordinator.ends();
  EXPECT_EQ(coordinator.proposals(0), Proposals{});
}

}  // namespace
}  // namespace sennit
