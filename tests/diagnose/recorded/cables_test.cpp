// cables_test.cpp: what a slow link is made of, and which of its cables the forwarding tables tell:
// calls of hosts on a subnet of three leaves and two spines, one of whose cables is slow.
// ctest not-under-tsan: it has one thread
#include "diagnose/recorded/cables.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include <fmt/core.h>
#include <gtest/gtest.h>

#include "base/index.hpp"
#include "diagnose/recorded/simulated.hpp"
#include "diagnose/recorded/verdict.hpp"
#include "plan/planner.hpp"
#include "topology/sources/ibnet/ways.hpp"
#include "topology/text/read_file.hpp"

namespace sennit::diagnose {
namespace {

using Strings = std::vector<std::string>;

IbSubnet routed() {
  const std::string file = SENNIT_SOURCE_DIR "/tests/data/topology/forms/ibnetdiscover/routed.dump";
  return *parse_ibnetdiscover(*read_file(file), file);
}

TEST(CablesAbove, OfAHostAndOfALeaf) {
  const Fabric fabric = fabric_of(routed());
  EXPECT_EQ(cables_above(fabric, "node8", {"node7", "node8"}),
            Strings{"node8/mlx5_0 port 1 to leaf1 port 3"});
  EXPECT_EQ(cables_above(fabric, "leaf1", {}),
            (Strings{"leaf1 port 7 to spine0 port 2", "leaf1 port 8 to spine1 port 2"}));
  EXPECT_TRUE(cables_above(fabric, "spine0", {}).empty()) << "nothing is above it";
  EXPECT_TRUE(cables_above(fabric, "nobody", {}).empty());
  const Fabric plain = *parse_fabric("switch s\nhost a\nlink a s 1Gbit/s\n", "plain");
  EXPECT_EQ(cables_above(plain, "a", {}), Strings{"a to s"}) << "ports are not known";
}

// The node of this GUID.
int find_node(const IbSubnet& subnet, uint64_t guid) {
  for (size_t n = 0; n < subnet.nodes.size(); n++)
    if (subnet.nodes[n].guid == guid) return static_cast<int>(n);
  return -1;
}

// A storage host on a spine does not hide the cables that lead there.
TEST(CablesAbove, OfALeafBelowASpineThatHasAHost) {
  const Fabric fabric = *parse_fabric(
      "switch leaf tier leaf\nswitch spine0 tier spine\nswitch spine1 tier spine\nhost a\n"
      "host storage\nlink a leaf 1Gbit/s\nlink storage spine1 1Gbit/s\nlink leaf spine0 1Gbit/s\n"
      "link leaf spine1 1Gbit/s\n",
      "plain");
  EXPECT_EQ(cables_above(fabric, "leaf", {}), (Strings{"leaf to spine0", "leaf to spine1"}));
}

// What no other host of the job hangs on is its own: the tree has no boundary for it.
TEST(CablesAbove, OfAHostThatHasItsLeafToItself) {
  const Fabric fabric = *parse_fabric(
      "switch leaf0 tier leaf\nswitch leaf1 tier leaf\nswitch spine tier spine\nhost a\nhost b\n"
      "host c\nlink a leaf0 1Gbit/s\nlink b leaf1 1Gbit/s\nlink c leaf1 1Gbit/s\n"
      "link leaf0 spine 1Gbit/s\nlink leaf1 spine 1Gbit/s\n",
      "plain");
  EXPECT_EQ(cables_above(fabric, "a", {"a", "b", "c"}), (Strings{"a to leaf0", "leaf0 to spine"}));
  EXPECT_EQ(cables_above(fabric, "b", {"a", "b", "c"}), Strings{"b to leaf1"});
  EXPECT_EQ(cables_above(fabric, "b", {"a", "b"}), (Strings{"b to leaf1", "leaf1 to spine"}));
}

TEST(IbWay, FollowsTheTables) {
  const IbSubnet subnet = routed();
  const int node3 = find_node(subnet, 0x100400), node8 = find_node(subnet, 0x100900);
  const std::vector<IbHop> way = ib_way(subnet, node8, node3);
  ASSERT_EQ(way.size(), 4u);
  EXPECT_EQ(way[0].from, node8);
  EXPECT_EQ(way[1].from_port, 8) << "LID 5 by way of port 8 of leaf1";
  EXPECT_EQ(subnet.nodes[index(way[2].from)].description, "spine1");
  EXPECT_EQ(way[3].to, node3);
  EXPECT_TRUE(ib_way(subnet, node8, node8).empty());
}

TEST(IbWay, EndsWhereTablesAreMissingOrGoRoundInCircles) {
  IbSubnet subnet = routed();
  const int node3 = find_node(subnet, 0x100400), node8 = find_node(subnet, 0x100900);
  const int leaf1 = find_node(subnet, 0x200100), spine1 = find_node(subnet, 0x200400);
  std::vector<uint8_t>& of_spine = subnet.nodes[index(spine1)].way_to;
  of_spine.assign(of_spine.size(), 2);  // back to leaf1
  EXPECT_TRUE(ib_way(subnet, node8, node3).empty());
  subnet = routed();
  ASSERT_FALSE(ib_way(subnet, node8, node3).empty());
  subnet.nodes[index(leaf1)].way_to.clear();
  EXPECT_TRUE(ib_way(subnet, node8, node3).empty());
}

// A job on all hosts whose messages over one cable, by the tables, take twice as long.
class SlowCableOfLeaf1 : public testing::Test {
 protected:
  SlowCableOfLeaf1() : subnet_(routed()) {
    job_.fabric = fabric_of(subnet_);
    job_.request.collective = Collective::all_reduce;
    job_.request.count = 64 << 20;
    job_.noise = 0.05;
    job_.well_calls = 10;
    use(ranks_on_all_hosts(job_.fabric, 1));
  }
  void use(std::vector<Placement> placements) {
    job_.placements = std::move(placements);
    tree_ = *contract(job_.fabric, job_.placements);
    PlanOptions options;
    options.algorithm = "tiered";
    job_.plan = *make_plan(job_.request, tree_, options);
    constexpr uint32_t kFewChunks = 16;
    job_.plan.parameters.chunks = std::min(job_.plan.parameters.chunks, kFewChunks);
  }
  bool takes(const SimulatedMessage& message, const std::string& from, int port) const {
    const std::vector<IbHop> way = ib_way(subnet_, node_at(message.from), node_at(message.to));
    return std::any_of(way.begin(), way.end(), [&](const IbHop& hop) {
      return subnet_.nodes[index(hop.from)].description == from && hop.from_port == port;
    });
  }
  Verdict judged(const std::string& from, const std::vector<int>& ports, const IbSubnet* subnet) {
    const SimulatedCall well = *simulated_call(job_);
    SimulatedCall call = well;
    constexpr uint64_t kLonger = 2;
    for (SimulatedMessage& message : call.messages) {
      const uint64_t took = message.delivered_ns - message.begin_ns;
      const bool slow = std::any_of(ports.begin(), ports.end(),
                                    [&](int port) { return takes(message, from, port); });
      message.begin_ns *= kLonger;  // all wait for them
      message.delivered_ns = message.begin_ns + (slow ? kLonger : 1) * took;
      message.left_ns = message.delivered_ns;
    }
    call.time_ns *= kLonger;
    const JobRecording recording = recording_of(job_, call, well);
    Plans plans(recording);
    JudgeOptions options;
    options.subnet = subnet;
    return judge(recording, plans, options);
  }
  const IbSubnet subnet_;
  SimulatedJob job_;

