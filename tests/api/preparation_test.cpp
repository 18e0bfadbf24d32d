// preparation_test.cpp: what calls are prepared to, alone: again, under other versions of the
// fabric, and while plans are forgotten.
// ctest not-under-tsan: it has one thread
#include "api/preparation.hpp"

#include <memory>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/api/noting_control.hpp"
#include "topology/source.hpp"

namespace sennit {
namespace {

constexpr int kSelf = 1;  // this rank

class Prepares : public testing::Test {
 protected:
  std::unique_ptr<Preparation> preparation(bool tunes) {
    return preparation(state_, "racks=2x2;nic=1Gbit/s;oversubscription=2", tunes);
  }
  std::unique_ptr<Preparation> preparation(const CommunicatorState& state, const char* tree,
                                           bool tunes) {
    return std::make_unique<Preparation>(state, engine_, synthetic_tree(tree).value(),
                                         Preparation::Settings{options_, tunes, tunes, {}});
  }
  Call sum(size_t count) {
    Call call;
    call.send = in_.data();
    call.recv = out_.data();
    call.count = count;
    call.type = DataType::float32;
    return call;
  }
  static FabricVersionPointer version(uint64_t number) {
    return std::make_shared<const FabricVersion>(FabricVersion{number, {}});
  }

  std::vector<float> in_ = std::vector<float>(1 << 16), out_ = in_;
  Engine engine_{false, 1 << 20, 1'000'000'000, {}};
  sennit_test::NotingControl control_{kSelf};
  CommunicatorState state_{5, {0, 1, 2, 3}, kSelf, engine_, control_};
  PlanOptions options_;
};

TEST_F(Prepares, ACallThatComesAgainGetsTheExecutionOfTheOneBefore) {
  const auto calls = preparation(false);
  Preparation::Ready first = *calls->prepare(sum(64), {});
  const Execution* const execution = first.execution.get();
  Preparation::Ready meanwhile = *calls->prepare(sum(64), {});
  EXPECT_NE(meanwhile.execution.get(), execution) << "the first is under way";
  calls->give_back(std::move(first.execution));
  Preparation::Ready again = *calls->prepare(sum(64), {});
  EXPECT_EQ(again.execution.get(), execution);
  calls->give_back(std::move(again.execution));
  calls->give_back(std::move(meanwhile.execution));
}

// Who uses a communicator wrongly is told so, also where it has failed.
TEST_F(Prepares, AWrongCallIsRefusedBeforeAFailedCommunicatorRefusesAll) {
  const auto calls = preparation(false);
  state_.fail_and_tell({SENNIT_ABORTED, "an error"});
  EXPECT_EQ(calls->prepare(sum(64), {}).status().kind(), SENNIT_ABORTED);
  Call wrong = sum(64);
  wrong.recv = nullptr;
  EXPECT_EQ(calls->prepare(wrong, {}).status().kind(), SENNIT_INVALID_ARGUMENT);
}

TEST_F(Prepares, EveryCallRunsUnderTheVersionThatItIsToldOf) {
  const auto calls = preparation(false);
  Preparation::Ready made = *calls->prepare(sum(64), {});
  EXPECT_EQ(*calls->prepare_under(version(0), *made.execution, {}), nullptr);
  std::unique_ptr<Execution> of_two = *calls->prepare_under(version(2), *made.execution, {});
  ASSERT_NE(of_two, nullptr);
  EXPECT_EQ(of_two->prepared().fabric_version, 2U);
  EXPECT_EQ(*calls->prepare_under(version(2), *of_two, {}), nullptr);
  // A thread that began its call before comes here only now.
  std::unique_ptr<Execution> of_one = *calls->prepare_under(version(1), *made.execution, {});
  ASSERT_NE(of_one, nullptr);
  EXPECT_EQ(of_one->prepared().fabric_version, 1U);
  calls->give_back(std::move(of_one));
  Preparation::Ready later = *calls->prepare(sum(64), {});
  EXPECT_EQ(later.execution->prepared().fabric_version, 2U);
  EXPECT_GT(later.generation, made.generation);
  for (auto* execution : {&made.execution, &of_two, &later.execution})
    calls->give_back(std::move(*execution));
}

// Of one rank alone, since no transport is here that could carry a small message.
TEST_F(Prepares, TheShortWayKeepsNoPlanThatWasForgottenMeanwhile) {
  const CommunicatorState alone(6, {kSelf}, kSelf, engine_, control_);
  const auto calls = preparation(alone, "racks=1x1;nic=1Gbit/s", false);
  const Call call = sum(2);
  const auto keep = [&](bool forgotten_meanwhile) {
    Preparation::Ready ready = *calls->prepare(call, {});
    const std::shared_ptr<const Prepared> prepared = ready.execution->shared_prepared();
    calls->give_back(std::move(ready.execution));
    if (forgotten_meanwhile) calls->calibrate(CostModel());
    calls->remember_small(call, prepared, ready.generation);
  };
  keep(true);
  EXPECT_FALSE(calls->claim_small(call)->holds(call, alone.rank()));
  keep(false);
  EXPECT_TRUE(calls->claim_small(call)->holds(call, alone.rank()));
}

TEST_F(Prepares, TrialsAreDecidedOnceAndTheirWinnerRunsFromThenOn) {
  const auto calls = preparation(true);
  const Call call = sum(1 << 14);
  while (!calls->vote(call)) {
    Preparation::Ready ready = *calls->prepare(call, {});
    ASSERT_NE(ready.trials, nullptr);
    if (ready.sample >= 0) calls->took(*ready.trials, ready.sample, 1'000'000);
    calls->give_back(std::move(ready.execution));
  }
  const Preparation::Vote vote = *calls->vote(call);
  const size_t plans = vote.trials->plans().size();
  ASSERT_GT(plans, 1U);
  std::vector<double> slowest_us = vote.mine_us;
  for (size_t i = plans - 1; i < slowest_us.size(); i += plans) slowest_us[i] = 1;
  EXPECT_FALSE(calls->decide(vote, slowest_us).empty());
  EXPECT_FALSE(calls->vote(call));
  EXPECT_EQ(vote.trials->winner(), plans - 1);
  Preparation::Ready after = *calls->prepare(call, {});
  EXPECT_EQ(after.execution->prepared().plan.hash, vote.trials->plans().back().hash);
  EXPECT_EQ(after.sample, -1);
  calls->give_back(std::move(after.execution));
}

}  // namespace
}  // namespace sennit
