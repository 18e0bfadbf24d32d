// ranks_test.cpp: of recordings, a rank that comes late to most of its calls, or to one of a few
// again and again, is late; where ranks come late by turns, or by chance, nobody is.
// ctest not-under-tsan: it has one thread
#include "diagnose/recorded/ranks.hpp"

#include <algorithm>
#include <functional>
#include <random>

#include <gtest/gtest.h>

namespace sennit::diagnose {
namespace {

constexpr uint64_t kMs = 1'000'000;
constexpr double kLeast = 0.05;

// Of ranks that are in no call for so long before each of so many, and meet in it.
std::optional<LateRanks> late(int ranks, uint32_t calls,
                              const std::function<uint64_t(int, uint32_t)>& alone_ns) {
  JobRecording job;
  job.size = ranks;
  job.ranks.resize(static_cast<size_t>(ranks));
  uint64_t ended_ns = 5'000 * kMs;
  for (uint32_t seq = 1; seq <= calls; seq++) {
    uint64_t all_ns = 0;
    for (int rank = 0; rank < ranks; rank++) {
      TraceEvent event;
      event.comm = 1;
      event.seq = seq;
      event.kind = EventKind::call_begin;
      event.posted_ns = ended_ns + alone_ns(rank, seq);
      all_ns = std::max(all_ns, event.posted_ns);
      job.ranks[static_cast<size_t>(rank)].events.push_back(event);
    }
    ended_ns = all_ns + kMs / 10;
    for (int rank = 0; rank < ranks; rank++) {
      RankRecording& its = job.ranks[static_cast<size_t>(rank)];
      its.rank = rank;
      its.size = ranks;
      TraceEvent event = its.events.back();
      event.kind = EventKind::call_end;
      event.posted_ns = ended_ns;
      its.events.push_back(event);
    }
  }
  job.index();
  return find_late_ranks(job, kLeast);
}

TEST(LateRanks, ToEveryThirdCall) {
  const auto found = late(
      4, 97, [](int rank, uint32_t call) { return rank == 1 && call % 3 == 0 ? 3 * kMs : kMs; });
  ASSERT_TRUE(found);
  EXPECT_EQ(found->ranks, std::vector<int>{1});
  EXPECT_NEAR(found->late_ns, 2.0 / 3 * kMs, 0.1 * kMs);
}

// What went well before is recorded as well.
TEST(LateRanks, SinceTheMiddleOfTheRecording) {
  const auto found =
      late(4, 64, [](int rank, uint32_t call) { return rank == 1 && call > 30 ? 3 * kMs : kMs; });
  ASSERT_TRUE(found);
  EXPECT_EQ(found->ranks, std::vector<int>{1});
  EXPECT_NEAR(found->late_ns, 2.0 * kMs, 0.1 * kMs);
}

TEST(LateRanks, OnceOrTwiceIsNothing) {
  EXPECT_FALSE(late(4, 72, [](int rank, uint32_t call) {
    return rank == 1 && call % 30 == 7 ? 100 * kMs : kMs;
  }));
}

// As where what a rank computes hangs on its data: none is slower than the others.
TEST(LateRanks, ByTurnsNobodyIs) {
  for (const int ranks : {2, 4, 8})
    EXPECT_FALSE(late(ranks, 400, [ranks](int rank, uint32_t call) {
      return static_cast<int>(call) % ranks == rank ? 3 * kMs : kMs;
    }));
}

TEST(LateRanks, ByChanceNobodyIs) {
  for (uint64_t seed = 1; seed <= 20; seed++) {
    std::mt19937_64 draw(seed);
    for (const uint32_t calls : {40u, 400u}) {
      const auto found =
          late(8, calls, [&](int, uint32_t) { return draw() % 10 == 0 ? 3 * kMs / 2 : kMs / 2; });
      EXPECT_FALSE(found) << "seed " << seed << ", " << calls << " calls";
    }
  }
}

TEST(LateRanks, AmongOthersThatAreByChance) {
  std::mt19937_64 draw(7);
  const auto found = late(8, 400, [&](int rank, uint32_t) {
    return (draw() % 10 == 0 ? 3 * kMs / 2 : kMs / 2) + (rank == 5 ? kMs / 2 : 0);
  });
  ASSERT_TRUE(found);
  EXPECT_EQ(found->ranks, std::vector<int>{5});
}

// What ranks do between calls may take longer now and then by more than it usually takes.
TEST(LateRanks, OfAFewCallsChanceAccusesNobody) {
  constexpr int kSeeds = 50;
  int jobs = 0, accused = 0;
  for (uint64_t seed = 1; seed <= kSeeds; seed++) {
    std::mt19937_64 draw(seed);
    std::exponential_distribution<double> work(1);
    for (const int ranks : {2, 4, 8, 32})
      for (const uint32_t calls : {5u, 6u, 9u, 17u, 41u}) {
        jobs++;
        if (late(ranks, calls,
                 [&](int, uint32_t) { return static_cast<uint64_t>(kMs * work(draw)); }))
          accused++;
      }
  }
  EXPECT_LE(100 * accused, 2 * jobs) << accused << " of " << jobs;
}

TEST(LateRanks, OfAFewCallsOneThatIsTheLatestInEach) {
  for (uint64_t seed = 1; seed <= 20; seed++) {
    std::mt19937_64 draw(seed);
    std::uniform_real_distribution<double> work(0.5, 1.5);
    const auto found = late(8, 5, [&](int rank, uint32_t) {
      return static_cast<uint64_t>(kMs * (work(draw) + (rank == 3 ? 2 : 0)));
    });
    ASSERT_TRUE(found) << "seed " << seed;
    EXPECT_EQ(found->ranks, std::vector<int>{3});
  }
}

}  // namespace
}  // namespace sennit::diagnose
