// starved_test.cpp: of recordings, a rank that does not run again and again is starved; once or
// twice, or in a moment, says nothing.
// ctest not-under-tsan: it has one thread
#include "diagnose/recorded/starved.hpp"

#include <gtest/gtest.h>

#include "diagnose/sentences.hpp"

namespace sennit::diagnose {
namespace {

constexpr uint64_t kMs = 1'000'000;
constexpr double kLeast = 0.1;

// Of three ranks that recorded for so long, rank 1 was paused at the end so many times for so long,
// with as long between two pauses.
std::optional<StarvedRanks> starved(uint64_t recorded_ms, size_t pauses, uint64_t pause_ms) {
  constexpr uint64_t kBegin = 5'000 * kMs;
  JobRecording job;
  job.size = 3;
  for (int rank = 0; rank < job.size; rank++) {
    RankRecording& recording = job.ranks.emplace_back();
    recording.rank = rank;
    recording.size = job.size;
    recording.monotonic_ns = kBegin;
    for (uint64_t at_ms = 0; at_ms <= recorded_ms; at_ms++) {
      TraceEvent event{};
      event.posted_ns = kBegin + at_ms * kMs;
      recording.events.push_back(event);
    }
  }
  for (size_t i = 0; i < pauses; i++) {
    const uint64_t end_ns = kBegin + (recorded_ms - 2 * (pauses - 1 - i) * pause_ms) * kMs;
    job.ranks[1].pauses.push_back({end_ns - pause_ms * kMs, end_ns});
  }
  job.index();
  return find_starved_ranks(job, kLeast);
}

TEST(StarvedRanks, OneThatIsPausedAgainAndAgain) {
  const std::optional<StarvedRanks> found = starved(2'000, 8, 50);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->ranks, std::vector<int>{1});
  EXPECT_NEAR(found->part, 0.2, 0.01);
  EXPECT_FALSE(starved(2'000, 3, 50).has_value()) << "7.5% of the time";
}

TEST(StarvedRanks, OnceOrTwiceIsNothing) {
  EXPECT_FALSE(starved(2'000, 1, 400).has_value());
  EXPECT_FALSE(starved(2'000, 2, 200).has_value());
  EXPECT_TRUE(starved(2'000, 3, 150).has_value());
}

TEST(StarvedRanks, OneAndSeveralAreSaidAlike) {
  EXPECT_EQ(
      starved_ranks_sentence({1}, 0.2),
      "rank 1 gets no core for 20% of the time, while the others wait: its process is stopped "
      "again and again, or short of its cgroup's share");
  EXPECT_EQ(starved_ranks_sentence({1, 2}, 0.2),
            "ranks 1-2 get no core for 20% of the time, while the others wait: their processes are "
            "stopped again and again, or short of their cgroups' share");
}

TEST(StarvedRanks, OfAMomentNothingIsSaid) {
  EXPECT_FALSE(starved(600, 4, 20).has_value());
  EXPECT_TRUE(starved(1'100, 4, 40).has_value());
}

}  // namespace
}  // namespace sennit::diagnose
