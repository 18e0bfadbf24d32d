// told_test.cpp: what must not be lost when neighbours change: reports on their way up, and
// announcements on their way down.
//
// ctest not-under-tsan: it has one thread
#include "control/tree/told.hpp"

#include <gtest/gtest.h>

#include "tests/control/fake_network.hpp"

namespace sennit::control {
namespace {

using test::FakeNetwork;
using test::FakeSender;
using test::options_of;

constexpr int64_t kTellAgainMs = 5000;
constexpr int kKept = 64;

// ---- up the tree ----

struct Telling : ::testing::Test {
  Self self{options_of(1, 100), {}};
  FakeSender sender{100};
  Reports reports{self, sender};

  Telling() { self.now_ms = 1000; }
  std::vector<int> went_up() {
    std::vector<int> ranks;
    for (const Goodbye& one : sender.take_up<Goodbye>()) ranks.push_back(one.rank);
    return ranks;
  }
};

TEST_F(Telling, GoesUpAtOnce) {
  reports.send_up(encode(Goodbye{1}));
  EXPECT_EQ(went_up(), std::vector<int>{1});
}

TEST_F(Telling, TheNextParentIsToldWhatTheLastOneMayNotHavePassedOn) {
  reports.send_up(encode(Goodbye{1}));
  self.now_ms += kTellAgainMs;
  reports.send_up(encode(Goodbye{2}));
  went_up();
  reports.tell_again();
  EXPECT_EQ(went_up(), (std::vector<int>{1, 2}));
  self.now_ms += kTellAgainMs + 1;
  reports.tell_again();
  EXPECT_TRUE(went_up().empty()) << "that has been passed on";
}

TEST_F(Telling, WhatFoundNoParentIsKeptHoweverLongThatTakes) {
  sender.has_parent = false;
  reports.send_up(encode(Goodbye{2}));
  self.now_ms += 10 * kTellAgainMs;
  reports.tell_again();
  EXPECT_TRUE(went_up().empty());
  sender.has_parent = true;
  reports.tell_again();
  EXPECT_EQ(went_up(), std::vector<int>{2});
  self.now_ms += kTellAgainMs + 1;
  reports.tell_again();
  EXPECT_TRUE(went_up().empty()) << "its time counts from when it went out";
}

TEST_F(Telling, WhoDecidesNowTakesBackWhatMayBeLostOnce) {
  reports.send_up(encode(Goodbye{1}));
  self.now_ms += kTellAgainMs + 1;
  reports.send_up(encode(Goodbye{2}));
  sender.has_parent = false;
  reports.send_up(encode(Goodbye{3}));
  const std::vector<EncodedFrame> lost = reports.take_back();
  ASSERT_EQ(lost.size(), 2u);
  EXPECT_EQ(test::read<Goodbye>(open_frame(lost[0]), self.size).rank, 2);
  EXPECT_EQ(test::read<Goodbye>(open_frame(lost[1]), self.size).rank, 3);
  EXPECT_TRUE(reports.take_back().empty());
  sender.has_parent = true;
  reports.tell_again();
  EXPECT_EQ(went_up(), (std::vector<int>{1, 2})) << "only what went out before";
}

TEST_F(Telling, TheOldestAreForgotten) {
  sender.has_parent = false;
  for (int rank = 0; rank < kKept + 2; rank++) reports.send_up(encode(Goodbye{rank}));
  const std::vector<EncodedFrame> lost = reports.take_back();
  ASSERT_EQ(lost.size(), static_cast<size_t>(kKept));
  EXPECT_EQ(test::read<Goodbye>(open_frame(lost[0]), self.size).rank, 2);
}

// ---- down the tree ----

struct Announcing : ::testing::Test {
  Self self{options_of(3, 100), {}};
  FakeNetwork network{self};
  Announcements announcements{3};

  // What a rank that attaches now is told.
  std::vector<int> latecomer_hears() {
    announcements.tell_again(network, network.add(Role::child, 5));
    std::vector<int> ranks;
    for (const auto& [to, one] : network.take<Goodbye>()) ranks.push_back(one.rank);
    return ranks;
  }
};

TEST_F(Announcing, NumbersAreOfOneRankAlone) {
  Announcements others(4);
  std::set<uint64_t> numbers;
  for (int i = 0; i < 10; i++) {
    numbers.insert(announcements.new_number());
    numbers.insert(others.new_number());
  }
  EXPECT_EQ(numbers.size(), 20u);
}

TEST_F(Announcing, IsHeardOnceAndByLatecomersInOrder) {
  const uint64_t first = announcements.new_number(), second = announcements.new_number();
  EXPECT_TRUE(announcements.remember(first, encode(Goodbye{1})));
  EXPECT_FALSE(announcements.remember(first, encode(Goodbye{1})));
  EXPECT_TRUE(announcements.remember(second, encode(Goodbye{2})));
  EXPECT_EQ(latecomer_hears(), (std::vector<int>{1, 2}));
}

TEST_F(Announcing, TheOldestAreForgottenAndNewsAgain) {
  for (int i = 0; i < kKept + 1; i++)
    EXPECT_TRUE(announcements.remember(static_cast<uint64_t>(i) + 1, encode(Goodbye{i})));
  const std::vector<int> heard = latecomer_hears();
  ASSERT_EQ(heard.size(), static_cast<size_t>(kKept));
  EXPECT_EQ(heard.front(), 1);
  EXPECT_FALSE(announcements.remember(kKept + 1, encode(Goodbye{0})));
  EXPECT_TRUE(announcements.remember(1, encode(Goodbye{0}))) << "to be told twice does no harm";
}

}  // namespace
}  // namespace sennit::control
