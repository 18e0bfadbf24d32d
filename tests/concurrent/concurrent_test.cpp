// concurrent_test.cpp: several process groups at the same time: the bound of the set is that of the
// formula, and the simulated times meet it.
//
// ctest not-under-tsan: it has one thread
#include "concurrent/concurrent.hpp"
#include "plan/planner.hpp"

#include <algorithm>
#include <cmath>
#include <iostream>
#include <random>
#include <type_traits>

#include <gtest/gtest.h>

#include "base/index.hpp"
#include "tests/support/random_trees.hpp"
#include "tests/support/seed.hpp"
#include "tests/support/trials.hpp"
#include "tests/support/verify_programs.hpp"
#include "topology/fabric/fabric.hpp"
#include "topology/source.hpp"

namespace sennit {
namespace {

// A member of it refers to its own copy of the tree.
static_assert(!std::is_copy_constructible_v<SharedTree> &&
              !std::is_move_constructible_v<SharedTree>);
static_assert(!std::is_copy_assignable_v<SharedTree> && !std::is_move_assignable_v<SharedTree>);

// Of `ranks` ranks, process groups of `size` members that are `stride` apart.
std::vector<std::vector<int>> strided(int ranks, int size, int stride) {
  std::vector<std::vector<int>> groups;
  for (int block = 0; block + size * stride <= ranks; block += size * stride)
    for (int first = block; first < block + stride; first++) {
      groups.emplace_back();
      for (int i = 0; i < size; i++) groups.back().push_back(first + i * stride);
    }
  return groups;
}

TierTree spec(const std::string& text) {
  Result<TierTree> tree = synthetic_tree(text);
  EXPECT_TRUE(tree.ok()) << tree.status().text();
  return *std::move(tree);
}

// Or more, where a group takes in less than it lets out: what all send, all must take in.
TEST(SetBound, OfOneGroupOfAllRanksIsTheLowerBound) {
  std::mt19937_64 random(sennit_test::seed());
  int known = 0;
  for (int round = 0; round < sennit_test::trials(100); round++) {
    TierTree tree = random_tree(random, 2 + static_cast<int>(random() % 30));
    const bool both_ways = round % 2 == 0;
    if (both_ways)
      for (Group& group : tree.groups) group.ingress = group.egress;
    ConcurrentCall call;
    call.groups.emplace_back();
    for (int p = 0; p < tree.ranks(); p++) call.groups[0].push_back(p);
    for (int c = 0; c < kCollectives - 1; c++) {
      call.request = bytes_request(static_cast<Collective>(c), 1 + random() % 1'000'000);
      if (call.request.collective == Collective::barrier) call.request.count = 0;
      if (has_root(call.request.collective))
        call.request.root = static_cast<int>(random() % static_cast<uint64_t>(tree.ranks()));
      const Bound alone = lower_bound(call.request, tree);
      const Bound set = set_bound(tree, {&call, 1});
      if (!alone.known) continue;
      known++;
      ASSERT_TRUE(set.known) << set.why;
      SCOPED_TRACE(std::string(name(call.request.collective)) + "\n" + set.why + "\n" + alone.why +
                   "\n" + tree.to_text());
      if (both_ways) {
        ASSERT_EQ(set.time_ns, alone.time_ns);
      } else {
        ASSERT_GE(set.time_ns, alone.time_ns);
      }
    }
  }
  EXPECT_GT(known, 0);
}

// d ranks a group, m of them in each pod, one rank a host: max[1 - 1/d, s (1 - m/d) / m] M/B.
double formula(double d, double m, double s) { return std::max(1 - 1 / d, s * (1 - m / d) / m); }

TEST(SetBound, OfConcurrentGroupsIsTheFormula) {
  const double rate = 50e9, bytes = 1 << 30;
  for (const auto& [pods, hosts] : {std::pair{8, 16}, {4, 24}, {12, 8}}) {
    const TierTree tree = spec("pods=" + std::to_string(pods) + "x" + std::to_string(hosts / 2) +
                               "x2;nic=50GB/s;oversubscription=1,7");
    for (const int in_pod : {1, 2, 4, 8}) {
      for (const int size : {pods * in_pod, pods / 2 * in_pod, 2 * in_pod}) {
        ConcurrentCall call;
        call.groups = strided(tree.ranks(), size, hosts / in_pod);
        ASSERT_EQ(index(tree.ranks()), call.groups.size() * index(size)) << "all take part";
        for (const Collective collective : {Collective::all_gather, Collective::reduce_scatter}) {
          call.request = bytes_request(collective, (1 << 30) / static_cast<uint64_t>(size));
          const Bound bound = set_bound(tree, {&call, 1});
          ASSERT_TRUE(bound.known) << bound.why;
          const double expected = formula(size, in_pod, 7) * bytes / rate * 1e9;
          EXPECT_NEAR(static_cast<double>(bound.time_ns), expected, 2e-6 * expected)
              << size << " ranks, " << in_pod << " in each pod: " << bound.why;
          const double host = 1 - 1.0 / size, pod = 7 * (1 - 1.0 * in_pod / size) / in_pod;
          const std::string& tier = tree.tiers[index(bound.binding_tier)].name;
          if (std::abs(pod - host) > 1e-3) {
            EXPECT_EQ(tier == "pod", pod > host) << bound.why;
          }
        }
        // All-reduce: 2 (n - 1) / n of M out of each of n pods, or hosts, of each group.
        call.request = bytes_request(Collective::all_reduce, 1 << 30);
        const double n = 1.0 * size / in_pod;
        const double expected =
            2 * std::max(1 - 1.0 / size, 7.0 * (1 - 1 / n) / in_pod) * bytes / rate * 1e9;
        EXPECT_NEAR(static_cast<double>(set_bound(tree, {&call, 1}).time_ns), expected,
                    2e-6 * expected);
      }
    }
  }
}

TEST(SetBound, AddsUpWhatSharesABoundary) {
  // Two racks of four hosts, uplinks of 2 GB/s.
  const TierTree tree = spec("racks=2x4;nic=1GB/s;uplink=2GB/s");
  ConcurrentCall gather{bytes_request(Collective::all_gather, 250'000'000), {{0, 1, 4, 5}}};
  // the hosts bind: three blocks into each
  EXPECT_EQ(set_bound(tree, {&gather, 1}).time_ns, 750'000'000u);
  // A gigabyte from 3 to 7 and one from 2 to 6, with half a gigabyte of the gather into rack 1.
  ConcurrentCall down{bytes_request(Collective::broadcast, 1'000'000'000), {{7, 3}, {2, 6}}};
  Bound bound = set_bound(tree, std::vector<ConcurrentCall>{gather, down});
  EXPECT_EQ(bound.time_ns, 1'250'000'000u) << bound.why;
  EXPECT_NE(bound.why.find("of 3 process groups"), std::string::npos) << bound.why;
  // One of the two the other way: each direction has room; the hosts bind.
  ConcurrentCall up = down;
  down.groups.pop_back();
  up.groups.erase(up.groups.begin());
  up.request.root = 1;
  bound = set_bound(tree, std::vector<ConcurrentCall>{gather, down, up});
  EXPECT_EQ(bound.time_ns, 1'000'000'000u) << bound.why;
  EXPECT_EQ(bound.tier_ns[1], 750'000'000u) << bound.why;
  // What shares nothing does not add up: each rack's own all-reduce, and an idle rack's uplink is
  // no help.
  ConcurrentCall inner{bytes_request(Collective::all_reduce, 1'000'000'000),
                       {{0, 1, 2, 3}, {4, 5}}};
  EXPECT_EQ(set_bound(tree, {&inner, 1}).time_ns, 1'500'000'000u);
  EXPECT_EQ(set_bound(tree, {&inner, 1}).tier_ns[1], 0u);
}

constexpr int kPod = 48;  // hosts, of one rank each

// A piece of the reference cluster: 400 GB/s a host, 7:1 above the pod.
TierTree pods(int count) {
  return spec("pods=" + std::to_string(count) + "x" + std::to_string(kPod / 2) +
              "x2;nic=400GB/s;oversubscription=1,7;latency=14us");
}

// Groups of `size` with `in_pod` members in every pod, as many as fill the pods; those of each
// group that are left over, if any, are in a pod of its own.
struct Mesh {
  TierTree tree;
  std::vector<std::vector<int>> groups;
};
Mesh mesh(int size, int in_pod) {
  const int full = size / in_pod, groups = kPod / in_pod, left = size % in_pod;
  Mesh made{pods(full + (left > 0 ? groups : 0)), {}};
  for (int g = 0; g < groups; g++) {
    made.groups.emplace_back();
    for (int i = 0; i < full * in_pod; i++)
      made.groups.back().push_back(i / in_pod * kPod + i % in_pod * groups + g);
    for (int i = 0; i < left; i++) made.groups.back().push_back((full + g) * kPod + i * groups + g);
  }
  return made;
}

SimulatedSet simulated(const TierTree& tree, std::span<const ConcurrentCall> calls,
                       const SimulateOptions& options, SetPlanning planning = {}) {
  Result<SimulatedSet> set = simulate_concurrent(tree, calls, options, {}, planning);
  EXPECT_TRUE(set.ok()) << set.status().text();
  return set ? *std::move(set) : SimulatedSet();
}

constexpr SetPlanning kAsIfAlone{.shares = false, .tries = 1};

// In units of M/B.
double units(uint64_t ns, uint64_t bytes) {
  return static_cast<double>(ns) / (static_cast<double>(bytes) / 400e9 * 1e9);
}

TEST(Concurrent, GroupsMeetTheFormula) {
  constexpr uint64_t kBytes = uint64_t{8} << 30;
  std::vector<std::pair<int, int>> shapes = {{4, 1}, {4, 2}, {8, 1}, {8, 2}};
  if (!sennit_test::kSanitized) shapes.insert(shapes.end(), {{128, 24}, {128, 6}});
  for (const auto& [size, in_pod] : shapes) {
    const Mesh made = mesh(size, in_pod);
    ConcurrentCall call;
    call.groups = made.groups;
    for (const Collective collective : {Collective::all_gather, Collective::reduce_scatter}) {
      call.request = bytes_request(collective, kBytes / static_cast<uint64_t>(size));
      SimulateOptions options;
      options.cost.reduce_bytes_per_s = uint64_t{1} << 60;
      const double expected = formula(size, in_pod, 7);
      const double bound = units(set_bound(made.tree, {&call, 1}).time_ns, kBytes);
      const SimulatedSet events = simulated(made.tree, {&call, 1}, options);
      options.fluid = true;
      const SimulatedSet fluid = simulated(made.tree, {&call, 1}, options);
      std::cout << name(collective) << " of " << size << " ranks, " << in_pod << " a pod: formula "
                << expected << ", fluid " << units(fluid.all.time_ns, kBytes) << ", events "
                << units(events.all.time_ns, kBytes) << " M/B\n";
      EXPECT_NEAR(bound, expected, 1e-6 * expected);
      EXPECT_GE(units(fluid.all.time_ns, kBytes), bound * (1 - 1e-6));
      EXPECT_LE(units(fluid.all.time_ns, kBytes), expected * 1.01);
      EXPECT_GE(units(events.all.time_ns, kBytes), bound * (1 - 1e-6));
      EXPECT_LE(units(events.all.time_ns, kBytes), expected * 1.065);
      EXPECT_EQ(fluid.choices.size(), 1u) << "all groups are alike";
      EXPECT_EQ(fluid.choices[0].groups, kPod / in_pod);
    }
  }
}

// The same ranks in the same number of groups, next to each other or one in each pod.
TEST(Concurrent, ABadOrderCostsWhatTheUplinksAreScarcer) {
  constexpr uint64_t kBytes = uint64_t{1} << 30;
  const TierTree tree = pods(8);
  SimulateOptions options;
  options.cost.reduce_bytes_per_s = uint64_t{1} << 60;
  for (const bool fluid : {true, false}) {
    options.fluid = fluid;
    ConcurrentCall call{bytes_request(Collective::all_gather, kBytes / 8),
                        strided(tree.ranks(), 8, 1)};
    const double good = units(simulated(tree, {&call, 1}, options).all.time_ns, kBytes);
    call.groups = strided(tree.ranks(), 8, kPod);
    const double bad = units(simulated(tree, {&call, 1}, options).all.time_ns, kBytes);
    std::cout << "groups of 8, next to each other " << good << ", one in each pod " << bad
              << " M/B\n";
    EXPECT_NEAR(good, formula(8, 8, 7), 0.06 * good);
    EXPECT_NEAR(bad, 6.125, 0.06);
    EXPECT_GT(bad / good, 6);
    EXPECT_LT(bad / good, 7.1);
  }
}

TEST(Concurrent, OneGroupOfAllRanksIsOneCall) {
  std::mt19937_64 random(sennit_test::seed());
  for (int round = 0; round < sennit_test::trials(10); round++) {
    const TierTree given = random_tree(random, 2 + static_cast<int>(random() % 20));
    ConcurrentCall call;
    call.groups.emplace_back();
    for (int p = given.ranks(); p-- > 0;) call.groups[0].push_back(p);
    // without tiers that nothing is in
    const TierTree tree = member_tree(given, call.groups[0]).tree;
    for (int c = 0; c < kCollectives - 1; c++) {
      call.request = bytes_request(static_cast<Collective>(c), random() % 2 ? 1'000 : 1'000'000);
      if (call.request.collective == Collective::barrier) call.request.count = 0;
      SimulateOptions options;
      options.fluid = random() % 2;
      const Result<Plan> plan = make_plan(call.request, tree, {});
      ASSERT_TRUE(plan.ok());
      const Result<SimulatedTime> alone = simulate(tree, call.request, *plan, options);
      ASSERT_TRUE(alone.ok());
      const SimulatedSet set = simulated(tree, {&call, 1}, options, kAsIfAlone);
      SCOPED_TRACE(std::string(name(call.request.collective)) + "\n" + tree.to_text());
      ASSERT_EQ(set.all.time_ns, alone->time_ns);
      ASSERT_EQ(set.all.messages, alone->messages);
      ASSERT_EQ(set.all.rounds, alone->rounds);
      ASSERT_EQ(set.all.scratch_bytes, alone->scratch_bytes);
      ASSERT_EQ(set.call_ns[0], alone->time_ns);
      ASSERT_EQ(set.choices[0].plan.algorithm, plan->algorithm);
    }
  }
}

// Disjoint or overlapping groups of random members, some ranks idle, some in several calls.
std::vector<ConcurrentCall> random_calls(std::mt19937_64& random, int ranks) {
  std::vector<ConcurrentCall> calls(1 + random() % 3);
  for (ConcurrentCall& call : calls) {
    // those with data
    const auto collective = static_cast<Collective>(random() % (kCollectives - 2));
    call.request = bytes_request(collective, random() % 2 ? 100 : 100'000);
    std::vector<int> order(index(ranks));
    for (int p = 0; p < ranks; p++) order[index(p)] = p;
    if (random() % 2) std::shuffle(order.begin(), order.end(), random);
    const size_t size = 1 + random() % index(ranks);
    for (size_t first = 0; first + size <= order.size(); first += size)
      call.groups.emplace_back(order.begin() + static_cast<ptrdiff_t>(first),
                               order.begin() + static_cast<ptrdiff_t>(first + size));
  }
  return calls;
}

// Every group's messages and bytes, one group after the other, are those of the set.
void expect_what_groups_carry_alone(const TierTree& tree, const std::vector<ConcurrentCall>& calls,
                                    const SimulateOptions& options, const SimulatedTime& set) {
  std::vector<uint64_t> out(tree.groups.size(), 0), in(tree.groups.size(), 0);
  uint64_t messages = 0, longest = 0;
  for (const ConcurrentCall& call : calls)
    for (const std::vector<int>& group : call.groups) {
      const ConcurrentCall one{call.request, {group}};
      const SimulatedSet alone = simulated(tree, {&one, 1}, options, kAsIfAlone);
      messages += alone.all.messages;
      longest = std::max(longest, alone.all.time_ns);
      for (size_t g = 0; g < tree.groups.size(); g++) {
        out[g] += alone.all.groups[g].egress_bytes;
        in[g] += alone.all.groups[g].ingress_bytes;
      }
    }
  ASSERT_EQ(set.messages, messages);
  for (size_t g = 0; g < tree.groups.size(); g++) {
    ASSERT_EQ(set.groups[g].egress_bytes, out[g]) << "group " << g;
    ASSERT_EQ(set.groups[g].ingress_bytes, in[g]) << "group " << g;
  }
  if (options.fluid) {
    ASSERT_GE(set.time_ns, longest);
  }
}

TEST(Concurrent, CarriesWhatTheGroupsCarryAloneAndTakesNoLessThanTheBound) {
  std::mt19937_64 random(sennit_test::seed());
  size_t saved = 0, bounds = 0;
  for (int round = 0; round < sennit_test::trials(60); round++) {
    const TierTree tree = round % 2
                              ? TierTree::uniform({3, 2, 2}, {5'000'000, 4'000'000, 3'000'000})
                              : random_tree(random, 2 + static_cast<int>(random() % 16));
    std::vector<ConcurrentCall> calls = random_calls(random, tree.ranks());
    // all alike
    if (round == 1)
      calls = {{bytes_request(Collective::all_gather, 100), strided(tree.ranks(), 2, 1)}};
    SCOPED_TRACE("round " + std::to_string(round) + "\n" + tree.to_text());
    SimulateOptions options;
    options.tolerance = 0;
    options.free_messages = round % 3 == 0;
    options.fluid = round % 5 == 0;
    const SimulatedSet set = simulated(tree, calls, options, kAsIfAlone);
    SimulateOptions every_rank = options;
    every_rank.symmetry = false;
    const SimulatedSet all = simulated(tree, calls, every_rank, kAsIfAlone);
    saved += all.all.rank_classes - set.all.rank_classes;
    // Lengths that differ by rounding alone are taken as equal.
    const double tolerance = 1e-3 * static_cast<double>(all.all.time_ns) + 200;
    ASSERT_NEAR(static_cast<double>(set.all.time_ns), static_cast<double>(all.all.time_ns),
                tolerance);
    ASSERT_EQ(set.all.messages, all.all.messages);
    for (size_t c = 0; c < calls.size(); c++)
      ASSERT_NEAR(static_cast<double>(set.call_ns[c]), static_cast<double>(all.call_ns[c]),
                  tolerance);
    const Bound bound = set_bound(tree, calls);
    bounds += bound.known;
    if (bound.known && !options.free_messages) {
      ASSERT_GE(static_cast<double>(set.all.time_ns) + tolerance,
                static_cast<double>(bound.time_ns))
          << bound.why;
    }
    expect_what_groups_carry_alone(tree, calls, every_rank, all.all);
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(saved, 0u) << "nothing was alike anywhere";
  EXPECT_GT(bounds, 0u);
}

TEST(ConcurrentCalls, WhatIsWrongIsNamed) {
  const TierTree tree = TierTree::uniform({2, 2}, {1000, 1000});
  const auto text = [&](ConcurrentCall call) { return check_calls(tree, {&call, 1}).text(); };
  const Request gather = bytes_request(Collective::all_gather, 1);
  EXPECT_EQ(text({gather, {{0, 1}, {3, 2}, {1}}}), Status().text());
  EXPECT_NE(text({gather, {{0, 1}, {2, 4}}}).find("group 1: position 4 of 4"), std::string::npos);
  EXPECT_NE(text({gather, {{0, 1, 0}}}).find("position 0 twice"), std::string::npos);
  Request broadcast = bytes_request(Collective::broadcast, 1);
  broadcast.root = 2;
  EXPECT_NE(text({broadcast, {{0, 1}}}).find("root 2 of 2"), std::string::npos);
  EXPECT_NE(text({bytes_request(Collective::send_recv, 1), {{0, 1}}}).find("groups of two"),
            std::string::npos);
}

}  // namespace
}  // namespace sennit
