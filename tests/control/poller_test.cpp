// poller_test.cpp: what is ready is told by its number, for as long as it is; the bell wakes.
#include "control/poller.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <set>
#include <thread>
#include <utility>

namespace sennit::control {
namespace {

constexpr int64_t kLongMs = 20'000;
using Ids = std::vector<uint64_t>;

struct Polling : ::testing::Test {
  Poller poller;
  int fd[2] = {-1, -1};  // what is watched, and the other end
  void SetUp() override {
    ASSERT_TRUE(poller.open());
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fd), 0);
  }
  void TearDown() override {
    for (const int one : fd)
      if (one >= 0) close(one);
  }
  void say() { ASSERT_EQ(write(fd[1], "x", 1), 1); }
  void close_end(int end) { close(std::exchange(fd[end], -1)); }
};

TEST_F(Polling, TellsTheNumberForAsLongAsThereIsSomething) {
  poller.add(fd[0], 42, EPOLLIN);
  EXPECT_TRUE(poller.wait(0).empty());
  say();
  EXPECT_EQ(poller.wait(kLongMs), Ids{42});
  EXPECT_EQ(poller.wait(kLongMs), Ids{42}) << "it has not been read";
  char byte;
  ASSERT_EQ(read(fd[0], &byte, 1), 1);
  EXPECT_TRUE(poller.wait(0).empty());
}

TEST_F(Polling, TheEndOfAStreamIsSomethingToo) {
  poller.add(fd[0], 42, EPOLLIN);
  close_end(1);
  EXPECT_EQ(poller.wait(kLongMs), Ids{42});
}

TEST_F(Polling, WaitsForWhatItIsToldTo) {
  say();
  poller.add(fd[0], 42, 0);
  EXPECT_TRUE(poller.wait(0).empty());
  poller.change(fd[0], 42, EPOLLOUT);
  EXPECT_EQ(poller.wait(kLongMs), Ids{42});
  poller.change(fd[0], 43, EPOLLIN);
  EXPECT_EQ(poller.wait(kLongMs), Ids{43});
}

TEST_F(Polling, WhatIsRemovedOrClosedIsNotTold) {
  poller.add(fd[0], 42, EPOLLIN);
  poller.add(fd[1], 43, EPOLLOUT);
  say();
  poller.remove(fd[0]);
  EXPECT_EQ(poller.wait(kLongMs), Ids{43});
  close_end(1);
  EXPECT_TRUE(poller.wait(0).empty());
  poller.remove(fd[0]);  // once more does no harm
}

TEST_F(Polling, TheBellWakesAndIsNoNumber) {
  std::thread other([this] { poller.ring(); });
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_TRUE(poller.wait(kLongMs).empty());
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(kLongMs));
  other.join();
}

TEST_F(Polling, TheBellIsHeardAfterwardsAndOnce) {
  poller.ring();
  poller.ring();
  const auto begin = std::chrono::steady_clock::now();
  poller.wait(kLongMs);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(kLongMs));
  poller.add(fd[0], 42, EPOLLIN);
  say();
  poller.ring();
  EXPECT_EQ(poller.wait(kLongMs), Ids{42}) << "beside what is ready";
}

TEST_F(Polling, ManyAreToldInSeveralRounds) {
  constexpr int kMany = 150;
  std::vector<int> events;
  for (int i = 0; i < kMany; i++) {
    events.push_back(eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK));
    poller.add(events.back(), static_cast<uint64_t>(i) + 1, EPOLLIN);
  }
  std::set<uint64_t> told;
  for (int round = 0; round < 4; round++) {
    const Ids some = poller.wait(kLongMs);
    EXPECT_LE(some.size(), 64u);
    told.insert(some.begin(), some.end());
  }
  EXPECT_EQ(told.size(), static_cast<size_t>(kMany)) << "nobody is kept waiting by the others";
  for (const int one : events) close(one);
}

TEST_F(Polling, ASpareDescriptorIsOneOfItsOwn) {
  const int spare = poller.spare_descriptor();
  ASSERT_GE(spare, 0);
  EXPECT_TRUE(fcntl(spare, F_GETFD) & FD_CLOEXEC);
  close(spare);
  poller.ring();
  const auto begin = std::chrono::steady_clock::now();
  poller.wait(kLongMs);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(kLongMs))
      << "the bell is not it";
}

}  // namespace
}  // namespace sennit::control
