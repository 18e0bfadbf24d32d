// census_test.cpp: who is gone, and therefore who decides.
//
// ctest not-under-tsan: it has one thread
#include "control/tree/census.hpp"

#include <gtest/gtest.h>

#include "tests/control/fake_network.hpp"

namespace sennit::control {
namespace {

struct Counting : ::testing::Test {
  Self self{test::options_of(3, 8), {}};
  Census census{self};
  Counting() { self.phase = Phase::running; }
};

TEST_F(Counting, TheLowestThatIsNotGoneIsThisRankAtMost) {
  EXPECT_EQ(census.lowest_alive(), 0);
  census.dead = {0};
  EXPECT_EQ(census.lowest_alive(), 1);
  census.left = {1};
  EXPECT_EQ(census.lowest_alive(), 2);
  census.unreachable = {2};
  EXPECT_EQ(census.lowest_alive(), 3);
  census.dead.insert(3);
  EXPECT_EQ(census.lowest_alive(), 3) << "it does not look beyond itself";
  EXPECT_TRUE(census.gone(0) && census.gone(1) && census.gone(2));
  EXPECT_FALSE(census.gone(4));
}

TEST_F(Counting, WhoKnowsAllLowerOnesToBeGoneDecides) {
  EXPECT_FALSE(census.coordinator());
  census.dead = {0, 1};
  census.left = {2};
  EXPECT_TRUE(census.coordinator());
  census.excluded = true;
  EXPECT_FALSE(census.coordinator()) << "the others took it for dead";
  census.excluded = false;
  self.phase = Phase::waiting;
  EXPECT_FALSE(census.coordinator()) << "nobody decides before the start is complete";
}

TEST_F(Counting, RanksAreNamedWithWhatIsKnown) {
  EXPECT_EQ(census.describe(2), "rank 2");
  census.members.resize(3);
  EXPECT_EQ(census.describe(2), "rank 2") << "its process is not known yet";
  census.members[2] = {test::address_of(2), 17, "a"};
  EXPECT_EQ(census.describe(2), "rank 2 (host a, pid 17)");
}

}  // namespace
}  // namespace sennit::control
