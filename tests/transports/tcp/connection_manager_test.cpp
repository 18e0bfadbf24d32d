// connection_manager_test.cpp: how tcp connections come to be
// (transports/tcp/connection_manager.hpp), between managers of one process that this thread drives.
//
// ctest not-under-tsan: it has one thread
#include "transports/tcp/connection_manager.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>

#include "base/process/forked.hpp"

namespace sennit::tcp {
namespace {

// One rank's manager, and what it told.
class Side final : public ConnectionHandler {
 public:
  explicit Side(int rank, std::byte secret = std::byte{5}) {
    TransportContext context;
    context.rank = rank;
    context.size = 4;
    context.job = 77;
    context.secret.assign(32, secret);
    context.host_interface = "127.0.0.1";
    auto opened = ConnectionManager::open(context, epoll_fd_, *this);
    EXPECT_TRUE(opened.ok()) << opened.status().text();
    manager = std::move(*opened);
  }
  ~Side() override {
    manager.reset();
    for (const int fd : fds) close_guarded(fd);
    close(epoll_fd_);
  }
  bool wants_connection(int) override { return wants && fds.empty(); }
  void on_connection(int peer, int fd, const Handshake& handshake) override {
    EXPECT_EQ(handshake.state(), Handshake::State::done);
    peers.push_back(peer);
    fds.push_back(fd);
  }
  void on_call_failed(int peer, const Status& status) override {
    peers.push_back(peer);
    failures.push_back(status);
  }
  void turn() {
    epoll_event events[16];
    const int count = epoll_wait(epoll_fd_, events, 16, 1);
    for (int i = 0; i < count; i++) manager->on_event(events[i].data.u64);
  }
  bool told() const { return !peers.empty(); }

  std::unique_ptr<ConnectionManager> manager;
  bool wants = true;
  std::vector<int> peers;  // of what was told
  std::vector<int> fds;
  std::vector<Status> failures;

 private:
  const int epoll_fd_ = epoll_create1(EPOLL_CLOEXEC);
};

template <typename Ready>
bool turn_until(std::initializer_list<Side*> sides, Ready ready) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (!ready()) {
    for (Side* side : sides) side->turn();
    if (std::chrono::steady_clock::now() > end) return false;
  }
  return true;
}

void expect_ends_of_one_connection(const Side& one, const Side& other) {
  ASSERT_EQ(one.fds.size(), 1u);
  ASSERT_EQ(other.fds.size(), 1u);
  ASSERT_EQ(send(one.fds[0], "x", 1, 0), 1);
  char got = 0;
  ASSERT_EQ(recv(other.fds[0], &got, 1, 0), 1);
  EXPECT_EQ(got, 'x');
}

TEST(ConnectionManager, ACallMakesAConnection) {
  Side caller(0), called(1);
  caller.manager->call(1, called.manager->address());
  caller.manager->call(1, called.manager->address());  // under way already
  ASSERT_TRUE(turn_until({&caller, &called}, [&] { return caller.told() && called.told(); }));
  EXPECT_EQ(caller.peers, std::vector<int>{1});
  EXPECT_EQ(called.peers, std::vector<int>{0});
  fcntl(called.fds[0], F_SETFL, 0);
  expect_ends_of_one_connection(caller, called);
}

// Whichever is quicker: one connection is left, and both have its ends.
TEST(ConnectionManager, OfTwoCallsThatCrossOneStays) {
  for (int head_start = 0; head_start < 6; head_start++) {
    Side low(0), high(1);
    low.manager->call(1, high.manager->address());
    for (int i = 0; i < head_start / 2; i++) (head_start % 2 ? low : high).turn();
    high.manager->call(0, low.manager->address());
    ASSERT_TRUE(turn_until({&low, &high}, [&] { return low.told() && high.told(); }));
    for (int i = 0; i < 20; i++)
      for (Side* side : {&low, &high}) side->turn();
    EXPECT_EQ(low.failures.size() + high.failures.size(), 0u);
    fcntl(high.fds[0], F_SETFL, 0);
    expect_ends_of_one_connection(low, high);
    EXPECT_EQ(low.manager->refused() + high.manager->refused(), 0u);
  }
}

TEST(ConnectionManager, WhoHasNotTheSecretIsRefused) {
  Side stranger(0, std::byte{6}), called(1);
  stranger.manager->call(1, called.manager->address());
  ASSERT_TRUE(turn_until({&stranger, &called}, [&] { return stranger.told(); }));
  ASSERT_EQ(stranger.failures.size(), 1u);
  EXPECT_NE(stranger.failures[0].text().find("connecting to rank 1 at 127.0.0.1:"),
            std::string::npos);
  EXPECT_FALSE(called.told());
  EXPECT_EQ(called.manager->refused(), 1u);
}

TEST(ConnectionManager, WhoIsNotWantedIsDeclined) {
  Side caller(0), called(1);
  called.wants = false;
  caller.manager->call(1, called.manager->address());
  ASSERT_TRUE(turn_until({&caller, &called}, [&] { return caller.told(); }));
  ASSERT_EQ(caller.failures.size(), 1u);
  EXPECT_EQ(caller.failures[0].text(), "connecting to rank 1: it had a connection that broke");
  EXPECT_FALSE(called.told());
  EXPECT_EQ(called.manager->refused(), 0u) << "it has proved itself";
}

TEST(ConnectionManager, NobodyListens) {
  Side caller(0);
  SocketAddress address;
  {
    const Side gone(1);
    address = gone.manager->address();
  }
  caller.manager->call(1, address);
  ASSERT_TRUE(turn_until({&caller}, [&] { return caller.told(); }));
  ASSERT_EQ(caller.failures.size(), 1u);
  EXPECT_EQ(caller.failures[0].kind(), SENNIT_LINK_FAILED);
}

// The socket of a call that nobody has answered yet; -1: there is none.
int calling_socket() {
  constexpr int kMostDescriptors = 256;
  for (int fd = 0; fd < kMostDescriptors; fd++) {
    tcp_info info{};
    socklen_t length = sizeof info;
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) == 0 &&
        info.tcpi_state == TCP_SYN_SENT)
      return fd;
  }
  return -1;
}

