// nccl_ranks.hpp: what the tests of NCCL's interface share: ranks as threads of one process, the
// texts of errors, a config, and an end for what hangs.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "nccl/exported.hpp"

namespace sennit_test {

// What the calling thread was told last.
inline std::string text() { return ncclGetLastError(nullptr); }

// Communicators of one process, each used by a thread of its own.
class NcclRanks {
 public:
  explicit NcclRanks(int n) : comms_(static_cast<size_t>(n)) {
    EXPECT_EQ(ncclCommInitAll(comms_.data(), n, nullptr), ncclSuccess) << ncclGetLastError(nullptr);
  }
  ~NcclRanks() {
    run([](int, ncclComm_t comm) { EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess); });
  }
  const std::vector<ncclComm_t>& comms() const { return comms_; }
  void run(const std::function<void(int, ncclComm_t)>& f) {
    std::vector<std::thread> threads;
    for (size_t r = 0; r < comms_.size(); r++)
      threads.emplace_back([&, r] { f(static_cast<int>(r), comms_[r]); });
    for (std::thread& thread : threads) thread.join();
  }

 private:
  std::vector<ncclComm_t> comms_;
};

// Polls as programs do that chose not to block.
inline ncclResult_t settle(ncclComm_t comm) {
  ncclResult_t result = ncclInProgress;
  while (true) {
    EXPECT_EQ(ncclCommGetAsyncError(comm, &result), ncclSuccess);
    if (result != ncclInProgress) return result;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

// As NCCL_CONFIG_INITIALIZER leaves it.
inline constexpr ncclConfig_t kConfig = [] {
  ncclConfig_t config{};
  config.size = sizeof config;
  config.magic = NCCL_CONFIG_MAGIC;
  config.version = kNcclVersion;
  config.blocking = kNcclUndefinedInt;
  return config;
}();
// The same, of communicators whose calls do not block.
inline constexpr ncclConfig_t kNonblocking = [] {
  ncclConfig_t config = kConfig;
  config.blocking = 0;
  return config;
}();

// Ends the program where it has not gone out of scope in time: a test that hangs says so.
class Bounded {
 public:
  explicit Bounded(const char* what, std::chrono::seconds most = std::chrono::minutes(3))
      : watch_([this, what, most] {
          std::unique_lock lock(mutex_);
          if (over_changed_.wait_for(lock, most, [this] { return over_; })) return;
          std::fprintf(stderr, "hangs: %s\n", what);
          std::abort();
        }) {}
  ~Bounded() {
    {
      const std::scoped_lock lock(mutex_);
      over_ = true;
    }
    over_changed_.notify_all();
    watch_.join();
  }
  Bounded(const Bounded&) = delete;
  Bounded& operator=(const Bounded&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable over_changed_;
  bool over_ = false;
  std::thread watch_;
};

}  // namespace sennit_test
