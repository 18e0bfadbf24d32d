// The conformance suite of the transports family: every test runs over every registered transport that can be
// made on this machine, with ranks of one process, each with its own instance.
#include <algorithm>
#include <random>

#include "transport_harness.hpp"

namespace sennit::test {
namespace {

constexpr size_t kEager = 8192;

class TransportTest : public testing::TestWithParam<std::string> {
 protected:
  void make(int size) {
    world_ = std::make_unique<World>(GetParam(), size, kEager);
    if (!world_->ok()) GTEST_SKIP() << world_->why_not();
  }
  World& world() { return *world_; }

  std::unique_ptr<World> world_;
};

#define MAKE_WORLD(size) \
  make(size);            \
  if (IsSkipped()) return

uint64_t new_seed() { return std::random_device{}(); }

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
  const uint64_t seed = new_seed();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
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
    EXPECT_TRUE(drive_rank(rank, [&] { return rank.outstanding == 0; })) << rank.outstanding << " left";
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
    world()[0].send(1, {1, i, 0, 0}, i % 10 == 0 ? 50'000 : 2'000);  // nobody receives these for now
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

// Where a transport cannot withdraw everything at once: until it has let go of the requests that `which`
// holds for.
void settle(World& world, const Rank& rank, const std::function<bool(const MessageRequest&)>& which) {
  if (rank.transport->withdraws_at_once()) return;
  const auto all_done = [&which](const auto& list) {
    return std::all_of(list.begin(), list.end(),
                       [&which](const auto& posted) { return posted.done || !which(posted.request); });
  };
  ASSERT_TRUE(world.drive_until([&] { return all_done(rank.sends) && all_done(rank.receives); }));
}

TEST_P(TransportTest, CancelInTheMiddleLeavesOthersAlone) {
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

TEST_P(TransportTest, FailPeerHandsBackItsRequestsOnly) {
  MAKE_WORLD(3);
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
  for (const PostedRecv& posted : world()[0].receives) EXPECT_EQ(posted.done, posted.request.peer == 1);
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
  ASSERT_TRUE(
      world().drive_until([&] { return world()[0].outstanding == 0 && world()[2].outstanding == 0; }));
  for (const PostedRecv& posted : world()[0].receives)
    EXPECT_EQ(posted.request.status.kind(), posted.request.peer == 1 ? SENNIT_PEER_FAILED : SENNIT_OK);
}

// send_now() and recv_now() go with each other and with send() and recv(), whatever a transport takes.
TEST_P(TransportTest, ShortWayOfSmallMessages) {
  MAKE_WORLD(2);
  Transport &from = *world()[0].transport, &to = *world()[1].transport;
  const uint64_t seed = new_seed();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
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
    if (random() % 4 == 0)
      result = Now::never;
    else if (random() % 4 == 0)
      world().drive_for(1);  // it may then have come early
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

TEST_P(TransportTest, MismatchNamesWhatCame) {
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

TEST_P(TransportTest, DeathIsOneEventAndRequestsStayPending) {
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
TEST_P(TransportTest, LastWordsArrive) {
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

TEST_P(TransportTest, RandomStress) {
  MAKE_WORLD(5);
  const uint64_t seed = new_seed();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
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
    EXPECT_TRUE(drive_rank(rank, [&] { return rank.outstanding == 0; })) << rank.outstanding << " left";
  });
}

std::vector<std::string> names() {
  std::vector<std::string> out;
  for (const TransportFactory& factory : transports()) out.emplace_back(factory.name);
  out.push_back("loopback+delay");
  out.push_back("tcp+delay");
  return out;
}

INSTANTIATE_TEST_SUITE_P(Every, TransportTest, testing::ValuesIn(names()), [](const auto& parameter) {
  std::string name = parameter.param;
  std::replace(name.begin(), name.end(), '+', '_');
  return name;
});

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
