// ucx_test.cpp: what is particular to the ucx transport: when it may be used, its address, and
// peers that are killed. The common contract is in tests/transports/transport_test.cpp. Skipped
// where it is not built in.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "base/clock.hpp"
#include "sennit/sennit.h"
#include "tests/support/seed.hpp"
#include "tests/support/test_folder.hpp"
#include "tests/transports/transport_harness.hpp"
#include "transports/ucx/address_head.hpp"
#include "transports/ucx/eager_credit.hpp"
#include "transports/ucx/rdma.hpp"

namespace sennit::test {
namespace {

TEST(EagerCredit, AWindowIsSpentAndComesBackByTheQuarter) {
  constexpr size_t kEighth = ucx::EagerCredit::kWindowBytes / 8 - ucx::EagerCredit::kOverheadBytes;
  ucx::EagerCredit sender, receiver;
  for (int i = 0; i < 8; i++) EXPECT_TRUE(sender.spend(7, kEighth));
  EXPECT_FALSE(sender.spend(7, 0));
  EXPECT_TRUE(sender.spend(8, kEighth)) << "another communicator";
  EXPECT_EQ(receiver.consumed(7, kEighth), 0u);
  EXPECT_EQ(receiver.consumed(8, kEighth), 0u);
  const uint64_t returned = receiver.consumed(7, kEighth);
  EXPECT_EQ(returned, ucx::EagerCredit::kWindowBytes / 4);
  sender.take_back(7, returned);
  for (int i = 0; i < 2; i++) EXPECT_TRUE(sender.spend(7, kEighth));
  EXPECT_FALSE(sender.spend(7, 0));
  sender.take_back(9, returned);  // of a communicator that is forgotten
  EXPECT_TRUE(sender.spend(9, ucx::EagerCredit::kWindowBytes / 2));
  sender.forget([](uint32_t comm) { return comm == 7; });
  EXPECT_TRUE(sender.spend(7, kEighth));
}

// A made-up host.
class Rdma : public testing::Test {
 protected:
  void add_device(const std::string& name, const std::string& state) {
    const std::string port = folder_ / ("sys/" + name + "/ports/1");
    std::filesystem::create_directories(port);
    std::ofstream(port + "/state") << state << "\n";
  }
  void add_node(const std::string& name) {
    std::filesystem::create_directories(folder_ / "dev");
    std::ofstream(folder_ / ("dev/" + name)) << "\n";
  }
  bool is_there() const { return ucx::has_rdma(folder_ / "sys", folder_ / "dev"); }

