// topology_test.cpp: from fabrics to tier trees, merging, and synthetic trees, as data: captured
// inputs beside the expected texts.
//
// ctest not-under-tsan: it has one thread
#include <algorithm>
#include <map>
#include <random>
#include <sstream>

#include <fmt/core.h>
#include <gtest/gtest.h>

#include "tests/support/seed.hpp"
#include "tests/topology/cases.hpp"
#include "topology/fabric/fabric.hpp"
#include "topology/source.hpp"
#include "topology/text/scan.hpp"

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

// Each of 12,288 hosts tells of 8 GPUs on an NVSwitch, 8 NICs and two for storage, and 2 NUMA
// nodes. A rank 0 that could not hold them all would fail the start of such a job on every rank.
TEST(Topology, AFabricHoldsThatOfAHundredThousandGpus) {
  constexpr size_t kHosts = 12'288, kGpus = 8, kNics = 10, kNumas = 2;
  constexpr size_t kSwitches = 10'000, kCablesBetweenThem = 2 * kHosts * kGpus;
  EXPECT_GE(kMaxVertices, kHosts * (1 + kGpus + kNics + kNumas + 1) + kSwitches);
  constexpr size_t kInside = 2 * kGpus + kNics + kNumas;  // NVLink, PCIe, and between NUMA nodes
  EXPECT_GE(kMaxLinks / 2, kHosts * (kInside + kNics) + kCablesBetweenThem);
}

// X.ranks holds the placements on X.fabric, or on Y.fabric where it is called Y@VARIANT.ranks.
TEST(Contract, FabricsToTrees) {
  run_cases("tree", "ranks", [](const std::filesystem::path& path) {
    const std::string stem = path.stem();
    const Result<Fabric> fabric = parse_fabric(
        read_text(path.parent_path() / (stem.substr(0, stem.find('@')) + ".fabric")), stem);
    if (!fabric) return fabric.status().text() + "\n";
    const Result<TierTree> tree = contract(*fabric, read_placements(path));
    if (!tree) return tree.status().text() + "\n";
    EXPECT_EQ(tree->check(), "") << path;
    return tree->to_text();
  });
}

// The cuts that a tree of switches makes between the ranks, by the ranks on rank 0's side. A cut
// that several links in a row make has the capacity of the narrowest.
using Cuts = std::map<std::vector<bool>, uint64_t>;

void add_cut(Cuts* cuts, std::vector<bool> inside, uint64_t capacity) {
  if (!inside[0]) inside.flip();
  if (std::find(inside.begin(), inside.end(), false) == inside.end()) return;
  const auto [cut, added] = cuts->emplace(inside, capacity);
  if (!added) cut->second = std::min(cut->second, capacity);
}

