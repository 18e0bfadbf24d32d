// connection_test.cpp: one connection by both of its ends: frames come whole, in order and after
// the proof; what is no frame, and every end, has its name. Sealed ones: wire_attack_test.
//
// ctest not-under-tsan: it has one thread
#include "control/connection.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>

#include "control/messages.hpp"

namespace sennit::control {
namespace {

using Frames = std::vector<ReceivedFrame>;

struct Talking : ::testing::Test {
  std::vector<std::byte> secret = std::vector<std::byte>(32, std::byte{5});
  std::array<int, 2> fds = pair();
  Connection one{fds[0], Handshake::connector(config(1), 0), Role::parent, 0, false, 0};
  Connection other{fds[1], Handshake::acceptor(config(0)), Role::child, 1, false, 0};
  Frames heard;  // by the other

  HandshakeConfig config(int self) const { return {secret, "control", 0, self, 2, false}; }
  static std::array<int, 2> pair() {
    std::array<int, 2> ends{-1, -1};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()), 0);
    return ends;
  }
  void drive(int rounds = 10) {
    Frames ignored;
    for (int i = 0; i < rounds; i++) {
      one.drive(&ignored, 0);
      other.drive(&heard, 0);
    }
  }
  void prove() {
    drive();
    ASSERT_TRUE(one.proven && other.proven);
  }
  // As if the one had said so.
  void say_raw(std::span<const std::byte> bytes) const {
    ASSERT_EQ(::send(one.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
};

TEST_F(Talking, FramesWaitForTheProof) {
  one.send(encode(Goodbye{1}), 0);
  EXPECT_FALSE(one.drained());
  prove();
  EXPECT_TRUE(one.drained());
  ASSERT_EQ(heard.size(), 1u);
  EXPECT_EQ(heard[0].type, FrameType::goodbye);
  EXPECT_TRUE(other.greeted());
}

TEST_F(Talking, FramesComeWholeHoweverTheirBytesDo) {
  prove();
  const EncodedFrame frame = encode(Goodbye{1});
  for (size_t i = 0; i < frame->size(); i++) {
    EXPECT_TRUE(heard.empty());
    say_raw({frame->data() + i, 1});
    drive(1);
  }
  ASSERT_EQ(heard.size(), 1u);
  EXPECT_EQ(heard[0].payload, open_frame(frame).payload);
}

TEST_F(Talking, ALongFrameGoesAsTheOtherEndReads) {
  prove();
  const std::vector<std::byte> payload(5 << 20, std::byte{3});
  one.send(make_frame(FrameType::gathered, payload), 0);
  EXPECT_FALSE(one.drained());
  EXPECT_TRUE(one.wants_write());
  for (int i = 0; i < 1000 && heard.empty(); i++) drive(1);
  ASSERT_EQ(heard.size(), 1u);
  EXPECT_EQ(heard[0].payload, payload);
  EXPECT_FALSE(one.wants_write());
}

// However those lie who are gone.
TEST_F(Talking, AFirstFrameOfALargeJobFits) {
  constexpr int kRanks = 65'536;
  other.role = Role::stranger;
  prove();
  Attach attach{1, kRanks, 77, true, {}, {}, {SENNIT_PEER_FAILED, "they died"}};
  for (int r = 0; r < kRanks; r += 2) {
    attach.left.insert(attach.left.end(), r);
    attach.dead.insert(attach.dead.end(), r + 1);
  }
  one.send(encode(attach), 0);
  for (int i = 0; i < 1000 && heard.empty() && other.end() == End::none; i++) drive(1);
  ASSERT_EQ(heard.size(), 1u) << other.reason();
  const Result<Attach> come = decode<Attach>(heard[0].payload, kRanks);
  ASSERT_TRUE(come.ok()) << come.status().text();
  EXPECT_EQ(come->left, attach.left);
  EXPECT_EQ(come->dead, attach.dead);
}

TEST_F(Talking, TheEndOfTheStreamComesAfterWhatWasSaid) {
  prove();
  one.send(encode(Goodbye{1}), 0);
  one.shut();
  one.send(encode(Goodbye{1}), 0);
  drive();
  EXPECT_EQ(heard.size(), 1u);
  EXPECT_EQ(other.end(), End::closed);
  EXPECT_EQ(one.end(), End::none) << "it still hears";
}

TEST_F(Talking, AFrameThatIsCutShortIsNone) {
  prove();
  const EncodedFrame frame = encode(Goodbye{1});
  say_raw({frame->data(), frame->size() - 1});
  ::shutdown(one.fd(), SHUT_WR);
  drive();
  EXPECT_TRUE(heard.empty());
  EXPECT_EQ(other.end(), End::closed);
}

TEST_F(Talking, AnEndBeforeTheProofIsOne) {
  ::shutdown(one.fd(), SHUT_RDWR);
  drive();
  EXPECT_EQ(other.end(), End::closed);
  EXPECT_FALSE(other.proven);
}

TEST_F(Talking, ATypeThatThereIsNotIsGarbageAndWhatCameBeforeIsHeard) {
  prove();
  one.send(encode(Goodbye{1}), 0);
  const std::vector<std::byte> nonsense(kFrameHeaderBytes, std::byte{0x7F});
  say_raw(nonsense);
  one.send(encode(Goodbye{1}), 0);
  drive();
  EXPECT_EQ(heard.size(), 1u);
  EXPECT_EQ(other.end(), End::garbage);
}

TEST_F(Talking, ALengthThatCannotBeIsGarbageBeforeItsBytesCome) {
  prove();
  std::vector<std::byte> header(*make_frame(FrameType::gathered, {}));
  header[3] = std::byte{0xFF};  // 4 GiB
  say_raw(header);
  drive();
  EXPECT_EQ(other.end(), End::garbage);
}

TEST_F(Talking, WhoWritesToAnEndThatIsGoneHearsFirstWhatItSaid) {
  prove();
  other.send(encode(GoodbyeAck{1}), 0);
  other.shut();
  ::shutdown(other.fd(), SHUT_RDWR);
  one.send(encode(Goodbye{1}), 0);
  EXPECT_TRUE(one.drained()) << "what cannot be said is forgotten";
  Frames last;
  one.drive(&last, 0);
  EXPECT_EQ(last.size(), 1u);
  EXPECT_EQ(one.end(), End::closed);
}

TEST_F(Talking, BytesAreASignOfLife) {
  prove();
  const EncodedFrame frame = encode(Goodbye{1});
  say_raw({frame->data(), 1});
  Frames none;
  other.drive(&none, 500);
  EXPECT_EQ(other.last_in_ms, 500);
  other.drive(&none, 900);
  EXPECT_EQ(other.last_in_ms, 500);
}

}  // namespace
}  // namespace sennit::control
