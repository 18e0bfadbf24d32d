// Handshake over socket pairs: agreement, refusal, wrong secrets, garbage, and a byte at a time.
#include "auth.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <random>
#include <vector>

#include "seed.hpp"

using namespace sennit;

namespace {

struct Pair {
  int fd[2];
  Pair() { EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fd), 0); }
  ~Pair() {
    close(fd[0]);
    close(fd[1]);
  }
};

std::vector<std::byte> secret(int fill) { return std::vector<std::byte>(32, static_cast<std::byte>(fill)); }

void run(Handshake& connector, Handshake& acceptor, const Pair& pair, bool accept = true) {
  for (int i = 0; i < 10; i++) {
    connector.drive(pair.fd[0]);
    if (acceptor.drive(pair.fd[1]) == Handshake::State::proven) acceptor.decide(accept);
  }
}

TEST(Auth, BothSidesAgreeAndNothingBeyondIsRead) {
  const auto key = secret(7);
  Handshake a = Handshake::connector({key, "tcp", 99, 1, 4}, 3);
  Handshake b = Handshake::acceptor({key, "tcp", 99, 3, 4});
  Pair pair;
  run(a, b, pair);
  EXPECT_EQ(a.state(), Handshake::State::done) << a.status().text();
  EXPECT_EQ(b.state(), Handshake::State::done) << b.status().text();
  EXPECT_EQ(b.peer(), 1);
  char byte = 'x';
  ASSERT_EQ(write(pair.fd[0], &byte, 1), 1);
  b.drive(pair.fd[1]);
  char got = 0;
  EXPECT_EQ(read(pair.fd[1], &got, 1), 1);
  EXPECT_EQ(got, 'x');
}

TEST(Auth, Declined) {
  const auto key = secret(7);
  Handshake a = Handshake::connector({key, "tcp", 99, 1, 4}, 3);
  Handshake b = Handshake::acceptor({key, "tcp", 99, 3, 4});
  Pair pair;
  run(a, b, pair, false);
  EXPECT_EQ(a.state(), Handshake::State::declined);
  EXPECT_EQ(b.state(), Handshake::State::declined);
}

TEST(Auth, EmptySecretIsAKeyToo) {
  Handshake a = Handshake::connector({{}, "tcp", 99, 1, 4}, 3);
  Handshake b = Handshake::acceptor({{}, "tcp", 99, 3, 4});
  Pair pair;
  run(a, b, pair);
  EXPECT_EQ(a.state(), Handshake::State::done);
}

void expect_refused(const HandshakeConfig& connector, int peer, const HandshakeConfig& acceptor) {
  Handshake a = Handshake::connector(connector, peer);
  Handshake b = Handshake::acceptor(acceptor);
  Pair pair;
  for (int i = 0; i < 10; i++) {
    a.drive(pair.fd[0]);
    b.drive(pair.fd[1]);
    ASSERT_NE(b.state(), Handshake::State::proven);
  }
  EXPECT_NE(a.state(), Handshake::State::done);
  EXPECT_TRUE(a.state() == Handshake::State::failed || b.state() == Handshake::State::failed);
}

TEST(Auth, AnythingThatDiffersIsRefused) {
  const auto key = secret(7), other = secret(8);
  expect_refused({other, "tcp", 99, 1, 4}, 3, {key, "tcp", 99, 3, 4});    // secret
  expect_refused({{}, "tcp", 99, 1, 4}, 3, {key, "tcp", 99, 3, 4});       // no secret
  expect_refused({key, "control", 99, 1, 4}, 3, {key, "tcp", 99, 3, 4});  // purpose
  expect_refused({key, "tcp", 98, 1, 4}, 3, {key, "tcp", 99, 3, 4});      // job
  expect_refused({key, "tcp", 99, 1, 4}, 2, {key, "tcp", 99, 3, 4});      // another rank is meant
  expect_refused({key, "tcp", 99, 5, 6}, 3, {key, "tcp", 99, 3, 4});      // a rank that does not exist
  expect_refused({key, "tcp", 99, 3, 4}, 3, {key, "tcp", 99, 3, 4});      // oneself
}

TEST(Auth, ConnectorWithTheWrongSecretIsToldNothing) {
  // The acceptor never gets as far as `proven`, also if the connector ignores the acceptor's proof.
  const auto key = secret(7);
  Handshake b = Handshake::acceptor({key, "tcp", 99, 3, 4});
  Handshake a = Handshake::connector({key, "tcp", 99, 1, 4}, 3);
  Pair pair, aside;
  a.drive(pair.fd[0]);
  b.drive(pair.fd[1]);
  // Reflect the acceptor's own challenge back as the proof.
  char frame[88];
  ASSERT_EQ(read(pair.fd[0], frame, sizeof frame), 88);
  frame[8] = 3;
  ASSERT_EQ(write(pair.fd[0], frame, sizeof frame), 88);
  EXPECT_EQ(b.drive(pair.fd[1]), Handshake::State::failed);
  EXPECT_EQ(b.status().kind(), SENNIT_REFUSED);
  EXPECT_FALSE(b.connection_lost());
}

TEST(Auth, GarbageFails) {
  std::mt19937 random(sennit_test::seed());
  const auto key = secret(7);
  for (int i = 0; i < 200; i++) {
    Handshake b = Handshake::acceptor({key, "tcp", 99, 3, 4});
    Pair pair;
    char garbage[300];
    for (char& c : garbage) c = static_cast<char>(random());
    const size_t bytes = 1 + random() % sizeof garbage;
    ASSERT_GT(write(pair.fd[0], garbage, bytes), 0);
    shutdown(pair.fd[0], SHUT_WR);
    EXPECT_EQ(b.drive(pair.fd[1]), Handshake::State::failed);
  }
}

TEST(Auth, OneByteAtATime) {
  const auto key = secret(7);
  Handshake a = Handshake::connector({key, "tcp", 99, 1, 4}, 3);
  Handshake b = Handshake::acceptor({key, "tcp", 99, 3, 4});
  Pair left, right;  // a <-> left.fd[1] ~ right.fd[0] <-> b, with this test in the middle
  for (int i = 0; i < 2000 && b.state() != Handshake::State::done; i++) {
    a.drive(left.fd[0]);
    if (b.drive(right.fd[1]) == Handshake::State::proven) b.decide(true);
    char c;
    if (read(left.fd[1], &c, 1) == 1) {
      ASSERT_EQ(write(right.fd[0], &c, 1), 1);
    }
    if (read(right.fd[0], &c, 1) == 1) {
      ASSERT_EQ(write(left.fd[1], &c, 1), 1);
    }
  }
  EXPECT_EQ(b.state(), Handshake::State::done);
}

TEST(Auth, ConnectionLostIsToldApart) {
  const auto key = secret(7);
  Handshake a = Handshake::connector({key, "tcp", 99, 1, 4}, 3);
  Pair pair;
  a.drive(pair.fd[0]);
  shutdown(pair.fd[1], SHUT_RDWR);
  EXPECT_EQ(a.drive(pair.fd[0]), Handshake::State::failed);
  EXPECT_TRUE(a.connection_lost());
  EXPECT_EQ(a.status().kind(), SENNIT_LINK_FAILED);
}

}  // namespace
