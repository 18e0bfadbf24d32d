// probe_test.cpp: the prober against networks that are computed: flows share links max-min fairly,
// figures carry noise, some host is slow.
// ctest not-under-tsan: it has one thread
#include "topology/probe/probe.hpp"

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include <gtest/gtest.h>

namespace sennit::probe {
namespace {

// Hosts in nested groups; group 0 is the root. Rates in bytes/s, both directions alike but where a
// group has a downlink of its own.
struct World {
  struct Place {
    int parent = -1;
    double uplink = 0, downlink = 0;
  };
  std::vector<Place> groups = {{}};
  std::vector<int> group_of;  // by host
  std::vector<double> nic;

  int add_group(int parent, double uplink) {
    groups.push_back({parent, uplink, 0});
    return static_cast<int>(groups.size()) - 1;
  }
  void add_hosts(int group, int n, double rate) {
    group_of.insert(group_of.end(), static_cast<size_t>(n), group);
    nic.insert(nic.end(), static_cast<size_t>(n), rate);
  }
  int hosts() const { return static_cast<int>(group_of.size()); }

  // Links of a flow: nic and uplinks, out: 2 * i, in: 2 * i + 1; groups behind hosts.
  std::vector<size_t> path(const Flow& f) const {
    std::vector<size_t> links = {2 * static_cast<size_t>(f.from),
                                 2 * static_cast<size_t>(f.to) + 1};
    std::vector<int> a, b;
    for (int g = group_of[static_cast<size_t>(f.from)]; g > 0;
         g = groups[static_cast<size_t>(g)].parent)
      a.push_back(g);
    for (int g = group_of[static_cast<size_t>(f.to)]; g > 0;
         g = groups[static_cast<size_t>(g)].parent)
      b.push_back(g);
    const auto base = static_cast<size_t>(hosts());
    for (const int g : a)
      if (std::find(b.begin(), b.end(), g) == b.end())
        links.push_back(2 * (base + static_cast<size_t>(g)));
    for (const int g : b)
      if (std::find(a.begin(), a.end(), g) == a.end())
        links.push_back(2 * (base + static_cast<size_t>(g)) + 1);
    return links;
  }
  double capacity(size_t link) const {
    const size_t i = link / 2, base = nic.size();
    if (i < base) return nic[i];
    const Place& group = groups[i - base];
    return link % 2 == 1 && group.downlink > 0 ? group.downlink : group.uplink;
  }
  std::vector<double> rates(const std::vector<Flow>& flows) const {
    std::vector<double> rate(flows.size(), 0), left(2 * (nic.size() + groups.size()));
    for (size_t l = 0; l < left.size(); l++) left[l] = capacity(l);
    std::set<size_t> open;
    for (size_t f = 0; f < flows.size(); f++) open.insert(f);
    while (!open.empty()) {
      std::map<size_t, int> users;
      for (const size_t f : open)
        for (const size_t l : path(flows[f])) users[l]++;
      double share = 1e300;
      for (const auto& [l, n] : users) share = std::min(share, left[l] / n);
      std::set<size_t> closed;
      for (const size_t f : open)
        for (const size_t l : path(flows[f]))
          if (left[l] / users[l] <= share * (1 + 1e-9)) closed.insert(f);
      for (const size_t f : closed) {
        rate[f] = share;
        for (const size_t l : path(flows[f])) left[l] -= share;
        open.erase(f);
      }
    }
    return rate;
  }
  double round_trip(int a, int b) const {
    return 40'000.0 + 5'000.0 * static_cast<double>(path({a, b}).size());
  }
};

Findings run(const World& world, uint64_t seed, double noise) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> wobble(1 - noise, 1 + noise);
  Prober prober(world.hosts(), seed % 2 == 0);
  while (const std::optional<Round> round = prober.next()) {
    std::vector<uint64_t> figures;
    if (round->latency) {
      std::set<int> busy;
      for (const Flow& f : round->flows) {
        EXPECT_TRUE(busy.insert(f.from).second && busy.insert(f.to).second)
            << "a host is in two pairs at once";
        figures.push_back(static_cast<uint64_t>(world.round_trip(f.from, f.to) * wobble(random)));
      }
    } else {
      std::set<std::pair<int, int>> seen;
      for (const Flow& f : round->flows) EXPECT_TRUE(seen.insert({f.from, f.to}).second);
      for (const double r : world.rates(round->flows))
        figures.push_back(static_cast<uint64_t>(r * wobble(random)));
    }
    prober.record(figures);
  }
  return prober.findings();
}

std::set<std::vector<int>> sets_of(const Findings& findings) {
  std::set<std::vector<int>> sets;
  for (size_t g = 1; g < findings.groups.size(); g++) sets.insert(findings.groups[g].hosts);
  return sets;
}

// Two tiers: racks of these sizes, `oversubscription` : 1, hosts dealt out as `order` says.
World racks(const std::vector<int>& sizes, double oversubscription) {
  World world;
  for (const int size : sizes)
    world.add_hosts(world.add_group(0, size * 50e6 / oversubscription), size, 50e6);
  return world;
}

void shuffle(World& world, uint64_t seed) {
  std::mt19937_64 random(seed);
  for (size_t i = world.group_of.size(); i-- > 1;) {
    const size_t j = random() % (i + 1);
    std::swap(world.group_of[i], world.group_of[j]);
    std::swap(world.nic[i], world.nic[j]);
  }
}

void expect_found(const World& world, const Findings& findings, const std::string& what) {
  std::map<int, std::vector<int>> truth;
  for (int h = 0; h < world.hosts(); h++)
    truth[world.group_of[static_cast<size_t>(h)]].push_back(h);
  const auto found = sets_of(findings);
  for (const auto& [g, hosts] : truth)
    EXPECT_TRUE(found.contains(hosts)) << what << ": group " << g;
  EXPECT_EQ(found.size(), truth.size()) << what;
  for (size_t g = 1; g < findings.groups.size(); g++) {
    const Group& group = findings.groups[g];
    double asked = 0, declared = 0;
    for (const int h : group.hosts) {
      asked += static_cast<double>(findings.hosts[static_cast<size_t>(h)].bytes_per_s);
      declared += world.nic[static_cast<size_t>(h)];
    }
    const int real = world.group_of[static_cast<size_t>(group.hosts[0])];
    const double expected = declared / world.groups[static_cast<size_t>(real)].uplink;
    EXPECT_NEAR(asked / static_cast<double>(group.egress_bytes_per_s), expected, 0.1 * expected)
        << what;
  }
}

TEST(Probe, FindsRacksAndTheirOversubscription) {
  const std::vector<std::vector<int>> shapes = {{4, 4},       {3, 3, 3}, {1, 2, 3, 2},
                                                {2, 2, 2, 2}, {1, 2, 3}, {8, 8, 8, 8}};
  for (const auto& shape : shapes)
    for (const double oversubscription : {7.0, 5.0, 3.0})
      for (uint64_t seed = 0; seed < 6; seed++) {
        World world = racks(shape, oversubscription);
        if (seed > 1) shuffle(world, seed);
        expect_found(world, run(world, seed, 0.02),
                     ::testing::PrintToString(shape) + " at " + std::to_string(oversubscription) +
                         ", seed " + std::to_string(seed));
      }
}

TEST(Probe, OneSlowHostMisleadsNobody) {
  for (const std::vector<int>& shape :
       {std::vector<int>{4, 4}, {3, 3, 3}, {2, 2, 2, 2}, {1, 2, 3, 2}})
    for (const double oversubscription : {7.0, 5.0, 3.0})
      for (int h = 0; h < 8; h++) {
        World world = racks(shape, oversubscription);
        const auto slow = static_cast<size_t>(h);
        const auto alone =
            std::count(world.group_of.begin(), world.group_of.end(), world.group_of[slow]) == 1;
        world.nic[slow] /= 4;
        const Findings findings = run(world, 1, 0.01);
        const std::string what =
            ::testing::PrintToString(shape) + ", slow host " + std::to_string(h);
        // What a host alone in its rack could send within the rack, nothing can show.
        if (alone) {
          EXPECT_EQ(findings.groups.size(), shape.size() + 1) << what;
          continue;
        }
        expect_found(world, findings, what);
        EXPECT_EQ(findings.slow, std::vector<int>{h}) << what;
      }
}

// What a cut carries shows that the neighbour is not the slow one, and no more than that of it.
TEST(Probe, OneSlowHostWithOneNeighbour) {
  for (const std::vector<int>& shape : {std::vector<int>{2, 4, 4}, {4, 2, 4}, {4, 4, 2}}) {
    World world = racks(shape, 2.4);
    for (int h = 0; h < world.hosts(); h++) {
      const auto slow = static_cast<size_t>(h);
      if (std::count(world.group_of.begin(), world.group_of.end(), world.group_of[slow]) != 2)
        continue;
      World one = world;
      one.nic[slow] /= 5;
      const Findings findings = run(one, 1, 0.01);
      const std::string what = ::testing::PrintToString(shape) + ", slow host " + std::to_string(h);
      expect_found(one, findings, what);
      EXPECT_EQ(findings.slow, std::vector<int>{h}) << what;
    }
  }
}

TEST(Probe, FullBisectionIsFlat) {
  for (const std::vector<int>& shape : {std::vector<int>{4, 4}, {1, 2, 3, 2}}) {
    const Findings findings = run(racks(shape, 1), 3, 0.02);
    EXPECT_EQ(findings.groups.size(), 1u);
    for (const HostRate& rate : findings.hosts)
      EXPECT_NEAR(static_cast<double>(rate.bytes_per_s), 50e6, 2e6);
  }
}

TEST(Probe, AnUplinkThatIsNarrowOneWayStays) {
  for (const std::vector<int>& shape : {std::vector<int>{4, 4}, {4, 4, 4}}) {
    World world = racks(shape, 1);
    World::Place& rack = world.groups[1];
    rack.downlink = rack.uplink;
    rack.uplink /= 10;
    const Findings findings = run(world, 1, 0.02);
    const auto found = std::find_if(findings.groups.begin(), findings.groups.end(), [](auto& g) {
      return g.hosts == std::vector<int>{0, 1, 2, 3};
    });
    ASSERT_NE(found, findings.groups.end()) << ::testing::PrintToString(shape);
    EXPECT_NEAR(static_cast<double>(found->egress_bytes_per_s), 20e6, 1e6);
    EXPECT_NEAR(static_cast<double>(found->ingress_bytes_per_s), 200e6, 10e6);
  }
}

TEST(Probe, ThreeTiers) {
  World world;
  for (int pod = 0; pod < 2; pod++) {
    const int p = world.add_group(0, 2 * 100e6 / 4);
    for (int rack = 0; rack < 2; rack++) world.add_hosts(world.add_group(p, 100e6), 4, 50e6);
  }
  for (uint64_t seed = 0; seed < 4; seed++) {
    const Findings findings = run(world, seed, 0.01);
    ASSERT_EQ(findings.groups.size(), 7u) << "seed " << seed;
    const auto sets = sets_of(findings);
    EXPECT_TRUE(sets.contains({0, 1, 2, 3, 4, 5, 6, 7}));
    EXPECT_TRUE(sets.contains({12, 13, 14, 15}));
    std::vector<std::string> names;
    for (int h = 0; h < 16; h++) names.push_back("n" + std::to_string(h));
    std::vector<Placement> ranks;
    for (const std::string& name : names) ranks.push_back({name, -1, ""});
    const Result<TierTree> tree = contract(to_fabric(findings, names, {}, "probe"), ranks);
    ASSERT_TRUE(tree.ok()) << tree.status().text();
    EXPECT_EQ(tree->tiers.size(), 4u);
    EXPECT_NEAR(tree->oversubscription(1), 4, 0.4);
  }
}

TEST(Probe, NamesComeFromWhoKnowsTheSameHosts) {
  const World world = racks({2, 2}, 4);
  const std::vector<std::string> names = {"a", "b", "c", "d"};
  const Result<Fabric> known = parse_fabric(
      "switch spine\nswitch left tier rack\nswitch right tier rack\nhost a\nhost b\nhost c\nhost "
      "d\n"
      "link a left unknown\nlink b left unknown\nlink c right unknown\nlink d right unknown\n"
      "link left spine unknown\nlink right spine unknown\n",
      "known");
  ASSERT_TRUE(known.ok()) << known.status().text();
  const Fabric fabric = to_fabric(run(world, 1, 0), names, *known, "probe 2026-11-21 12:03 UTC");
  EXPECT_GE(fabric.find("left"), 0);
  EXPECT_GE(fabric.find("right"), 0);
  const Result<Fabric> again = parse_fabric(fabric.to_text(), "written");
  ASSERT_TRUE(again.ok()) << again.status().text();
  EXPECT_EQ(again->fingerprint(), fabric.fingerprint());
  for (const Link& link : again->links) EXPECT_EQ(link.source, "probe 2026-11-21 12:03 UTC");
}

TEST(Probe, TwoHostsAndOneHost) {
  EXPECT_EQ(run(racks({2}, 1), 1, 0).groups.size(), 1u);
  EXPECT_EQ(run(racks({1, 1}, 5), 1, 0).groups.size(), 1u);
  EXPECT_EQ(run(racks({1}, 1), 1, 0).groups.size(), 1u);
}

TEST(Probe, NoiseAloneIsFlat) {
  World world = racks({16}, 1);
  for (uint64_t seed = 0; seed < 20; seed++) {
    const Findings findings = run(world, seed, 0.05);
    EXPECT_EQ(findings.groups.size(), 1u) << "seed " << seed << "\n"
                                          << findings.to_text(std::vector<std::string>(16, "h"));
  }
}

}  // namespace
}  // namespace sennit::probe
