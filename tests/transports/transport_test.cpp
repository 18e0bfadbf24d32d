// The conformance suite of the transports family, of what goes well: every test runs over every
// registered transport that can be made on this machine, with ranks of one process, each with its
// own instance. What goes wrong: tests/transports/transport_failure_test.cpp.
//
// ctest again-over-ucx-tcp: UCX takes shared memory where it may choose
#include <algorithm>
#include <random>

#include "tests/support/seed.hpp"
#include "tests/transports/transport_suite.hpp"

namespace sennit::test {
namespace {

TEST_P(TransportTest, AnySizeInEitherOrder) {
  MAKE_WORLD(2);
  const size_t sizes[] = {0, 1, 7, 64, kEager - 1, kEager, kEager + 1, 3 * kEager, 1 << 20};
  uint32_t seq = 0;
  for (const size_t bytes : sizes)
    for (const bool receive_first : {true, false}) {
      SCOPED_TRACE(testing::Message() << bytes << " bytes, receive first: " << receive_first);
      const Key key{1, seq++, 0, 0};
      if (receive_first) world()[1].recv(0, key, bytes);
      world().drive_for(2);
      PostedSend& sent = world()[0].send(1, key, bytes);
      EXPECT_FALSE(sent.done) << "completed inside send()";
      if (!receive_first) {
        world().drive_for(2);
        world()[1].recv(0, key, bytes);
      }
      ASSERT_TRUE(world().drive());
      EXPECT_TRUE(sent.request.status.ok()) << sent.request.status.text();
      const RecvRequest& received = world()[1].receives.back().request;
      EXPECT_TRUE(received.status.ok()) << received.status.text();
      if (bytes > 64) {  // smaller ones may be complete the moment they are seen
        EXPECT_GT(received.first_ns, 0u);
      }
      EXPECT_GE(received.first_ns, received.ready_ns);
    }
}

TEST_P(TransportTest, OneLargeMessage) {
  MAKE_WORLD(2);
  world()[0].send(1, {1, 0, 0, 0}, 64 << 20, 3);
  world()[1].recv(0, {1, 0, 0, 0}, 64 << 20, 5);
  ASSERT_TRUE(world().drive());
}

TEST_P(TransportTest, ScatterAndGather) {
  MAKE_WORLD(2);
  uint32_t seq = 0;
  for (const size_t bytes : {size_t{5}, size_t{1000}, kEager, 5 * kEager, size_t{400'000}})
    for (const int from : {1, 2, 9, 100, 1500})
      for (const int to : {1, 3, 1200}) {
        const Key key{1, seq++, 0, 0};
        world()[0].send(1, key, bytes, from);
        world()[1].recv(0, key, bytes, to);
      }
  ASSERT_TRUE(world().drive());
}

TEST_P(TransportTest, KeysInAnyOrder) {
  MAKE_WORLD(2);
  std::mt19937_64 random(sennit_test::seed());
  std::vector<uint32_t> order(400);
  for (uint32_t i = 0; i < order.size(); i++) order[i] = i;
  const auto key = [](uint32_t i) { return Key{1, i / 40, i % 40 / 4, i % 4}; };
  const auto bytes = [](uint32_t i) { return mix(i) % (i % 5 ? 300 : 60'000); };
  std::shuffle(order.begin(), order.end(), random);
  for (const uint32_t i : order) world()[0].send(1, key(i), bytes(i));
  world().drive_for(20);
  std::shuffle(order.begin(), order.end(), random);
  for (const uint32_t i : order) {
    world()[1].recv(0, key(i), bytes(i));
    if (i % 16 == 0) world().drive_for(0);
  }
  ASSERT_TRUE(world().drive());
}

// Whatever its size: its bytes have come, or its announcement, also where windows are used up.
TEST_P(TransportTest, KnowsWhatHasComeBeforeItIsReceived) {
  MAKE_WORLD(3);
  Rank& receiver = world()[0];
  const auto come = [&](int peer, const Key& key) {
    return world().drive_until([&] { return receiver.transport->has_come(peer, key); });
  };
  uint32_t seq = 0;
  for (const size_t bytes : {size_t{0}, size_t{1}, kEager, kEager + 1, size_t{1} << 20}) {
    SCOPED_TRACE(testing::Message() << bytes << " bytes");
    const Key key{1, ++seq, kPointToPoint, 7};
    EXPECT_FALSE(receiver.transport->has_come(1, key));
    EXPECT_FALSE(receiver.transport->has_come(2, key));
    world()[1].send(0, key, bytes);
    ASSERT_TRUE(come(1, key));
    EXPECT_FALSE(receiver.transport->has_come(2, key));
    EXPECT_FALSE(receiver.transport->has_come(1, {1, seq, kPointToPoint, 8}));
    receiver.recv(1, key, bytes);
    ASSERT_TRUE(world().drive());
    EXPECT_FALSE(receiver.transport->has_come(1, key)) << "it has been received";
  }
  constexpr uint32_t kMany = 300;
  for (uint32_t i = 1; i <= kMany; i++) world()[2].send(0, {1, i, kPointToPoint, 0}, kEager);
  EXPECT_TRUE(come(2, {1, kMany, kPointToPoint, 0}));
  for (uint32_t i = kMany; i >= 1; i--) receiver.recv(2, {1, i, kPointToPoint, 0}, kEager);
  ASSERT_TRUE(world().drive());
}

TEST_P(TransportTest, NothingHasComeOfACancelledCommunicator) {
  MAKE_WORLD(2);
  const Key key{1, 1, kPointToPoint, 0};
  world()[1].send(0, key, 100);
  ASSERT_TRUE(world().drive_until([&] { return world()[0].transport->has_come(1, key); }));
  for (int rank : {0, 1}) world()[rank].transport->cancel(1, Status(SENNIT_ABORTED, "cancelled"));
  EXPECT_FALSE(world()[0].transport->has_come(1, key));
}

// More small messages than any window holds, consumed last to first.
TEST_P(TransportTest, WindowDoesNotOrderMessages) {
  MAKE_WORLD(2);
  constexpr uint32_t kMessages = 2000;
  for (uint32_t i = 0; i < kMessages; i++) world()[0].send(1, {1, i, 0, 0}, 1000);
  world().drive_for(20);
  for (uint32_t i = kMessages; i-- > 0;) {
    PostedRecv& received = world()[1].recv(0, {1, i, 0, 0}, 1000);
    if (i % 100 == 0) {
      ASSERT_TRUE(world().drive_until([&] { return received.done; })) << "message " << i;
    }
  }
  ASSERT_TRUE(world().drive());
}

TEST_P(TransportTest, FourRanksFloodEachOther) {
  MAKE_WORLD(4);
  constexpr uint32_t kMessages = 150;
  world().run_threads([](Rank& rank) {
    const auto bytes = [](int from, int to, uint32_t i) {
      const uint64_t h = mix(static_cast<uint64_t>(from * 4 + to) << 32 | i);
      return h % 4 == 0 ? h % 200'000 : h % 2'000;
    };
    for (uint32_t i = 0; i < kMessages; i++)
      for (int peer = 0; peer < 4; peer++) {
        if (peer == rank.rank) continue;
        const uint32_t r = kMessages - 1 - i;  // receives are posted in the opposite order
        rank.send(peer, {1, i, 0, 0}, bytes(rank.rank, peer, i));
        rank.recv(peer, {1, r, 0, 0}, bytes(peer, rank.rank, r), 2);
        if (i % 8 == 0) rank.progress();
      }
    EXPECT_TRUE(drive_rank(rank, [&] { return rank.outstanding == 0; }))
        << rank.outstanding << " left";
    EXPECT_TRUE(rank.events.empty());
  });
}

TEST_P(TransportTest, PingPongAsleep) {
  MAKE_WORLD(2);
  world().run_threads([](Rank& rank) {
    for (uint32_t i = 0; i < 500; i++) {
      const size_t bytes = i % 100 == 0 ? 100'000 : 8;
      rank.recv(1 - rank.rank, {1, i, 0, 0}, bytes);
      if (rank.rank == 0) rank.send(1, {1, i, 0, 0}, bytes);
      ASSERT_TRUE(drive_rank(rank, [&] { return rank.receives.back().done; })) << "message " << i;
      if (rank.rank == 1) rank.send(0, {1, i, 0, 0}, bytes);
      ASSERT_TRUE(drive_rank(rank, [&] { return rank.outstanding == 0; })) << "message " << i;
      rank.forget();
    }
  });
}

TEST_P(TransportTest, ExposureLastsUntilRelease) {
  MAKE_WORLD(2);
  world()[1].release_at_once = false;
  void* memory = world()[0].transport->allocate(1 << 20);
  for (uint32_t i = 0; i < 20; i++) {
    const size_t bytes = i < 10 ? 100 : 70'000;
    world()[0].send(1, {1, i, 0, 0}, bytes, i % 3 + 1);
    world()[1].recv(0, {1, i, 0, 0}, bytes, 1, 42, true);
  }
  ASSERT_TRUE(world().drive_until([&] { return world()[1].outstanding == 0; }));
  for (PostedRecv& posted : world()[1].receives) {
    EXPECT_TRUE(posted.request.status.ok());
    world()[1].check(posted);  // still readable
    if (posted.request.exposed) world()[1].transport->release(posted.request);
  }
  ASSERT_TRUE(world().drive());
  if (memory) {
    EXPECT_TRUE(world()[0].transport->free(memory));
  }
  int local = 0;
  EXPECT_FALSE(world()[0].transport->free(&local));
}

TEST_P(TransportTest, CommunicatorsDoNotBlockEachOther) {
  MAKE_WORLD(2);
  constexpr uint32_t kMessages = 1000;
  for (uint32_t i = 0; i < kMessages; i++) {
    // nobody receives these for now
    world()[0].send(1, {1, i, 0, 0}, i % 10 == 0 ? 50'000 : 2'000);
    world()[1].send(0, {1, i, 0, 0}, i % 10 == 0 ? 50'000 : 2'000);
  }
  world().drive_for(20);
  for (uint32_t i = 0; i < 200; i++) {
    const size_t bytes = i % 10 == 0 ? 100'000 : 500;
    world()[0].send(1, {2, i, 0, 0}, bytes);
    PostedRecv& received = world()[1].recv(0, {2, i, 0, 0}, bytes);
    ASSERT_TRUE(world().drive_until([&] { return received.done; })) << "message " << i;
  }
  for (uint32_t i = 0; i < kMessages; i++) {
    world()[0].recv(1, {1, i, 0, 0}, i % 10 == 0 ? 50'000 : 2'000);
    world()[1].recv(0, {1, i, 0, 0}, i % 10 == 0 ? 50'000 : 2'000);
  }
  ASSERT_TRUE(world().drive());
}

// send_now() and recv_now() go with each other and with send() and recv(), whatever a transport
// takes. What is kept of a communicator goes when it is over on this rank; a peer that is still in
// it does no harm.
TEST_P(TransportTest, CommunicatorsAreForgotten) {
  MAKE_WORLD(2);
  for (uint32_t comm = 10; comm < 30; comm++) {
    const auto over = [comm](uint32_t other) { return other == comm; };
    for (uint32_t i = 0; i < 10; i++) world()[0].send(1, {comm, i, 0, 0}, 5000);
    world().drive_for(2);
    const bool early = world()[0].outstanding == 0;
    if (early) world()[0].transport->forget(over);
    for (uint32_t i = 0; i < 10; i++) world()[1].recv(0, {comm, i, 0, 0}, 5000);
    ASSERT_TRUE(world().drive());
    world()[0].send(1, {comm, 10, 0, 0}, 5000);  // nobody receives it
    world().drive_for(2);
    world()[1].transport->forget(over);
    world()[0].transport->cancel(comm, {SENNIT_ABORTED, "cancelled by the test"});
    ASSERT_TRUE(world().drive());
    world()[0].transport->forget(over);
  }
  world()[0].send(1, {1, 0, 0, 0}, 5000);
  world()[1].recv(0, {1, 0, 0, 0}, 5000);
  ASSERT_TRUE(world().drive());
  for (const int rank : {0, 1}) EXPECT_TRUE(world()[rank].events.empty());
}

TEST_P(TransportTest, ShortWayOfSmallMessages) {
  MAKE_WORLD(2);
  Transport &from = *world()[0].transport, &to = *world()[1].transport;
  std::mt19937_64 random(sennit_test::seed());
  const size_t limit = std::max(from.now_bytes(), size_t{64});
  std::vector<std::byte> sent(limit), received(limit);
  for (uint32_t seq = 0; seq < 500; seq++) {
    const Key key{1, seq, 0, 0};
    const size_t bytes = random() % 3 ? random() % 64 : random() % (limit + 1);
    Pattern(0, 1, key).fill(sent.data(), bytes);
    SmallMessage out{1, key, 42, sent.data(), bytes}, in{0, key, 42, received.data(), bytes};
    const bool other = random() % 8 == 0;  // a message that nobody has asked for comes first
    const Key other_key{1, seq, 1, 0};
    if (other) world()[0].send(1, other_key, 100);
    if (random() % 4 == 0 || from.send_now(out) == Now::never) world()[0].send(1, key, bytes);
    Now result = Now::later;
    if (random() % 4 == 0) result = Now::never;
    // it may then have come early
    else if (random() % 4 == 0)
      world().drive_for(1);
    for (int i = 0; i < 3 && result == Now::later; i++) result = to.recv_now(in);
    if (result == Now::done) {
      ASSERT_EQ(std::memcmp(sent.data(), received.data(), bytes), 0) << "message " << seq;
    } else {
      world()[1].recv(0, key, bytes);
    }
    if (other) world()[1].recv(0, other_key, 100);
    ASSERT_TRUE(world().drive()) << "message " << seq;
    world()[0].forget();
    world()[1].forget();
  }
  // What does not match is left to recv(), which says so.
  SmallMessage out{1, {2, 1, 0, 0}, 7, sent.data(), 8}, in{0, {2, 1, 0, 0}, 42, received.data(), 8};
  if (from.send_now(out) == Now::never) return;
  Now result = Now::later;
  ASSERT_TRUE(world().drive_until([&] { return (result = to.recv_now(in)) != Now::later; }));
  EXPECT_EQ(result, Now::never);
  PostedRecv& posted = world()[1].recv(0, in.key, 8);
  ASSERT_TRUE(world().drive_until([&] { return posted.done; }));
  EXPECT_EQ(posted.request.status.kind(), SENNIT_MISMATCH);
  to.fail_peer(0, Status(SENNIT_PEER_FAILED, "failed"));
  EXPECT_EQ(to.send_now({0, {1, 9999, 0, 0}, 42, sent.data(), 8}), Now::never);
  EXPECT_EQ(to.recv_now({0, {1, 9999, 0, 0}, 42, sent.data(), 8}), Now::never);
}

TEST_P(TransportTest, RandomStress) {
  MAKE_WORLD(5);
  const uint64_t seed = sennit_test::seed();
  world().run_threads([seed](Rank& rank) {
    // Sender and receiver draw the same sizes from the name of the message.
    const auto bytes = [seed](int from, int to, const Key& key) -> size_t {
      const uint64_t h =
          mix(seed ^ mix(static_cast<uint64_t>(from * 5 + to) << 40 ^ key.comm << 20 ^ key.seq));
      switch (h % 8) {
        case 0:
          return 0;
        case 1:
          return h % 400'000;
        case 2:
          return kEager + h % 3 - 1;
        case 3:
          return h % 30'000;
        default:
          return h % 600;
      }
    };
    std::mt19937_64 random(seed + static_cast<uint64_t>(rank.rank));
    std::vector<std::pair<bool, std::pair<int, Key>>> todo;
    for (uint32_t comm = 1; comm <= 3; comm++)
      for (uint32_t seq = 0; seq < 60; seq++)
        for (int peer = 0; peer < 5; peer++)
          if (peer != rank.rank)
            for (const bool sending : {true, false})
              todo.push_back({sending, {peer, {comm, seq, seq % 3, seq % 7}}});
    std::shuffle(todo.begin(), todo.end(), random);
    for (const auto& [sending, what] : todo) {
      const auto& [peer, key] = what;
      if (sending)
        rank.send(peer, key, bytes(rank.rank, peer, key), static_cast<int>(random() % 4) + 1);
      else
        rank.recv(peer, key, bytes(peer, rank.rank, key), static_cast<int>(random() % 4) + 1, 42,
                  random() % 2);
      if (random() % 8 == 0) rank.progress();
    }
    EXPECT_TRUE(drive_rank(rank, [&] { return rank.outstanding == 0; }))
        << rank.outstanding << " left";
  });
}

SENNIT_ON_EVERY_TRANSPORT(TransportTest);

TEST(Registry, IsOrderedByPriority) {
  int last = INT32_MAX;
  for (const TransportFactory& factory : transports()) {
    EXPECT_LE(factory.priority, last);
    last = factory.priority;
  }
  EXPECT_NE(find_transport("loopback"), nullptr);
}

}  // namespace
}  // namespace sennit::test