// Whose queue is full: it answers no call, until one is taken out of it.
class BusyListener {
 public:
  BusyListener() {
    sockaddr_storage storage;
    socklen_t length = SocketAddress::parse("127.0.0.1")->fill(storage);
    auto* const generic = reinterpret_cast<sockaddr*>(&storage);
    EXPECT_EQ(bind(fd_, generic, length), 0);
    EXPECT_EQ(listen(fd_, 0), 0);
    EXPECT_EQ(getsockname(fd_, generic, &length), 0);
    EXPECT_EQ(connect(filler_, generic, length), 0);
    address = SocketAddress::of(storage);
    fcntl(fd_, F_SETFL, O_NONBLOCK);
  }
  ~BusyListener() {
    close(filler_);
    close(fd_);
  }
  // False: nobody waits.
  bool take() {
    const int fd = accept(fd_, nullptr, nullptr);
    if (fd >= 0) close(fd);
    return fd >= 0;
  }

  SocketAddress address;

 private:
  const int fd_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int filler_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
};

// As where a route is gone for a moment, an error comes of the call while it is under way.
TEST(ConnectionManager, ACallThatDoesNotGetThereIsRepeated) {
  BusyListener listener;
  Side caller(0);
  caller.manager->call(1, listener.address);
  const int fd = calling_socket();
  ASSERT_GE(fd, 0);
  ASSERT_EQ(shutdown(fd, SHUT_RDWR), 0);  // to a socket that is connecting, a reset
  caller.turn();
  EXPECT_FALSE(caller.told()) << caller.failures.back().text();
  ASSERT_TRUE(listener.take());
  EXPECT_TRUE(turn_until({&caller}, [&] { return listener.take(); }));
  EXPECT_FALSE(caller.told());
}

// The peer has failed: neither its call nor an answer to ours is of any use.
TEST(ConnectionManager, NothingComesAfterHangingUp) {
  Side caller(0), called(1), third(2);
  caller.manager->call(1, called.manager->address());
  caller.manager->hang_up(1);
  caller.manager->call(2, third.manager->address());
  ASSERT_TRUE(
      turn_until({&caller, &called, &third}, [&] { return caller.told() && third.told(); }));
  EXPECT_EQ(caller.peers, std::vector<int>{2});
  EXPECT_FALSE(called.told());
}

}  // namespace
}  // namespace sennit::tcp
