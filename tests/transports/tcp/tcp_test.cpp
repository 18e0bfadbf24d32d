// What is tcp's own: strangers at the port, wrong secrets, calls that cross, descriptors that run
// out, and a peer that holds the secret and talks nonsense. The rest is in transport_test.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <random>

#include "tests/support/eventually.hpp"
#include "tests/support/seed.hpp"
#include "tests/transports/transport_harness.hpp"
#include "transports/tcp/address.hpp"
#include "transports/tcp/auth.hpp"
#include "transports/tcp/wire.hpp"

namespace sennit::test {
namespace {

using sennit_test::eventually;
using tcp::HeaderKind;
using tcp::SocketAddress;
using tcp::WireHeader;

// A socket of somebody who is not a rank.
class Stranger {
 public:
  explicit Stranger(const Transport& target) {
    const std::optional<SocketAddress> address = SocketAddress::decode(target.address());
    sockaddr_storage storage;
    const socklen_t length = address->fill(storage);
    fd_ = socket(storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd_ >= 0 && connect(fd_, reinterpret_cast<sockaddr*>(&storage), length) < 0 &&
        errno != EINPROGRESS) {
      close(fd_);
      fd_ = -1;
    }
  }
  ~Stranger() {
    if (fd_ >= 0) close(fd_);
  }
  Stranger(Stranger&& other) : fd_(std::exchange(other.fd_, -1)) {}

  int fd() const { return fd_; }
  void say(const void* data, size_t bytes) {
    if (::send(fd_, data, bytes, MSG_NOSIGNAL) < 0) said_all_ = false;
  }
  bool was_shown_out() {
    char c[512];
    ssize_t got = 1;
    while (got > 0) got = ::recv(fd_, c, sizeof c, 0);
    return got == 0 || (errno != EAGAIN && errno != EINTR);
  }

