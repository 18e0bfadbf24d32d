// shm_test.cpp: what is particular to the shm transport: its rings, its ways of moving large
// messages, its windows and its names in /dev/shm. Processes that die are in
// tests/transports/shm/shm_processes_test.cpp, the common contract in
// tests/transports/transport_test.cpp.
#include <sys/resource.h>
#include <unistd.h>

#include <thread>

#include "tests/support/seed.hpp"
#include "tests/transports/shm/shm_world.hpp"

namespace sennit::shm {
namespace {

enum class Way { any_memory, stream, allocated, exposed };

constexpr size_t kSizes[] = {0,    1,    7,    8,    16,    24,    25,     63,     64,     65,
                             1000, 8191, 8192, 8193, 40000, 65536, 131072, 300001, 3 << 20};

class Ways : public testing::TestWithParam<Way> {
 protected:
  bool allocates() const { return GetParam() == Way::allocated || GetParam() == Way::exposed; }

  // Messages of all sizes and shapes, from either rank to the other.
  void make_messages(uint32_t round) {
    messages_.clear();
    for (size_t i = 0; i < std::size(kSizes) * 2; i++) {
      auto m = std::make_unique<Message>();
      const int from = static_cast<int>(random_() % 2);
      const size_t bytes = i < std::size(kSizes) ? kSizes[i] : random_() % 50000;
      std::byte* memory =
          allocates() ? static_cast<std::byte*>(world_[from].allocate(bytes)) : nullptr;
      m->from = std::make_unique<Buffer>(bytes, memory);
      m->to = std::make_unique<Buffer>(bytes);
      m->from->fill(i);
      if (random_() % 2) m->from->split(random_);
      if (random_() % 2) m->to->split(random_);
      const Key key{7, round, static_cast<uint32_t>(i), 3};
      set(m->send, 1 - from, key, *m->from);
      set(m->recv, from, key, *m->to);
      m->recv.may_expose = GetParam() == Way::exposed;
      messages_.push_back(std::move(m));
    }
  }

  // Posts sends and receives in any order.
  void post_messages() {
    std::vector<std::pair<bool, Message*>> actions;  // true: send
    for (const auto& m : messages_)
      for (const bool sending : {true, false}) actions.push_back({sending, m.get()});
    std::shuffle(actions.begin(), actions.end(), random_);
    for (auto& [sending, m] : actions) {
      if (sending)
        world_[m->recv.peer].send(m->send);
      else
        world_[m->send.peer].recv(m->recv);
      if (random_() % 4 == 0) world_.step();
    }
  }

  // Takes what has come back, and counts it.
  void collect(size_t* sent, size_t* received) {
    for (int rank = 0; rank < 2; rank++) {
      for (RecvRequest* r : world_.done[rank].receives) {
        EXPECT_TRUE(r->status.ok()) << r->status.text();
        const Message& m = *messages_[r->key.chunk];
        EXPECT_TRUE(m.to->holds(r->key.chunk, r->exposed)) << m.to->segment.bytes << " bytes";
        if (r->exposed) world_[rank].release(*r);
        ++*received;
      }
      for (SendRequest* s : world_.done[rank].sends) {
        EXPECT_TRUE(s->status.ok()) << s->status.text();
        ++*sent;
      }
      EXPECT_TRUE(world_.done[rank].events.empty());
      world_.done[rank].clear();
    }
  }

