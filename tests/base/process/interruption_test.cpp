// interruption_test.cpp: who waits and is to ask whether that is still wanted asks in time, and not
// once it knows.
//
// ctest not-under-tsan: it has one thread
#include "base/process/interruption.hpp"

#include <gtest/gtest.h>

#include <chrono>

using namespace std::chrono_literals;

namespace sennit {
namespace {

constexpr auto kNever = 24h;

TEST(Interruption, NobodyIsAsked) {
  const Interruption none;
  EXPECT_FALSE(none.wanted());
  none.sleep(1ms);
  none.end();
  EXPECT_GT(none.next(), Interruption::Clock::now() + 1min);
  const auto end = Interruption::Clock::now() + 1ms;
  EXPECT_EQ(none.next(end), end);
}

TEST(Interruption, WhoWantsItIsNotAskedAgain) {
  int asked = 0;
  const Interruption interruption([&] { return ++asked == 2; });
  const Interruption copy = interruption;
  EXPECT_FALSE(interruption.wanted());
  EXPECT_TRUE(copy.wanted());
  EXPECT_TRUE(interruption.wanted());
  EXPECT_EQ(asked, 2);
  EXPECT_EQ(Interruption::status().kind(), SENNIT_ABORTED);
}

TEST(Interruption, EndsASleep) {
  int asked = 0;
  const Interruption interruption([&] { return ++asked == 3; });
  EXPECT_LT(interruption.next(), Interruption::Clock::now() + 1s);
  interruption.sleep(kNever);
  EXPECT_EQ(asked, 3);
}

TEST(Interruption, ASleepThatIsNotInterruptedIsWhole) {
  const Interruption interruption([] { return false; });
  const auto end = Interruption::Clock::now() + 120ms;  // longer than until somebody is asked
  interruption.sleep(120ms);
  EXPECT_GE(Interruption::Clock::now(), end);
}

TEST(Interruption, NobodyIsAskedAfterTheCall) {
  int asked = 0;
  const Interruption interruption([&] { return ++asked > 0; });
  const Interruption kept = interruption;
  interruption.end();
  EXPECT_FALSE(kept.wanted());
  EXPECT_EQ(asked, 0);
}

}  // namespace
}  // namespace sennit
