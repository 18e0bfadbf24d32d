// racks_test.cpp: racks out of rates while everybody sends to everybody (topology/probe/racks.hpp),
// on computed rates. Whole probes are in tests/topology/probe/probe_test.cpp.
// ctest not-under-tsan: it has one thread
#include "topology/probe/racks.hpp"

#include <functional>

#include <gtest/gtest.h>

namespace sennit::probe {
namespace {

// Has everybody send to everybody, at these rates.
void feed(Racks& racks, const std::function<uint64_t(int from, int to)>& rate) {
  const Round round = racks.everybody();
  std::vector<uint64_t> rates;
  for (const Flow& flow : round.flows) rates.push_back(rate(flow.from, flow.to));
  racks.record(round, rates);
}

TEST(Racks, TwoOfThree) {
  Racks racks(6);
  feed(racks, [](int a, int b) { return a / 3 == b / 3 ? 100 : 20; });
  bool needs_round_trips = true;
  EXPECT_TRUE(racks.lone_rounds(&needs_round_trips).empty());
  EXPECT_FALSE(needs_round_trips);
  const std::vector<Group> groups = racks.groups();
  ASSERT_EQ(groups.size(), 3u);
  EXPECT_EQ(groups[0].hosts.size(), 6u);
  EXPECT_EQ(groups[1].hosts, (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(groups[2].hosts, (std::vector<int>{3, 4, 5}));
  EXPECT_EQ(groups[1].parent, 0);
  EXPECT_DOUBLE_EQ(groups[1].separation, 5);
}

// A slow host is alone at first: it hears from every rack in turn, and is where it hears more, if
// round trips agree.
TEST(Racks, ASlowHostIsPlacedByWhatItHears) {
  for (const bool near : {true, false}) {
    Racks racks(5);
    feed(racks, [](int a, int b) { return a == 4 || b == 4 ? 5 : a / 2 == b / 2 ? 100 : 20; });
    bool needs_round_trips = false;
    const std::vector<Round> rounds = racks.lone_rounds(&needs_round_trips);
    EXPECT_TRUE(needs_round_trips);
    Pairs round_trips(5);
    for (int a = 0; a < 5; a++)
      for (int b = 0; b < 5; b++) {
        const bool together = a / 2 == b / 2 || (near && a + b >= 6 && (a == 4 || b == 4));
        round_trips.at(a, b) = together ? 10'000 : 30'000;
      }
    for (const Round& round : rounds) {
      std::vector<uint64_t> rates;
      for (const Flow& flow : round.flows)
        rates.push_back(flow.to == 4 && flow.from == 2 ? 50 : 20);
      racks.place_lone(round, rates, round_trips);
    }
    const std::vector<Group> groups = racks.groups();
    ASSERT_GE(groups.size(), 3u);
    EXPECT_EQ(groups[2].hosts, near ? (std::vector<int>{2, 3, 4}) : (std::vector<int>{2, 3}));
  }
}

TEST(Racks, OneHostHasNoOthers) {
  Racks racks(1);
  EXPECT_TRUE(racks.everybody().flows.empty());
  bool needs_round_trips = true;
  EXPECT_TRUE(racks.lone_rounds(&needs_round_trips).empty());
  EXPECT_EQ(racks.groups().size(), 1u);
}

}  // namespace
}  // namespace sennit::probe