 private:
  int fd_ = -1;
  bool said_all_ = true;
};

std::unique_ptr<Transport> make_tcp(int rank, int size, int secret,
                                    const std::string& interface = "127.0.0.1") {
  TransportContext context;
  context.rank = rank;
  context.size = size;
  context.job = 77;
  context.secret.assign(32, static_cast<std::byte>(secret));
  context.host_interface = interface;
  Result<std::unique_ptr<Transport>> made = find_transport("tcp")->make(context);
  EXPECT_TRUE(made.ok()) << made.status().text();
  return made ? std::move(*made) : nullptr;
}

// Two ranks exchange a small and a large message.
void expect_exchange(World& world, int a, int b, uint32_t seq) {
  world[a].send(b, {9, seq, 0, 0}, 100);
  world[a].send(b, {9, seq, 1, 0}, 300'000);
  world[b].recv(a, {9, seq, 0, 0}, 100);
  world[b].recv(a, {9, seq, 1, 0}, 300'000);
  world[b].send(a, {9, seq, 0, 0}, 100);
  world[a].recv(b, {9, seq, 0, 0}, 100);
  ASSERT_TRUE(world.drive());
  EXPECT_TRUE(world[a].events.empty());
  EXPECT_TRUE(world[b].events.empty());
}

int option(int fd, int level, int name) {
  int value = -1;
  socklen_t length = sizeof value;
  getsockopt(fd, level, name, &value, &length);
  return value;
}

uint16_t port_of(const Transport& transport) {
  return SocketAddress::decode(transport.address())->port;
}

// The sockets of this process that are connected with this port, or from it.
std::vector<int> connected_with(uint16_t port) {
  constexpr int kMostDescriptors = 256;
  std::vector<int> found;
  for (int fd = 0; fd < kMostDescriptors; fd++) {
    sockaddr_storage here{}, there{};
    socklen_t length = sizeof here;
    if (getsockname(fd, reinterpret_cast<sockaddr*>(&here), &length) != 0) continue;
    length = sizeof there;
    if (getpeername(fd, reinterpret_cast<sockaddr*>(&there), &length) != 0) continue;
    if (here.ss_family != AF_INET || there.ss_family != AF_INET) continue;
    if (SocketAddress::of(here).port == port || SocketAddress::of(there).port == port)
      found.push_back(fd);
  }
  return found;
}

// A host that is gone without a word is noticed, though nothing is sent to it.
TEST(Tcp, IdleConnectionsAreKeptAlive) {
  World world("tcp", 2);
  world[0].send(1, {1, 0, 0, 0}, 100);  // rank 0 calls
  const auto is_connected = [&](int rank) {
    return world[rank].transport->statistics().starts_with("connections 1,");
  };
  ASSERT_TRUE(world.drive_until([&] { return is_connected(0) && is_connected(1); }));
  const std::vector<int> sockets = connected_with(port_of(*world[1].transport));
  EXPECT_EQ(sockets.size(), 2u) << "both ends";
  for (const int fd : sockets) {
    EXPECT_EQ(option(fd, SOL_SOCKET, SO_KEEPALIVE), 1);
    EXPECT_EQ(option(fd, IPPROTO_TCP, TCP_KEEPIDLE), 60);
    EXPECT_EQ(option(fd, IPPROTO_TCP, TCP_KEEPINTVL), 15);
    EXPECT_EQ(option(fd, IPPROTO_TCP, TCP_KEEPCNT), 4);
  }
  world[1].recv(0, {1, 0, 0, 0}, 100);
  ASSERT_TRUE(world.drive());
}

TEST(Tcp, GarbageIsShownOutAndTheJobGoesOn) {
  std::mt19937 random(sennit_test::seed());
  World world("tcp", 3);
  expect_exchange(world, 0, 1, 0);
  for (uint32_t i = 0; i < 50; i++) {
    Stranger stranger(*world[0].transport);
    char garbage[1000];
    for (char& c : garbage) c = static_cast<char>(random());
    world.drive_for(0);
    stranger.say(garbage, 88 + random() % 900);
    ASSERT_TRUE(world.drive_until([&] { return stranger.was_shown_out(); }));
  }
  expect_exchange(world, 0, 1, 1);
  expect_exchange(world, 2, 0, 2);
  EXPECT_NE(world[0].transport->statistics().find("strangers refused 50"), std::string::npos)
      << world[0].transport->statistics();
}

TEST(Tcp, ThousandHalfOpenConnections) {
  rlimit limit;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlimit before = limit;
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, 4096);
  if (limit.rlim_cur < 2048) GTEST_SKIP() << "not enough file descriptors for the test itself";
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  {
    World world("tcp", 3);
    expect_exchange(world, 0, 1, 0);
    std::vector<Stranger> strangers;
    for (int i = 0; i < 1000; i++) {
      strangers.emplace_back(*world[0].transport);
      ASSERT_GE(strangers.back().fd(), 0);
      if (i % 50 == 0) world.drive_for(0);
    }
    expect_exchange(world, 0, 1, 1);  // over the connection that is there
    expect_exchange(world, 2, 0, 2);  // and over a new one, from either side
    expect_exchange(world, 0, 1, 3);
    // All but the latest 256 have been shown out.
    ASSERT_TRUE(world.drive_until([&] {
      return std::count_if(strangers.begin(), strangers.end(),
                           [](Stranger& s) { return s.was_shown_out(); }) >= 744;
    }));
  }
  setrlimit(RLIMIT_NOFILE, &before);
}

// A rank whose handshake is cut off (here by a flood, in life also by SIGSTOP) calls again.
TEST(Tcp, InterruptedCallIsRepeated) {
  World world("tcp", 2);
  world[1].send(0, {1, 0, 0, 0}, 100);  // the call begins
  world[0].progress();                  // it is let in, and has proven nothing
  std::vector<Stranger> strangers;
  for (int i = 0; i < 300; i++) strangers.emplace_back(*world[0].transport);
  for (int i = 0; i < 20; i++) world[0].progress();
  world[0].recv(1, {1, 0, 0, 0}, 100);
  ASSERT_TRUE(world.drive());
  EXPECT_TRUE(world[1].events.empty());
}

TEST(Tcp, WrongSecret) {
  World world("tcp", 3);
  Rank impostor(2, make_tcp(2, 3, 0x66));
  ASSERT_TRUE(impostor.transport->add_peer(0, world[0].transport->address()).ok());
  ASSERT_TRUE(impostor.transport->add_peer(1, world[1].transport->address()).ok());
  impostor.send(0, {1, 0, 0, 0}, 100);
  impostor.recv(1, {1, 0, 0, 0}, 100'000);
  ASSERT_TRUE(world.drive_until([&] {
    impostor.progress();
    return impostor.events.size() == 2;
  }));
  EXPECT_EQ(impostor.events[0].status.kind(), SENNIT_REFUSED);
  EXPECT_NE(impostor.events[0].status.text().find("SENNIT_SECRET"), std::string::npos);
  EXPECT_EQ(impostor.outstanding, 2u);
  ASSERT_TRUE(world.drive_until([&] {
    return world[0].transport->statistics().find("strangers refused 1") != std::string::npos;
  }));
  expect_exchange(world, 0, 1, 0);
  expect_exchange(world, 2, 0, 0);
  impostor.transport->fail_peer(0, Status(SENNIT_PEER_FAILED, "gone"));
  impostor.transport->fail_peer(1, Status(SENNIT_PEER_FAILED, "gone"));
  impostor.progress();
  EXPECT_EQ(impostor.outstanding, 0u);
}

TEST(Tcp, CrossingCallsLeaveOneConnectionAndLoseNothing) {
  for (int round = 0; round < 5; round++) {
    World world("tcp", 6);
    for (int from = 0; from < 6; from++)
      for (int to = 0; to < 6; to++)
        if (from != to)
          for (uint32_t i = 0; i < 5; i++) {
            world[from].send(to, {1, i, 0, 0}, i == 0 ? 100'000 : 50);
            world[to].recv(from, {1, i, 0, 0}, i == 0 ? 100'000 : 50);
          }
    if (round % 2 == 0) {
      ASSERT_TRUE(world.drive());
    } else {
      world.run_threads(
          [](Rank& rank) { EXPECT_TRUE(drive_rank(rank, [&] { return rank.outstanding == 0; })); });
    }
    const auto one_each = [&](int rank) {
      return world[rank].transport->statistics().starts_with("connections 5,");
    };
    // the calls that were given up are closed when either side next looks
    for (int rank = 0; rank < 6; rank++)
      EXPECT_TRUE(world.drive_until([&] { return one_each(rank); }))
          << world[rank].transport->statistics();
    world.drive_for(5);
    for (int rank = 0; rank < 6; rank++) {
      EXPECT_TRUE(world[rank].events.empty());
      EXPECT_TRUE(one_each(rank)) << world[rank].transport->statistics();
    }
  }
}

TEST(Tcp, SmallMessagesOvertakeLargeOnes) {
  World world("tcp", 2);
  expect_exchange(world, 0, 1, 0);
  PostedRecv& large = world[1].recv(0, {1, 0, 0, 0}, 64 << 20);
  world.drive_for(5);
  world[0].send(1, {1, 0, 0, 0}, 64 << 20);
  PostedRecv& small = world[1].recv(0, {1, 1, 0, 0}, 8);
  world[0].send(1, {1, 1, 0, 0}, 8);
  ASSERT_TRUE(world.drive_until([&] { return small.done || large.done; }));
  EXPECT_FALSE(large.done);
  ASSERT_TRUE(world.drive());
}

TEST(Tcp, PeerThatIsGoneBeforeTheFirstMessage) {
  World world("tcp", 2);
  world.destroy(1);
  world[0].send(1, {1, 0, 0, 0}, 8);
  ASSERT_TRUE(world.drive_until([&] { return !world[0].events.empty(); }));
  EXPECT_NE(world[0].events[0].status.text().find("refused"), std::string::npos);
  world.drive_for(50);
  EXPECT_EQ(world[0].events.size(), 1u);
  EXPECT_EQ(world[0].outstanding, 1u);
  world[0].transport->cancel(1, Status(SENNIT_ABORTED, "enough"));
  world[0].progress();
  EXPECT_EQ(world[0].outstanding, 0u);
}

// To find while sending that the peer has closed does not lose what it said before.
TEST(Tcp, LastWordsOutliveAFailedWrite) {
  World world("tcp", 2);
  expect_exchange(world, 0, 1, 0);
  PostedRecv& large = world[1].recv(0, {1, 0, 0, 0}, 1'000'000);
  world.drive_for(2);
  world[0].send(1, {1, 0, 0, 0}, 1'000'000);
  while (world[0].outstanding > 0) {
    world[0].progress();
    if (world[0].outstanding > 0) world[1].progress();
  }
  world.destroy(0);
  // the first brings a reset, then errors
  for (uint32_t i = 0; i < 5; i++) world[1].send(0, {1, 1 + i, 0, 0}, 100);
  ASSERT_TRUE(world.drive_until([&] { return large.done && !world[1].events.empty(); }));
  world.drive_for(5);
  EXPECT_EQ(world[1].events.size(), 1u);
}

TEST(Tcp, NoDescriptorsLeft) {
  World world("tcp", 2);
  rlimit limit;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlimit before = limit;
  testing::internal::CaptureStderr();
  const int probe = dup(2);
  ASSERT_GE(probe, 0);
  limit.rlim_cur = static_cast<rlim_t>(probe) + 16;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  std::vector<int> taken;
  for (int fd = dup(2); fd >= 0; fd = dup(2)) taken.push_back(fd);
  close(probe);  // one is left, for the calling side
  world[1].send(0, {1, 0, 0, 0}, 100);
  world[0].recv(1, {1, 0, 0, 0}, 100);
  world.drive_for(60);
  EXPECT_EQ(world[0].outstanding, 1u);
  for (const int fd : taken) close(fd);
  setrlimit(RLIMIT_NOFILE, &before);
  const std::string logged = testing::internal::GetCapturedStderr();
  EXPECT_NE(logged.find("ulimit -n"), std::string::npos) << logged;
  EXPECT_EQ(std::count(logged.begin(), logged.end(), '\n'), 1) << logged;
  ASSERT_TRUE(world.drive());
  EXPECT_TRUE(world[1].events.empty());
}

TEST(Tcp, InterfaceThatIsNotHere) {
  TransportContext context;
  context.host_interface = "eth0.example";
  EXPECT_EQ(find_transport("tcp")->make(context).status().kind(), SENNIT_INVALID_ARGUMENT);
  context.host_interface = "192.0.2.1";
  const Status status = find_transport("tcp")->make(context).status();
  EXPECT_EQ(status.kind(), SENNIT_OUT_OF_RESOURCES);
  EXPECT_NE(status.text().find("SENNIT_INTERFACE"), std::string::npos);
}

TEST(Tcp, Ipv6) {
  TransportContext context;
  context.host_interface = "::1";
  if (!find_transport("tcp")->make(context)) GTEST_SKIP() << "no IPv6 here";
  Rank a(0, make_tcp(0, 2, 1, "::1")), b(1, make_tcp(1, 2, 1, "::1"));
  ASSERT_TRUE(a.transport->add_peer(1, b.transport->address()).ok());
  ASSERT_TRUE(b.transport->add_peer(0, a.transport->address()).ok());
  a.send(1, {1, 0, 0, 0}, 50'000);
  b.recv(0, {1, 0, 0, 0}, 50'000);
  EXPECT_TRUE(eventually([&] { return a.outstanding + b.outstanding == 0; },
                         [&] {
                           a.progress();
                           b.progress();
                         }));
}

// Somebody who holds the secret and then does not keep to the protocol.
class Insider {
 public:
  explicit Insider(Rank& victim) : stranger_(*victim.transport), secret_(32, std::byte{0x21}) {
    Handshake handshake = Handshake::connector({secret_, "tcp", 77, 1, 2}, 0);
    eventually([&] { return handshake.state() != Handshake::State::running; },
               [&] {
                 handshake.drive(stranger_.fd());
                 victim.progress();
               });
    EXPECT_EQ(handshake.state(), Handshake::State::done) << handshake.status().text();
  }
  void say(const WireHeader& header, size_t payload = 0) {
    stranger_.say(&header, sizeof header);
    const std::vector<char> bytes(payload, 'x');
    if (payload > 0) stranger_.say(bytes.data(), payload);
  }
  Stranger& stranger() { return stranger_; }

 private:
  Stranger stranger_;
  std::vector<std::byte> secret_;
};

void expect_thrown_out(Rank& victim) {
  eventually([&] { return !victim.events.empty(); }, [&] { victim.progress(); });
  for (int i = 0; i < 100; i++) victim.progress();
  ASSERT_EQ(victim.events.size(), 1u);
  EXPECT_EQ(victim.events[0].peer, 1);
  EXPECT_EQ(victim.events[0].status.kind(), SENNIT_LINK_FAILED);
}

TEST(Tcp, InsiderWithNonsenseIsCutOff) {
  const auto header = [](HeaderKind kind, uint64_t bytes, uint32_t piece) {
    WireHeader h;
    h.kind = kind;
    h.key = {1, 0, 0, 0};
    h.bytes = bytes;
    h.piece_bytes = piece;
    return h;
  };
  std::vector<WireHeader> nonsense;
  nonsense.push_back(header(HeaderKind::eager, 1 << 20, 1 << 20));  // not eager at all
  nonsense.push_back(header(HeaderKind::eager, 100, 50));           // two sizes
  nonsense.push_back(header(HeaderKind::first, 100, 200));          // a piece larger than the whole
  nonsense.push_back(header(static_cast<HeaderKind>(99), 0, 0));    // no such kind
  nonsense.push_back(header(HeaderKind::credit, 0, 0));             // more credit than a window has
  nonsense.back().credit = 1 << 20;
  nonsense.push_back(header(HeaderKind::credit, 0, 0));
  nonsense.back().magic = 0;
  nonsense.push_back(header(HeaderKind::credit, 0, 0));
  nonsense.back().version = 1;  // of a sennit before this one
  for (const WireHeader& h : nonsense) {
    Rank victim(0, make_tcp(0, 2, 0x21));
    Insider insider(victim);
    insider.say(h);
    expect_thrown_out(victim);
  }
}

TEST(Tcp, InsiderBeyondTheWindowIsCutOff) {
  Rank victim(0, make_tcp(0, 2, 0x21));
  Insider insider(victim);
  for (uint32_t i = 0; i < 100 && victim.events.empty(); i++) {
    WireHeader h;
    h.kind = HeaderKind::eager;
    h.key = {1, i, 0, 0};
    h.bytes = h.piece_bytes = 8000;
    insider.say(h, 8000);
    for (int k = 0; k < 100; k++) victim.progress();
  }
  expect_thrown_out(victim);
}

TEST(Tcp, InsiderWithRandomHeadersDoesNoHarm) {
  std::mt19937 random(sennit_test::seed());
  for (int round = 0; round < 100; round++) {
    Rank victim(0, make_tcp(0, 2, 0x21));
    victim.check_contents = false;
    Insider insider(victim);
    for (uint32_t i = 0; i < 4; i++) {
      victim.recv(1, {1, i, 0, 0}, i % 2 ? 100'000 : 10);
      victim.send(1, {1, i, 0, 0}, i % 2 ? 100'000 : 10);
    }
    for (int i = 0; i < 50; i++) {
      WireHeader h;
      h.kind = static_cast<HeaderKind>(1 + random() % 7);
      h.key = {1, static_cast<uint32_t>(random() % 5), 0, 0};
      h.signature = 42;
      h.bytes = random() % 3 ? (random() % 2 ? 100'000 : 10) : random() % 200'000;
      h.piece_bytes = static_cast<uint32_t>(random() % 4 ? h.bytes : random() % 200'000);
      insider.say(h, random() % 2 ? random() % 5000 : 0);
      victim.progress();
    }
    for (int i = 0; i < 50; i++) victim.progress();
    EXPECT_LE(victim.events.size(), 1u);
    victim.transport->fail_peer(1, Status(SENNIT_PEER_FAILED, "enough"));
    victim.progress();
    EXPECT_EQ(victim.outstanding, 0u);
  }
}

}  // namespace
}  // namespace sennit::test
