// The conformance suite of the transports family, of what goes wrong: calls that are cancelled,
// peers that fail or die, messages that are not what was expected; over every registered transport,
// as tests/transports/transport_test.cpp.
//
// ctest again-over-ucx-tcp: UCX takes shared memory where it may choose
#include <algorithm>
#include <functional>
#include <thread>

#include "tests/transports/transport_suite.hpp"

namespace sennit::test {
namespace {

class TransportFailureTest : public TransportTest {};

// Where a transport cannot withdraw everything at once: until it has let go of the requests that
// `which` holds for.
void settle(World& world, const Rank& rank,
            const std::function<bool(const MessageRequest&)>& which) {
  if (rank.transport->withdraws_at_once()) return;
  const auto all_done = [&which](const auto& list) {
    return std::all_of(list.begin(), list.end(), [&which](const auto& posted) {
      return posted.done || !which(posted.request);
    });
  };
  ASSERT_TRUE(world.drive_until([&] { return all_done(rank.sends) && all_done(rank.receives); }));
}

TEST_P(TransportFailureTest, CancelInTheMiddleLeavesOthersAlone) {
  for (const int who_first : {0, 1}) {
    MAKE_WORLD(2);
    SCOPED_TRACE(testing::Message() << "rank " << who_first << " cancels first");
    for (uint32_t i = 0; i < 4; i++) {
      world()[0].send(1, {1, i, 0, 0}, 8 << 20);
      world()[1].recv(0, {1, i, 0, 0}, 8 << 20);
      world()[0].send(1, {1, 100 + i, 0, 0}, 100);
      world()[0].send(1, {2, i, 0, 0}, 1 << 20);
      world()[1].recv(0, {2, i, 0, 0}, 1 << 20);
    }
    for (int i = 0; i < 3; i++) {
      world()[0].progress();
      world()[1].progress();
    }
    const Status why(SENNIT_ABORTED, "cancelled by the test");
    for (const int rank : {who_first, 1 - who_first}) {
      Rank& one = world()[rank];
      one.transport->cancel(1, why);
      one.progress();
      settle(world(), one, [](const MessageRequest& request) { return request.key.comm == 1; });
      for (const PostedSend& posted : one.sends) {
        if (posted.request.key.comm == 1) {
          EXPECT_TRUE(posted.done);
          EXPECT_TRUE(posted.request.status.ok() || posted.request.status.kind() == SENNIT_ABORTED);
        }
      }
      for (PostedRecv& posted : one.receives) {
        if (posted.request.key.comm == 1) {
          EXPECT_TRUE(posted.done);
          EXPECT_TRUE(posted.request.status.ok() || posted.request.status.kind() == SENNIT_ABORTED);
          std::fill(posted.memory.begin(), posted.memory.end(), std::byte{0x11});  // ours again
        }
      }
      world().drive_for(5);
    }
    ASSERT_TRUE(world().drive());
    for (Rank* rank : {&world()[0], &world()[1]}) {
      EXPECT_TRUE(rank->events.empty());
      for (const PostedRecv& posted : rank->receives)
        if (posted.request.key.comm == 1) {
          const auto written = [](std::byte b) { return b != std::byte{0x11}; };
          EXPECT_TRUE(std::none_of(posted.memory.begin(), posted.memory.end(), written))
              << "written after it was handed back";
        }
    }
    // Another communicator goes on, and the cancelled one answers at once.
    world()[0].send(1, {2, 50, 0, 0}, 500'000);
    world()[1].recv(0, {2, 50, 0, 0}, 500'000);
    PostedSend& late = world()[0].send(1, {1, 50, 0, 0}, 500'000);
    PostedRecv& never = world()[1].recv(0, {1, 51, 0, 0}, 8);
    ASSERT_TRUE(world().drive());
    EXPECT_EQ(late.request.status.kind(), SENNIT_ABORTED);
    EXPECT_EQ(never.request.status.kind(), SENNIT_ABORTED);
  }
}

// Where a library underneath has the memory of requests, connections are made first: UCX 1.13
// aborts the process where one fails while it is being made, over tcp (an assertion in its
// ucp_request_send_state_ff()).
void connect_first(World& world) {
  if (world[0].transport->withdraws_at_once()) return;
  for (const int peer : {1, 2}) {
    world[0].send(peer, {9, 0, 0, 0}, 100);
    world[peer].recv(0, {9, 0, 0, 0}, 100);
    world[peer].send(0, {9, 1, 0, 0}, 100);
    world[0].recv(peer, {9, 1, 0, 0}, 100);
  }
  ASSERT_TRUE(world.drive());
  for (const int rank : {0, 1, 2}) {
    world[rank].sends.clear();
    world[rank].receives.clear();
  }
}

TEST_P(TransportFailureTest, FailPeerHandsBackItsRequestsOnly) {
  MAKE_WORLD(3);
  connect_first(world());
  for (const size_t bytes : {size_t{100}, size_t{100'000}}) {
    world()[0].recv(1, {1, static_cast<uint32_t>(bytes), 0, 0}, bytes);
    world()[0].recv(2, {1, static_cast<uint32_t>(bytes), 0, 0}, bytes);
    world()[0].send(1, {2, static_cast<uint32_t>(bytes), 0, 0}, bytes);
    world()[0].send(2, {2, static_cast<uint32_t>(bytes), 0, 0}, bytes);
  }
  world().drive_for(10);
  world()[0].transport->fail_peer(1, Status(SENNIT_PEER_FAILED, "rank 1 is dead"));
  world()[0].progress();
  settle(world(), world()[0], [](const MessageRequest& request) { return request.peer == 1; });
  for (const PostedRecv& posted : world()[0].receives)
    EXPECT_EQ(posted.done, posted.request.peer == 1);
  for (const PostedSend& posted : world()[0].sends) {
    if (posted.request.peer != 1) continue;
    EXPECT_TRUE(posted.done);
    EXPECT_TRUE(posted.request.status.ok() || posted.request.status.kind() == SENNIT_PEER_FAILED);
  }
  PostedSend& late = world()[0].send(1, {3, 0, 0, 0}, 10);
  EXPECT_FALSE(late.done);
  world()[0].progress();
  EXPECT_TRUE(late.done);
  EXPECT_EQ(late.request.status.kind(), SENNIT_PEER_FAILED);
  for (const size_t bytes : {size_t{100}, size_t{100'000}}) {
    world()[2].send(0, {1, static_cast<uint32_t>(bytes), 0, 0}, bytes);
    world()[2].recv(0, {2, static_cast<uint32_t>(bytes), 0, 0}, bytes);
  }
  ASSERT_TRUE(world().drive_until(
      [&] { return world()[0].outstanding == 0 && world()[2].outstanding == 0; }));
  for (const PostedRecv& posted : world()[0].receives)
    EXPECT_EQ(posted.request.status.kind(),
              posted.request.peer == 1 ? SENNIT_PEER_FAILED : SENNIT_OK);
}

TEST_P(TransportFailureTest, MismatchNamesWhatCame) {
  MAKE_WORLD(2);
  struct Case {
    size_t sent, expected;
    uint64_t sent_signature, expected_signature;
  };
  const Case cases[] = {{100, 100, 1, 2},       {100, 200, 1, 1},
                        {200, 100, 1, 1},       {50'000, 50'000, 1, 2},
                        {50'000, 60'000, 1, 1}, {60'000, 50'000, 1, 1},
                        {100, 50'000, 1, 1},    {50'000, 100, 1, 1},
                        {0, 1, 1, 1},           {1, 0, 1, 1}};
  uint32_t seq = 0;
  for (const Case& c : cases)
    for (const bool receive_first : {true, false}) {
      SCOPED_TRACE(testing::Message() << c.sent << " bytes sent, " << c.expected
                                      << " expected, receive first: " << receive_first);
      const Key key{1, seq++, 0, 0};
      if (receive_first) world()[1].recv(0, key, c.expected, 1, c.expected_signature);
      world().drive_for(2);
      const PostedSend& sent = world()[0].send(1, key, c.sent, 1, c.sent_signature);
      world().drive_for(2);
      if (!receive_first) world()[1].recv(0, key, c.expected, 1, c.expected_signature);
      ASSERT_TRUE(world().drive());
      const RecvRequest& received = world()[1].receives.back().request;
      EXPECT_EQ(received.status.kind(), SENNIT_MISMATCH);
      EXPECT_EQ(received.arrived_bytes, c.sent);
      EXPECT_EQ(received.arrived_signature, c.sent_signature);
      EXPECT_TRUE(sent.request.status.ok() || sent.request.status.kind() == SENNIT_MISMATCH);
      // The connection is still in step.
      const Key next{2, seq, 0, 0};
      world()[0].send(1, next, 20'000);
      world()[1].recv(0, next, 20'000);
      ASSERT_TRUE(world().drive());
      EXPECT_TRUE(world()[1].receives.back().request.status.ok());
    }
  EXPECT_TRUE(world()[0].events.empty());
  EXPECT_TRUE(world()[1].events.empty());
}

TEST_P(TransportFailureTest, DeathIsOneEventAndRequestsStayPending) {
  MAKE_WORLD(3);
  for (int peer : {1, 2}) {
    world()[0].send(peer, {1, 0, 0, 0}, 8);
    world()[peer].recv(0, {1, 0, 0, 0}, 8);
    world()[peer].send(0, {1, 0, 0, 0}, 8);
    world()[0].recv(peer, {1, 0, 0, 0}, 8);
  }
  ASSERT_TRUE(world().drive());
  PostedRecv& small = world()[0].recv(1, {1, 1, 0, 0}, 8);
  PostedRecv& large = world()[0].recv(1, {1, 2, 0, 0}, 1 << 20);
  PostedSend& pending = world()[0].send(1, {1, 3, 0, 0}, 1 << 20);
  world().drive_for(5);
  world().destroy(1);
  ASSERT_TRUE(world().drive_until([&] { return !world()[0].events.empty(); }));
  world().drive_for(20);
  ASSERT_EQ(world()[0].events.size(), 1u);
  EXPECT_EQ(world()[0].events[0].peer, 1);
  EXPECT_FALSE(world()[0].events[0].status.ok());
  EXPECT_FALSE(small.done || large.done || pending.done);
  PostedSend& later = world()[0].send(1, {1, 4, 0, 0}, 1 << 20);
  world().drive_for(5);
  EXPECT_FALSE(later.done);
  world()[0].transport->fail_peer(1, Status(SENNIT_PEER_FAILED, "rank 1 is dead"));
  world()[0].progress();
  settle(world(), world()[0], [](const MessageRequest& request) { return request.peer == 1; });
  EXPECT_TRUE(small.done && large.done && pending.done && later.done);
  EXPECT_EQ(large.request.status.kind(), SENNIT_PEER_FAILED);
  EXPECT_EQ(world()[0].events.size(), 1u);
  // The others go on.
  world()[0].send(2, {1, 9, 0, 0}, 100'000);
  world()[2].recv(0, {1, 9, 0, 0}, 100'000);
  ASSERT_TRUE(world().drive());
}

// What was sent before the end is still delivered.
TEST_P(TransportFailureTest, LastWordsArrive) {
  MAKE_WORLD(2);
  world()[0].send(1, {1, 0, 0, 0}, 8);
  world()[1].recv(0, {1, 0, 0, 0}, 8);
  ASSERT_TRUE(world().drive());
  PostedRecv& small = world()[1].recv(0, {1, 1, 0, 0}, 100);
  PostedRecv& large = world()[1].recv(0, {1, 2, 0, 0}, 300'000);
  world()[0].send(1, {1, 1, 0, 0}, 100);
  world()[0].send(1, {1, 2, 0, 0}, 300'000);
  world()[1].send(0, {1, 3, 0, 0}, 100);  // unread at the sender when it closes
  ASSERT_TRUE(world().drive_until([&] { return world()[0].outstanding == 0; }));
  std::thread closing([this] { world().destroy(0); });
  EXPECT_TRUE(drive_rank(world()[1], [&] { return small.done && large.done; }));
  closing.join();
  EXPECT_TRUE(large.request.status.ok());
}

SENNIT_ON_EVERY_TRANSPORT(TransportFailureTest);

}  // namespace
}  // namespace sennit::test
