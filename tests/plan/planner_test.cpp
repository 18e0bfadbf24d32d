// planner_test.cpp: what the planner chooses, that it follows its formula and its ties, and what it
// says.
//
// ctest not-under-tsan: it has one thread
#include "plan/planner.hpp"
#include "plan/shared_cores.hpp"

#include <algorithm>

#include <gtest/gtest.h>

#include "collectives/algorithm.hpp"
#include "topology/source.hpp"

namespace sennit {
namespace {

// 2 racks of 4 hosts, 400 Mbit/s each, 229 Mbit/s per rack.
TierTree two_racks() { return TierTree::uniform({2, 4}, {28'625'000, 50'000'000}); }

Request request_of(Collective collective, uint64_t bytes) {
  Request r;
  r.collective = collective;
  r.count = bytes / 4;
  return r;
}

TEST(Planner, LargeAllReduceTakesTheTieredFamilyInChunksCloseToTheBound) {
  const auto plan = make_plan(request_of(Collective::all_reduce, 16'000'000), two_racks(), {});
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->algorithm, "tiered");
  EXPECT_GE(plan->parameters.chunks, 16u);
  ASSERT_TRUE(plan->bound.known);
  EXPECT_GE(plan->predicted_ns, plan->bound.time_ns);
  EXPECT_LE(plan->predicted_ns, plan->bound.time_ns * 11 / 10);
}

// The same racks behind shapers that let 256 KiB pass at once.
TierTree shaped_racks() {
  TierTree tree = two_racks();
  for (size_t i = 1; i < tree.groups.size(); i++)
    tree.groups[i].egress.burst_bytes = tree.groups[i].ingress.burst_bytes = 256 << 10;
  return tree;
}

TEST(Planner, WhatPassesAtOnceDoesNotWaitHopAfterHopButIsEarnedAtTheRate) {
  const TierTree racks = two_racks(), shaped = shaped_racks();
  const Request small = request_of(Collective::broadcast, 32 << 10);
  const uint64_t stored = predicted_ns(small, racks, {}, "chain", {});
  const uint64_t passing = predicted_ns(small, shaped, {}, "chain", {});
  const uint64_t bound = lower_bound(small, shaped).time_ns;
  EXPECT_GT(stored, 3 * bound) << "seven hops, one after the other";
  EXPECT_GE(passing, bound) << "no call among calls in a row is faster than the bound";
  EXPECT_LT(passing, bound * 3 / 2);
  // Nothing of that is left where the message is much larger than the burst.
  const Request large = request_of(Collective::all_reduce, 64 << 20);
  const uint64_t before = make_plan(large, racks, {})->predicted_ns;
  const uint64_t after = make_plan(large, shaped, {})->predicted_ns;
  EXPECT_LE(after, before);
  EXPECT_GE(after, before * 99 / 100);
}

TEST(Planner, ABurstNeverMakesACallLongerByMoreThanWhatIsNotHidden) {
  const TierTree racks = two_racks(), shaped = shaped_racks();
  for (const Collective c :
       {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter,
        Collective::broadcast, Collective::reduce, Collective::gather})
    for (uint64_t bytes = 32; bytes <= 64 << 20; bytes *= 8) {
      const Request request = request_of(c, bytes);
      const Plan plan = *make_plan(request, racks, {});
      for (const Candidate& one : plan.candidates) {
        const uint64_t ns = predicted_ns(request, shaped, {}, one.algorithm, one.parameters);
        EXPECT_LE(ns, one.predicted_ns * 9 / 8) << one.algorithm << " " << bytes;
        EXPECT_GE(ns, lower_bound(request, shaped).time_ns) << one.algorithm << " " << bytes;
      }
    }
}

TEST(Planner, HeadersTakeTheirPartOfTheRateBetweenHosts) {
  PlanOptions tcp;
  tcp.cost.goodput_permille = 956;
  const Request request = request_of(Collective::all_reduce, 64 << 20);
  const uint64_t plain = make_plan(request, two_racks(), {})->predicted_ns;
  const uint64_t with_headers = make_plan(request, two_racks(), tcp)->predicted_ns;
  EXPECT_NEAR(static_cast<double>(with_headers) / static_cast<double>(plain), 1 / 0.956, 0.005);
}

TEST(Planner, WithinOneMachineFewMessagesAreFasterThanOneRoundOfMany) {
  PlanOptions wires, memory;
  wires.cost.shared_cores.crowding_permille = memory.cost.shared_cores.crowding_permille = 4'000;
  within_one_machine(&memory.cost);
  const Request request = request_of(Collective::broadcast, 8);
  EXPECT_EQ(make_plan(request, shaped_racks(), wires)->algorithm, "direct");
  EXPECT_EQ(make_plan(request, shaped_racks(), memory)->algorithm, "tree");
}

// What is received costs within a host too: a root that takes everything in is slower the more
// there are.
TEST(Planner, ARootThatTakesAllInIsSlowerTheMoreRanksThereAre) {
  for (const Collective collective : {Collective::reduce, Collective::gather}) {
    const auto direct_ns = [&](int ranks) {
      PlanOptions options;
      options.algorithm = "direct";
      TierTree host = TierTree::uniform({ranks}, {10'000'000'000});
      host.tiers[1].name = "host";
      return make_plan(request_of(collective, 8), host, options)->predicted_ns;
    };
    EXPECT_GE(direct_ns(64), direct_ns(8) + 56 * CostModel().shared_memory_post_ns / 2)
        << name(collective);
  }
}

// Where ranks share cores, what all of them send counts: in unequal racks the busiest rank sends
// far more than the others, and that times the ranks would rule tiered schedules out.
TEST(Planner, TieredSchedulesKnowTheMessagesOfAllRanks) {
  const Algorithm* const tiered = find_algorithm("tiered");
  CostModel crowded;
  crowded.shared_cores.crowding_permille = 4000;
  for (const TierTree& tree :
       {two_racks(), TierTree::uniform({3, 3}), TierTree::uniform({2, 2, 4})})
    for (const Collective c :
         {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter}) {
      const Request request = request_of(c, 4'096);
      for (const Parameters& p : tiered->candidates(tree, request)) {
        const std::optional<Counts> counts = tiered->count(tree, request, p);
        ASSERT_TRUE(counts.has_value());
        EXPECT_EQ(tiered->on_shared_cores(tree, request, p, crowded, {}).all_messages,
                  counts->messages)
            << name(c) << " " << p.to_text();
      }
    }
}

TEST(Planner, SmallMessagesAreNotCut) {
  for (const Collective c :
       {Collective::all_reduce, Collective::all_gather, Collective::broadcast}) {
    const auto plan = make_plan(request_of(c, 8), two_racks(), {});
    ASSERT_TRUE(plan.ok());
    EXPECT_EQ(plan->parameters.chunks, 1u) << name(c);
  }
}

// It has the whole half before it sends any of it on.
TEST(Planner, AnUncutHalfPassesANarrowHostTwice) {
  const TierTree tree = *synthetic_tree("racks=3,1,4;nic=1GB/s;oversubscription=6;latency=5us");
  const Request request = request_of(Collective::broadcast, 16 << 20);
  const PlanOptions options;
  const auto ns = [&](uint32_t chunks) {
    Parameters parameters;
    parameters.chunks = chunks;
    return predicted_ns(request, tree, options, "double_tree", parameters);
  };
  EXPECT_GT(ns(1), 2 * ns(64));
}

TEST(Planner, EveryCollectiveGetsAPlanOnEveryTree) {
  for (const TierTree& tree : {TierTree::flat(1), TierTree::flat(2), TierTree::flat(7), two_racks(),
                               TierTree::uniform({3, 2, 2})})
    for (int c = 0; c < kCollectives; c++)
      for (const uint64_t bytes : {0, 4, 1 << 20}) {
        const auto plan = make_plan(request_of(static_cast<Collective>(c), bytes), tree, {});
        ASSERT_TRUE(plan.ok()) << name(static_cast<Collective>(c)) << ": " << plan.status().text();
        EXPECT_FALSE(plan->algorithm.empty());
        EXPECT_FALSE(plan->to_text().empty());
      }
}

TEST(Planner, AMessageGoesAtTheRateOfTheNarrowestBoundary) {
  constexpr uint64_t kGib = uint64_t{1} << 30;
  const Request request = request_of(Collective::send_recv, kGib);
  const auto ms = [&](const TierTree& tree) {
    return static_cast<double>(make_plan(request, tree, {})->predicted_ns) / 1e6;
  };
  TierTree tree = TierTree::uniform({2, 4}, {400'000'000'000, 50'000'000'000});
  EXPECT_NEAR(ms(tree), 21.5, 0.1);
  tree.groups[1].ingress.bytes_per_s = 10'000'000'000;
  EXPECT_NEAR(ms(tree), 107.4, 0.1);
  // Nothing is known: a network is taken for one NIC, and a host for its memory.
  EXPECT_NEAR(ms(TierTree::flat(4)), 859, 1);
  TierTree host = TierTree::flat(4);
  host.tiers.back().name = "host";
  EXPECT_NEAR(ms(host), 134.2, 0.1);
}

// Nor are they less than what fewer bytes, or messages of less latency, take.
TEST(Planner, TimesThatNoNumberHoldsDoNotWrapAround) {
  constexpr uint64_t kMost = ~uint64_t{0};
  const TierTree slow = TierTree::uniform({2, 2}, {1, 1});
  for (const Collective c : {Collective::all_reduce, Collective::all_gather, Collective::broadcast})
    for (const uint64_t gigabytes : {75, 100, 150})
      EXPECT_EQ(predicted_ns(request_of(c, gigabytes * 1'000'000'000), slow, {}, "tiered", {}),
                kMost)
          << name(c) << " of " << gigabytes << " GB";
  PlanOptions headers;
  headers.cost.message_bytes = uint64_t{1} << 40;
  EXPECT_EQ(predicted_ns(request_of(Collective::all_reduce, 4096), slow, headers, "tiered", {}),
            kMost);
  const Request small = request_of(Collective::all_reduce, 4096);
  for (uint64_t CostModel::*time : {&CostModel::latency_ns, &CostModel::post_ns}) {
    PlanOptions options;
    options.cost.*time = uint64_t{1} << 63;
    for (const char* algorithm : {"tiered", "ring", "double_tree"})
      EXPECT_EQ(predicted_ns(small, two_racks(), options, algorithm, {}), kMost) << algorithm;
  }
}

TEST(Planner, TheChoiceIsTheBestCandidateAndTheOthersSayWhyNot) {
  const auto plan = make_plan(request_of(Collective::all_reduce, 1 << 20), two_racks(), {});
  ASSERT_TRUE(plan.ok());
  ASSERT_GT(plan->candidates.size(), 3u);
  EXPECT_TRUE(plan->candidates[0].rejected.empty());
  EXPECT_EQ(plan->candidates[0].predicted_ns, plan->predicted_ns);
  for (size_t i = 1; i < plan->candidates.size(); i++) {
    EXPECT_GE(plan->candidates[i].predicted_ns, plan->predicted_ns);
    EXPECT_FALSE(plan->candidates[i].rejected.empty());
  }
}

TEST(Planner, PredictionFollowsTheFormula) {
  PlanOptions options;
  options.algorithm = "tiered";
  const Request request = request_of(Collective::all_gather, 1 << 20);
  const TierTree tree = two_racks();
  const auto plan = make_plan(request, tree, options);
  ASSERT_TRUE(plan.ok());
  const Estimate e =
      find_algorithm("tiered")->estimate(tree, request, plan->parameters, options.cost);
  uint64_t sum = 0, largest = 0;
  for (const uint64_t ns : e.tier_ns) {
    sum += ns;
    largest = std::max(largest, ns);
  }
  const uint64_t chunks = plan->parameters.chunks, posts = e.messages * options.cost.post_ns;
  EXPECT_GT(chunks, 1u);
  const uint64_t moving = largest - largest / chunks, posting = (chunks - 1) * posts;
  EXPECT_GT(moving, posting);
  const uint64_t share = posting * 1000 / moving;
  EXPECT_EQ(plan->predicted_ns, e.latency_ns + posts + sum / chunks + moving +
                                    posting * share / 1000 * share / 1000 * share / 1000 / 8);
}

TEST(Planner, AlgorithmAndChunksCanBeForced) {
  PlanOptions options;
  options.algorithm = "ring";
  options.chunk_bytes = 1'000'000;
  const auto plan = make_plan(request_of(Collective::all_reduce, 16'000'000), two_racks(), options);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->algorithm, "ring");
  EXPECT_EQ(plan->parameters.chunks, 16u);
}

// A search holds the choice against more than the planner compares.
TEST(Planner, EveryNumberOfChunksCanBeACandidate) {
  const Request request = request_of(Collective::all_reduce, 1 << 20);
  const Plan plan = *make_plan(request, two_racks(), {});
  PlanOptions every;
  every.every_chunk = true;
  const Plan search = *make_plan(request, two_racks(), every);
  EXPECT_LE(search.predicted_ns, plan.predicted_ns);
  EXPECT_GT(search.candidates.size(), 5 * plan.candidates.size());
  for (const Candidate& one : plan.candidates)
    EXPECT_EQ(std::ranges::count_if(search.candidates,
                                    [&](const Candidate& other) {
                                      return other.algorithm == one.algorithm &&
                                             other.parameters == one.parameters &&
                                             other.predicted_ns == one.predicted_ns;
                                    }),
              1)
        << one.algorithm << " " << one.parameters.to_text();
}

TEST(Planner, UnknownAndUnfitAlgorithmsAreNamed) {
  PlanOptions options;
  options.algorithm = "rign";
  const auto unknown = make_plan(request_of(Collective::all_reduce, 8), two_racks(), options);
  ASSERT_FALSE(unknown.ok());
  EXPECT_EQ(unknown.status().kind(), SENNIT_NOT_FOUND);
  EXPECT_NE(unknown.status().text().find("'rign'"), std::string::npos);
  EXPECT_NE(unknown.status().text().find("ring"), std::string::npos);
  options.algorithm = "tiered";
  const auto unfit = make_plan(request_of(Collective::all_to_all, 8), two_racks(), options);
  ASSERT_FALSE(unfit.ok());
  EXPECT_EQ(unfit.status().kind(), SENNIT_UNSUPPORTED);
  EXPECT_NE(unfit.status().text().find("all_to_all"), std::string::npos);
}

TEST(Planner, UnknownCapacitiesStayUnknownAndStillPutTheTiersInOrder) {
  const auto plan =
      make_plan(request_of(Collective::all_reduce, 16'000'000), TierTree::uniform({2, 4}), {});
  ASSERT_TRUE(plan.ok());
  EXPECT_FALSE(plan->bound.known);
  EXPECT_EQ(plan->algorithm, "tiered");
  EXPECT_NE(plan->to_text().find("bound unknown"), std::string::npos);
}

// Four ranks a core: fewer messages win over fewer rounds.
TEST(Planner, RanksThatShareCoresSendFewerMessages) {
  const TierTree tree = two_racks();
  PlanOptions crowded;
  crowded.cost.shared_cores.crowding_permille = 4000;
  const auto messages = [&](const Request& request, const PlanOptions& options) {
    const auto plan = make_plan(request, tree, options);
    EXPECT_TRUE(plan.ok());
    const Algorithm* algorithm = find_algorithm(plan->algorithm);
    const Estimate e = algorithm->estimate(tree, request, plan->parameters, options.cost);
    const uint64_t all =
        algorithm->on_shared_cores(tree, request, plan->parameters, crowded.cost, e).all_messages;
    return all > 0 ? all : e.messages * 8;
  };
  for (const Collective c : {Collective::all_reduce, Collective::all_gather, Collective::barrier}) {
    const Request request = request_of(c, 8);
    EXPECT_GE(messages(request, {}), 24u) << name(c);
    EXPECT_EQ(messages(request, crowded), 14u) << name(c);
  }
}

TEST(Planner, ChunksAreHardlyLargerWhereRatesAreUnknown) {
  PlanOptions crowded;
  crowded.cost.shared_cores.crowding_permille = 4000;
  const Request request = request_of(Collective::all_gather, 2'000'000);
  const auto known = make_plan(request, two_racks(), crowded);
  const auto unknown = make_plan(request, TierTree::uniform({2, 4}), crowded);
  ASSERT_TRUE(known.ok() && unknown.ok());
  EXPECT_GE(2 * unknown->parameters.chunks, known->parameters.chunks);
}

TEST(Planner, HashCoversRequestTreeAlgorithmAndParametersButNotInPlace) {
  const Request request = request_of(Collective::all_reduce, 1 << 20);
  const auto hash = [](const Request& r, const TierTree& tree, const PlanOptions& options) {
    const auto plan = make_plan(r, tree, options);
    return plan.ok() ? plan->hash : 0;
  };
  const uint64_t base = hash(request, two_racks(), {});
  EXPECT_EQ(hash(request, two_racks(), {}), base);
  Request in_place = request;
  in_place.in_place = true;
  EXPECT_EQ(hash(in_place, two_racks(), {}), base);
  Request other = request;
  other.count++;
  EXPECT_NE(hash(other, two_racks(), {}), base);
  other = request;
  other.op = Op::max;
  EXPECT_NE(hash(other, two_racks(), {}), base);
  EXPECT_NE(hash(request, TierTree::uniform({2, 4}, {28'625'001, 50'000'000}), {}), base);
  PlanOptions ring;
  ring.algorithm = "ring";
  EXPECT_NE(hash(request, two_racks(), ring), base);
  PlanOptions chunks;
  chunks.chunk_bytes = 4096;
  EXPECT_NE(hash(request, two_racks(), chunks), base);
}

TEST(Planner, TextNamesChoiceBoundAndRejected) {
  PlanOptions options;
  options.algorithm = "tiered";
  const auto plan = make_plan(request_of(Collective::barrier, 0), TierTree::flat(4), options);
  ASSERT_TRUE(plan.ok());
  const std::string text = plan->to_text();
  EXPECT_EQ(text.substr(0, text.find(':')), "tiered, 1 chunk, whole pieces");
  EXPECT_NE(text.find("\nbound unknown"), std::string::npos);
  EXPECT_NE(text.find("\nrejected tiered, 1 chunk, radix 2, whole pieces: predicted "),
            std::string::npos);
  EXPECT_NE(text.find("\nplan "), std::string::npos);
}

TierTree of_24576_ranks() {
  return TierTree::uniform({8, 192, 2, 8},
                           {21'943'000'000'000, 800'000'000'000, 400'000'000'000, 500'000'000'000});
}

TEST(Planner, TheTieredFamilyIsChosenOn24576Ranks) {
  const auto plan = make_plan(request_of(Collective::all_reduce, 1 << 30), of_24576_ranks(), {});
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->algorithm, "tiered");
}

// Whole vectors from everybody to everybody are more bytes than 64 bits hold.
TEST(Planner, SixteenTimesTheBytesTakeSixteenTimesAsLongOn24576Ranks) {
  const TierTree tree = of_24576_ranks();
  const auto seconds = [&](uint64_t gib) {
    const Request request = request_of(Collective::all_reduce, gib << 30);
    return static_cast<double>(predicted_ns(request, tree, {}, "direct", {})) / 1e9;
  };
  const double before = seconds(64), after = seconds(1024);
  EXPECT_GT(before, 200'000);
  EXPECT_NEAR(after / before, 16, 0.1);
}

}  // namespace
}  // namespace sennit
