// topology_test.cpp: from fabrics to tier trees, and the sources, as data: captured inputs beside the
// expected texts.
#include <map>
#include <random>
#include <sstream>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "fabric.hpp"
#include "source.hpp"
#include "topology_cases.hpp"

namespace sennit {
namespace {

// "HOST [numa N] [nic NAME]" a line, by rank; "HOST * N" are N ranks alike.
std::vector<Placement> read_placements(const std::filesystem::path& path) {
  std::vector<Placement> ranks;
  std::istringstream lines(read_text(path));
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    Placement rank;
    int count = 1;
    if (!(words >> rank.host)) continue;
    for (std::string key; words >> key;) {
      if (key == "numa") words >> rank.numa;
      if (key == "nic") words >> rank.nic;
      if (key == "*") words >> count;
    }
    ranks.insert(ranks.end(), static_cast<size_t>(count), rank);
  }
  return ranks;
}

// X.ranks holds the placements on X.fabric, or on Y.fabric where it is called Y@VARIANT.ranks.
TEST(Contract, FabricsToTrees) {
  run_cases("tree", "ranks", [](const std::filesystem::path& path) {
    const std::string stem = path.stem();
    const Result<Fabric> fabric =
        parse_fabric(read_text(path.parent_path() / (stem.substr(0, stem.find('@')) + ".fabric")), stem);
    if (!fabric) return fabric.status().text() + "\n";
    const Result<TierTree> tree = contract(*fabric, read_placements(path));
    if (!tree) return tree.status().text() + "\n";
    EXPECT_EQ(tree->check(), "") << path;
    return tree->to_text();
  });
}

// The cuts that a tree of switches makes between the ranks, by the ranks on rank 0's side. A cut that several
// links in a row make has the capacity of the narrowest.
using Cuts = std::map<std::vector<bool>, uint64_t>;

void add_cut(Cuts* cuts, std::vector<bool> inside, uint64_t capacity) {
  if (!inside[0]) inside.flip();
  if (std::find(inside.begin(), inside.end(), false) == inside.end()) return;
  const auto [cut, added] = cuts->emplace(inside, capacity);
  if (!added) cut->second = std::min(cut->second, capacity);
}

// Whatever the tree, the subset and the order of ranks: contraction keeps exactly the tree's cuts.
TEST(Contract, RandomTreesKeepTheirCuts) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (int round = 0; round < 500; round++) {
    const int switches = 1 + static_cast<int>(random() % 9);
    const int hosts = 1 + static_cast<int>(random() % 14);
    std::string text = "switch s0\n";
    std::vector<int> parent(static_cast<size_t>(switches + hosts), -1);  // switches, then hosts
    std::vector<uint64_t> capacity(parent.size(), 0);
    for (int v = 1; v < switches + hosts; v++) {
      parent[static_cast<size_t>(v)] =
          static_cast<int>(random() % static_cast<unsigned>(std::min(v, switches)));
      capacity[static_cast<size_t>(v)] = 1 + random() % 1000;
      const std::string name = (v < switches ? "s" : "h") + std::to_string(v);
      text += fmt::format("{} {}\nlink {} s{} {}B/s\n", v < switches ? "switch" : "host", name, name,
                          parent[static_cast<size_t>(v)], capacity[static_cast<size_t>(v)]);
    }
    std::vector<int> places;
    for (int h = switches; h < switches + hosts; h++)
      if (h > 0 && random() % 4 != 0) places.push_back(h);
    if (places.size() < 2) continue;
    std::shuffle(places.begin(), places.end(), random);
    std::vector<Placement> ranks;
    for (const int host : places) ranks.push_back({"h" + std::to_string(host), -1, ""});

    Cuts expected;
    for (int v = 1; v < switches + hosts; v++) {
      std::vector<bool> below(places.size(), false);
      for (size_t r = 0; r < places.size(); r++)
        for (int up = places[r]; up >= 0; up = parent[static_cast<size_t>(up)])
          if (up == v) below[r] = true;
      if (std::find(below.begin(), below.end(), true) != below.end())
        add_cut(&expected, below, capacity[static_cast<size_t>(v)]);
    }
    const Result<TierTree> tree = contract(parse_fabric(text, "f").value(), ranks);
    ASSERT_TRUE(tree.ok()) << tree.status().text();
    ASSERT_EQ(tree->check(), "") << text;
    Cuts found;
    for (size_t g = 1; g < tree->groups.size(); g++) {
      const Group& group = tree->groups[g];
      std::vector<bool> inside(places.size(), false);
      for (int p = group.first; p < group.first + group.size; p++)
        inside[static_cast<size_t>(tree->rank_of_position[static_cast<size_t>(p)])] = true;
      ASSERT_EQ(group.egress.bytes_per_s, group.ingress.bytes_per_s);
      add_cut(&found, inside, group.egress.bytes_per_s);
    }
    ASSERT_EQ(found, expected) << text << tree->to_text();
  }
}

// A job whose ranks are in fabric order already keeps its order.
TEST(Contract, FabricOrderStays) {
  const Fabric fabric = parse_fabric(read_text(std::filesystem::path(SENNIT_SOURCE_DIR) /
                                               "tests/data/topology/tree/three_tiers.fabric"),
                                     "f")
                            .value();
  const TierTree tree = contract(fabric, ranks_on_all_hosts(fabric, 3)).value();
  ASSERT_EQ(tree.ranks(), 24);
  for (int p = 0; p < 24; p++) EXPECT_EQ(tree.rank_of_position[static_cast<size_t>(p)], p);
}

}  // namespace
}  // namespace sennit
