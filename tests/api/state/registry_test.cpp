// registry_test.cpp: failures reach the communicators that stand and those to come, and no others.
// ctest not-under-tsan: it has one thread
#include "api/state/registry.hpp"

#include <gtest/gtest.h>

#include "schedule/prepared.hpp"
#include "tests/api/noting_control.hpp"

namespace sennit {
namespace {

constexpr int kSelf = 1;  // this rank

class Registered : public testing::Test {
 protected:
  Registered() { registry_.set_engine(&engine_); }
  std::unique_ptr<CommunicatorState> state(uint32_t id, std::vector<int> members) {
    return std::make_unique<CommunicatorState>(id, std::move(members), kSelf, engine_, control_);
  }

  Engine engine_{false, 1 << 20, 1'000'000'000, {}};
  sennit_test::NotingControl control_{kSelf};
  Registry registry_{kSelf};
  const Status error_{SENNIT_ABORTED, "an error"};
};

TEST_F(Registered, TheFirstFailureStands) {
  const auto communicator = state(5, {3, 1});
  EXPECT_EQ(communicator->rank(), 1);
  EXPECT_TRUE(communicator->has(3));
  EXPECT_FALSE(communicator->has(0));
  EXPECT_TRUE(communicator->status().ok());
  communicator->fail_and_tell({SENNIT_MISMATCH, "counts differ"});
  communicator->fail_and_tell(error_);
  EXPECT_EQ(communicator->status().kind(), SENNIT_MISMATCH);
  EXPECT_EQ(control_.told, "fail 5 counts differ; ");
  control_.told.clear();
  communicator->abort();
  EXPECT_EQ(control_.told, "") << "all know already that it has failed";
  const auto other = state(6, {1});
  other->abort();
  other->abort();
  EXPECT_EQ(control_.told, "abort 6 ; ");
}

TEST_F(Registered, CallsAreDescribedByTheirCommunicator) {
  const auto communicator = state(7, {1, 2});
  CallDescriptor call;
  EXPECT_FALSE(registry_.describe(7, 1, &call)) << "it is not there";
  registry_.add(communicator.get());
  EXPECT_FALSE(registry_.describe(7, 1, &call)) << "nothing was called";
  const auto prepared = std::make_shared<Prepared>();
  prepared->description = "barrier";
  EXPECT_EQ(communicator->calls().begins(prepared).seq, 1u);
  ASSERT_TRUE(registry_.describe(7, 1, &call));
  EXPECT_EQ(call.comm, 7u);
  EXPECT_EQ(call.text, "barrier");
  registry_.remove(communicator.get());
}

TEST_F(Registered, FailuresReachTheirMembersOnly) {
  const auto all = state(kWholeJob, {0, 1, 2, 3}), some = state(7, {1, 2});
  registry_.add(all.get());
  registry_.add(some.get());
  EXPECT_EQ(registry_.members(7), (std::vector<int>{1, 2}));
  EXPECT_TRUE(registry_.members(8).empty());
  registry_.link_failed(0, 3, error_);
  EXPECT_TRUE(all->failed());
  EXPECT_FALSE(some->failed());
  registry_.communicator_failed(7, 3, error_);  // another of that number
  EXPECT_FALSE(some->failed());
  registry_.peers_failed({0, 3}, error_);
  EXPECT_FALSE(some->failed());
  EXPECT_EQ(all->failed_ranks(), (std::vector<int>{0, 3}));
  registry_.failed_here(7, error_);
  EXPECT_TRUE(some->failed());
  EXPECT_EQ(control_.told, "abort 7 an error; ");
}

TEST_F(Registered, TheDeadAndBrokenLinksMatterToAllToCome) {
  registry_.peers_failed({3}, error_);
  registry_.link_failed(0, 2, error_);
  const auto with_dead = state(2, {1, 3}), over_link = state(3, {0, 1, 2}), well = state(4, {0, 1});
  for (const auto* made : {&with_dead, &over_link, &well}) registry_.add(made->get());
  EXPECT_TRUE(with_dead->failed());
  EXPECT_TRUE(over_link->failed());
  EXPECT_FALSE(well->failed());
}

// While one is being made anywhere on this rank, what is told of communicators that it has not got
// is kept; then it is forgotten.
TEST_F(Registered, EarlyFailuresAreKeptAsLongAsTheyMatter) {
  const auto whole = state(kWholeJob, {0, 1, 2, 3});
  registry_.add(whole.get());
  {
    const Registry::Making making(registry_);
    registry_.communicator_failed(9, 2, error_);
    const auto other = state(9, {1, 3});  // the same number, without that member
    registry_.add(other.get());
    EXPECT_FALSE(other->failed());
    registry_.remove(other.get());
    const auto meant = state(9, {1, 2});
    registry_.add(meant.get());
    EXPECT_TRUE(meant->failed());
    registry_.remove(meant.get());
  }
  registry_.communicator_failed(10, 2, error_);  // nobody is about to make it
  const auto late = state(9, {1, 2}), later = state(10, {1, 2});
  registry_.add(late.get());
  registry_.add(later.get());
  EXPECT_FALSE(late->failed());
  EXPECT_FALSE(later->failed());
}

}  // namespace
}  // namespace sennit