 private:
  int node_at(int position) const {
    const std::string host = job_.placements[index(tree_.rank_of_position[index(position)])].host;
    for (size_t n = 0; n < subnet_.nodes.size(); n++)
      if (subnet_.nodes[n].description == host + " mlx5_0") return static_cast<int>(n);
    return -1;
  }
  TierTree tree_;
};

bool tells(const Verdict& verdict, const std::string& text) {
  return std::any_of(verdict.evidence.begin(), verdict.evidence.end(),
                     [&](const std::string& line) { return line.find(text) != std::string::npos; });
}

TEST_F(SlowCableOfLeaf1, IsNamedByTheTables) {
  const Verdict verdict = judged("leaf1", {8}, &subnet_);
  EXPECT_EQ(verdict.links, Strings{"out of leaf1"}) << verdict.sentence;
  EXPECT_EQ(verdict.cables, Strings{"leaf1 port 8 to spine1 port 2"}) << verdict.sentence;
  EXPECT_NE(verdict.sentence.find("; cable: leaf1 port 8 to spine1 port 2"), std::string::npos)
      << verdict.sentence;
  EXPECT_TRUE(tells(verdict, "over leaf1 port 7 to spine0 port 2"));
}

TEST_F(SlowCableOfLeaf1, WithoutTablesItsCablesAreListed) {
  const Verdict verdict = judged("leaf1", {8}, nullptr);
  EXPECT_EQ(verdict.links, Strings{"out of leaf1"}) << verdict.sentence;
  EXPECT_TRUE(verdict.cables.empty());
  EXPECT_TRUE(tells(verdict, "leaf1 is joined by leaf1 port 7 to spine0 port 2, leaf1 port 8"));
}

// Then the tree has no leaf1, and its cables are node8's.
TEST_F(SlowCableOfLeaf1, IsNamedWhereOneHostHasTheLeafToItself) {
  std::vector<Placement> placements = ranks_on_all_hosts(job_.fabric, 1);
  const Strings others = {"node6", "node7", "node9", "node10", "node11"};
  std::erase_if(placements, [&](const Placement& one) {
    return std::find(others.begin(), others.end(), one.host) != others.end();
  });
  use(std::move(placements));
  const Verdict verdict = judged("leaf1", {8}, &subnet_);
  EXPECT_EQ(verdict.links, Strings{"out of node8"}) << verdict.sentence;
  EXPECT_EQ(verdict.cables, Strings{"leaf1 port 8 to spine1 port 2"}) << verdict.sentence;
  EXPECT_TRUE(
      tells(verdict, "node8 is joined by node8/mlx5_0 port 1 to leaf1 port 3, leaf1 port 7"));
}

TEST_F(SlowCableOfLeaf1, WhereAllAreSlowNoneIsNamed) {
  const Verdict verdict = judged("leaf1", {7, 8}, &subnet_);
  EXPECT_EQ(verdict.links, Strings{"out of leaf1"}) << verdict.sentence;
  EXPECT_TRUE(verdict.cables.empty()) << fmt::format("{}", verdict.cables.front());
}

TEST_F(SlowCableOfLeaf1, OfAnotherSubnetNothingIsSaid) {
  IbSubnet other = subnet_;
  for (IbNode& node : other.nodes) {
    node.guid += 0x1000000;
    if (node.kind == IbKind::adapter) node.description = "other" + node.description;
  }
  const Verdict verdict = judged("leaf1", {8}, &other);
  EXPECT_EQ(verdict.links, Strings{"out of leaf1"}) << verdict.sentence;
  EXPECT_TRUE(verdict.cables.empty());
  EXPECT_TRUE(tells(verdict, "do not lead from these ranks' adapters"));
}

// Which of a host's two adapters its rank takes only the rank can say.
TEST_F(SlowCableOfLeaf1, OfHostsWithTwoAdaptersItIsNamedWhereRanksNameTheirs) {
  IbSubnet doubled = subnet_;
  for (const IbNode& node : subnet_.nodes) {
    if (node.kind != IbKind::adapter) continue;
    IbNode second = node;
    second.guid += 0x1000000;
    second.description.back() = '1';
    doubled.nodes.push_back(std::move(second));
  }
  job_.fabric = *parse_fabric(
      [&] {
        Fabric nameless = job_.fabric;
        for (Vertex& vertex : nameless.vertices) vertex.id.clear();
        return nameless.to_text();
      }(),
      "without GUIDs");
  const Verdict verdict = judged("leaf1", {8}, &doubled);
  EXPECT_EQ(verdict.links, Strings{"out of leaf1"}) << verdict.sentence;
  EXPECT_TRUE(verdict.cables.empty());
  EXPECT_TRUE(tells(verdict, "do not lead from these ranks' adapters"));
  for (Placement& placement : job_.placements) placement.nic = "mlx5_0";
  EXPECT_EQ(judged("leaf1", {8}, &doubled).cables, Strings{"leaf1 port 8 to spine1 port 2"});
}

TEST(SlowCables, HaveToStandOut) {
  EXPECT_EQ(slow_cables({{"a", 9, 2}, {"b", 9, 1.1}}), Strings{"a"});
  EXPECT_EQ(slow_cables({{"a", 9, 2}, {"b", 9, 1.9}, {"c", 9, 1}}), (Strings{"a", "b"}));
  EXPECT_TRUE(slow_cables({{"a", 9, 1.14}, {"b", 9, 1.06}}).empty()) << "by chance";
  EXPECT_TRUE(slow_cables({{"a", 1, 2}, {"b", 9, 1}}).empty()) << "one way says little";
  EXPECT_TRUE(slow_cables({{"a", 9, 2}, {"b", 9, 1.9}}).empty()) << "all are";
  EXPECT_TRUE(slow_cables({}).empty());
}

}  // namespace
}  // namespace sennit::diagnose
