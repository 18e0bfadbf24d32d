// by_traffic_test.cpp: a fabric as traffic has shown it contracts to the tree as traffic has shown
// it, of every boundary of many fabrics, and says who stands behind the figures, and since when.
//
// ctest not-under-tsan: it has one thread
#include "topology/fabric/by_traffic.hpp"

#include <gtest/gtest.h>

#include "tests/topology/cases.hpp"
#include "topology/source.hpp"

namespace sennit {
namespace {

constexpr int64_t kWhen = 1'790'000'000;  // 2026-09-21 14:13 UTC
const std::string kSource = "by traffic 2026-09-21 14:13 UTC";

std::vector<const Link*> links_by_traffic(const Fabric& fabric) {
  std::vector<const Link*> found;
  for (const Link& link : fabric.links)
    if (link.source == kSource) found.push_back(&link);
  return found;
}

// With one rank a host.
Fabric shown(const Fabric& fabric, const std::vector<SlowBoundary>& slow) {
  return *by_traffic(fabric, *contract(fabric, ranks_on_all_hosts(fabric, 1)), slow, kWhen);
}

TEST(ByTraffic, AHostsLinkCarriesWhatIsLeft) {
  const Fabric fabric = *synthetic_fabric("racks=2x2;nic=400Mbit/s;oversubscription=2");
  const Fabric seen = shown(fabric, {{"h1", true, 250}});
  const std::vector<const Link*> changed = links_by_traffic(seen);
  ASSERT_EQ(changed.size(), 1u) << seen.to_text();
  EXPECT_EQ(seen.vertices[static_cast<size_t>(changed[0]->from)].name, "h1");
  EXPECT_EQ(changed[0]->capacity.bytes_per_s, 12'500'000u);
  EXPECT_EQ(changed[0]->capacity.provenance, Provenance::measured);
  EXPECT_NE(seen.to_text().find("100Mbit/s"), std::string::npos) << seen.to_text();
  EXPECT_NE(seen.to_text().find(kSource), std::string::npos) << seen.to_text();
  const Result<Fabric> read = parse_fabric(seen.to_text(), "it");
  ASSERT_TRUE(read) << read.status().text();
  EXPECT_EQ(read->fingerprint(), seen.fingerprint());
}

TEST(ByTraffic, CablesOfALeafCarryTheirPartsOfIt) {
  const Fabric fabric = *parse_fabric(
      "switch s0\nswitch s1\nswitch leaf0\nswitch leaf1\nhost h[0-3]\n"
      "link h[0-1] leaf0 100Gbit/s\nlink h[2-3] leaf1 100Gbit/s\n"
      "link leaf0 s0 60Gbit/s\nlink leaf0 s1 20Gbit/s\nlink leaf1 s[0-1] 40Gbit/s\n",
      "it");
  const Fabric seen = shown(fabric, {{"leaf0", false, 500}});
  uint64_t together = 0;
  for (const Link* const link : links_by_traffic(seen)) together += link->capacity.bytes_per_s;
  EXPECT_EQ(links_by_traffic(seen).size(), 2u);
  EXPECT_EQ(together, 5'000'000'000u);
}

// Of a rack with one rank what leaves it is its host's link and the rack's, which is narrower.
TEST(ByTraffic, WhereAnotherLinkIsNarrowerNoneIsSet) {
  const Fabric fabric = *parse_fabric(
      "switch root\nswitch leaf0\nswitch leaf1\nhost h0\nhost h1\n"
      "link h0 leaf0 400Mbit/s\nlink h1 leaf1 400Mbit/s\n"
      "link leaf0 root 100Mbit/s\nlink leaf1 root 100Mbit/s\n",
      "it");
  const Fabric seen = shown(fabric, {{"h0", true, 500}});
  EXPECT_EQ(seen.notes.size(), 1u) << seen.to_text();
  EXPECT_TRUE(links_by_traffic(seen).empty()) << seen.to_text();
}

TEST(ByTraffic, WhatIsNoLinksIsSaid) {
  const Fabric fabric = *synthetic_fabric("racks=2x2;nic=400Mbit/s;oversubscription=2");
  const Fabric seen = shown(fabric, {{"elsewhere", true, 400}});
  ASSERT_EQ(seen.notes.size(), 1u);
  EXPECT_EQ(seen.notes[0], kSource +
                               ": out of elsewhere carries 40% of its capacity, which is not "
                               "that of any links here");
  EXPECT_EQ(seen.fingerprint(), fabric.fingerprint());
}

// Of each boundary in each direction: either its tree is what slowed() makes, or it is said that
// there are no such links.
void try_every_boundary(const Fabric& fabric, int per_host, const std::string& name, int* shown) {
  const std::vector<Placement> places = ranks_on_all_hosts(fabric, per_host);
  const Result<TierTree> tree = contract(fabric, places);
  if (!tree) return;
  for (const Group& group : tree->groups) {
    if (group.parent < 0 || group.name.empty()) continue;
    for (const bool egress : {true, false}) {
      const std::vector<SlowBoundary> slow = {{group.name, egress, 400}};
      const Result<Fabric> seen = by_traffic(fabric, *tree, slow, kWhen);
      ASSERT_TRUE(seen) << seen.status().text();
      if (seen->notes.size() > fabric.notes.size()) {
        EXPECT_TRUE(links_by_traffic(*seen).empty()) << name << ": " << group.name;
        continue;
      }
      const TierTree expected = slowed(*tree, slow), found = *contract(*seen, places);
      ASSERT_EQ(found.groups.size(), expected.groups.size()) << name << ": " << group.name;
      for (size_t g = 0; g < found.groups.size(); g++) {
        const auto near = [&](const Capacity& a, const Capacity& b) {
          const auto larger = std::max(a.bytes_per_s, b.bytes_per_s);
          return larger - std::min(a.bytes_per_s, b.bytes_per_s) <= 1 + larger / 1000;
        };
        EXPECT_TRUE(near(found.groups[g].egress, expected.groups[g].egress) &&
                    near(found.groups[g].ingress, expected.groups[g].ingress))
            << name << ": " << group.name << (egress ? " out" : " in") << " makes "
            << found.groups[g].name << " carry " << found.groups[g].egress.bytes_per_s << " out, "
            << found.groups[g].ingress.bytes_per_s << " in, and not "
            << expected.groups[g].egress.bytes_per_s << " and "
            << expected.groups[g].ingress.bytes_per_s;
      }
      (*shown)++;
    }
  }
}

TEST(ByTraffic, OfEveryBoundaryTheTreeIsTheSlowedOne) {
  int shown = 0;
  for (const std::string spec : {"racks=2x4;nic=400Mbit/s;oversubscription=7",
                                 "racks=4,4,4,2;nic=400Mbit/s;oversubscription=3",
                                 "racks=3x3;nic=400Mbit/s;oversubscription=4;cables=4",
                                 "racks=1,1,2;nic=400Mbit/s;oversubscription=1"})
    for (const int per_host : {1, 2})
      try_every_boundary(*synthetic_fabric(spec), per_host, spec, &shown);
  EXPECT_GT(shown, 100);
}

TEST(ByTraffic, OfEveryBoundaryOfTheFixtures) {
  int shown = 0, files = 0;
  for (const char* const folder : {"tree", "forms/fabric"})
    for (const std::filesystem::path& input : inputs_of(folder)) {
      const Result<Fabric> fabric = parse_fabric(read_text(input), input.filename().string());
      // Where two switches are joined by one link it is the boundary of both.
      if (!fabric || input.filename() == "dumbbell.fabric") continue;
      files++;
      try_every_boundary(*fabric, 1, input.filename().string(), &shown);
    }
  EXPECT_GT(files, 3);
  EXPECT_GT(shown, 20);
}

}  // namespace
}  // namespace sennit
