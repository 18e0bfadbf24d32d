// Handshake over socket pairs: agreement, refusal, wrong secrets, garbage, a byte at a time, and
// somebody on the path.
// ctest not-under-tsan: it has one thread
#include "transports/tcp/auth.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <random>
#include <vector>

#include "tests/support/seed.hpp"

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

std::vector<std::byte> secret(int fill) {
  return std::vector<std::byte>(32, static_cast<std::byte>(fill));
}

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
  expect_refused({key, "tcp", 99, 5, 6}, 3, {key, "tcp", 99, 3, 4});  // a rank that does not exist
  expect_refused({key, "tcp", 99, 3, 4}, 3, {key, "tcp", 99, 3, 4});  // oneself
}

constexpr size_t kFrame = 88;
using Bytes = std::vector<unsigned char>;
using OnFrame = std::function<void(bool from_connector, int frame, Bytes& bytes)>;

// Runs a handshake with somebody on the path who sees, and may change, every frame.
void run_through(Handshake& connector, Handshake& acceptor, const OnFrame& on_frame) {
  Pair left, right;  // connector <-> left.fd[1] ~ right.fd[0] <-> acceptor
  int frames[2] = {};
  for (int i = 0; i < 10; i++) {
    connector.drive(left.fd[0]);
    if (acceptor.drive(right.fd[1]) == Handshake::State::proven) {
      acceptor.decide(true);
      acceptor.drive(right.fd[1]);
    }
    for (const bool up : {true, false}) {
      Bytes bytes(kFrame);
      if (read(up ? left.fd[1] : right.fd[0], bytes.data(), kFrame) != ssize_t{kFrame}) continue;
      on_frame(up, frames[up]++, bytes);
      ASSERT_EQ(write(up ? right.fd[0] : left.fd[1], bytes.data(), kFrame), ssize_t{kFrame});
    }
  }
}

bool any_proof(const Bytes& frame) {
  return std::any_of(frame.end() - 32, frame.end(), [](unsigned char byte) { return byte != 0; });
}

TEST(Auth, AStrangerWhoDialsIsToldNothingThatDependsOnTheSecret) {
  const auto key = secret(7), guess = secret(8);
  Handshake a = Handshake::connector({guess, "tcp", 99, 1, 4}, 3);
  Handshake b = Handshake::acceptor({key, "tcp", 99, 3, 4});
  int told = 0;
  run_through(a, b, [&](bool from_connector, int, Bytes& bytes) {
    if (from_connector) return;
    told++;
    EXPECT_FALSE(any_proof(bytes)) << "in frame " << told;
  });
  EXPECT_EQ(told, 2);
  for (const Handshake* end : {&a, &b}) {
    EXPECT_EQ(end->state(), Handshake::State::failed);
    EXPECT_EQ(end->status().kind(), SENNIT_REFUSED);
    EXPECT_NE(end->status().text().find("does not hold this job's secret"), std::string::npos);
    EXPECT_FALSE(end->connection_lost());
  }
}

TEST(Auth, ItsOwnFramesReflectedAreNoProof) {
  const auto key = secret(7);
  Handshake a = Handshake::connector({key, "tcp", 99, 1, 4}, 3);
  Handshake b = Handshake::acceptor({key, "tcp", 99, 3, 4});
  run_through(a, b, [&](bool from_connector, int frame, Bytes& bytes) {
    static Bytes proof;
    if (from_connector && frame == 1) proof = bytes;
    if (from_connector || frame == 0) return;
    bytes = proof;  // the connector's own proof as the verdict
    bytes[8] = 4;
    bytes[20] = 1;
  });
  EXPECT_EQ(a.state(), Handshake::State::failed);
  EXPECT_EQ(a.status().kind(), SENNIT_REFUSED);
}

