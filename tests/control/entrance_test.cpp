// entrance_test.cpp: where a rank listens: who knocks is taken in, not too many at once, and waits
// where there are no descriptors.
//
// ctest not-under-tsan: it has one thread
#include "control/entrance.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "tests/control/descriptor_limit.hpp"
#include "tests/control/sockets.hpp"

namespace sennit::control {
namespace {

using sennit::test::NoDescriptors;
using test::run_until;
using test::Sockets;

const Address kAnyPort = *parse_address("127.0.0.1", 0);
constexpr int64_t kPauseMs = 20;  // of a door that can take nobody in

struct Listening : ::testing::Test {
  Sockets rank{0};
  std::vector<int> outside;  // connections of strangers

  void SetUp() override { rank.listen(); }
  void TearDown() override {
    for (const int fd : outside) close_socket(fd);
  }
  // False: nobody listens there.
  bool knock(const Address& address) {
    int error = 0;
    const Result<int> fd = connect_to(address, &error);
    if (!fd) return false;
    outside.push_back(*fd);
    return true;
  }
  void knock() { ASSERT_TRUE(knock(rank.entrance.address())); }
  bool has_strangers(size_t count) {
    return run_until({&rank}, [&] { return rank.switchboard.strangers() == count; });
  }
  static bool is_closed(int fd) {
    char byte;
    return ::recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0 || errno == ECONNRESET;
  }
  // Whether a connection to there comes about.
  static bool somebody_listens(const Address& address) {
    Sockets caller(1);
    int error = 0;
    if (!caller.switchboard.connect(address, Role::parent, 0, &error)) return false;
    for (int i = 0; i < 20 && caller.endings.empty(); i++) caller.round(1);
    return caller.endings.empty();
  }
};

TEST_F(Listening, KnowsWhereItListens) {
  EXPECT_TRUE(rank.entrance.is_open());
  EXPECT_NE(rank.entrance.port(), 0);
  EXPECT_EQ(rank.entrance.address().port, rank.entrance.port());
  EXPECT_TRUE(rank.entrance.address().loopback());
  Sockets closed(1);
  EXPECT_FALSE(closed.entrance.is_open());
  EXPECT_EQ(closed.entrance.port(), 0);
}

TEST_F(Listening, APortThatIsTakenIsAnError) {
  Sockets second(1);
  EXPECT_FALSE(second.entrance.open(rank.entrance.address()).ok());
  EXPECT_FALSE(second.entrance.is_open());
}

TEST_F(Listening, WhoKnocksIsAStranger) {
  knock();
  knock();
  EXPECT_TRUE(has_strangers(2));
  EXPECT_TRUE(rank.endings.empty());
}

TEST_F(Listening, ASocketThatListensIsTakenOver) {
  Sockets other(1);
  const int fd = *listen_on(kAnyPort);
  ASSERT_TRUE(knock(local_address(fd))) << "who comes early waits in the kernel";
  other.entrance.take_over(fd);
  EXPECT_TRUE(other.entrance.is_open());
  EXPECT_EQ(other.entrance.port(), local_address(fd).port);
  EXPECT_TRUE(run_until({&other}, [&] { return other.switchboard.strangers() == 1; }));
}

TEST_F(Listening, MovedItsFormerPortStaysBoundAndTakesNobodyIn) {
  const Address before = rank.entrance.address();
  ASSERT_TRUE(rank.entrance.move().ok());
  EXPECT_TRUE(rank.entrance.is_open());
  EXPECT_NE(rank.entrance.port(), before.port);
  EXPECT_FALSE(somebody_listens(before));
  knock();
  EXPECT_TRUE(has_strangers(1));
}

TEST_F(Listening, ClosedItTakesNobodyInAndClosesOnce) {
  const Address before = rank.entrance.address();
  rank.entrance.close();
  rank.entrance.close();
  EXPECT_FALSE(rank.entrance.is_open());
  EXPECT_EQ(rank.entrance.port(), before.port) << "the last one";
  EXPECT_FALSE(somebody_listens(before));
  rank.round(0);  // nothing to do for a door that is closed
}

// A rank whose job turns out to be part of another one closes its door as it takes in the last who
// was awaited.
TEST_F(Listening, ClosedWithinARoundItLooksForNobodyElse) {
  knock();
  rank.entrance.close();
  ::testing::internal::CaptureStderr();
  rank.entrance.serve();
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "") << "there is nothing wrong";
}

TEST_F(Listening, WhereThereAreTooManyTheOldestSilentOneGoes) {
  ASSERT_GE(reserve_descriptors(2 * kMostStrangers + 64), 2 * kMostStrangers + 16);
  for (size_t i = 0; i < kMostStrangers; i++) {
    knock();
    if (i % 64 == 63) {
      ASSERT_TRUE(has_strangers(i + 1));
    }
  }
  EXPECT_TRUE(rank.endings.empty());
  knock();
  ASSERT_TRUE(run_until({&rank}, [&] { return !rank.endings.empty(); }));
  EXPECT_EQ(rank.endings[0].reason, "too many connections that have not proved themselves");
  EXPECT_EQ(rank.endings[0].role, Role::stranger);
  EXPECT_GE(rank.switchboard.strangers(), kMostStrangers - 1);
  EXPECT_TRUE(is_closed(outside.front()));
  EXPECT_FALSE(is_closed(outside.back())) << "who knocked is in";
}

TEST_F(Listening, WithoutDescriptorsTheyWaitUntilThereAreSome) {
  knock();
  {
    const NoDescriptors none;
    ASSERT_TRUE(run_until({&rank}, [&] { return rank.times_without_descriptors > 0; }))
        << "the owner is told";
    EXPECT_EQ(rank.switchboard.strangers(), 0u);
  }
  EXPECT_TRUE(has_strangers(1));
}

// Between two looks nothing wakes the thread, though somebody knocks all the time.
TEST_F(Listening, WithoutDescriptorsItLooksNowAndThen) {
  knock();
  const NoDescriptors none;
  ASSERT_TRUE(run_until({&rank}, [&] { return rank.times_without_descriptors == 1; }));
  const int64_t first_ms = rank.self.now_ms;
  ASSERT_TRUE(run_until({&rank}, [&] { return rank.times_without_descriptors == 2; }));
  EXPECT_GE(rank.self.now_ms - first_ms, kPauseMs);
}

// As where the kernel has no memory for a connection: the error stays, and so does who knocks.
TEST_F(Listening, AnErrorThatStaysIsLookedAtNowAndThen) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()), 0);
  ASSERT_EQ(::send(ends[1], "", 1, 0), 1);
  Sockets door(1);
  door.entrance.take_over(ends[0]);  // no listener: always ready, and never gives a connection
  EXPECT_EQ(door.poller.wait(0).size(), 1u);
  door.entrance.serve();
  const int64_t first_ms = door.self.now_ms;
  EXPECT_EQ(door.poller.wait(0).size(), 0u) << "nothing wakes the thread";
  ASSERT_TRUE(run_until({&door}, [&] { return door.self.now_ms - first_ms >= kPauseMs; }));
  EXPECT_EQ(door.poller.wait(0).size(), 1u) << "it looks again";
  door.entrance.close();
  // Both are open still: close_socket() leaves alone what the library has not opened.
  for (const int end : ends) ::close(end);
}

TEST_F(Listening, WithoutDescriptorsStrangersMakeRoomForEachOther) {
  knock();
  ASSERT_TRUE(has_strangers(1));
  knock();
  const NoDescriptors none;
  ASSERT_TRUE(run_until({&rank}, [&] { return !rank.endings.empty(); }));
  EXPECT_EQ(rank.endings[0].reason, "no file descriptors left");
  EXPECT_EQ(rank.times_without_descriptors, 0);
  EXPECT_TRUE(has_strangers(1)) << "the later one";
}

TEST_F(Listening, WhoClosesGivesItsSpareDescriptorForOneMoreToBeTold) {
  ASSERT_TRUE(rank.switchboard.spare_descriptor().hold());
  rank.self.phase = Phase::closing;
  knock();
  const NoDescriptors none;
  EXPECT_TRUE(has_strangers(1));
  EXPECT_FALSE(rank.switchboard.spare_descriptor().held());
}

}  // namespace
}  // namespace sennit::control
