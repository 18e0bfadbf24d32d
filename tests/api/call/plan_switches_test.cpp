// plan_switches_test.cpp: whatever the order in which ranks hear and call, all take one version for
// a call.
//
// ctest not-under-tsan: it has one thread
#include "api/call/plan_switches.hpp"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "tests/support/seed.hpp"

namespace sennit {
namespace {

FabricVersionPointer version(uint64_t number) {
  return std::make_shared<const FabricVersion>(FabricVersion{number, {}});
}

struct One {
  CallLog calls;
  PlanSwitches switches{calls};
  explicit One(uint32_t first = 1) : calls(first) {}
  // A call that was planned by what is known now.
  CallLog::Begun begin() {
    auto prepared = std::make_shared<Prepared>();
    prepared->fabric_version = switches.current();
    return calls.begins(prepared);
  }
};

TEST(PlanSwitches, HoldACallThatIsPromisedToBeTold) {
  One one;
  EXPECT_FALSE(one.begin().undecided);
  EXPECT_EQ(one.switches.promise(1), 2u);
  EXPECT_EQ(one.switches.promise(1), 2u) << "the same again";
  const CallLog::Begun held = one.begin();
  EXPECT_TRUE(held.undecided);
  EXPECT_FALSE(one.switches.settled(held.seq));
  one.switches.settle(version(1), held.seq + 2);
  EXPECT_TRUE(one.switches.settled(held.seq));
  EXPECT_EQ(one.switches.version_for(held.seq)->number, 0u);
  EXPECT_FALSE(one.begin().undecided);
  EXPECT_TRUE(one.begin().undecided);
  EXPECT_EQ(one.switches.version_for(held.seq + 2)->number, 1u);
  EXPECT_EQ(one.switches.current(), 1u);
  EXPECT_EQ(one.switches.version_for(held.seq + 1)->number, 0u) << "one that began before";
  EXPECT_FALSE(one.begin().undecided);
  EXPECT_EQ(one.switches.promise(1), held.seq + 2) << "what was settled";
}

TEST(PlanSwitches, MakeCallsOfAnOlderPlanUndecided) {
  One one;
  const auto old = std::make_shared<Prepared>();
  const uint32_t from = *one.switches.promise(1);
  one.switches.settle(version(1), from);
  EXPECT_TRUE(one.begin().undecided);
  EXPECT_EQ(one.switches.version_for(from)->number, 1u);
  EXPECT_FALSE(one.begin().undecided);
  const CallLog::Begun late = one.calls.begins(old);
  EXPECT_TRUE(late.undecided);
  CallDescriptor call;
  ASSERT_TRUE(one.calls.describe(late.seq, &call));
  EXPECT_EQ(call.signature, kNotKnownYet);
  auto anew = std::make_shared<Prepared>();
  anew->signature = 7;
  one.calls.runs(late.seq, anew);
  ASSERT_TRUE(one.calls.describe(late.seq, &call));
  EXPECT_EQ(call.signature, 7u);
}

TEST(PlanSwitches, HoldHoweverManyCallsComeAfterThem) {
  One one;
  const uint32_t from = *one.switches.promise(1);
  one.switches.settle(version(1), from);
  EXPECT_EQ(one.switches.version_for(from)->number, 1u);
  EXPECT_EQ(one.switches.version_for(from + (uint32_t{1} << 31) + 5)->number, 1u);
}

TEST(PlanSwitches, AreOvertakenByALaterVersion) {
  One one;
  const uint32_t first = *one.switches.promise(1);
  one.begin();
  const uint32_t second = *one.switches.promise(2);
  EXPECT_GT(second, first);
  one.switches.settle(version(2), second);
  EXPECT_TRUE(one.switches.settled(first));
  EXPECT_EQ(one.switches.version_for(first)->number, 0u);
  one.switches.settle(version(1), first);
  EXPECT_EQ(one.switches.version_for(first)->number, 0u) << "it is too late";
  EXPECT_EQ(one.switches.promise(1), std::nullopt);
  EXPECT_EQ(one.switches.version_for(second)->number, 2u);
}

// Ranks that call, hear and promise in any order; the coordinator settles what all have promised.
class RandomJob {
 public:
  RandomJob(uint64_t seed, uint32_t first_call) : random_(seed), first_(first_call) {
    for (uint32_t r = 0; r < kRanks; r++) ranks_.push_back(std::make_unique<One>(first_call));
    heard_.resize(kRanks);
  }
  void run() {
    for (int step = 0; step < 2'000; step++) {
      const size_t r = random_() % kRanks;
      switch (random_() % 8) {
        case 0:
          if (random_() % 4 == 0) proposed_++;
          break;
        case 1:
        case 2:
          hear(r);
          break;
        default:
          call(r);
      }
    }
  }

 private:
  static constexpr size_t kRanks = 4;
  // What the coordinator said, in its order: a version to promise (from 0), or its first call.
  struct Said {
    uint32_t version = 0, from = 0;
  };

  void hear(size_t r) {
    if (announced_ < proposed_) said_.push_back({++announced_, 0});
    if (heard_[r] == said_.size()) return;
    const Said said = said_[heard_[r]++];
    if (said.from != 0) return ranks_[r]->switches.settle(version(said.version), said.from);
    const auto number = ranks_[r]->switches.promise(said.version);
    if (!number || said.version != announced_) return;
    std::map<size_t, uint32_t>& promises = promises_[said.version];
    promises[r] = *number;
    if (promises.size() < kRanks) return;
    uint32_t from = *number;
    for (const auto& [rank, promised] : promises)
      if (static_cast<int32_t>(promised - from) > 0) from = promised;
    said_.push_back({said.version, from});
  }

  // A caller waits where it has to: it comes again.
  void call(size_t r) {
    One& rank = *ranks_[r];
    uint32_t seq = 0;
    bool held = false;
    if (const auto waits = waiting_.find(r); waits != waiting_.end()) {
      seq = waits->second;
      held = true;
    } else {
      const CallLog::Begun begun = rank.begin();
      seq = begun.seq;
      held = begun.undecided;
    }
    if (held && !rank.switches.settled(seq)) {
      waiting_[r] = seq;
      return;
    }
    waiting_.erase(r);
    const uint64_t number = held ? rank.switches.version_for(seq)->number : rank.switches.current();
    const auto [known, first] = ran_.try_emplace(seq - first_, number);
    EXPECT_EQ(known->second, number) << "call " << seq - first_ << " on rank " << r;
  }

  std::mt19937_64 random_;
  const uint32_t first_;
  std::vector<std::unique_ptr<One>> ranks_;
  uint32_t proposed_ = 0, announced_ = 0;
  std::vector<Said> said_;
  std::vector<size_t> heard_;  // by rank: how much of it
  std::map<uint32_t, std::map<size_t, uint32_t>> promises_;
  std::map<size_t, uint32_t> waiting_;  // by rank: the call that it is held in
  std::map<uint32_t, uint64_t> ran_;    // by call: under which version
};

TEST(PlanSwitches, OneVersionForACallOnAllRanks) {
  const uint64_t seed = sennit_test::seed();
  for (uint64_t trial = 0; trial < 200; trial++)
    RandomJob(seed + trial, trial % 2 == 0 ? 1 : ~uint32_t{0} - 50).run();
}

}  // namespace
}  // namespace sennit
