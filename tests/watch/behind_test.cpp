// behind_test.cpp: a job that hangs says on every rank who is behind, and where; and takes it back
// once it goes on.
//
// ctest quiet: where nobody gets a core everybody is silent
// ctest variable: SENNIT_STALL=200
#include <algorithm>
#include <atomic>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "base/mutex.hpp"
#include "tests/support/eventually.hpp"
#include "tests/support/ranks.hpp"

namespace sennit {
namespace {

// What one rank was told, on whatever thread.
class Heard {
 public:
  static void told(const char* json, void* user) {
    auto* const heard = static_cast<Heard*>(user);
    const MutexLock lock(heard->mutex_);
    heard->all_ += std::string(json) + "\n";
  }
  std::string all() const {
    const MutexLock lock(mutex_);
    return all_;
  }
  bool has(const std::vector<std::string>& texts) const {
    std::istringstream lines(all());
    for (std::string line; std::getline(lines, line);)
      if (std::ranges::all_of(texts,
                              [&](const auto& text) { return line.find(text) != line.npos; }))
        return true;
    return false;
  }

 private:
  mutable Mutex mutex_;
  std::string all_ SENNIT_GUARDED_BY(mutex_);
};

class Behind : public testing::Test {
 protected:
  Behind() : heard_(static_cast<size_t>(ranks_.size())) {
    for (int rank = 0; rank < ranks_.size(); rank++) {
      heard_[static_cast<size_t>(rank)] = std::make_unique<Heard>();
      EXPECT_EQ(sennit_comm_on_verdict(ranks_.comm(rank), Heard::told,
                                       heard_[static_cast<size_t>(rank)].get()),
                SENNIT_OK);
    }
  }
  ~Behind() override {
    for (int rank = 0; rank < ranks_.size(); rank++)
      sennit_comm_on_verdict(ranks_.comm(rank), nullptr, nullptr);
  }
  // Until all ranks have been told one thing that has all these texts. Where a rank gets no core
  // for a while they may be told something else before.
  void wait_for(const std::vector<std::string>& texts) const {
    EXPECT_TRUE(sennit_test::eventually([&] {
      return std::ranges::all_of(heard_, [&](const auto& heard) { return heard->has(texts); });
    })) << texts[0]
        << " was not told; rank 0 heard:\n"
        << heard_[0]->all();
  }
  static sennit_status_t reduce(sennit_comm_t comm) {
    std::vector<float> sum(1000, 1);
    return sennit_all_reduce(sum.data(), sum.data(), sum.size(), SENNIT_FLOAT32, SENNIT_SUM, comm);
  }

  sennit_test::Ranks ranks_{4};
  std::vector<std::unique_ptr<Heard>> heard_;
};

TEST_F(Behind, ARankThatDoesNotCallIsNamedOnAllRanksUntilItDoes) {
  ranks_.run([&](int rank, sennit_comm_t comm) {
    EXPECT_EQ(reduce(comm), SENNIT_OK);
    if (rank == 2)
      wait_for({"\"blamed_ranks\":[2],\"factor\":1.0,\"cost\":0.0,\"confidence\":1.0,",
                "rank 2 is behind: it has not called all_reduce of 4000B float32 sum",
                "\"cause\":\"not_called\"", "\"waiting_ranks\":[0,1,3]"});
    EXPECT_EQ(reduce(comm), SENNIT_OK);
  });
  wait_for({"\"verdict\":\"hang\",\"withdrawn\":true"});
}

// Also where nobody is in a call like it any more.
TEST_F(Behind, WhatItCalledLastIsTold) {
  ranks_.run([&](int rank, sennit_comm_t comm) {
    EXPECT_EQ(reduce(comm), SENNIT_OK);
    if (rank == 2)
      wait_for({"\"call\":\"barrier\"", "its last, all_reduce of 4000B float32 sum (number 1 of "});
    EXPECT_EQ(sennit_barrier(comm), SENNIT_OK);
  });
}

TEST_F(Behind, RanksInCallsOfTwoCommunicatorsWaitForEachOther) {
  std::atomic<int> failed = 0;
  ranks_.run([&](int rank, sennit_comm_t comm) {
    sennit_comm_t other = nullptr;
    ASSERT_EQ(sennit_comm_dup(comm, &other), SENNIT_OK);
    ASSERT_EQ(reduce(comm), SENNIT_OK);
    std::thread ends([&] {
      if (rank != 0) return;
      wait_for({"\"cause\":\"waits_itself\""});
      sennit_comm_abort(other);
      sennit_comm_abort(comm);
    });
    failed += reduce(rank == 1 ? other : comm) == SENNIT_ABORTED;
    ends.join();
    sennit_comm_destroy(other);
  });
  EXPECT_EQ(failed, 4);
}

TEST_F(Behind, AMessageThatNobodySends) {
  ranks_.run([&](int rank, sennit_comm_t comm) {
    int value = rank;
    if (rank == 3) {
      EXPECT_EQ(sennit_recv(&value, 1, SENNIT_INT32, 1, comm), SENNIT_OK);
      EXPECT_EQ(value, 1);
    } else if (rank == 1) {
      wait_for({"\"blamed_ranks\":[1]"});
      EXPECT_EQ(sennit_send(&value, 1, SENNIT_INT32, 3, comm), SENNIT_OK);
    }
  });
}

}  // namespace
}  // namespace sennit