TEST(Auth, ARecordedConnectionIsWorthNothingLater) {
  const auto key = secret(7);
  std::vector<Bytes> said;
  {
    Handshake a = Handshake::connector({key, "tcp", 99, 1, 4, true}, 3);
    Handshake b = Handshake::acceptor({key, "tcp", 99, 3, 4, true});
    run_through(a, b, [&](bool from_connector, int, Bytes& bytes) {
      if (from_connector) said.push_back(bytes);
    });
    EXPECT_EQ(b.state(), Handshake::State::done);
  }
  Handshake b = Handshake::acceptor({key, "tcp", 99, 3, 4, true});
  Pair pair;
  for (const Bytes& bytes : said) {
    ASSERT_EQ(write(pair.fd[0], bytes.data(), bytes.size()), ssize_t{kFrame});
    b.drive(pair.fd[1]);
  }
  EXPECT_EQ(b.state(), Handshake::State::failed);
}

TEST(Auth, SealedGivesBothEndsTheSameKeys) {
  const auto key = secret(7);
  std::vector<SealKey> seen;
  for (const uint8_t ciphers : {usable_ciphers(), uint8_t{2}}) {
    Handshake a = Handshake::connector({key, "tcp", 99, 1, 4, true}, 3);
    pretend_usable_ciphers(ciphers);  // a processor with AES meets one without
    Handshake b = Handshake::acceptor({key, "tcp", 99, 3, 4, true});
    pretend_usable_ciphers(0);
    Pair pair;
    run(a, b, pair);
    ASSERT_EQ(a.state(), Handshake::State::done);
    const SealKeys mine = *a.seal_keys(), theirs = *b.seal_keys();
    EXPECT_EQ(mine.cipher, choose_cipher(usable_ciphers(), ciphers));
    EXPECT_EQ(mine.cipher, theirs.cipher);
    EXPECT_EQ(mine.out, theirs.in);
    EXPECT_EQ(mine.in, theirs.out);
    seen.insert(seen.end(), {mine.in, mine.out});
  }
  for (size_t i = 0; i < seen.size(); i++)
    for (size_t j = 0; j < i; j++) EXPECT_NE(seen[i], seen[j]);

  Handshake a = Handshake::connector({key, "tcp", 99, 1, 4}, 3);
  Handshake b = Handshake::acceptor({key, "tcp", 99, 3, 4});
  Pair pair;
  run(a, b, pair);
  EXPECT_FALSE(a.seal_keys());
}

TEST(Auth, PlainMeetsSealedAndBothSaySo) {
  const auto key = secret(7);
  for (const bool connector_sealed : {true, false}) {
    Handshake a = Handshake::connector({key, "tcp", 99, 1, 4, connector_sealed}, 3);
    Handshake b = Handshake::acceptor({key, "tcp", 99, 3, 4, !connector_sealed});
    Pair pair;
    run(a, b, pair);
    const std::string mine = connector_sealed ? "sealed" : "plain",
                      other = connector_sealed ? "plain" : "sealed";
    EXPECT_EQ(a.state(), Handshake::State::failed);
    EXPECT_EQ(b.state(), Handshake::State::failed);
    EXPECT_EQ(a.status().kind(), SENNIT_INVALID_ARGUMENT);
    EXPECT_EQ(b.status().kind(), SENNIT_INVALID_ARGUMENT);
    EXPECT_EQ(a.status().text(), "SENNIT_WIRE is " + mine + " at rank 1, and " + other +
                                     " at rank 3; set it to the same on all ranks");
    EXPECT_EQ(b.status().text(), "SENNIT_WIRE is " + other + " at rank 3, and " + mine +
                                     " at rank 1; set it to the same on all ranks");
  }
}

// Every bit of every frame, flipped on the way: the connection does not come about.
TEST(Auth, NobodyOnThePathChangesWhatIsAgreed) {
  const auto key = secret(7);
  for (int target = 0; target < 4; target++)
    for (size_t bit = 0; bit < 8 * kFrame; bit++) {
      Handshake a = Handshake::connector({key, "tcp", 99, 1, 4, true}, 3);
      Handshake b = Handshake::acceptor({key, "tcp", 99, 3, 4, true});
      run_through(a, b, [&](bool from_connector, int frame, Bytes& bytes) {
        if (2 * frame + !from_connector == target)
          bytes[bit / 8] ^= static_cast<unsigned char>(1u << bit % 8);
      });
      ASSERT_NE(a.state(), Handshake::State::done) << "frame " << target << ", bit " << bit;
      ASSERT_TRUE(target == 3 || b.state() != Handshake::State::done)
          << "frame " << target << ", bit " << bit;
    }
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
