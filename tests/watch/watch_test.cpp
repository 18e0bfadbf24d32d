// watch_test.cpp: a job's own voice: who listens at rank 0 is told of a rank that comes late, and
// when it does no more; elsewhere, and to who has taken it back, nothing is told.
//
// ctest quiet: it judges how late ranks come
// ctest variable: SENNIT_WATCH=0.2
#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "base/mutex.hpp"
#include "tests/support/ranks.hpp"

namespace sennit {
namespace {

using std::chrono::milliseconds;

// What was told, on whatever thread.
class Heard {
 public:
  static void told(const char* json, void* user) {
    auto* const heard = static_cast<Heard*>(user);
    const MutexLock lock(heard->mutex_);
    heard->all_.emplace_back(json);
  }
  bool has(const std::string& text) const {
    const MutexLock lock(mutex_);
    for (const std::string& json : all_)
      if (json.find(text) != std::string::npos) return true;
    return false;
  }
  size_t size() const {
    const MutexLock lock(mutex_);
    return all_.size();
  }

 private:
  mutable Mutex mutex_;
  std::vector<std::string> all_ SENNIT_GUARDED_BY(mutex_);
};

// Calls, of which `late` comes late, until `enough` says so on rank 0, or for a minute; all ranks
// stop at one call.
template <typename Enough>
void call(sennit_test::Ranks& ranks, int late, Enough enough) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  ranks.run([&](int rank, sennit_comm_t comm) {
    for (;;) {
      const bool go_on = !enough() && std::chrono::steady_clock::now() < end;
      std::vector<float> more(1, rank == 0 && go_on ? 1 : 0), sum(1);
      if (rank == late) std::this_thread::sleep_for(milliseconds(30));
      ASSERT_EQ(sennit_all_reduce(more.data(), sum.data(), 1, SENNIT_FLOAT32, SENNIT_SUM, comm),
                SENNIT_OK);
      if (sum[0] == 0) return;
      std::this_thread::sleep_for(milliseconds(2));
    }
  });
}

TEST(Watch, TellsOfALateRankAndTakesItBack) {
  sennit_test::Ranks ranks(4);
  Heard at_rank_0, at_rank_1, not_any_more;
  ASSERT_EQ(sennit_comm_on_verdict(ranks.comm(1), Heard::told, &at_rank_1), SENNIT_OK);
  ASSERT_EQ(sennit_comm_on_verdict(ranks.comm(0), Heard::told, &not_any_more), SENNIT_OK);
  ASSERT_EQ(sennit_comm_on_verdict(ranks.comm(0), Heard::told, &at_rank_0), SENNIT_OK);
  // On a busy machine something else may be told before.
  call(ranks, 2, [&] { return at_rank_0.has("rank 2 comes late by "); });
  EXPECT_TRUE(at_rank_0.has("rank 2 comes late by "));
  EXPECT_TRUE(at_rank_0.has("\"verdict\":\"late_rank\",\"withdrawn\":false"));
  EXPECT_TRUE(at_rank_0.has("\"blamed_ranks\":[2]"));
  EXPECT_TRUE(at_rank_0.has("\"since_s\":"));
  EXPECT_TRUE(at_rank_0.has("\"next\":\"look at that rank's work"));
  const std::string taken_back = "\"verdict\":\"late_rank\",\"withdrawn\":true";
  call(ranks, -1, [&] { return at_rank_0.has(taken_back); });
  EXPECT_TRUE(at_rank_0.has(taken_back));
  EXPECT_EQ(at_rank_1.size(), 0u);
  EXPECT_EQ(not_any_more.size(), 0u);
  ASSERT_EQ(sennit_comm_on_verdict(ranks.comm(0), nullptr, nullptr), SENNIT_OK);
  EXPECT_EQ(sennit_comm_on_verdict(nullptr, Heard::told, nullptr), SENNIT_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace sennit