// Whatever the tree, the subset and the order of ranks: contraction keeps exactly the tree's cuts.
TEST(Contract, RandomTreesKeepTheirCuts) {
  std::mt19937 random(sennit_test::seed());
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
      text += fmt::format("{} {}\nlink {} s{} {}B/s\n", v < switches ? "switch" : "host", name,
                          name, parent[static_cast<size_t>(v)], capacity[static_cast<size_t>(v)]);
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

TEST(Contract, ASumThatDoesNotFitIsTheLargestThatDoes) {
  const Fabric fabric = parse_fabric(
                            "switch root\nswitch rack\nhost h[0-2]\nlink h[0-1] rack 1GB/s\n"
                            "link h2 root 1GB/s\nlink rack root 9223372036854775808B/s\n"
                            "link rack root 9223372036854775808B/s plane 1\n",
                            "f")
                            .value();
  const TierTree tree = contract(fabric, ranks_on_all_hosts(fabric, 1)).value();
  EXPECT_EQ(tree.check(), "");
  EXPECT_EQ(tree.groups[1].name, "rack");
  EXPECT_EQ(tree.groups[1].egress.bytes_per_s, UINT64_MAX);
}

// "== SOURCE" begins what a source says; they are merged in that order.
TEST(Merge, Cases) {
  run_cases("merge", "merge", [](const std::filesystem::path& path) {
    std::istringstream lines(read_text(path));
    std::vector<std::pair<std::string, std::string>> parts;
    for (std::string line; std::getline(lines, line);) {
      if (line.rfind("== ", 0) == 0)
        parts.emplace_back(line.substr(3), "");
      else
        parts.back().second += line + "\n";
    }
    Fabric merged;
    Merger merger;
    for (const auto& [source, text] : parts) {
      const Result<Fabric> fabric = parse_fabric(text, source);
      if (!fabric) return fabric.status().text() + "\n";
      merged = merge(std::move(merged), *fabric, source);
      merger.add(*fabric, source);
    }
    EXPECT_EQ(merger.take().to_text(), merged.to_text()) << path;
    return merged.to_text();
  });
}

TEST(Synthetic, SpecificationsToTrees) {
  run_cases("synthetic", "spec", [](const std::filesystem::path& path) {
    std::string spec = read_text(path);
    while (!spec.empty() && spec.back() == '\n') spec.pop_back();
    const Result<TierTree> tree = synthetic_tree(spec);
    if (!tree) return tree.status().text() + "\n";
    EXPECT_EQ(tree->check(), "") << path;
    return tree->to_text();
  });
}

// The way straight to a tree and the way over a graph lead to the same.
TEST(Synthetic, TreeIsTheContractedFabric) {
  for (const char* spec :
       {"hosts=4;nic=1GB/s", "racks=2x4;nic=400Mbit/s;uplink=229Mbit/s",
        "racks=1,2,3,2;nic=400Mbit/s;oversubscription=5",
        "racks=3x3;ranks=2;nic=1GB/s;oversubscription=5",
        "pods=2x2x2;nic=400Mbit/s;oversubscription=1,7;latency=14us",
        "pods=(1,2),(3,1);ranks=3;nic=10Gbit/s",
        "shape=2x2x2x2;local=9GB/s;nic=10GB/s;local_latency=1us;latency=9us",
        "racks=2x1;local=1GB/s;nic=2GB/s", "racks=2x1;local=1GB/s", "hosts=1",
        "hosts=1;ranks=4;local_latency=3us", "racks=2x4;wire=infiniband",
        "pods=(1,2),(3,1);ranks=2;wire=roce", "pods=2x2x2;ranks=2;local_latency=3us;wire=roce",
        "racks=2x2;ranks=2;latency=3us;local_latency=3.4us", "meta24k", "fourtier98k"}) {
    const Result<TierTree> tree = synthetic_tree(spec);
    ASSERT_TRUE(tree.ok()) << tree.status().text();
    const Fabric fabric = synthetic_fabric(spec).value();
    const Result<TierTree> contracted = contract(fabric, ranks_on_all_hosts(fabric, 0));
    ASSERT_TRUE(contracted.ok()) << contracted.status().text();
    ASSERT_EQ(tree->check(), "") << spec;
    ASSERT_EQ(contracted->check(), "") << spec;
    EXPECT_EQ(tree->to_text(), contracted->to_text()) << spec;
    EXPECT_EQ(tree->fingerprint(), contracted->fingerprint()) << spec;
  }
}

// What GPUs say of the way to their host is no latency between hosts: that stays undeclared.
TEST(Synthetic, LocalLatencyDeclaresNoneBetweenHosts) {
  const TierTree tree =
      synthetic_tree("racks=2x2;ranks=2;local_latency=3.4us;wire=infiniband").value();
  EXPECT_EQ(tree.root().latency_ns, 0u);
  const int rack = tree.child_at(0, 0), host = tree.child_at(rack, 0);
  EXPECT_EQ(tree.groups[static_cast<size_t>(rack)].latency_ns, 0u);
  EXPECT_EQ(tree.groups[static_cast<size_t>(host)].latency_ns, 3'400u);
}

TEST(Synthetic, Meta24kHasItsPublishedFigures) {
  const TierTree tree = synthetic_tree("meta24k").value();
  ASSERT_EQ(tree.ranks(), 24'576);
  ASSERT_EQ(tree.check(), "");
  ASSERT_EQ(tree.tiers.size(), 5u);
  const int rack = tree.child_at(tree.child_at(0, 0), 0);
  const int host = tree.child_at(rack, 0);
  const auto egress = [&](int g) { return tree.groups[static_cast<size_t>(g)].egress.bytes_per_s; };
  EXPECT_EQ(egress(tree.child_at(0, 0)), 21'942'857'142'857u);
  EXPECT_EQ(egress(rack), 800'000'000'000u);
  EXPECT_EQ(egress(host), 400'000'000'000u);
  EXPECT_EQ(egress(tree.child_at(host, 0)), 500'000'000'000u);
  EXPECT_EQ(tree.root().latency_ns, 14'000u);
  EXPECT_EQ(tree.groups[static_cast<size_t>(host)].latency_ns, 3'400u);
  EXPECT_EQ(tree.tiers[3].name, "pod");
}

TEST(Synthetic, Fourtier98kGoesOnWhereMeta24kEnds) {
  const TierTree tree = synthetic_tree("fourtier98k").value();
  EXPECT_EQ(tree.ranks(), 98'304);
  std::vector<std::string> tiers;
  for (const Tier& tier : tree.tiers) tiers.push_back(tier.name);
  EXPECT_EQ(tiers, (std::vector<std::string>{"rank", "host", "rack", "pod", "tier3", "root"}));
  const int widest = tree.child_at(0, 0), pod = tree.child_at(widest, 0),
            rack = tree.child_at(pod, 0), host = tree.child_at(rack, 0);
  EXPECT_NEAR(tree.oversubscription(widest), 2, 1e-6);
  EXPECT_NEAR(tree.oversubscription(pod), 7, 1e-6);
  EXPECT_EQ(tree.oversubscription(rack), 1);
  EXPECT_EQ(tree.groups[static_cast<size_t>(host)].egress.bytes_per_s, 400'000'000'000u);
  EXPECT_EQ(tree.root().latency_ns, 14'000u);
  EXPECT_EQ(tree.groups[static_cast<size_t>(host)].latency_ns, 3'400u);
  // Every preset that the commands' help names is one.
  const std::string names = kSyntheticPresets;
  const size_t comma = names.find(", ");
  for (const std::string& name : {names.substr(0, comma), names.substr(comma + 2)})
    EXPECT_TRUE(synthetic_tree(name).ok()) << name;
}

}  // namespace
}  // namespace sennit