  std::mt19937_64 random_{sennit_test::seed()};
  World world_{2};
  std::vector<std::unique_ptr<Message>> messages_;
};

TEST_P(Ways, CarryEverything) {
  if (GetParam() == Way::stream)
    for (const int rank : {0, 1}) world_[rank].forbid_direct_reads();
  for (uint32_t round = 0; round < 6; round++) {
    make_messages(round);
    post_messages();
    size_t sent = 0, received = 0;
    ASSERT_TRUE(world_.run([&] {
      collect(&sent, &received);
      return sent == messages_.size() && received == messages_.size();
    })) << sent
        << " sent and " << received << " received of " << messages_.size();
    for (auto& m : messages_) {
      if (allocates()) {
        EXPECT_TRUE(world_[m->recv.peer].free(m->from->segment.data));
      }
    }
  }
  const std::string statistics = world_[0].statistics();
  if (GetParam() == Way::exposed) {
    EXPECT_EQ(statistics.find("exposed 0"), std::string::npos) << statistics;
  }
  if (GetParam() == Way::allocated) {
    EXPECT_EQ(statistics.find("mapped 0"), std::string::npos) << statistics;
  }
  if (GetParam() == Way::stream) {
    EXPECT_NE(statistics.find(", read 0 B"), std::string::npos) << statistics;
    EXPECT_EQ(statistics.find("streamed 0"), std::string::npos) << statistics;
  }
}

std::string way_name(const testing::TestParamInfo<Way>& way) {
  constexpr const char* kWays[] = {"any_memory", "stream", "allocated", "exposed"};
  return kWays[static_cast<int>(way.param)];
}
INSTANTIATE_TEST_SUITE_P(Shm, Ways,
                         testing::Values(Way::any_memory, Way::stream, Way::allocated,
                                         Way::exposed),
                         way_name);

// The sender may use its memory again once it has cancelled, while a peer still reads there: who
// reads hears of it when he is through. Where it has cancelled more than is remembered he is told
// that nobody knows.
TEST(Shm, WhatIsReadMayBeTornOnceItsSenderHasCancelled) {
  constexpr size_t kBytes = 100'000;
  struct Case {
    bool cancels;
    uint32_t others;
  };
  constexpr Case kCases[] = {{false, 0}, {true, 0},     {false, 10},
                             {true, 10}, {false, 2000}, {true, 2000}};
  for (const auto& [cancels, others] : kCases) {
    const bool unknown = others >= SegmentHeader::kCancelledRemembered;
    World world{2};
    Buffer from(kBytes, static_cast<std::byte*>(world[0].allocate(kBytes))), to(kBytes);
    from.fill(1);
    SendRequest send;
    RecvRequest receive;
    set(send, 1, {7, 0, 0, 0}, from);
    set(receive, 0, {7, 0, 0, 0}, to);
    receive.may_expose = true;
    world[0].send(send);
    world[1].recv(receive);
    ASSERT_TRUE(world.run([&] { return !world.done[1].receives.empty(); }));
    ASSERT_NE(receive.exposed, nullptr);
    if (cancels) world[0].cancel(7, {SENNIT_ABORTED, "cancelled by the test"});
    for (uint32_t i = 0; i < others; i++) world[0].cancel(100 + i, {SENNIT_ABORTED, "another"});
    world[1].release(receive);
    EXPECT_EQ(receive.status.ok(), !cancels && !unknown) << receive.status.text();
    ASSERT_TRUE(world.run([&] { return !world.done[0].sends.empty(); }));
    EXPECT_EQ(send.status.ok(), !cancels) << send.status.text();
    EXPECT_TRUE(world.done[1].events.empty()) << "the connection is well";
  }
}

// A sends on communicator 1 without end and nobody receives: memory stays bounded and communicator
// 2 goes on.
TEST(Shm, CommunicatorsDoNotBlockEachOther) {
  World world(2);
  constexpr uint32_t kFlood = 20000;
  std::vector<std::unique_ptr<Message>> flood;
  for (uint32_t i = 0; i < kFlood; i++) {
    auto m = std::make_unique<Message>();
    m->from = std::make_unique<Buffer>(100);
    m->to = std::make_unique<Buffer>(100);
    m->from->fill(i);
    set(m->send, 1, {1, i, 0, 0}, *m->from);
    set(m->recv, 0, {1, i, 0, 0}, *m->to);
    world[0].send(m->send);
    flood.push_back(std::move(m));
  }
  for (uint32_t i = 0; i < 200; i++) {
    Message m;
    m.from = std::make_unique<Buffer>(i * 500);
    m.to = std::make_unique<Buffer>(i * 500);
    m.from->fill(i);
    set(m.send, 1, {2, i, 0, 0}, *m.from);
    set(m.recv, 0, {2, i, 0, 0}, *m.to);
    world[0].send(m.send);
    world[1].recv(m.recv);
    bool arrived = false;
    ASSERT_TRUE(world.run([&] {
      for (RecvRequest* r : world.done[1].receives) arrived |= r == &m.recv;
      bool sent = false;
      for (SendRequest* s : world.done[0].sends) sent |= s == &m.send;
      return arrived && sent;
    })) << "message "
        << i;
    EXPECT_TRUE(m.to->holds(i));
    for (auto& done : world.done)
      std::erase_if(done.sends, [&](auto* s) { return s->key.comm == 2; });
    world.done[1].receives.clear();
  }
  size_t sent_early = world.done[0].sends.size();
  EXPECT_LT(sent_early, 2000u);  // 64 KiB of early messages, and a ring
  world.done[0].sends.clear();
  for (auto& m : flood) world[1].recv(m->recv);
  size_t received = 0;
  ASSERT_TRUE(world.run([&] {
    received += world.done[1].receives.size();
    sent_early += world.done[0].sends.size();
    for (auto& done : world.done) done.clear();
    return received == kFlood && sent_early == kFlood;
  })) << received;
  for (uint32_t i = 0; i < kFlood; i++) ASSERT_TRUE(flood[i]->to->holds(i)) << i;
}

TEST(Shm, MismatchIsToldToBoth) {
  for (const size_t bytes : {size_t{16}, size_t{100000}}) {
    World world(2);
    Buffer from(bytes), to(bytes + 8);
    SendRequest send;
    RecvRequest recv;
    set(send, 1, {1, 1, 1, 1}, from, 5);
    set(recv, 0, {1, 1, 1, 1}, to, 5);
    world[0].send(send);
    world[1].recv(recv);
    ASSERT_TRUE(
        world.run([&] { return !world.done[0].sends.empty() && !world.done[1].receives.empty(); }));
    EXPECT_EQ(recv.status.kind(), SENNIT_MISMATCH);
    EXPECT_EQ(recv.arrived_bytes, bytes);
    EXPECT_EQ(recv.arrived_signature, 5u);
    EXPECT_EQ(send.status.kind(),
              bytes > 8192 ? SENNIT_MISMATCH : SENNIT_OK);  // small ones are not waited for
  }
}

TEST(Shm, CancelAndFailHandEverythingBack) {
  World world(3);
  Buffer large(1 << 20), small(8), into(1 << 20);
  for (const bool by_peer : {false, true}) {
    const uint32_t comm = by_peer ? 11 : 10;
    SendRequest offered, other_send;
    RecvRequest posted, other_recv;
    set(offered, 1, {comm, 1, 0, 0}, large);
    set(posted, 1, {comm, 2, 0, 0}, into);
    world[0].send(offered);
    world[0].recv(posted);
    for (int i = 0; i < 10; i++) world.step();
    const Status status(SENNIT_ABORTED, "test");
    if (by_peer)
      world[0].fail_peer(1, status);
    else
      world[0].cancel(comm, status);
    world.step();
    ASSERT_EQ(world.done[0].sends.size(), 1u);
    ASSERT_EQ(world.done[0].receives.size(), 1u);
    EXPECT_EQ(offered.status.kind(), SENNIT_ABORTED);
    EXPECT_EQ(posted.status.kind(), SENNIT_ABORTED);
    world.done[0].clear();
    // What comes afterwards ends the same way, out of the next progress().
    set(other_send, 1, {comm, 3, 0, 0}, small);
    set(other_recv, 1, {comm, 4, 0, 0}, small);
    world[0].send(other_send);
    world[0].recv(other_recv);
    world.step();
    EXPECT_EQ(world.done[0].sends.size() + world.done[0].receives.size(), 2u);
    EXPECT_EQ(other_send.status.kind(), SENNIT_ABORTED);
    world.done[0].clear();
    // The peer takes the offer that was withdrawn: its receive must not succeed with what is there
    // now.
    if (!by_peer) {
      RecvRequest late;
      set(late, 0, {comm, 1, 0, 0}, into);
      world[1].recv(late);
      for (int i = 0; i < 100; i++) world.step();
      EXPECT_TRUE(world.done[1].receives.empty());
      world[1].cancel(comm, status);
      world.step();
      EXPECT_EQ(world.done[1].receives.size(), 1u);
      world.done[1].clear();
    }
  }
  // Rank 2 is not concerned.
  SendRequest send;
  RecvRequest recv;
  set(send, 2, {12, 1, 0, 0}, large);
  set(recv, 0, {12, 1, 0, 0}, into);
  world[0].send(send);
  world[2].recv(recv);
  ASSERT_TRUE(
      world.run([&] { return !world.done[0].sends.empty() && !world.done[2].receives.empty(); }));
  EXPECT_TRUE(recv.status.ok());
}

// Also that of a rank which is killed before it does anything more.
TEST(Shm, NamesGoAsSoonAsAllHaveMapped) {
  World world(4);
  EXPECT_TRUE(names_of(world.job).empty()) << "before anybody has looked again";
}

TEST(Shm, ManyRanksStaySmall) {
  constexpr int kRanks = 128;
  const auto descriptors = [] {
    DIR* folder = opendir("/proc/self/fd");
    int count = 0;
    while (readdir(folder)) count++;
    closedir(folder);
    return count;
  };
  const int before = descriptors();
  World world(kRanks);
  EXPECT_LE(descriptors(), before);  // all closed after mapping
  std::vector<std::unique_ptr<Message>> messages;
  for (int rank = 0; rank < kRanks; rank++)
    for (const int distance : {1, 5, 64}) {
      auto m = std::make_unique<Message>();
      const int to = (rank + distance) % kRanks;
      m->from = std::make_unique<Buffer>(2000);
      m->to = std::make_unique<Buffer>(2000);
      m->from->fill(static_cast<uint64_t>(rank));
      const Key key{1, static_cast<uint32_t>(rank), static_cast<uint32_t>(to), 0};
      set(m->send, to, key, *m->from);
      set(m->recv, rank, key, *m->to);
      world[to].recv(m->recv);
      world[rank].send(m->send);
      messages.push_back(std::move(m));
    }
  size_t received = 0;
  ASSERT_TRUE(world.run([&] {
    for (Completions& done : world.done) {
      received += done.receives.size();
      done.clear();
    }
    return received == messages.size();
  }));
  for (auto& m : messages) ASSERT_TRUE(m->to->holds(static_cast<uint64_t>(m->recv.peer)));
}

// Two threads, each with its rank: ping-pong, and streams both ways.
TEST(Shm, TwoThreads) {
  World world(2);
  constexpr uint32_t kRounds = 3000;
  const auto run = [&](int rank) {
    ShmTransport& transport = world[rank];
    Completions done;
    Buffer out(64 << 10), in(64 << 10);
    for (uint32_t i = 0; i < kRounds; i++) {
      const size_t bytes = i % 10 == 9 ? out.own.size() : i % 600;
      Segment from{out.own.data(), bytes}, to{in.own.data(), bytes};
      out.own[bytes / 2] = static_cast<std::byte>(i);
      SendRequest send;
      RecvRequest recv;
      set(send, 1 - rank, {1, i, 0, 0}, out);
      set(recv, 1 - rank, {1, i, 0, 0}, in);
      send.bytes = recv.bytes = bytes;
      send.segments = {&from, 1};
      recv.segments = {&to, 1};
      transport.recv(recv);
      transport.send(send);
      for (size_t finished = 0; finished < 2;) {
        if (!transport.progress(done)) std::this_thread::yield();
        finished += done.sends.size() + done.receives.size();
        done.clear();
      }
      if (!recv.status.ok() || (bytes && in.own[bytes / 2] != static_cast<std::byte>(i))) return i;
    }
    return kRounds;
  };
  uint32_t reached[2] = {};
  std::thread other([&] { reached[1] = run(1); });
  reached[0] = run(0);
  other.join();
  EXPECT_EQ(reached[0], kRounds);
  EXPECT_EQ(reached[1], kRounds);
}

// Who sent, and is done, may be gone before the receiver looks for it the first time.
TEST(Shm, WhatOneSentWhoLeftComes) {
  const uint64_t job = random_job();
  Result<std::unique_ptr<Transport>> receiver = ShmTransport::make(context(0, 3, job));
  Result<std::unique_ptr<Transport>> sender = ShmTransport::make(context(1, 3, job));
  Result<std::unique_ptr<Transport>> silent = ShmTransport::make(context(2, 3, job));
  ASSERT_TRUE(receiver.ok() && sender.ok() && silent.ok());
  ASSERT_TRUE((*sender)->add_peer(0, (*receiver)->address()).ok());
  Buffer from(3000), to(3000), large_from(1 << 20), large_to(1 << 20);
  from.fill(5);
  SendRequest send, large_send;
  RecvRequest recv, large_recv;
  set(send, 0, {1, 2, 3, 0}, from);
  set(recv, 1, {1, 2, 3, 0}, to);
  set(large_send, 0, {1, 2, 5, 0}, large_from);
  set(large_recv, 1, {1, 2, 5, 0}, large_to);
  (*sender)->send(send);
  Completions done;
  while (done.sends.empty()) (*sender)->progress(done);
  ASSERT_TRUE(send.status.ok()) << send.status.text();
  (*sender)->send(large_send);
  (*sender)->progress(done);
  const std::vector<std::byte> address = (*sender)->address(), of_silent = (*silent)->address();
  sender->reset();
  silent->reset();

  EXPECT_EQ((*receiver)->reach(2, of_silent), Reach::none);
  ASSERT_EQ((*receiver)->reach(1, address), Reach::same_host);
  ASSERT_TRUE((*receiver)->add_peer(1, address).ok());
  (*receiver)->recv(recv);
  const uint64_t end = now_ns() + 60'000'000'000;
  while (done.receives.empty() && now_ns() < end) (*receiver)->progress(done);
  ASSERT_EQ(done.receives.size(), 1u);
  EXPECT_TRUE(recv.status.ok()) << recv.status.text();
  EXPECT_TRUE(to.holds(5));
  // There is nobody to answer, or to read from: others say what became of it, and what waits for it
  // waits for them.
  SendRequest answer;
  set(answer, 1, {1, 2, 4, 0}, from);
  (*receiver)->send(answer);
  (*receiver)->recv(large_recv);
  done.clear();
  while (done.events.empty() && now_ns() < end) (*receiver)->progress(done);
  ASSERT_EQ(done.events.size(), 1u);
  EXPECT_EQ(done.events[0].peer, 1);
  EXPECT_EQ(done.events[0].status.kind(), SENNIT_PEER_FAILED);
  EXPECT_EQ(done.sends.size() + done.receives.size(), 0u);
  (*receiver)->fail_peer(1, Status(SENNIT_PEER_FAILED, "killed"));
  while (done.sends.size() + done.receives.size() < 2 && now_ns() < end)
    (*receiver)->progress(done);
  EXPECT_EQ(answer.status.text(), "killed");
  EXPECT_EQ(large_recv.status.text(), "killed");
}

// As two containers do that share /dev/shm: what the job counts as two hosts is that for both ends.
TEST(Shm, WhoIsOnAnotherHostAsTheJobCountsIsNotReached) {
  const uint64_t job = random_job();
  TransportContext one = context(0, 2, job), other = context(1, 2, job);
  other.speaker = 1;
  Result<std::unique_ptr<Transport>> a = ShmTransport::make(one), b = ShmTransport::make(other);
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_EQ((*a)->reach(1, (*b)->address()), Reach::none);
  EXPECT_NE((*a)->obstacle().find("it is on another host"), std::string::npos);
  EXPECT_EQ((*b)->reach(0, (*a)->address()), Reach::none);
}

TEST(Shm, AnotherUsersRankIsNotReached) {
  const uint64_t job = random_job();
  Result<std::unique_ptr<Transport>> other = ShmTransport::make(context(0, 2, job)),
                                     one = ShmTransport::make(context(1, 2, job));
  ASSERT_TRUE(other.ok() && one.ok());
  std::vector<std::byte> address = (*one)->address();
  address[offsetof(SegmentAddress, user)] ^= std::byte{1};
  EXPECT_EQ((*other)->reach(1, address), Reach::none);
  EXPECT_NE((*other)->obstacle().find("it is user "), std::string::npos) << (*other)->obstacle();
}

// Its own end has no such trouble, and goes this way.
TEST(Shm, APeerThatOnlyThisRankCannotOpenIsAnErrorAndNotFarAway) {
  const uint64_t job = random_job();
  Result<std::unique_ptr<Transport>> a = ShmTransport::make(context(0, 2, job)),
                                     b = ShmTransport::make(context(1, 2, job));
  ASSERT_TRUE(a.ok() && b.ok());
  const std::vector<std::byte> address = (*b)->address();
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const int next = dup(STDERR_FILENO);
  ASSERT_GE(next, 0);
  close(next);
  const rlimit none_left = {static_cast<rlim_t>(next), before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none_left), 0);
  const Reach reach = (*a)->reach(1, address);
  const Status added = (*a)->add_peer(1, address);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(reach, Reach::same_host);
  EXPECT_EQ(added.kind(), SENNIT_OUT_OF_RESOURCES);
  EXPECT_NE(added.text().find("ulimit -n"), std::string::npos) << added.text();
  EXPECT_TRUE((*a)->add_peer(1, address).ok()) << "once there are some";
}

TEST(Shm, StrangeAddressesReachNobody) {
  const uint64_t job = random_job();
  Result<std::unique_ptr<Transport>> other = ShmTransport::make(context(0, 2, job)),
                                     one = ShmTransport::make(context(1, 2, job));
  ASSERT_TRUE(other.ok() && one.ok());
  std::vector<std::byte> address = (*one)->address();
  EXPECT_EQ((*other)->reach(1, {}), Reach::none);
  EXPECT_EQ((*other)->reach(1, std::vector<std::byte>(address.size())), Reach::none);
  address[offsetof(SegmentAddress, nonce)] ^= std::byte{1};
  EXPECT_EQ((*other)->reach(1, address), Reach::none);  // the name is there, the nonce is another
  address[offsetof(SegmentAddress, nonce)] ^= std::byte{1};
  EXPECT_EQ((*other)->reach(1, address), Reach::same_host);
}

}  // namespace
}  // namespace sennit::shm
