// tiered_test.cpp: the tiered family on uniform and random unequal trees: right results, the fewest bytes,
// the same bits.
#include <algorithm>
#include <random>

#include <gtest/gtest.h>

#include "program_interpreter.hpp"

namespace sennit {
namespace {

using testing::Interpreter;

const Algorithm& tiered() { return *find_algorithm("tiered"); }

Request request_of(Collective collective, uint64_t count, bool in_place = false) {
  Request r;
  r.collective = collective;
  r.count = count;
  r.in_place = in_place;
  return r;
}

// A tree with groups of random sizes and, where `known`, random capacities.
TierTree random_tree(std::mt19937_64& random, int ranks, bool known) {
  TierTree tree;
  struct Spec {
    int32_t size;
    int depth;
  };
  tree.groups.emplace_back();
  std::vector<Spec> specs{{ranks, 0}};
  const int deepest = 1 + static_cast<int>(random() % 4);
  for (size_t i = 0; i < tree.groups.size(); i++) {
    const Spec spec = specs[i];
    tree.groups[i].tier = static_cast<uint8_t>(spec.size == 1 ? 0 : deepest - spec.depth);
    if (i > 0 && known) {
      const uint64_t rate = (1 + random() % 20) * 10'000'000;
      tree.groups[i].egress = tree.groups[i].ingress = {rate, Provenance::declared};
      if (random() % 3 == 0) tree.groups[i].ingress.bytes_per_s = (1 + random() % 20) * 10'000'000;
    }
    if (spec.size == 1) continue;
    std::vector<int32_t> sizes;
    if (spec.depth + 1 == deepest) {
      sizes.assign(static_cast<size_t>(spec.size), 1);
    } else {
      const int32_t parts =
          2 + static_cast<int32_t>(random() % static_cast<uint64_t>(std::min(spec.size - 1, 5)));
      std::vector<int32_t> cuts{0, spec.size};
      while (cuts.size() < static_cast<size_t>(parts) + 1) {
        const int32_t cut = 1 + static_cast<int32_t>(random() % static_cast<uint64_t>(spec.size - 1));
        if (std::find(cuts.begin(), cuts.end(), cut) == cuts.end()) cuts.push_back(cut);
      }
      std::sort(cuts.begin(), cuts.end());
      for (size_t c = 1; c < cuts.size(); c++) sizes.push_back(cuts[c] - cuts[c - 1]);
    }
    tree.groups[i].first_child = static_cast<int32_t>(tree.groups.size());
    tree.groups[i].children = static_cast<int32_t>(sizes.size());
    for (const int32_t size : sizes) {
      tree.groups.emplace_back();
      specs.push_back({size, spec.depth + 1});
    }
  }
  for (int t = 0; t <= deepest; t++) tree.tiers.push_back({"t" + std::to_string(t)});
  tree.finish();
  return tree;
}

std::string run(const TierTree& tree, const Request& request, const Parameters& parameters, uint64_t seed,
                std::vector<uint64_t>* sent = nullptr, std::vector<uint64_t>* received = nullptr) {
  const auto blueprint = tiered().prepare(tree, request, parameters);
  Interpreter interpreter(tree, request, *blueprint);
  std::string wrong = interpreter.run(seed);
  if (sent) *sent = interpreter.sent_units();
  if (received) *received = interpreter.received_units();
  return wrong;
}

TEST(Tiered, AllReduceOnUniformTrees) {
  for (const auto& fanouts : std::vector<std::vector<int>>{{1}, {2}, {3}, {8}, {2, 4}, {3, 2, 2}, {4, 3, 2}})
    for (const bool in_place : {false, true})
      EXPECT_EQ(run(TierTree::uniform(fanouts), request_of(Collective::all_reduce, 1000, in_place), {}, 1),
                "");
}

class TieredRandom : public ::testing::TestWithParam<Collective> {};

TEST_P(TieredRandom, UnequalTreesGetTheRightResultWithTheFewestBytes) {
  const uint64_t seed = std::random_device{}();
  RecordProperty("seed", std::to_string(seed));
  std::mt19937_64 random(seed);
  for (int round = 0; round < 200; round++) {
    const int ranks = 1 + static_cast<int>(random() % (round < 150 ? 20 : 64));
    const TierTree tree = random_tree(random, ranks, random() % 2 == 0);
    ASSERT_EQ(tree.check(), "") << "seed " << seed << " round " << round;
    Request request = request_of(GetParam(), random() % 40, random() % 2 == 0);
    if (random() % 10 == 0) request.count = 1000;
    request.root = static_cast<int>(random() % static_cast<uint64_t>(ranks));
    if (request.collective == Collective::barrier) request.count = 0;
    if ((request.collective == Collective::all_gather || request.collective == Collective::reduce_scatter) &&
        random() % 3 == 0) {
      request.vector_variant = true;
      request.count = 0;
      for (int r = 0; r < ranks; r++) request.counts.push_back(random() % 4 == 0 ? 0 : random() % 30);
    }
    Parameters parameters;
    if (random() % 3 == 0) parameters.radices = {static_cast<uint16_t>(2 + random() % 4)};
    if (random() % 8 == 0) parameters.radices = {3, 2, 5};
    const bool all = request.collective == Collective::all_reduce;
    if (all && random() % 3 == 0)
      parameters.whole_stages = random() % 2 == 0 ? 255 : static_cast<uint8_t>(random() % 3);
    std::vector<uint64_t> sent, received;
    ASSERT_EQ(run(tree, request, parameters, random(), &sent, &received), "")
        << "seed " << seed << " round " << round << " " << parameters.to_text() << "\n"
        << tree.to_text();
  }
}

INSTANTIATE_TEST_SUITE_P(Collectives, TieredRandom,
                         ::testing::Values(Collective::all_reduce, Collective::all_gather,
                                           Collective::reduce_scatter, Collective::broadcast,
                                           Collective::reduce, Collective::barrier),
                         [](const auto& test) { return std::string(name(test.param)); });

}  // namespace
}  // namespace sennit
