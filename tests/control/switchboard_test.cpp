// switchboard_test.cpp: connections over real sockets: what is said arrives once both ends have
// proved themselves, and every end has its reason.
//
// ctest not-under-tsan: it has one thread
#include "control/switchboard.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include "tests/control/sockets.hpp"

namespace sennit::control {
namespace {

using test::options_of;
using test::run_until;
using test::Sockets;

struct Calling : ::testing::Test {
  Sockets root{0}, rank{2};
  void SetUp() override {
    root.listen();
    root.settles_as = Role::child;
  }
  // A channel that rank 0 has taken for its child's.
  Channel* connected() {
    Channel* const channel = rank.connect(root);
    rank.switchboard.send(*channel, encode(Goodbye{2}));
    EXPECT_TRUE(run_until({&root, &rank}, [&] { return root.heard.size() == 1; }));
    root.heard.clear();
    return channel;
  }
  Channel* child() {
    Channel* found = nullptr;
    root.switchboard.for_each([&](Channel& channel) { found = &channel; });
    return found;
  }
  bool root_hears_the_end() {
    return run_until({&root, &rank}, [&] { return !root.endings.empty(); });
  }
};

// ---- what is said ----

TEST_F(Calling, FramesWaitUntilBothEndsHaveProvedThemselves) {
  Channel* const channel = rank.connect(root);
  ASSERT_TRUE(channel);
  EXPECT_TRUE(channel->outgoing);
  EXPECT_FALSE(channel->proven);
  rank.switchboard.send(*channel, encode(Goodbye{2}));
  rank.switchboard.send(*channel, encode(Goodbye{3}));
  ASSERT_TRUE(run_until({&root, &rank}, [&] { return root.heard.size() == 2; }));
  EXPECT_EQ(root.proven, std::vector<int>{2}) << "who it is is what it proved";
  EXPECT_EQ(rank.proven, std::vector<int>{0});
  EXPECT_TRUE(channel->proven);
  EXPECT_EQ(test::read<Goodbye>(root.heard[0].message, 4).rank, 2);
  EXPECT_EQ(test::read<Goodbye>(root.heard[1].message, 4).rank, 3);
  EXPECT_EQ(root.switchboard.strangers(), 0u);
}

TEST_F(Calling, AnswersComeBackAndBothEndsAreKnown) {
  const Channel* const channel = connected();
  root.switchboard.send(*child(), encode(GoodbyeAck{2}));
  ASSERT_TRUE(run_until({&root, &rank}, [&] { return !rank.heard.empty(); }));
  EXPECT_EQ(rank.heard[0].rank, 0);
  EXPECT_EQ(root.switchboard.far_end(*child()), rank.switchboard.near_end(*channel));
  EXPECT_EQ(root.switchboard.near_end(*child()), root.entrance.address());
}

TEST_F(Calling, ShutDeliversWhatWasSaidBefore) {
  Channel* const channel = connected();
  for (int i = 0; i < 3; i++) rank.switchboard.send(*channel, encode(Goodbye{i}));
  rank.switchboard.shut(*channel);
  rank.switchboard.send(*channel, encode(Goodbye{3}));
  ASSERT_TRUE(root_hears_the_end());
  EXPECT_EQ(root.heard.size(), 3u) << "nothing after it";
  EXPECT_EQ(root.endings[0].end, End::closed);
}

// ---- how it ends ----

TEST_F(Calling, TheEndOfTheStreamIsToldWithWhatTheChannelWas) {
  Channel* const channel = connected();
  child()->said_goodbye = true;
  child()->joined = true;
  rank.switchboard.drop(channel->id);
  EXPECT_EQ(rank.dropped_channels, 1);
  EXPECT_TRUE(rank.endings.empty()) << "who drops it knows";
  ASSERT_TRUE(root_hears_the_end());
  const Ending& ending = root.endings[0];
  EXPECT_EQ(ending.end, End::closed);
  EXPECT_EQ(ending.role, Role::child);
  EXPECT_EQ(ending.rank, 2);
  EXPECT_TRUE(ending.said_goodbye && ending.joined);
  EXPECT_EQ(root.dropped_channels, 1);
  EXPECT_TRUE(root.switchboard.empty());
}

TEST_F(Calling, WhatIsGoneIsNotFoundAndEndsOnlyOnce) {
  const uint64_t id = connected()->id;
  EXPECT_FALSE(rank.switchboard.find(0));
  EXPECT_TRUE(rank.switchboard.find(id));
  rank.switchboard.lost(id, End::garbage, "nonsense");
  rank.switchboard.lost(id, End::closed, "again");
  rank.switchboard.drop(id);
  rank.switchboard.serve(id);  // a socket that was ready in the same round
  EXPECT_FALSE(rank.switchboard.find(id));
  ASSERT_EQ(rank.endings.size(), 1u);
  EXPECT_EQ(rank.endings[0].reason, "nonsense");
}

TEST_F(Calling, NobodyListens) {
  const Address address = root.entrance.address();
  root.entrance.close();
  int error = 0;
  const Channel* const channel = rank.switchboard.connect(address, Role::parent, 0, &error);
  if (!channel) {
    EXPECT_EQ(error, ECONNREFUSED);
    return;
  }
  ASSERT_TRUE(run_until({&rank}, [&] { return !rank.endings.empty(); }));
  EXPECT_EQ(rank.endings[0].end, End::refused);
  EXPECT_EQ(rank.endings[0].rank, 0);
}

TEST_F(Calling, AnotherSecretIsNotOfThisJob) {
  BootstrapOptions options = options_of(2, 4);
  options.secret.assign(32, std::byte{9});
  Sockets other(options);
  Channel* const channel = other.connect(root);
  other.switchboard.send(*channel, encode(Goodbye{2}));
  ASSERT_TRUE(
      run_until({&root, &other}, [&] { return root.endings.size() + other.endings.size() == 2; }));
  EXPECT_EQ(root.endings[0].end, End::unproven);
  EXPECT_EQ(root.endings[0].role, Role::stranger);
  EXPECT_EQ(other.endings[0].end, End::unproven);
  EXPECT_TRUE(root.heard.empty());
  EXPECT_NE(root.switchboard.statistics().find("refused strangers 1"), std::string::npos)
      << root.switchboard.statistics();
}

TEST_F(Calling, AnotherWireDisagrees) {
  BootstrapOptions options = options_of(2, 4);
  options.sealed = true;
  Sockets other(options);
  other.connect(root);
  ASSERT_TRUE(run_until({&root, &other}, [&] { return !other.endings.empty(); }));
  EXPECT_EQ(other.endings[0].end, End::disagrees);
}

TEST_F(Calling, GarbageInsteadOfAGreetingIsRefused) {
  int error = 0;
  const int fd = *connect_to(root.entrance.address(), &error);
  ASSERT_TRUE(run_until({&root}, [&] { return root.switchboard.strangers() == 1; }));
  const std::string nonsense(200, 'x');
  ASSERT_EQ(::send(fd, nonsense.data(), nonsense.size(), MSG_NOSIGNAL), 200);
  ASSERT_TRUE(root_hears_the_end());
  EXPECT_EQ(root.endings[0].end, End::unproven);
  EXPECT_TRUE(root.proven.empty());
  close_socket(fd);
}

TEST_F(Calling, AStrangerThatClosesIsForgotten) {
  int error = 0;
  const int fd = *connect_to(root.entrance.address(), &error);
  ASSERT_TRUE(run_until({&root}, [&] { return root.switchboard.strangers() == 1; }));
  close_socket(fd);
  ASSERT_TRUE(root_hears_the_end());
  EXPECT_EQ(root.endings[0].role, Role::stranger);
  EXPECT_EQ(root.switchboard.strangers(), 0u);
}

TEST_F(Calling, AFirstFrameThatIsTooLongIsGarbage) {
  Channel* const channel = rank.connect(root);
  rank.switchboard.send(
      *channel, make_frame(FrameType::attach, std::vector<std::byte>(kFirstFrameBytes + 1)));
  ASSERT_TRUE(root_hears_the_end());
  EXPECT_EQ(root.endings[0].end, End::garbage);
  EXPECT_TRUE(root.heard.empty());
}

TEST_F(Calling, ALongFrameOfAKnownRankArrives) {
  Channel* const channel = connected();
  const std::vector<std::byte> payload(3 << 20, std::byte{7});
  rank.switchboard.send(*channel, make_frame(FrameType::gathered, payload));
  ASSERT_TRUE(run_until({&root, &rank}, [&] { return !root.heard.empty(); }));
  EXPECT_EQ(root.heard[0].message.payload, payload);
}

// ---- time ----

TEST_F(Calling, WhoDoesNotGetOnInTimeIsGivenUp) {
  int error = 0;
  const int fd = *connect_to(root.entrance.address(), &error);
  ASSERT_TRUE(run_until({&root}, [&] { return root.switchboard.strangers() == 1; }));
  root.later_ms = kStrangerMs - 2000;
  root.round(0);
  EXPECT_TRUE(root.endings.empty());
  root.later_ms = kStrangerMs;
  ASSERT_TRUE(root_hears_the_end());
  EXPECT_EQ(root.endings[0].end, End::unreachable);
  EXPECT_EQ(root.endings[0].reason, "no answer in time");
  close_socket(fd);
}

TEST_F(Calling, TimeInWhichNothingRanIsNotCounted) {
  int error = 0;
  const int fd = *connect_to(root.entrance.address(), &error);
  ASSERT_TRUE(run_until({&root}, [&] { return root.switchboard.strangers() == 1; }));
  root.switchboard.excuse(2 * kStrangerMs);
  root.later_ms = 2 * kStrangerMs;
  root.round(0);
  EXPECT_TRUE(root.endings.empty());
  EXPECT_EQ(root.switchboard.strangers(), 1u);
  close_socket(fd);
}

TEST_F(Calling, StrangersMayGoWhenTheyHadTheirTurn) {
  int error = 0;
  const int fd = *connect_to(root.entrance.address(), &error);
  ASSERT_TRUE(run_until({&root}, [&] { return root.switchboard.strangers() == 1; }));
  root.later_ms = 300;
  root.round(0);
  const uint64_t one = root.switchboard.stranger_to_evict();
  ASSERT_TRUE(root.switchboard.find(one));
  EXPECT_EQ(root.switchboard.find(one)->role, Role::stranger);
  root.self.now_ms = root.switchboard.find(one)->since_ms;
  EXPECT_EQ(root.switchboard.stranger_to_evict(), 0u) << "it has only just come";
  close_socket(fd);
}

}  // namespace
}  // namespace sennit::control
