// clock_exchange_test.cpp: how ranks come to know how their clocks stand to the coordinator's, over
// parents that know it of themselves.
//
// ctest not-under-tsan: it has one thread
#include "control/tree/clock_exchange.hpp"

#include <gtest/gtest.h>

#include "tests/control/fake_rank.hpp"

namespace sennit::control {
namespace {

using test::FakeRank;

constexpr uint64_t kMs = 1'000'000;

// What clock_now() gives. The tests set it.
uint64_t time_ns = 0;
uint64_t clock_now() { return time_ns; }

// A rank that is not the coordinator, with an exchange of its own beside that of its plane, which
// asks by another clock.
class OneClock : public testing::Test {
 protected:
  OneClock() {
    rank_.start();
    census_.members.resize(kSize);
    tree_.set_parent(rank_.parent_channel());
  }
  // The question that is due now.
  ClockAsk asked() {
    rank_.self.now_ms += 5000;
    exchange_.tick();
    const auto asks = rank_.network.take<ClockAsk>();
    EXPECT_EQ(asks.size(), 1u);
    return asks.empty() ? ClockAsk() : asks[0].second;
  }
  struct Nobody final : Tree::Owner {
    void suspect(int, uint8_t, const std::string&) override {}
    bool known_silent(int) const override { return false; }
    void neighbour_came() override {}
    void child_came(Channel&, const Attach&) override {}
    void parent_came(Channel&, const Welcome&) override {}
    void became_coordinator() override {}
  };
  static constexpr int kSize = 40;
  FakeRank rank_{20, kSize};  // below rank 1
  Nobody nobody_;
  Census census_{rank_.self};
  Tree tree_{rank_.self, census_, rank_.network, nobody_};
  ClockExchange exchange_{rank_.self, census_, tree_, rank_.network, clock_now};
};

TEST_F(OneClock, AddsWhatTheParentKnowsOfItself) {
  EXPECT_FALSE(exchange_.measured().has_value());
  time_ns = 1000 * kMs;
  const ClockAsk ask = asked();
  EXPECT_EQ(ask.asked_ns, time_ns);
  // The parent is 300 ms ahead of this rank, and 100 ms behind the coordinator, give or take 1 ms.
  time_ns += 2 * kMs;
  exchange_.on_answer(rank_.parent_channel(), {ask.asked_ns, 1301 * kMs, 1301 * kMs, 0,
                                               -100 * static_cast<int64_t>(kMs), 1 * kMs});
  const std::optional<MeasuredClock> measured = exchange_.measured();
  ASSERT_TRUE(measured.has_value());
  EXPECT_EQ(measured->ahead_ns, -400 * static_cast<int64_t>(kMs));
  EXPECT_GE(measured->error_ns, 2 * kMs) << "that of the parent, and half of the way";
  EXPECT_LE(measured->error_ns, 2 * kMs + kMs / 100);
  EXPECT_EQ(measured->root, 0);
  EXPECT_EQ(measured->measured_ns, time_ns);
}

TEST_F(OneClock, NothingIsKnownBelowAParentThatKnowsNothing) {
  time_ns = 1000 * kMs;
  const ClockAsk ask = asked();
  exchange_.on_answer(rank_.parent_channel(), {ask.asked_ns, 5, 5, -1, 0, 0});
  EXPECT_FALSE(exchange_.measured().has_value());
}

TEST_F(OneClock, AnswersThatWereNotAskedForArePassedOver) {
  time_ns = 1000 * kMs;
  const ClockAsk ask = asked();
  const ClockAnswer good{ask.asked_ns, 1301 * kMs, 1301 * kMs, 0, 0, 0};
  ClockAnswer other = good;
  other.asked_ns--;
  exchange_.on_answer(rank_.parent_channel(), other);
  EXPECT_FALSE(exchange_.measured().has_value());
  exchange_.on_answer(rank_.network.add(Role::parent, 3), good);
  EXPECT_FALSE(exchange_.measured().has_value()) << "of a parent that it had before";
  exchange_.on_answer(rank_.parent_channel(), good);
  const MeasuredClock first = *exchange_.measured();
  other = good;
  other.ahead_ns = 77;
  exchange_.on_answer(rank_.parent_channel(), other);
  EXPECT_EQ(exchange_.measured()->ahead_ns, first.ahead_ns) << "the second of one question";
}

TEST_F(OneClock, AsksOftenAtFirstAndThenEveryFiveSeconds) {
  size_t early = 0, later = 0;
  for (int i = 0; i < 100; i++) {
    rank_.self.now_ms += 10;
    exchange_.tick();
    early += rank_.network.take<ClockAsk>().size();
  }
  for (int i = 0; i < 1000; i++) {
    rank_.self.now_ms += 10;
    exchange_.tick();
    later += rank_.network.take<ClockAsk>().size();
  }
  EXPECT_EQ(early, 4u);
  EXPECT_EQ(later, 2u);
}

TEST(ClockExchange, TheCoordinatorIsWhatAllAreMeasuredBy) {
  FakeRank root(0, 4);
  root.start();
  root.after(100);
  ASSERT_TRUE(root.plane.clock().measured().has_value());
  EXPECT_EQ(root.plane.clock().measured()->root, 0);
  EXPECT_EQ(root.plane.clock().measured()->error_ns, 0u);
  root.network.say(root.channel_of(Role::child, 2), ClockAsk{77});
  const auto answers = root.network.take<ClockAnswer>();
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers[0].first, 2);
  EXPECT_EQ(answers[0].second.asked_ns, 77u);
  EXPECT_EQ(answers[0].second.root, 0);
  EXPECT_EQ(answers[0].second.error_ns, 0u);
  EXPECT_LE(answers[0].second.received_ns, answers[0].second.answered_ns);
}

TEST(ClockExchange, AParentAnswersWhatItKnows) {
  FakeRank middle(1, 40);  // rank 20 is below it
  middle.start();
  middle.network.say(middle.channel_of(Role::child, 20), ClockAsk{5});
  EXPECT_EQ(middle.network.take<ClockAnswer>().at(0).second.root, -1) << "it does not know yet";
  middle.after(10);
  const auto asks = middle.network.take<ClockAsk>();
  ASSERT_EQ(asks.size(), 1u);
  const uint64_t asked = asks[0].second.asked_ns;
  middle.network.say(middle.parent_channel(),
                     ClockAnswer{asked, asked + 1000 * kMs, asked + 1000 * kMs, 0, 0, 0});
  middle.network.say(middle.channel_of(Role::child, 20), ClockAsk{6});
  const ClockAnswer answer = middle.network.take<ClockAnswer>().at(0).second;
  EXPECT_EQ(answer.root, 0);
  EXPECT_NEAR(static_cast<double>(answer.ahead_ns), -1000.0 * kMs,
              static_cast<double>(answer.error_ns) + 1);
}

}  // namespace
}  // namespace sennit::control