  const trainer::TestFolder folder_;
};

TEST_F(Rdma, IsAPortThatIsUpAndADeviceThatCanBeOpened) {
  EXPECT_FALSE(is_there());
  add_node("uverbs0");
  EXPECT_FALSE(is_there());
  std::filesystem::create_directories(folder_ / "sys/mlx5_0");
  EXPECT_FALSE(is_there()) << "no ports";
  add_device("mlx5_1", "1: DOWN");
  EXPECT_FALSE(is_there());
  add_device("mlx5_2", "2: INIT");
  EXPECT_FALSE(is_there());
  add_device("rxe0", "4: ACTIVE");
  EXPECT_TRUE(is_there());
}

// As in a container that sees its host's /sys.
TEST_F(Rdma, IsNotWhatHasNoDevice) {
  add_device("mlx5_0", "4: ACTIVE");
  EXPECT_FALSE(is_there());
  add_node("rdma_cm");
  EXPECT_FALSE(is_there());
  add_node("uverbs1");
  EXPECT_TRUE(is_there());
}

TEST_F(Rdma, IsNotWhatCannotBeRead) {
  std::ofstream(folder_ / "sys") << "no folder\n";
  EXPECT_FALSE(is_there());
}

std::vector<std::byte> address_with(const ucx::AddressHead& head) {
  std::vector<std::byte> address(sizeof head + 1);
  std::memcpy(address.data(), &head, sizeof head);
  return address;
}

TEST(AddressHead, BothEndsDecideAlike) {
  for (unsigned a = 0; a < 4; a++)
    for (unsigned b = 0; b < 4; b++) {
      const ucx::AddressHead one{.has_rdma = a & 1, .asked_for = a >> 1};
      const ucx::AddressHead other{.has_rdma = b & 1, .asked_for = b >> 1};
      EXPECT_EQ(ucx::both_use_ucx(one, address_with(other)), (a & b) != 0) << a << " " << b;
      EXPECT_EQ(ucx::both_use_ucx(other, address_with(one)), (a & b) != 0) << a << " " << b;
    }
}

class Ucx : public testing::Test {
 protected:
  void SetUp() override {
    if (!find_transport("ucx")) GTEST_SKIP() << "built without UCX";
    setenv("SENNIT_TRANSPORTS", "ucx", 1);
  }
  void TearDown() override { unsetenv("SENNIT_TRANSPORTS"); }
};

Result<std::unique_ptr<Transport>> make(int rank, int size, bool asked_for = true) {
  TransportContext context;
  context.rank = rank;
  context.size = size;
  context.host_interface = "127.0.0.1";
  context.asked_for = asked_for;
  return find_transport("ucx")->make(context);
}

// Endless messages both ways until the peer is gone; 0 if it was named and everything came back in
// time.
int talk_until_event(Transport& transport, int peer, int started) {
  constexpr size_t kLarge = 2 << 20;
  std::vector<std::byte> out(kLarge), in(kLarge);
  Completions done;
  const uint64_t end_ns = now_ns() + 60'000'000'000;
  for (uint32_t i = 0;; i++) {
    if (i == 2 && write(started, "", 1) != 1) return 5;
    const size_t bytes = i % 2 ? kLarge : 100;
    const Segment from{out.data(), bytes}, to{in.data(), bytes};
    SendRequest send;
    RecvRequest recv;
    send.peer = recv.peer = peer;
    send.key = recv.key = {1, i, 0, 0};
    send.bytes = recv.bytes = bytes;
    send.segments = {&from, 1};
    recv.segments = {&to, 1};
    transport.recv(recv);
    transport.send(send);
    bool event = false;
    for (size_t finished = 0; finished < 2;) {
      transport.progress(done);
      finished += done.sends.size() + done.receives.size();
      if (!done.events.empty()) {
        if (event || done.events.size() != 1 || done.events[0].peer != peer) return 3;
        event = true;
        transport.fail_peer(peer, Status(SENNIT_PEER_FAILED, "test"));
      }
      done.clear();
      if (event && finished == 2) return 0;
      if (now_ns() > end_ns) return 4;
    }
    if (event) return 0;
  }
}

// The first of all: a process whose parent has used UCX is refused.
TEST_F(Ucx, KilledPeerIsNamed) {
  std::mt19937_64 random(sennit_test::seed());
  for (int round = 0; round < 8; round++) {
    int a_to_b[2], b_to_a[2], started[2];
    ASSERT_EQ(pipe(a_to_b) | pipe(b_to_a) | pipe(started), 0);
    const auto spawn = [&](int rank) {
      const pid_t pid = fork();
      if (pid != 0) return pid;
      auto made = make(rank, 2);
      if (!made) _exit(1);
      const int in = rank ? a_to_b[0] : b_to_a[0], out = rank ? b_to_a[1] : a_to_b[1];
      const std::vector<std::byte> mine = (*made)->address();
      std::vector<std::byte> theirs(mine.size());
      if (write(out, mine.data(), mine.size()) != static_cast<ssize_t>(mine.size()) ||
          read(in, theirs.data(), theirs.size()) != static_cast<ssize_t>(theirs.size()) ||
          !(*made)->add_peer(1 - rank, theirs).ok())
        _exit(2);
      const int result = talk_until_event(**made, 1 - rank, started[1]);
      made->reset();
      _exit(result);
    };
    const pid_t a = spawn(0), b = spawn(1);
    close(started[1]);
    char byte[2];
    ASSERT_TRUE(read(started[0], byte, 1) == 1 && read(started[0], byte, 1) == 1);
    usleep(static_cast<useconds_t>(random() % 100'000));
    kill(b, SIGKILL);
    const uint64_t killed_ns = now_ns();
    int state = 0;
    waitpid(a, &state, 0);
    EXPECT_TRUE(WIFEXITED(state) && WEXITSTATUS(state) == 0)
        << "round " << round << ", state " << state;
    EXPECT_LT(now_ns() - killed_ns, 60'000'000'000u);
    waitpid(b, &state, 0);
    for (const int fd : {a_to_b[0], a_to_b[1], b_to_a[0], b_to_a[1], started[0]}) close(fd);
  }
}

TEST_F(Ucx, IsNotUsedUnaskedWithoutRdma) {
  auto a = make(0, 2), b = make(1, 2);
  ASSERT_TRUE(a.ok() && b.ok()) << a.status().text();
  const std::vector<std::byte> address = (*b)->address();
  EXPECT_LE(address.size(), 512u);
  EXPECT_EQ((*a)->reach(1, address), Reach::network);
  EXPECT_EQ((*a)->reach(1, {}), Reach::none);
  EXPECT_EQ((*a)->reach(1, std::vector<std::byte>(100)), Reach::none);
  const bool rdma = ucx::has_rdma();
  std::vector<std::byte> of_unasked = address;
  of_unasked[offsetof(ucx::AddressHead, asked_for)] = std::byte{0};
  EXPECT_EQ((*a)->reach(1, of_unasked), rdma ? Reach::network : Reach::none);
  const auto unasked = make(0, 2, false);
  EXPECT_EQ(unasked.ok(), rdma) << unasked.status().text();
  if (unasked) {
    EXPECT_EQ((*unasked)->reach(1, address), Reach::network);
  }
}

TEST_F(Ucx, ConnectsToThoseItTalksToOnly) {
  World world("ucx", 6);
  ASSERT_TRUE(world.ok()) << world.why_not();
  world[0].send(3, {1, 1, 0, 0}, 100);
  world[3].recv(0, {1, 1, 0, 0}, 100);
  ASSERT_TRUE(world.drive());
  EXPECT_NE(world[0].transport->statistics().find("connections 1,"), std::string::npos);
  EXPECT_NE(world[1].transport->statistics().find("connections 0,"), std::string::npos);
}

// A message beyond the window goes by rendezvous, whatever its size, and window comes back as it is
// consumed.
TEST_F(Ucx, WindowComesBack) {
  World world("ucx", 2);
  ASSERT_TRUE(world.ok()) << world.why_not();
  for (uint32_t i = 0; i < 500; i++) world[0].send(1, {1, i, 0, 0}, 1000);
  world.drive_for(50);
  for (uint32_t i = 0; i < 500; i++) world[1].recv(0, {1, i, 0, 0}, 1000);
  ASSERT_TRUE(world.drive());
  const std::string first = world[0].transport->statistics();
  EXPECT_EQ(first.find("rendezvous 0,"), std::string::npos) << first;
  const auto eager = [](const std::string& text) {
    return std::stoul(text.substr(text.find("eager messages ") + 15));
  };
  EXPECT_LT(eager(first), 100u);
  world.drive_for(20);
  for (uint32_t i = 0; i < 40; i++) {
    world[1].recv(0, {1, 1000 + i, 0, 0}, 1000);
    world[0].send(1, {1, 1000 + i, 0, 0}, 1000);
    ASSERT_TRUE(world.drive());
  }
  EXPECT_GE(eager(world[0].transport->statistics()), eager(first) + 40);
}

// Its sender may be further on than this rank, which adds a peer when it first has something for
// it.
TEST_F(Ucx, MessageOfAPeerThatIsNotAddedYetIsKept) {
  auto quick = make(0, 2), late = make(1, 2);
  ASSERT_TRUE(quick.ok() && late.ok()) << quick.status().text();
  const std::vector<std::byte> quick_address = (*quick)->address(),
                               late_address = (*late)->address();
  ASSERT_TRUE((*quick)->add_peer(1, late_address).ok());
  Rank sender(0, *std::move(quick)), receiver(1, *std::move(late));
  const PostedSend& sent = sender.send(1, {1, 1, 0, 0}, 100);
  const auto drive_until = [&](const std::function<bool()>& reached) {
    for (const uint64_t end_ns = now_ns() + 60'000'000'000u; !reached() && now_ns() < end_ns;) {
      sender.progress();
      receiver.progress();
    }
    return reached();
  };
  ASSERT_TRUE(drive_until([&] { return receiver.transport->statistics().ends_with("early 1"); }));
  ASSERT_TRUE(receiver.transport->add_peer(0, quick_address).ok());
  const PostedRecv& received = receiver.recv(0, {1, 1, 0, 0}, 100);
  EXPECT_TRUE(drive_until([&] { return received.done && sent.done; }));
  EXPECT_TRUE(received.request.status.ok()) << received.request.status.text();
}

// UCX connects only as far as both sides drive it: a small message goes out, and its sender goes
// on, though the other rank does something else.
TEST_F(Ucx, MovesWhileNobodyWaits) {
  sennit_unique_id_t id;
  ASSERT_EQ(sennit_get_unique_id(&id), SENNIT_OK);
  std::atomic<bool> sent = false;
  const auto rank = [&](int r) {
    sennit_comm_t comm = nullptr;
    ASSERT_EQ(sennit_comm_init_rank(&comm, 2, &id, r, nullptr), SENNIT_OK) << sennit_last_error();
    int x = 7, y = 0;
    if (r == 1) {
      EXPECT_EQ(sennit_send(&x, 1, SENNIT_INT32, 0, comm), SENNIT_OK) << sennit_last_error();
      sent = true;
    } else {
      for (const uint64_t end = now_ns() + 60'000'000'000; !sent && now_ns() < end;) usleep(1000);
      EXPECT_TRUE(sent);
      EXPECT_EQ(sennit_recv(&y, 1, SENNIT_INT32, 1, comm), SENNIT_OK) << sennit_last_error();
      EXPECT_EQ(y, 7);
    }
    EXPECT_EQ(sennit_comm_destroy(comm), SENNIT_OK);
  };
  std::thread other([&] { rank(1); });
  rank(0);
  other.join();
}

}  // namespace
}  // namespace sennit::test
