// kernel_view_test.cpp: what the kernel tells of real connections, while they are used, while their
// receiver does not read, and once they are closed.
#include "transports/tcp/kernel_view.hpp"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

namespace sennit::tcp {
namespace {

// Two ends of a connection over the loopback.
class KernelViewOf : public testing::Test {
 protected:
  void SetUp() override {
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    ASSERT_EQ(bind(listener, any, length), 0);
    ASSERT_EQ(listen(listener, 1), 0);
    ASSERT_EQ(getsockname(listener, any, &length), 0);
    sender_ = socket(AF_INET, SOCK_STREAM, 0);
    ASSERT_EQ(connect(sender_, any, length), 0);
    receiver_ = accept(listener, nullptr, nullptr);
    ASSERT_GE(receiver_, 0);
    close(listener);
  }
  void TearDown() override {
    close(sender_);
    close(receiver_);
  }
  // As much of it as goes without waiting for the receiver.
  size_t send_up_to(size_t bytes) const {
    const std::vector<char> data(bytes, 'x');
    const ssize_t sent = ::send(sender_, data.data(), data.size(), MSG_DONTWAIT);
    return sent < 0 ? 0 : static_cast<size_t>(sent);
  }
  int sender_ = -1, receiver_ = -1;
};

TEST_F(KernelViewOf, WhatWasSent) {
  constexpr size_t kBytes = 4000;
  ASSERT_EQ(send_up_to(kBytes), kBytes);
  char data[kBytes];
  ASSERT_EQ(recv(receiver_, data, sizeof data, MSG_WAITALL), static_cast<ssize_t>(kBytes));
  KernelView view;
  view.add(7, sender_);
  view.add(3, receiver_);
  const std::vector<ConnectionStatistics> all = view.read();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].peer, 3);
  EXPECT_EQ(all[0].counters.bytes, 0u) << "it has only received";
  const ConnectionStatistics& sent = all[1];
  EXPECT_EQ(sent.peer, 7);
  EXPECT_EQ(sent.counters.bytes, kBytes);
  EXPECT_GE(sent.counters.segments, 1u);
  EXPECT_EQ(sent.counters.segments_again, 0u);
  EXPECT_GT(sent.counters.when_ns, 0u);
  EXPECT_GT(sent.smoothed_rtt_us, 0u);
  EXPECT_LE(sent.least_rtt_us, 1'000'000u);
}

TEST_F(KernelViewOf, AReceiverThatDoesNotReadLimits) {
  using namespace std::chrono_literals;
  while (send_up_to(1 << 20) > 0) std::this_thread::sleep_for(1ms);
  std::this_thread::sleep_for(300ms);
  const ConnectionCounters counted = kernel_statistics(1, sender_).counters;
  EXPECT_GT(counted.receiver_limited_us, 200'000u);
  EXPECT_GE(counted.busy_us, counted.receiver_limited_us);
}

TEST_F(KernelViewOf, WhatIsNoConnectionIsNothing) {
  ConnectionStatistics nothing;
  nothing.peer = 5;
  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  EXPECT_EQ(kernel_statistics(5, pipe_ends[0]), nothing);
  close(pipe_ends[0]);
  close(pipe_ends[1]);
  EXPECT_EQ(kernel_statistics(5, pipe_ends[0]), nothing);
}

// Others ask all the time while connections come and go, whose descriptors are used again for what
// has sent nothing.
TEST_F(KernelViewOf, NeverAsksAboutADescriptorThatWasClosed) {
  ASSERT_EQ(send_up_to(1000), 1000u);
  KernelView view;
  std::atomic<bool> over = false;
  std::atomic<int> looks = 0, strangers = 0;
  std::thread asks([&] {
    while (!over) {
      for (const ConnectionStatistics& one : view.read()) strangers += one.counters.bytes != 1000;
      looks++;
    }
  });
  for (int i = 0; i < 300 || looks < 20; i++) {
    const int fd = dup(sender_);
    view.add(1, fd);
    if (i % 10 == 0) std::this_thread::yield();
    view.remove(1);
    close(fd);
    const int other = socket(AF_INET, SOCK_STREAM, 0);  // the same number
    close(other);
  }
  over = true;
  asks.join();
  EXPECT_EQ(strangers, 0);
  EXPECT_TRUE(view.read().empty());
}

}  // namespace
}  // namespace sennit::tcp
