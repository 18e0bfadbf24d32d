// collectives_test.cpp: conformance of every registered algorithm, over random unequal trees.
//
// Every algorithm x collective it applies to x in and out of place x v-variants x every candidate's
// parameters, judged twice: symbolically by verify(), and by running the programs on small arrays
// (tests/support/interpreter.hpp). A new algorithm is covered by being registered. What each of
// them applies to is held in tests/data/collectives/does.txt, or one whose applies() says no by
// mistake would never be tested: UPDATE_EXPECTED=1 in the environment writes it. The seed is
// printed; TEST_SEED repeats a run.
//
// ctest not-under-tsan: it has one thread
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <set>

#include <fmt/ranges.h>

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

bool has_vector_variant(Collective c) {
  return c == Collective::reduce_scatter || c == Collective::all_gather ||
         c == Collective::gather || c == Collective::scatter || c == Collective::all_to_all;
}

// Makes it the v-variant.
void vary_counts(std::mt19937_64& random, int ranks, Request* request) {
  request->vector_variant = true;
  request->counts.clear();
  if (request->collective == Collective::all_to_all) return;  // no rank knows the others' counts
  for (int i = 0; i < ranks; i++) request->counts.push_back(random() % 3 == 0 ? 0 : random() % 9);
}

Request random_request(std::mt19937_64& random, Collective collective, int ranks) {
  Request request;
  request.collective = collective;
  request.in_place = random() % 2 != 0;
  request.root = static_cast<int>(random() % static_cast<uint64_t>(ranks));
  request.count = random() % 4 == 0 ? random() % 3 : random() % 40;
  if (has_vector_variant(collective) && random() % 3 == 0) vary_counts(random, ranks, &request);
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

bool is_flat(const TierTree& tree) {
  return std::none_of(tree.groups.begin() + 1, tree.groups.end(),
                      [](const Group& group) { return group.size > 1; });
}

// 1, 2, ... ranks first, then any number.
TierTree tree_of_round(std::mt19937_64& random, int round, int first_rounds, int most) {
  return random_tree(random, round < first_rounds
                                 ? round + 1
                                 : 1 + static_cast<int>(random() % static_cast<uint64_t>(most)));
}

std::string what(const Request& request) {
  return fmt::format("{}{}", name(request.collective), request.vector_variant ? "_v" : "");
}

// What an algorithm applies to, on flat trees and on others: that must not depend on anything else.
using Does = std::map<bool, std::set<std::string>>;  // by whether the tree is flat
Does does(const Algorithm& algorithm) {
  std::mt19937_64 random(seed() + 4);
  std::map<bool, std::map<std::string, bool>> known;
  for (int round = 0; round < 60; round++) {
    const TierTree tree = tree_of_round(random, round, 12, 64);
    const auto look = [&](const Request& request) {
      const bool applies = algorithm.applies(tree, request);
      const auto [before, is_new] = known[is_flat(tree)].emplace(what(request), applies);
      EXPECT_EQ(before->second, applies) << describe(algorithm, request, {}, tree);
    };
    for (const Collective collective : kAll) {
      Request request = random_request(random, collective, tree.ranks());
      request.vector_variant = false;
      request.counts.clear();
      look(request);
      if (has_vector_variant(collective)) vary_counts(random, tree.ranks(), &request);
      look(request);
    }
  }
  Does result;
  for (const auto& [flat, all] : known)
    for (const auto& [request, applies] : all)
      if (applies) result[flat].insert(request);
  return result;
}

// "ring: all_gather, all_gather_v, all_reduce", and a second line where flat trees differ.
std::string does_text(const Algorithm& algorithm) {
  Does all = does(algorithm);
  std::string text = fmt::format("{}: {}\n", algorithm.name(), fmt::join(all[false], ", "));
  if (all[true] != all[false])
    text +=
        fmt::format("{} on flat trees: {}\n", algorithm.name(),
                    all[true].empty() ? "nothing" : fmt::format("{}", fmt::join(all[true], ", ")));
  return text;
}

class Conformance : public testing::TestWithParam<const Algorithm*> {
 protected:
  const Algorithm& algorithm_ = *GetParam();
};
INSTANTIATE_TEST_SUITE_P(all, Conformance, testing::ValuesIn(algorithms()),
                         [](const auto& tested) { return std::string(tested.param->name()); });

TEST(Collectives, AlgorithmsApplyToWhatTheyDidBefore) {
  const std::string path = SENNIT_SOURCE_DIR "/tests/data/collectives/does.txt";
  if (std::getenv("UPDATE_EXPECTED") != nullptr) {
    std::ofstream file(path);
    for (const Algorithm* algorithm : algorithms()) file << does_text(*algorithm);
  }
  std::ifstream file(path);
  std::map<std::string, std::string> expected;  // by algorithm
  for (std::string line; std::getline(file, line);)
    expected[line.substr(0, line.find_first_of(": "))] += line + "\n";
  EXPECT_FALSE(expected.empty()) << path;
  for (const auto& [known, text] : expected) {
    ASSERT_NE(find_algorithm(known), nullptr) << known;
    EXPECT_EQ(does_text(*find_algorithm(known)), text);
  }
}

TEST_P(Conformance, VerifiesOnRandomTrees) {
  std::mt19937_64 random(seed());
  std::set<std::string> covered;
  for (int round = 0; round < sennit_test::trials(200); round++) {
    const TierTree tree = tree_of_round(random, round, 12, 64);
    ASSERT_EQ(tree.check(), "") << tree.to_text();
    for (const Collective collective : kAll) {
      const Request request = random_request(random, collective, tree.ranks());
      if (!algorithm_.applies(tree, request)) continue;
      covered.insert(what(request));
      const std::vector<Parameters> all = settings(algorithm_, tree, request);
      const Parameters& parameters = all[random() % all.size()];
      const auto blueprint = algorithm_.prepare(tree, request, parameters);
      const Verdict verdict = verify(tree, request, *blueprint);
      ASSERT_TRUE(verdict.correct) << verdict.error << "\n"
                                   << describe(algorithm_, request, parameters, tree);
    }
  }
  EXPECT_FALSE(covered.empty());
  EXPECT_EQ(covered, does(algorithm_)[false]) << "what it applies to and what was verified";
}

TEST_P(Conformance, ComputesOnRandomTrees) {
  std::mt19937_64 random(seed() + 1);
  for (int round = 0; round < sennit_test::trials(40); round++) {
    const TierTree tree = tree_of_round(random, round, 8, 24);
    const int ranks = tree.ranks();
    for (const Collective collective : kAll) {
      const Request request = random_request(random, collective, ranks);
      if (!algorithm_.applies(tree, request)) continue;
      for (const Parameters& parameters : settings(algorithm_, tree, request)) {
        const Circumstances execution = random_execution(random, request, ranks);
        const auto blueprint = algorithm_.prepare(tree, request, parameters);
        ASSERT_EQ(Interpreter(tree, request, *blueprint, execution, random()).run(), "")
            << describe(algorithm_, request, parameters, tree) << "delivery "
            << static_cast<int>(execution.delivery) << ", chunks " << execution.chunks;
      }
    }
  }
}

// Figures that the planner relies on: present for every tier, monotone in the message, the same
// every time.
TEST_P(Conformance, EstimatesAreSane) {
  std::mt19937_64 random(seed() + 2);
  for (int round = 0; round < sennit_test::trials(50); round++) {
    const int ranks = 2 + static_cast<int>(random() % 63);
    const TierTree tree = random_tree(random, ranks);
    for (const Collective collective : kAll) {
      Request request = random_request(random, collective, ranks);
      request.vector_variant = false;
      request.counts.clear();
      request.count = 1 << 20;
      if (!algorithm_.applies(tree, request)) continue;
      Request larger = request;
      larger.count *= 1024;
      for (const Parameters& parameters : settings(algorithm_, tree, request)) {
        const Estimate small = algorithm_.estimate(tree, request, parameters, {});
        const Estimate large = algorithm_.estimate(tree, larger, parameters, {});
        const std::string described = describe(algorithm_, request, parameters, tree);
        ASSERT_EQ(small.tier_ns.size(), tree.tiers.size()) << described;
        EXPECT_GT(small.latency_ns, 0u) << described;
        EXPECT_GT(small.messages, 0u) << described;
        for (size_t t = 0; t < small.tier_ns.size(); t++) {
          if (collective == Collective::barrier) {
            EXPECT_EQ(small.tier_ns[t], 0u) << described;
          } else {
            EXPECT_GE(large.tier_ns[t], small.tier_ns[t] * 1000) << described;
            EXPECT_LE(large.tier_ns[t], (small.tier_ns[t] + 1) * 1050) << described;
          }
        }
      }
    }
  }
}

// What headers add is what a tier takes longer than with messages that have none, and each of a
// request's candidates is estimated as if it were the only one.
TEST_P(Conformance, EstimatesTellHeadersAndAreThoseOfEachCandidate) {
  std::mt19937_64 random(seed() + 4);
  for (int round = 0; round < sennit_test::trials(30); round++) {
    const int ranks = 2 + static_cast<int>(random() % 63);
    const TierTree tree = random_tree(random, ranks);
    CostModel cost;
    cost.message_bytes = 1 + random() % 200;
    for (const Collective collective : kAll) {
      const Request request = random_request(random, collective, ranks);
      if (!algorithm_.applies(tree, request)) continue;
      const std::vector<Parameters> candidates = algorithm_.candidates(tree, request);
      const std::vector<Estimate> all = algorithm_.estimates(tree, request, candidates, cost);
      ASSERT_EQ(all.size(), candidates.size());
      for (size_t i = 0; i < all.size(); i++) {
        const std::string described = describe(algorithm_, request, candidates[i], tree);
        EXPECT_EQ(all[i], algorithm_.estimate(tree, request, candidates[i], cost)) << described;
        Estimate payload = all[i];
        ASSERT_EQ(payload.headers_ns.size(), tree.tiers.size()) << described;
        for (size_t t = 0; t < tree.tiers.size(); t++) payload.tier_ns[t] -= payload.headers_ns[t];
        payload.headers_ns.clear();
        EXPECT_EQ(payload, algorithm_.estimate(tree, request, candidates[i], {})) << described;
      }
    }
  }
}

// The bytes that an algorithm says cross each tier are those that its programs send.
TEST_P(Conformance, EstimatesMatchThePrograms) {
  std::mt19937_64 random(seed() + 3);
  for (int round = 0; round < sennit_test::trials(60); round++) {
    const int ranks = 2 + static_cast<int>(random() % 40);
    TierTree tree = random_tree(random, ranks);
    for (size_t i = 1; i < tree.groups.size(); i++)
      tree.groups[i].egress = tree.groups[i].ingress = {1'000'000'000, Provenance::declared};
    for (const Collective collective : kAll) {
      Request request = random_request(random, collective, ranks);
      request.vector_variant = false;
      request.counts.clear();
      request.type = DataType::int8;
      request.count = 100'000'000;
      if (!algorithm_.applies(tree, request)) continue;
      for (const Parameters& parameters : settings(algorithm_, tree, request)) {
        const Verdict verdict =
            verify(tree, request, *algorithm_.prepare(tree, request, parameters));
        const Estimate estimate = algorithm_.estimate(tree, request, parameters, {});
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
          EXPECT_NEAR(static_cast<double>(estimate.tier_ns[t]), counted_ns, 1e-3 * counted_ns + 1e4)
              << "tier " << t << ": " << describe(algorithm_, request, parameters, tree);
        }
        if (HasFailure()) return;
      }
    }
  }
}

}  // namespace
}  // namespace sennit
