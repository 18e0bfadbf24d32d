// collectives_test.cpp: conformance of every registered algorithm, over random unequal trees.
//
// Every algorithm x collective it applies to x in and out of place x v-variants x every candidate's
// parameters, judged twice: symbolically by verify(), and by running the programs on small arrays
// (tests/support/interpreter.hpp). A new algorithm is covered by being registered. The seed is
// printed; TEST_SEED repeats a run.
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>

#include "tests/support/interpreter.hpp"
#include "tests/support/random_trees.hpp"
#include "tests/support/seed.hpp"
#include "tests/support/trials.hpp"
#include "verify/verify.hpp"

namespace sennit {
namespace {

using sennit_test::seed;

constexpr Collective kAll[] = {
    Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather,
    Collective::broadcast,  Collective::reduce,         Collective::gather,
    Collective::scatter,    Collective::all_to_all,     Collective::barrier};

// What every algorithm must do, by the letters below; and which of these it also does as a
// v-variant. An algorithm whose applies() says no by mistake would otherwise never be tested.
struct Does {
  std::string_view algorithm, collectives, vector_variants;
};
constexpr std::string_view kLetters = "asgbrGSAB";  // in the order of kAll
constexpr Does kDoes[] = {
    {"aggregated", "A", ""},
    {"chain", "br", ""},
    {"direct", "asgbrGSAB", "sgGSA"},
    {"double_tree", "abr", ""},
    {"gather_scatter", "GS", "GS"},
    {"leaders", "agB", "g"},
    {"ring", "asg", "sg"},
    {"scatter_gather", "b", ""},
    {"tiered", "asgbrB", "sg"},
    {"tree", "br", ""},
};

bool has_vector_variant(Collective c) {
  return c == Collective::reduce_scatter || c == Collective::all_gather ||
         c == Collective::gather || c == Collective::scatter || c == Collective::all_to_all;
}

Request random_request(std::mt19937_64& random, Collective collective, int ranks) {
  Request request;
  request.collective = collective;
  request.in_place = random() % 2 != 0;
  request.root = static_cast<int>(random() % static_cast<uint64_t>(ranks));
  request.count = random() % 4 == 0 ? random() % 3 : random() % 40;
  request.vector_variant = has_vector_variant(collective) && random() % 3 == 0;
  if (request.vector_variant && collective != Collective::all_to_all)
    for (int i = 0; i < ranks; i++) request.counts.push_back(random() % 3 == 0 ? 0 : random() % 9);
  return request;
}

std::string describe(const Algorithm& algorithm, const Request& request,
                     const Parameters& parameters, const TierTree& tree) {
  std::string text = fmt::format("{} {}{}{}, root {}, count {}", algorithm.name(),
                                 name(request.collective), request.vector_variant ? "_v" : "",
                                 request.in_place ? " in place" : "", request.root, request.count);
  text += fmt::format(", chunks {}, whole stages {}, radices", parameters.chunks,
                      parameters.whole_stages);
  for (const uint16_t r : parameters.radices) text += fmt::format(" {}", r);
  return text + "\n" + tree.to_text();
}

// The default parameters (SENNIT_ALGORITHM forces these) and every candidate's.
std::vector<Parameters> settings(const Algorithm& algorithm, const TierTree& tree,
                                 const Request& request) {
  std::vector<Parameters> all = {{}};
  for (const Parameters& p : algorithm.candidates(tree, request))
    if (p != all[0]) all.push_back(p);
  return all;
}

Circumstances random_execution(std::mt19937_64& random, const Request& request, int ranks) {
  Circumstances execution;
  execution.chunks = 1 + static_cast<int>(random() % 3);
  execution.delivery = static_cast<Delivery>(random() % 3);
  const auto n = static_cast<uint64_t>(ranks);
  if (request.collective == Collective::all_to_all && request.vector_variant) {
    execution.pair_counts.resize(n * n);
    for (uint64_t i = 0; i < n; i++)
      for (uint64_t j = 0; j < n; j++) {
        uint64_t& count = execution.pair_counts[i * n + j];
        count = request.in_place && j < i ? execution.pair_counts[j * n + i] : random() % 5;
      }
  }
  if (request.collective == Collective::barrier) {
    execution.late_rank = static_cast<int>(random() % n);
    execution.delivery = Delivery::eager;
    execution.chunks = 1;
  }
  return execution;
}

TEST(collectives, every_algorithm_applies_where_it_should) {
  std::set<std::string_view> known;
  for (const Does& does : kDoes) {
    known.insert(does.algorithm);
    ASSERT_NE(find_algorithm(does.algorithm), nullptr) << does.algorithm;
  }
  for (const Algorithm* algorithm : algorithms())
    EXPECT_TRUE(known.count(algorithm->name())) << algorithm->name() << " is missing in kDoes";
  std::mt19937_64 random(seed() + 4);
  for (int round = 0; round < 60; round++) {  // on every tree, whatever the count and the root
    const int ranks = round < 12 ? round + 1 : 1 + static_cast<int>(random() % 64);
    const TierTree tree = random_tree(random, ranks);
    const bool flat = std::none_of(tree.groups.begin() + 1, tree.groups.end(),
                                   [](const Group& group) { return group.size > 1; });
    for (const Does& does : kDoes)
      for (size_t c = 0; c < std::size(kAll); c++) {
        const Request request = random_request(random, kAll[c], ranks);
        std::string_view wanted = request.vector_variant ? does.vector_variants : does.collectives;
        // there is nothing to aggregate by
        if (flat && does.algorithm == "aggregated") wanted = "";
        EXPECT_EQ(find_algorithm(does.algorithm)->applies(tree, request),
                  wanted.find(kLetters[c]) != std::string_view::npos)
            << describe(*find_algorithm(does.algorithm), request, {}, tree);
      }
  }
}

TEST(collectives, every_algorithm_verifies_on_random_trees) {
  std::mt19937_64 random(seed());
  std::set<std::pair<std::string_view, Collective>> covered;
  for (int round = 0; round < sennit_test::trials(200); round++) {
    const int ranks = round < 12 ? round + 1 : 1 + static_cast<int>(random() % 64);
    const TierTree tree = random_tree(random, ranks);
    ASSERT_EQ(tree.check(), "") << tree.to_text();
    for (const Algorithm* algorithm : algorithms())
      for (const Collective collective : kAll) {
        const Request request = random_request(random, collective, ranks);
        if (!algorithm->applies(tree, request)) continue;
        covered.insert({algorithm->name(), collective});
        const std::vector<Parameters> all = settings(*algorithm, tree, request);
        const Parameters& parameters = all[random() % all.size()];
        const auto blueprint = algorithm->prepare(tree, request, parameters);
        const Verdict verdict = verify(tree, request, *blueprint);
        ASSERT_TRUE(verdict.correct) << verdict.error << "\n"
                                     << describe(*algorithm, request, parameters, tree);
      }
  }
  size_t expected = 0;
  for (const Does& does : kDoes) expected += does.collectives.size();
  EXPECT_EQ(covered.size(), expected);
  for (const Does& does : kDoes)
    for (size_t c = 0; c < std::size(kAll); c++)
      if (does.collectives.find(kLetters[c]) != std::string_view::npos) {
        EXPECT_TRUE(covered.count({does.algorithm, kAll[c]}))
            << does.algorithm << " was never verified for " << name(kAll[c]);
      }
}

TEST(collectives, every_algorithm_computes_on_random_trees) {
  std::mt19937_64 random(seed() + 1);
  for (int round = 0; round < sennit_test::trials(40); round++) {
    const int ranks = round < 8 ? round + 1 : 1 + static_cast<int>(random() % 24);
    const TierTree tree = random_tree(random, ranks);
    for (const Algorithm* algorithm : algorithms())
      for (const Collective collective : kAll) {
        const Request request = random_request(random, collective, ranks);
        if (!algorithm->applies(tree, request)) continue;
        for (const Parameters& parameters : settings(*algorithm, tree, request)) {
          const Circumstances execution = random_execution(random, request, ranks);
          const auto blueprint = algorithm->prepare(tree, request, parameters);
          ASSERT_EQ(Interpreter(tree, request, *blueprint, execution, random()).run(), "")
              << describe(*algorithm, request, parameters, tree) << "delivery "
              << static_cast<int>(execution.delivery) << ", chunks " << execution.chunks;
        }
      }
  }
}

// Figures that the planner relies on: present for every tier, monotone in the message, the same
// every time.
TEST(collectives, estimates_are_sane) {
  std::mt19937_64 random(seed() + 2);
  for (int round = 0; round < sennit_test::trials(50); round++) {
    const int ranks = 2 + static_cast<int>(random() % 63);
    const TierTree tree = random_tree(random, ranks);
    for (const Algorithm* algorithm : algorithms())
      for (const Collective collective : kAll) {
        Request request = random_request(random, collective, ranks);
        request.vector_variant = false;
        request.counts.clear();
        request.count = 1 << 20;
        if (!algorithm->applies(tree, request)) continue;
        Request larger = request;
        larger.count *= 1024;
        for (const Parameters& parameters : settings(*algorithm, tree, request)) {
          const Estimate small = algorithm->estimate(tree, request, parameters, {});
          const Estimate large = algorithm->estimate(tree, larger, parameters, {});
          const std::string what = describe(*algorithm, request, parameters, tree);
          ASSERT_EQ(small.tier_ns.size(), tree.tiers.size()) << what;
          EXPECT_GT(small.latency_ns, 0u) << what;
          EXPECT_GT(small.messages, 0u) << what;
          for (size_t t = 0; t < small.tier_ns.size(); t++) {
            if (collective == Collective::barrier) {
              EXPECT_EQ(small.tier_ns[t], 0u) << what;
            } else {
              EXPECT_GE(large.tier_ns[t], small.tier_ns[t] * 1000) << what;
              EXPECT_LE(large.tier_ns[t], (small.tier_ns[t] + 1) * 1050) << what;
            }
          }
        }
      }
  }
}

// The bytes that an algorithm says cross each tier are those that its programs send.
TEST(collectives, estimates_match_the_programs) {
  std::mt19937_64 random(seed() + 3);
  for (int round = 0; round < sennit_test::trials(60); round++) {
    const int ranks = 2 + static_cast<int>(random() % 40);
    TierTree tree = random_tree(random, ranks);
    for (size_t i = 1; i < tree.groups.size(); i++)
      tree.groups[i].egress = tree.groups[i].ingress = {1'000'000'000, Provenance::declared};
    for (const Algorithm* algorithm : algorithms())
      for (const Collective collective : kAll) {
        Request request = random_request(random, collective, ranks);
        request.vector_variant = false;
        request.counts.clear();
        request.type = DataType::int8;
        request.count = 100'000'000;
        if (!algorithm->applies(tree, request)) continue;
        for (const Parameters& parameters : settings(*algorithm, tree, request)) {
          const Verdict verdict =
              verify(tree, request, *algorithm->prepare(tree, request, parameters));
          const Estimate estimate = algorithm->estimate(tree, request, parameters, {});
          std::vector<double> busiest(tree.tiers.size(), 0);
          for (size_t i = 1; i < tree.groups.size(); i++) {
            double& most = busiest[tree.groups[i].tier];
            most = std::max({most, static_cast<double>(verdict.egress_units[i]),
                             static_cast<double>(verdict.ingress_units[i])});
          }
          for (size_t t = 0; t + 1 < busiest.size(); t++) {
            const double counted_ns = collective == Collective::barrier
                                          ? 0
                                          : busiest[t] / static_cast<double>(kUnits) * 1e8;
            EXPECT_NEAR(static_cast<double>(estimate.tier_ns[t]), counted_ns,
                        1e-3 * counted_ns + 1e4)
                << "tier " << t << ": " << describe(*algorithm, request, parameters, tree);
          }
          if (HasFailure()) return;
        }
      }
  }
}

}  // namespace
}  // namespace sennit
