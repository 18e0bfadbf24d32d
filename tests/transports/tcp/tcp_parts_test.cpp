// tcp_parts_test.cpp: the parts of a tcp connection, each without a socket: windows of eager
// messages, what goes out, and what comes in.
//
// ctest not-under-tsan: it has one thread
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "tests/support/seed.hpp"
#include "tests/transports/transport_harness.hpp"
#include "transports/tcp/eager_windows.hpp"
#include "transports/tcp/inbox.hpp"
#include "transports/tcp/outbox.hpp"
#include "transports/tcp/peer_connection.hpp"

namespace sennit::tcp {
namespace {

using Bytes = std::vector<std::byte>;
using test::Pattern;
using test::PostedRecv;
using test::PostedSend;

constexpr size_t kWindow = 1000, kQuarter = 122;  // a message that costs a quarter of the window
static_assert(4 * eager_cost(kQuarter) == kWindow);

TEST(EagerWindows, WhatIsSpentComesBackOnceItIsConsumed) {
  EagerWindows sender(kWindow), receiver(kWindow);
  for (int i = 0; i < 4; i++) {
    EXPECT_TRUE(sender.spend(7, kQuarter));
    EXPECT_TRUE(receiver.hold(7, kQuarter));
  }
  EXPECT_FALSE(sender.spend(7, 0));
  EXPECT_FALSE(receiver.hold(7, 0)) << "more than the peer had";
  EXPECT_TRUE(sender.spend(8, kQuarter)) << "another communicator";
  EXPECT_FALSE(receiver.owe(7, kQuarter));
  EXPECT_TRUE(receiver.owe(7, kQuarter)) << "half of it is worth a header";
  EXPECT_FALSE(receiver.owe(7, kQuarter)) << "which is on its way";
  const uint32_t credit = receiver.collect_credit(7, false);  // another header was quicker
  EXPECT_EQ(credit, 3 * kWindow / 4);
  EXPECT_EQ(receiver.collect_credit(7, true), 0u);
  EXPECT_TRUE(sender.take_credit(7, credit));
  for (int i = 0; i < 3; i++) EXPECT_TRUE(sender.spend(7, kQuarter));
  EXPECT_FALSE(sender.spend(7, 0));
}

TEST(EagerWindows, CreditForWhatWasForgottenIsNothing) {
  EagerWindows windows(kWindow);
  EXPECT_TRUE(windows.spend(7, kQuarter));
  windows.forget([](uint32_t comm) { return comm == 7; });
  EXPECT_TRUE(windows.take_credit(7, kWindow / 4));
  EXPECT_FALSE(windows.take_credit(7, kWindow + 1)) << "more than there is";
  for (int i = 0; i < 4; i++) EXPECT_TRUE(windows.spend(7, kQuarter));
  EXPECT_FALSE(windows.spend(7, 0));
}

template <typename P>
void prepare(P& posted, uint32_t seq, size_t bytes, int pieces) {
  posted.memory.resize(bytes);
  posted.segments = test::cut(posted.memory.data(), bytes, pieces);
  posted.request.key = {1, seq, 0, 0};
  posted.request.segments = posted.segments;
  posted.request.bytes = bytes;
}
void prepare_send(PostedSend& posted, uint32_t seq, size_t bytes, int pieces = 1) {
  prepare(posted, seq, bytes, pieces);
  Pattern(0, 1, posted.request.key).fill(posted.memory.data(), bytes);
}

// Takes up to `most` bytes out of it; false: there are none.
bool drain(Outbox& outbox, size_t most, Bytes& stream, std::vector<uint32_t>& done) {
  iovec pieces[4];
  const int count = outbox.gather(pieces, 4);
  size_t taken = 0;
  for (int i = 0; i < count; i++) {
    const size_t bytes = std::min(pieces[i].iov_len, most - taken);
    const auto* const from = static_cast<const std::byte*>(pieces[i].iov_base);
    stream.insert(stream.end(), from, from + bytes);
    taken += bytes;
  }
  if (count > 0) outbox.sent(taken, [&](SendRequest& request) { done.push_back(request.key.seq); });
  return count > 0;
}

WireHeader header_at(const Bytes& stream, size_t at) {
  WireHeader header;
  EXPECT_LE(at + sizeof header, stream.size());
  std::memcpy(&header, stream.data() + at, sizeof header);
  return header;
}

TEST(Outbox, SmallGoesBeforeLargeAndBetweenItsPieces) {
  EagerWindows windows(kWindow);
  Outbox outbox(windows);
  EXPECT_TRUE(outbox.empty());
  PostedSend large, small;
  prepare_send(large, 1, 2 * kPieceBytes);
  prepare_send(small, 2, 100);
  outbox.post_granted(large.request);
  Bytes stream;
  std::vector<uint32_t> done;
  ASSERT_TRUE(drain(outbox, sizeof(WireHeader) + 10, stream, done));
  EXPECT_EQ(header_at(stream, 0).kind, HeaderKind::first);
  EXPECT_FALSE(outbox.empty());
  outbox.post_eager(small.request);
  WireHeader question;
  question.kind = HeaderKind::ready;
  outbox.post_control(question);
  while (drain(outbox, SIZE_MAX, stream, done)) {
  }
  size_t at = sizeof(WireHeader) + kPieceBytes;
  EXPECT_EQ(header_at(stream, at).kind, HeaderKind::ready);
  at += sizeof(WireHeader);
  EXPECT_EQ(header_at(stream, at).kind, HeaderKind::eager);
  at += sizeof(WireHeader) + 100;
  EXPECT_EQ(header_at(stream, at).kind, HeaderKind::more);
  EXPECT_EQ(stream.size(), at + sizeof(WireHeader) + kPieceBytes);
  EXPECT_EQ(done, (std::vector<uint32_t>{2, 1}));
  EXPECT_TRUE(outbox.empty());
}

TEST(Outbox, WhatIsTakenOutInMidPieceIsCompletedFromACopy) {
  EagerWindows windows(kWindow);
  Outbox outbox(windows);
  PostedSend large;
  prepare_send(large, 1, 3 * kPieceBytes, 3);
  const Bytes original = large.memory;
  outbox.post_granted(large.request);
  Bytes stream;
  std::vector<uint32_t> done;
  ASSERT_TRUE(drain(outbox, sizeof(WireHeader) + 1000, stream, done));
  int taken = 0;
  outbox.take_sends_if([](const SendRequest&) { return true; }, [&](SendRequest&) { taken++; });
  EXPECT_EQ(taken, 1);
  std::fill(large.memory.begin(), large.memory.end(), std::byte{0xee});
  while (drain(outbox, SIZE_MAX, stream, done)) {
  }
  ASSERT_EQ(stream.size(), sizeof(WireHeader) + kPieceBytes) << "the piece, and no other";
  EXPECT_EQ(std::memcmp(stream.data() + sizeof(WireHeader), original.data(), kPieceBytes), 0);
  EXPECT_TRUE(done.empty());
}

// Takes what is announced under the number of its sequence, and checks the bytes.
class Reader final : public MessageHandler {
 public:
  Status on_message(PeerConnection&, const WireHeader& header,
                    std::span<const std::byte> bytes) override {
    if (header.kind == HeaderKind::eager) check(header.key, bytes);
    return {};
  }
  RecvRequest* on_first_piece(PeerConnection&, const WireHeader& header) override {
    const auto found = receives.find(header.key.seq);
    return found == receives.end() ? nullptr : &found->second.request;
  }
  void on_received(RecvRequest& request) override {
    check(request.key, receives[request.key.seq].memory);
  }
  void on_given_up(PeerConnection&, RecvRequest& request) override {
    given_up.push_back(request.key.seq);
  }
  void on_sent(SendRequest&) override {}

