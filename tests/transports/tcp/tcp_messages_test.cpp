// tcp_messages_test.cpp: what messages over tcp mean (transports/tcp/messages.hpp), tried over a
// pair of sockets: no manager, no handshake, no epoll.
// ctest not-under-tsan: it has one thread
#include "transports/tcp/messages.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include "tests/transports/transport_harness.hpp"

namespace sennit::tcp {
namespace {

constexpr size_t kEager = 8192, kLarge = 200'000;

struct End {
  explicit End(int peer) : connection(peer, kWindowBytes, messages) {}
  Returns returns;
  Messages messages{kEager, returns};
  PeerConnection connection;
  Completions back;
};

class TcpMessages : public testing::Test {
 protected:
  void SetUp() override {
    int ends[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
    sender_.connection.open(ends[0]);
    receiver_.connection.open(ends[1]);
  }
  // Until nothing moves any more.
  void move() {
    for (int i = 0; i < 50; i++)
      for (End* end : {&sender_, &receiver_}) {
        bool more = false;
        end->connection.unblock();
        ASSERT_TRUE(end->connection.write(more).ok());
        ASSERT_TRUE(end->connection.read(false, more).ok());
        end->returns.hand_over(end->back);
      }
  }
  void post_send(uint32_t seq, size_t bytes, uint64_t signature = 1) {
    prepare(send_, out_, 1, seq, bytes, signature);
    test::Pattern(0, 1, send_.key).fill(out_.data(), bytes);
    sender_.messages.send(sender_.connection, send_);
  }
  void post_recv(uint32_t seq, size_t bytes, uint64_t signature = 1) {
    prepare(recv_, in_, 0, seq, bytes, signature);
    receiver_.messages.recv(receiver_.connection, recv_);
  }
  void expect_delivered() {
    EXPECT_EQ(sender_.back.sends.size(), 1u);
    ASSERT_EQ(receiver_.back.receives.size(), 1u);
    EXPECT_TRUE(send_.status.ok() && recv_.status.ok()) << recv_.status.text();
    EXPECT_EQ(test::Pattern(0, 1, send_.key).first_wrong(in_.data(), send_.bytes), send_.bytes);
    sender_.back.clear();
    receiver_.back.clear();
  }

  End sender_{1}, receiver_{0};
  SendRequest send_;
  RecvRequest recv_;

 private:
  template <typename Request>
  void prepare(Request& request, std::vector<std::byte>& memory, int peer, uint32_t seq,
               size_t bytes, uint64_t signature) {
    memory.assign(bytes, std::byte{0});
    segments_.push_back({memory.data(), bytes});
    request.peer = peer;
    request.key = {1, seq, 0, 0};
    request.signature = signature;
    request.segments = {&segments_.back(), 1};
    request.bytes = bytes;
  }
  std::deque<Segment> segments_;
  std::vector<std::byte> out_, in_;
};

TEST_F(TcpMessages, AnySizeInEitherOrder) {
  uint32_t seq = 0;
  for (const size_t bytes : {size_t{0}, size_t{100}, kEager, kEager + 1, kLarge})
    for (const bool receive_first : {true, false}) {
      SCOPED_TRACE(testing::Message() << bytes << " bytes, receive first: " << receive_first);
      if (receive_first) post_recv(seq, bytes);
      move();
      post_send(seq, bytes);
      move();
      if (!receive_first) post_recv(seq, bytes);
      move();
      expect_delivered();
      seq++;
    }
}

TEST_F(TcpMessages, WhatIsNotExpectedIsSaidOnBothSides) {
  post_recv(1, kLarge, 7);
  move();
  post_send(1, kLarge, 8);
  move();
  EXPECT_EQ(recv_.status.kind(), SENNIT_MISMATCH);
  EXPECT_EQ(recv_.arrived_signature, 8u);
  EXPECT_EQ(send_.status.kind(), SENNIT_MISMATCH);
}

TEST_F(TcpMessages, AwaitedAreThoseThatOweSomething) {
  EXPECT_TRUE(receiver_.messages.awaited().empty());
  post_recv(1, 100);
  EXPECT_EQ(receiver_.messages.awaited(), std::set<int>{0});
  post_send(2, kLarge);  // announced: it waits for leave
  EXPECT_EQ(sender_.messages.awaited(), std::set<int>{1});
}

// Its sender has begun it, announces it once more, and gives it up: the receive is still known.
TEST_F(TcpMessages, WhatIsGivenUpWaitsForItsCommunicatorsEnd) {
  post_recv(1, kLarge);
  WireHeader header;
  header.kind = HeaderKind::first;
  header.key = recv_.key;
  header.signature = recv_.signature;
  header.bytes = kLarge;
  ASSERT_EQ(receiver_.messages.on_first_piece(receiver_.connection, header), &recv_);
  header.kind = HeaderKind::announce;
  ASSERT_TRUE(receiver_.messages.on_message(receiver_.connection, header, {}).ok());
  receiver_.messages.on_given_up(receiver_.connection, recv_);
  // An early message by its name is dropped as well, and its sender gets its credit back.
  ASSERT_EQ(receiver_.messages.on_first_piece(receiver_.connection, header), &recv_);
  const std::vector<std::byte> early(kWindowBytes - eager_cost(0));
  ASSERT_TRUE(sender_.connection.take_window(header.key.comm, early.size()));
  header.kind = HeaderKind::eager;
  header.bytes = early.size();
  ASSERT_TRUE(receiver_.messages.on_message(receiver_.connection, header, early).ok());
  EXPECT_FALSE(sender_.connection.take_window(header.key.comm, early.size()));
  receiver_.messages.on_given_up(receiver_.connection, recv_);
  move();
  EXPECT_TRUE(sender_.connection.take_window(header.key.comm, early.size()));
  receiver_.messages.hand_back([](const auto&) { return true; }, {SENNIT_ABORTED, "over"});
  receiver_.returns.hand_over(receiver_.back);
  EXPECT_EQ(receiver_.back.receives, std::vector<RecvRequest*>{&recv_});
}

TEST_F(TcpMessages, ACancelledCommunicatorIsOver) {
  post_recv(1, kLarge);
  const Status over(SENNIT_ABORTED, "over");
  receiver_.messages.cancel(1, over);
  receiver_.messages.hand_back([](const auto&) { return true; }, over);
  move();
  ASSERT_EQ(receiver_.back.receives.size(), 1u);
  EXPECT_EQ(recv_.status.text(), "over");
  EXPECT_NE(receiver_.messages.cancelled(1), nullptr);
  EXPECT_EQ(receiver_.messages.cancelled(2), nullptr);
  receiver_.messages.forget([](uint32_t comm) { return comm == 1; });
  EXPECT_EQ(receiver_.messages.cancelled(1), nullptr);
}

}  // namespace
}  // namespace sennit::tcp
