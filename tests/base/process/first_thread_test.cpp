// first_thread_test.cpp: whether the process's first thread is ready to run.
#include "base/process/first_thread.hpp"

#include <sys/prctl.h>

#include <atomic>
#include <chrono>
#include <thread>

#include <gtest/gtest.h>

namespace sennit {
namespace {

using namespace std::chrono_literals;

// What a second thread sees of this one, which is the first.
TEST(FirstThread, IsReadyWhileItComputes) {
  std::atomic<int> looks = 0, ready = 0;
  std::thread other([&] {
    for (int n = 0; n < 100; n++, looks++) {
      ready += first_thread_ready();
      std::this_thread::sleep_for(1ms);
    }
  });
  while (looks < 100) continue;
  other.join();
  EXPECT_GE(ready, 95) << "it may wait for a page now and then";
}

TEST(FirstThread, IsNotWhileItWaits) {
  bool ready = true;
  std::thread other([&] {
    const auto end = std::chrono::steady_clock::now() + 20s;
    while ((ready = first_thread_ready()) && std::chrono::steady_clock::now() < end)
      std::this_thread::sleep_for(1ms);
  });
  other.join();
  EXPECT_FALSE(ready);
}

TEST(FirstThread, WhateverTheProcessIsCalled) {
  char name[16] = {};
  prctl(PR_GET_NAME, name);
  prctl(PR_SET_NAME, ") S (a) S 1 (");
  EXPECT_TRUE(first_thread_ready());
  prctl(PR_SET_NAME, name);
}

}  // namespace
}  // namespace sennit