  std::map<uint32_t, PostedRecv> receives;
  std::vector<uint32_t> came, given_up;
  EagerWindows windows{size_t{1} << 30};
  PeerConnection connection{0, 1, *this};  // only its name: the inbox is tried alone
  Inbox inbox{0, windows, *this, connection};

 private:
  void check(const Key& key, std::span<const std::byte> bytes) {
    EXPECT_EQ(Pattern(0, 1, key).first_wrong(bytes.data(), bytes.size()), bytes.size());
    came.push_back(key.seq);
  }
};

// Puts some of the stream where the inbox wants it.
Status feed(Inbox& inbox, const Bytes& stream, size_t& at, size_t most) {
  iovec pieces[4];
  const int count = inbox.make_room(pieces, 4, true);
  size_t given = 0;
  for (int i = 0; i < count; i++) {
    const size_t bytes = std::min({pieces[i].iov_len, most - given, stream.size() - at});
    std::memcpy(pieces[i].iov_base, stream.data() + at, bytes);
    at += bytes;
    given += bytes;
  }
  return inbox.received(given);
}

SealKeys keys_of(bool first) {
  SealKeys keys;
  keys.out.fill(static_cast<std::byte>(first ? 1 : 2));
  keys.in.fill(static_cast<std::byte>(first ? 2 : 1));
  return keys;
}

class Stream : public testing::TestWithParam<bool> {};

TEST_P(Stream, ComesOutAsItWentInHoweverItIsCut) {
  const bool sealed = GetParam();
  std::mt19937_64 random(sennit_test::seed());
  const auto below = [&](uint64_t end) { return static_cast<size_t>(random() % end); };
  for (int round = 0; round < 20; round++) {
    EagerWindows windows(kWindow);
    Outbox outbox(windows);
    Reader reader;
    const SealKeys mine = keys_of(true), theirs = keys_of(false);
    if (sealed) outbox.seal(mine);
    reader.inbox.open(sealed ? &theirs : nullptr);
    std::deque<PostedSend> sends;
    std::vector<uint32_t> expected, done;
    for (uint32_t seq = 0; seq < 10; seq++) {
      const bool eager = random() % 2 == 0;
      const size_t bytes = random() % 8 == 0 ? 0 : below(eager ? kMaxEagerBytes : 400'000);
      prepare_send(sends.emplace_back(), seq, bytes, 1 + static_cast<int>(below(6)));
      if (eager) {
        outbox.post_eager(sends.back().request);
      } else {
        outbox.post_granted(sends.back().request);
        if (random() % 5 == 0) continue;  // nobody wants it: it is dropped
        prepare(reader.receives[seq], seq, bytes, 1 + static_cast<int>(below(6)));
      }
      expected.push_back(seq);
    }
    Bytes stream;
    while (drain(outbox, 1 + below(200'000), stream, done)) {
    }
    EXPECT_EQ(done.size(), 10u);
    for (size_t at = 0; at < stream.size();)
      ASSERT_TRUE(feed(reader.inbox, stream, at, 1 + below(random() % 2 ? 100 : 100'000)).ok());
    std::sort(reader.came.begin(), reader.came.end());
    EXPECT_EQ(reader.came, expected);
    EXPECT_FALSE(reader.inbox.receiving());
  }
}

TEST_P(Stream, AMessageWhoseSenderGaveUpHasNoNextPiece) {
  const bool sealed = GetParam();
  EagerWindows windows(kWindow);
  Outbox outbox(windows);
  Reader reader;
  const SealKeys mine = keys_of(true), theirs = keys_of(false);
  if (sealed) outbox.seal(mine);
  reader.inbox.open(sealed ? &theirs : nullptr);
  PostedSend first, second;
  prepare_send(first, 1, 2 * kPieceBytes);
  prepare_send(second, 2, kPieceBytes);
  prepare(reader.receives[1], 1, 2 * kPieceBytes, 1);
  prepare(reader.receives[2], 2, kPieceBytes, 3);
  outbox.post_granted(first.request);
  Bytes stream;
  std::vector<uint32_t> done;
  ASSERT_TRUE(drain(outbox, 1000, stream, done));
  outbox.take_sends_if([](const SendRequest&) { return true; }, [](SendRequest&) {});
  outbox.post_granted(second.request);
  while (drain(outbox, SIZE_MAX, stream, done)) {
  }
  for (size_t at = 0; at < stream.size();) ASSERT_TRUE(feed(reader.inbox, stream, at, 5000).ok());
  EXPECT_EQ(reader.given_up, std::vector<uint32_t>{1});
  EXPECT_EQ(reader.came, std::vector<uint32_t>{2});
}

INSTANTIATE_TEST_SUITE_P(Over, Stream, testing::Bool(), [](const auto& parameter) {
  return std::string(parameter.param ? "sealed" : "plain");
});

TEST(Inbox, RefusesWhatIsNoMessageOfOurs) {
  const auto ended_by = [](const WireHeader& header) {
    Reader reader;
    reader.inbox.open(nullptr);
    const auto* const from = reinterpret_cast<const std::byte*>(&header);
    const Bytes stream(from, from + sizeof header);
    size_t at = 0;
    return feed(reader.inbox, stream, at, stream.size()).text();
  };
  WireHeader header;
  EXPECT_EQ(ended_by(header), "");
  header.version++;
  EXPECT_NE(ended_by(header).find("not a message of this version"), std::string::npos);
  header = {};
  header.kind = HeaderKind::eager;
  header.bytes = header.piece_bytes = kMaxEagerBytes + 1;
  EXPECT_NE(ended_by(header).find("an eager message of impossible size"), std::string::npos);
  header.kind = HeaderKind::first;
  header.piece_bytes = 0;
  EXPECT_NE(ended_by(header).find("a piece of impossible size"), std::string::npos);
  header = {};
  header.credit = (1u << 30) + 1;
  EXPECT_NE(ended_by(header).find("more credit came back than there is"), std::string::npos);
}

}  // namespace
}  // namespace sennit::tcp
