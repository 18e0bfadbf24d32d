// groups_test.cpp: the tree of some ranks is what contract() makes of them; beside siblings each
// group has its part of what they use together, and ranks keep the numbers that they were given.
// ctest not-under-tsan: it has one thread
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "base/index.hpp"
#include "plan/groups/member_tree.hpp"
#include "plan/groups/share.hpp"
#include "tests/support/seed.hpp"
#include "tests/support/trials.hpp"
#include "topology/fabric/fabric.hpp"
#include "topology/source.hpp"

using namespace sennit;  // NOLINT: a test

namespace {

// Members at random: what contract() makes of them, and member_tree() of the whole. Tiers that the
// fabric does not name are called by their numbers, of which a part of the tree may have fewer.
void expect_what_contract_makes(const Fabric& fabric, const std::vector<Placement>& places,
                                const std::string& text, bool tiers_named,
                                std::mt19937_64* random) {
  const Result<TierTree> whole = contract(fabric, places);
  ASSERT_TRUE(whole.ok());
  for (int round = 0; round < sennit_test::trials(60); round++) {
    std::vector<int> members;
    const uint64_t dense = 1 + (*random)() % 6;
    for (int p = 0; p < whole->ranks(); p++)
      if ((*random)() % 6 < dense) members.push_back(p);
    if (members.empty()) continue;
    std::vector<Placement> chosen;
    for (const int p : members) chosen.push_back(places[index(whole->rank_of_position[index(p)])]);
    const Result<TierTree> contracted = contract(fabric, chosen);
    ASSERT_TRUE(contracted.ok());
    const MemberTree sub = member_tree(*whole, members);
    SCOPED_TRACE(text + "\nmembers of\n" + whole->to_text() + "as\n" + sub.tree.to_text() +
                 "contracted\n" + contracted->to_text());
    ASSERT_EQ(sub.tree.check(), "");
    ASSERT_EQ(sub.tree.fingerprint(), contracted->fingerprint());
    ASSERT_TRUE(
        std::equal(members.begin(), members.end(), sub.positions.begin(), sub.positions.end()));
    ASSERT_EQ(sub.tiers.size(), sub.tree.tiers.size());
    for (size_t t = 0; t < sub.tiers.size(); t++)
      ASSERT_TRUE(!tiers_named || sub.tree.tiers[t].name == contracted->tiers[t].name);
  }
}

TEST(MemberTree, IsWhatContractMakesOfTheseRanks) {
  std::mt19937_64 random(sennit_test::seed());
  const std::vector<std::string> specs = {
      "racks=3x4;nic=1GB/s;oversubscription=4;latency=5us",
      "pods=2x3x2;ranks=4;nic=4GB/s;oversubscription=1,7;local=3GB/"
      "s;latency=14us;local_latency=3us",
      "racks=1,2,5;ranks=2;nic=2GB/s;uplink=3GB/s",
      "shape=(2x3),(1x2),(4);nic=1GB/s;oversubscription=2,3;latency=3us",
      "racks=2x3;ranks=3;nic=unknown"};
  for (const std::string& text : specs) {
    const Result<Fabric> fabric = synthetic_fabric(text);
    ASSERT_TRUE(fabric.ok()) << fabric.status().text();
    const int per_host = text.find("ranks=4") != text.npos   ? 4
                         : text.find("ranks=3") != text.npos ? 3
                         : text.find("ranks=2") != text.npos ? 2
                                                             : 1;
    expect_what_contract_makes(*fabric, ranks_on_all_hosts(*fabric, per_host), text, true, &random);
  }
}

// Else nobody knew that they share memory.
TEST(MemberTree, RanksOfOneNumaNodeAreInTheirHost) {
  std::mt19937_64 random(sennit_test::seed());
  const std::string text = "racks=2x3;ranks=4;nic=1GB/s;oversubscription=4;latency=5us";
  const Result<Fabric> fabric = synthetic_fabric(text);
  ASSERT_TRUE(fabric.ok()) << fabric.status().text();
  std::vector<Placement> places = ranks_on_all_hosts(*fabric, 4);
  for (size_t rank = 0; rank < places.size(); rank++)
    places[rank].numa = static_cast<int>(rank % 4 / 2);
  expect_what_contract_makes(*fabric, places, text, true, &random);
  const TierTree whole = *contract(*fabric, places);
  for (const std::vector<int>& members : {std::vector<int>{0, 1}, {0, 1, 4, 5}, {0, 1, 4, 6}}) {
    const TierTree part = member_tree(whole, members).tree;
    EXPECT_TRUE(part.tiers[part.groups[index(part.common_group(0, 1))].tier].is_host())
        << part.to_text();
  }
}

// The farthest hosts may be no members.
TEST(MemberTree, HasTheLatencyOfItsOwnRanks) {
  std::mt19937_64 random(sennit_test::seed());
  const std::string flat =
      "switch root\nhost h[0-3]\n"
      "link h[0-1] root 1GB/s latency 5us\nlink h[2-3] root 1GB/s latency 500us\n";
  // Two switches side by side; and racks of which one says nothing of its way, with devices.
  const std::string side_by_side =
      "switch a\nswitch b\nhost h[0-4]\n"
      "link h[0-1] a 1GB/s latency 5us\nlink h2 a 1GB/s latency 300us\n"
      "link h[3-4] b 1GB/s latency 40us\nlink a b 2GB/s latency 70us\n";
  const std::string racks =
      "switch root\nswitch rack[0-2]\nhost h[0-6]\n"
      "gpu h0/gpu[0-1] host h0\ngpu h5/gpu[0-1] host h5\n"
      "link h0/gpu[0-1] h0 3GB/s latency 2us\nlink h5/gpu[0-1] h5 3GB/s latency 20us\n"
      "link h[0-1] rack0 2GB/s latency 5us\nlink h2 rack0 2GB/s latency 300us\n"
      "link h[3-4] rack1 2GB/s latency 40us\nlink h[5-6] rack2 2GB/s\n"
      "link rack[0-1] root 3GB/s latency 70us\nlink rack2 root 3GB/s\n";
  for (const std::string& text : {flat, side_by_side, racks}) {
    const Result<Fabric> fabric = parse_fabric(text, "test");
    ASSERT_TRUE(fabric.ok()) << fabric.status().text();
    expect_what_contract_makes(*fabric, ranks_on_all_hosts(*fabric, 0), text, false, &random);
  }
  const Fabric fabric = *parse_fabric(flat, "test");
  const TierTree whole = *contract(fabric, ranks_on_all_hosts(fabric, 0));
  EXPECT_EQ(whole.root().latency_ns, 1'000'000u);
  EXPECT_EQ(member_tree(whole, {0, 1}).tree.root().latency_ns, 10'000u);
  EXPECT_EQ(member_tree(whole, {1, 2}).tree.root().latency_ns, 505'000u);
  // A part of a part.
  const TierTree part = member_tree(whole, {0, 1, 2}).tree;
  EXPECT_EQ(member_tree(part, {0, 1}).tree.root().latency_ns, 10'000u);
}

// A tree that was not made of links says no more than each group's latency.
TEST(MemberTree, KeepsALatencyOfWhichNoPartsAreKnown) {
  TierTree tree = TierTree::uniform({2, 4});
  tree.groups[0].latency_ns = 30'000;
  EXPECT_EQ(member_tree(tree, {0, 1, 4}).tree.root().latency_ns, 30'000u);
}

constexpr uint64_t kNic = 1'000'000'000;  // bytes/s
constexpr uint64_t kUplink = 500'000'000;

// Two racks of four hosts.
TierTree racks() { return TierTree::uniform({2, 4}, {kUplink, kNic}); }

uint64_t least_egress(const TierTree& tree) {
  uint64_t least = UINT64_MAX;
  for (const Group& group : tree.groups)
    if (group.egress.known()) least = std::min(least, group.egress.bytes_per_s);
  return least;
}

TEST(Siblings, EachHasItsPartOfAnUplinkThatAllUse) {
  const std::vector<std::vector<int>> pairs = {{0, 4}, {1, 5}, {2, 6}, {3, 7}};
  for (size_t own = 0; own < pairs.size(); own++) {
    const TierTree tree = tree_of_group(racks(), pairs, own);
    ASSERT_EQ(tree.check(), "");
    EXPECT_EQ(tree.ranks(), 2);
    EXPECT_EQ(least_egress(tree), kUplink / 4);
  }
  // Within the racks nobody shares anything.
  EXPECT_EQ(least_egress(tree_of_group(racks(), {{0, 1, 2, 3}, {4, 5, 6, 7}}, 1)), kNic);
}

TEST(Siblings, OneGroupAloneHasAll) {
  std::vector<int> all(8);
  for (int i = 0; i < 8; i++) all[index(i)] = i;
  EXPECT_EQ(tree_of_group(racks(), {all}, 0).fingerprint(), racks().fingerprint());
  const TierTree pair = tree_of_group(racks(), {{0, 4}}, 0);
  EXPECT_EQ(pair.fingerprint(), member_tree(racks(), {0, 4}).tree.fingerprint());
}

TEST(Siblings, RanksHaveTheNumbersOfTheList) {
  const TierTree tree = tree_of_group(racks(), {{6, 1, 5}, {0, 7}}, 0);
  EXPECT_EQ(tree.rank_of_position, (std::vector<int32_t>{1, 2, 0}));
  EXPECT_EQ(tree.position_of_rank, (std::vector<int32_t>{2, 0, 1}));
}

TEST(Concurrency, SaysWithWhomTheUplinkIsShared) {
  const std::vector<std::vector<int>> pairs = {{0, 4}, {1, 5}, {2, 6}, {3, 7}};
  const auto egress = [&](const char* text) {
    return least_egress(tree_of_group(racks(), pairs, 2, *parse_concurrency(text)));
  };
  EXPECT_EQ(egress("siblings"), kUplink / 4);
  EXPECT_EQ(egress("alone"), kUplink);
  EXPECT_EQ(egress("1"), kUplink);
  EXPECT_EQ(egress("3"), kUplink / 3);
  // As quick as few: nothing is made of each of them.
  EXPECT_EQ(egress("1000000"), kUplink / 1'000'000);
  EXPECT_EQ(egress("2147483647"), 1u);
  for (const char* off : {"", "0", "-1", "2x", "sibling", "99999999999"}) {
    const Status status = parse_concurrency(off).status();
    EXPECT_EQ(status.kind(), SENNIT_INVALID_ARGUMENT) << off;
    EXPECT_NE(status.text().find("expected siblings, alone, or a number of groups"),
              std::string::npos)
        << status.text();
  }
}

// A part of a part: the siblings of both splits share.
TEST(Siblings, OfSiblingsShareWhatTheirParentHas) {
  const TierTree half = tree_of_group(racks(), {{0, 1, 4, 5}, {2, 3, 6, 7}}, 0);
  EXPECT_EQ(least_egress(half), kUplink / 2);
  EXPECT_EQ(least_egress(tree_of_group(half, {{0, 2}, {1, 3}}, 1)), kUplink / 4);
}

}  // namespace
