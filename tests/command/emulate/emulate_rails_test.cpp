// Trees whose hosts have a NIC on each of several rails: what ranks are told of them, that packets
// leave by the NIC whose address they carry, and that a fault of one rail spares the others. What
// touches the kernel needs root, for the view into the tree's namespaces that it takes.
//
// ctest quiet: it builds network namespaces
// ctest runs: sennit_command
// ctest links: sennit_commands
// ctest not-under-tsan: it runs a command, whose threads others try
#include <signal.h>

#include <chrono>
#include <fstream>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "command/emulate/faults/link.hpp"
#include "command/emulate/run.hpp"
#include "tests/command/emulate/standing_tree.hpp"
#include "tests/support/shell.hpp"
#include "tests/support/test_folder.hpp"
#include "topology/fabric/fabric.hpp"

namespace sennit {
namespace {

using sennit_test::Outcome;
using sennit_test::sh;

// ---- what needs no namespaces ----

emulate::TreeOptions options_of(const std::string& racks, int hosts, int rails = 1) {
  emulate::TreeOptions options;
  options.racks = racks;
  options.hosts = hosts;
  options.rails = rails;
  return options;
}

emulate::Tree tree_of(const emulate::TreeOptions& options) {
  const Result<emulate::Tree> tree = emulate::make_tree(options);
  EXPECT_TRUE(tree.ok()) << tree.status().text();
  return tree ? *tree : emulate::Tree{};
}

std::string error_of(const emulate::TreeOptions& options) {
  return emulate::make_tree(options).status().text();
}

TEST(EmulateRails, OneRailIsAPlainTree) {
  emulate::TreeOptions options = options_of("2", 1);
  options.oversubscription = "2";
  const emulate::Tree tree = tree_of(options);
  EXPECT_EQ(emulate::fabric_text(tree),
            "# written by sennit emulate\nfabric \"emulated\"\nswitch spine tier root\n"
            "switch rack0 tier rack\nlink rack0 spine 200Mbit/s burst 256KiB declared\n"
            "switch rack1 tier rack\nlink rack1 spine 200Mbit/s burst 256KiB declared\n"
            "host h0\nlink h0 rack0 400Mbit/s burst 256KiB declared\n"
            "host h1\nlink h1 rack1 400Mbit/s burst 256KiB declared\n");
  EXPECT_EQ(emulate::describe(tree),
            "2 racks × 1 host, 400 Mbit/s per host, 200 Mbit/s per rack uplink");
  EXPECT_FALSE(tree_of(options_of("1", 4)).has_spine());
}

// Rates and ratios are those of one rail.
TEST(EmulateRails, EveryRailHasItsLeavesAndUplinks) {
  emulate::TreeOptions options = options_of("2", 4, 2);
  options.oversubscription = "4";
  const emulate::Tree tree = tree_of(options);
  EXPECT_EQ(emulate::describe(tree),
            "2 racks × 4 hosts, 2 rails, 400 Mbit/s per NIC, 400 Mbit/s per rack uplink and rail");
  const std::string text = emulate::fabric_text(tree);
  for (const char* line :
       {"link rack0.0 spine 400Mbit/s ", "link rack1.1 spine 400Mbit/s ", "nic h5/eth1 host h5\n",
        "link h5/eth0 rack1.0 400Mbit/s ", "link h5/eth1 rack1.1 400Mbit/s "})
    EXPECT_NE(text.find(line), std::string::npos) << line << "\n" << text;
}

TEST(EmulateRails, RanksOfAHostTakeTheRailsInTurn) {
  emulate::TreeOptions options = options_of("2", 2, 2);
  options.pods = "2";
  const emulate::Tree tree = tree_of(options);
  const std::vector<int> hosts = {0, 1, 0, 1, 0, 1, 0, 1};
  EXPECT_EQ(emulate::local_ranks(tree, hosts), (std::vector<int>{0, 0, 1, 1, 2, 2, 3, 3}));
  const Result<TierTree> tiers = emulate::tier_tree(tree, hosts);
  ASSERT_TRUE(tiers.ok()) << tiers.status().text();
  for (int32_t rank = 0; rank < 8; rank++)
    EXPECT_EQ(
        tiers->home_plane[static_cast<size_t>(tiers->position_of_rank[static_cast<size_t>(rank)])],
        emulate::rail_of(tree, rank / 2));
  // A rank that does not say which NIC it uses has the same one.
  const Result<Fabric> fabric = parse_fabric(emulate::fabric_text(tree), "emulated");
  ASSERT_TRUE(fabric.ok()) << fabric.status().text();
  std::vector<Placement> places;
  for (const int host : hosts)
    places.push_back({.host = fmt::format("h{}", host), .numa = -1, .nic = ""});
  const Result<TierTree> unnamed = contract(*fabric, places);
  ASSERT_TRUE(unnamed.ok()) << unnamed.status().text();
  EXPECT_EQ(unnamed->fingerprint(), tiers->fingerprint());
}

TEST(EmulateRails, RacksAndHostsHaveAsManyPlanes) {
  for (const int rails : {2, 3, 8}) {
    const emulate::Tree tree = tree_of(options_of("2", 2, rails));
    std::vector<int> hosts;
    for (int host = 0; host < 4; host++)
      hosts.insert(hosts.end(), static_cast<size_t>(rails), host);
    const Result<TierTree> tiers = emulate::tier_tree(tree, hosts);
    ASSERT_TRUE(tiers.ok()) << tiers.status().text();
    int found = 0;
    for (const Group& group : tiers->groups) {
      const std::string& tier = tiers->tiers[group.tier].name;
      if (tier != "rack" && tier != "host") continue;
      found++;
      EXPECT_EQ(group.planes, rails) << tier;
      const uint64_t nics = tier == "rack" ? 2 : 1;
      EXPECT_EQ(group.egress.bytes_per_s, nics * 50'000'000 * static_cast<uint64_t>(rails)) << tier;
    }
    EXPECT_EQ(found, 6);
  }
}

TEST(EmulateRails, AddressesAreOneSubnetARail) {
  EXPECT_EQ(emulate::address_of(77, 0, 0), "10.77.1.1");
  EXPECT_EQ(emulate::address_of(77, 999, 0), "10.77.4.250");
  EXPECT_EQ(emulate::address_of(78, 3, 1), "10.78.17.4");
  std::set<std::string> all;
  for (int rail = 0; rail < emulate::kMostRails; rail++)
    for (size_t host = 0; host < 1000; host++) all.insert(emulate::address_of(77, host, rail));
  EXPECT_EQ(all.size(), 1000u * emulate::kMostRails);

  emulate::Tree tree = tree_of(options_of("1", 1));
  tree.hosts[0].nics[0].address = "10.77.1.1";
  EXPECT_EQ(emulate::addressing(tree, tree.hosts[0], 77),
            "link set lo up\naddr add 10.77.1.1/16 dev eth0\nlink set eth0 up\n");
}

TEST(EmulateRails, LinksAreCalledAsTheFabricCallsThem) {
  emulate::Instance instance;
  instance.name = "here";
  instance.tree = tree_of(options_of("2", 2, 2));
  const auto found = [&](const std::string& name) {
    const Result<std::vector<emulate::TreeLink>> links = emulate::find_links(&instance, name);
    if (!links) return links.status().text();
    std::string text;
    for (const emulate::TreeLink& link : *links)
      text += fmt::format("{}={}>{} ", link.name, link.out.sender.device, link.out.receiver.device);
    return text;
  };
  EXPECT_EQ(found("h1"), "h1/eth0=eth0>port-h1.0 h1/eth1=eth1>port-h1.1 ");
  EXPECT_EQ(found("h1.1"), "h1/eth1=eth1>port-h1.1 ");
  EXPECT_EQ(found("h1/eth0"), "h1/eth0=eth0>port-h1.0 ");
  EXPECT_EQ(found("rack1"), "rack1.0=up-rack1.0>down-rack1.0 rack1.1=up-rack1.1>down-rack1.1 ");
  EXPECT_EQ(found("rack0.1"), "rack0.1=up-rack0.1>down-rack0.1 ");
  EXPECT_EQ(found("h0.5"),
            "h0.5: there is no rail 5 in 'here'; on its rails h0 has h0/eth0 to h0/eth1");
  EXPECT_EQ(found("rack1.2"),
            "rack1.2: there is no rail 2 in 'here'; on its rails rack1 has rack1.0 to rack1.1");
  for (const char* name : {"h9.1", "rack0/eth1", "h0.", "h0.x", "h0.-1", "h0/eth", ".1"})
    EXPECT_EQ(found(name),
              fmt::format("{}: there is no such host or switch in 'here'; its links are called by "
                          "their lower ends: h0 to h3, rack0 to rack1; on one rail h0/eth0 to "
                          "h0/eth1, rack0.0 to rack0.1",
                          name));
  instance.tree = tree_of(options_of("2", 2));
  EXPECT_EQ(found("h1"), "h1=eth0>port-h1 ");
  EXPECT_EQ(found("h1.1"), "h1.1: there is no rail 1 in 'here'; on its rails h1 has h1");
}

TEST(EmulateRails, NumbersThatAreOff) {
  for (const int rails : {-1, 0, 9, 99})
    EXPECT_EQ(error_of(options_of("2", 4, rails)),
              fmt::format("--rails {}: a host has from 1 to 8 NICs", rails));
  EXPECT_NE(error_of(options_of("2", 100, 8))
                .find("--rails 8: 1600 NICs for 200 hosts, and one machine carries at most 1000"),
            std::string::npos);
  for (const char* rails : {"0", "99", "two", "1.5"}) {
    const Outcome up = sh(kCommand + "up --name no-such-tree --rails " + rails);
    EXPECT_EQ(up.status, 2) << rails << ": " << up.output;
    EXPECT_NE(up.output, "") << rails;
  }
}

TEST(EmulateTrees, RacksOfPodsAreAddedUpWithoutWrappingAround) {
  emulate::TreeOptions options = options_of("2", 2);
  options.pods = "2147483647,2147483647,4";
  EXPECT_EQ(error_of(options),
            "--pods 2147483647,2147483647,4: the racks of the pods do not add up to 2");
}

TEST(EmulateTrees, UplinksHaveARateThatALinkCanHave) {
  emulate::TreeOptions options = options_of("2", 2);
  for (const char* ratio : {"inf", "1e12", "1e-12", "1e-300"}) {
    options.oversubscription = ratio;
    EXPECT_NE(error_of(options).find(fmt::format("--oversubscription {}: the uplink of rack0 would "
                                                 "have ",
                                                 ratio)),
              std::string::npos)
        << error_of(options);
  }
  options.pods = "2";
  options.oversubscription = "2,1e12";
  EXPECT_NE(error_of(options).find("the uplink of pod0 would have "), std::string::npos)
      << error_of(options);
  options.pods.clear();
  options.oversubscription = "1e4";
  EXPECT_EQ(tree_of(options).racks[1].uplink_bits_per_s, 80'000u);
  options.racks = "1";
  options.oversubscription = "1e12";
  EXPECT_EQ(tree_of(options).racks[0].uplink_bits_per_s, 0u) << "the root has none";
}

// ---- on a tree that is up ----

class EmulateRailsTest : public StandingTree {
 protected:
  // Received by that interface of a host.
  int64_t bytes_in(int host, const std::string& interface) const {
    std::ifstream file(fmt::format("/proc/{}/net/dev", holder(host)));
    for (std::string word; file >> word;)
      if (int64_t bytes = 0; word == interface + ":" && file >> bytes) return bytes;
    return 0;
  }
  // What `tc` says of that device, as one line.
  static std::string queue(pid_t process, const std::string& device) {
    return inside(process, "tc qdisc show dev " + device);
  }
  bool slowed(pid_t process, const std::string& device) const {
    return queue(process, device).find("rate 10Mbit") != std::string::npos;
  }
};

TEST_F(EmulateRailsTest, PacketsLeaveByTheNicWhoseAddressTheyCarry) {
  bring_up("--racks 2 --hosts 1 --rails 3 --nic 100Mbit/s --uplink 50Mbit/s");
  const std::string ours = state_["hosts"][0]["address"];
  const std::string net = ours.substr(0, ours.find('.', 3));  // 10.77
  for (int rail = 0; rail < 3; rail++) {
    const std::string device = emulate::interface_of(rail);
    EXPECT_NE(queue(holder(0), device).find("rate 100Mbit"), std::string::npos);
    EXPECT_NE(queue(keeper(), fmt::format("port-h1.{}", rail)).find("rate 100Mbit"),
              std::string::npos);
    EXPECT_NE(queue(keeper(), fmt::format("up-rack1.{}", rail)).find("rate 50Mbit"),
              std::string::npos);
    const std::string to = fmt::format("{}.{}.2", net, 16 * rail + 1);
    EXPECT_NE(inside(holder(0), "ip route get " + to).find("dev " + device), std::string::npos);
    for (int from = 0; from < 3; from++) {
      const std::string route =
          inside(holder(0), fmt::format("ip route get {} from {}.{}.1", to, net, 16 * from + 1));
      EXPECT_NE(route.find(fmt::format("dev eth{}", from)), std::string::npos) << route;
    }
  }
}

TEST_F(EmulateRailsTest, AnAllReduceUsesBothRails) {
  bring_up("--racks 2 --hosts 2 --rails 2 --nic 200Mbit/s --oversubscription 2");
  const trainer::TestFolder folder;
  const std::string file = folder / "bench.json";
  const Outcome tagged = sh(kCommand + "run --name " + name_ +
                            " --order dealt --tag -- sh -c 'echo $(hostname) $LOCAL_RANK "
                            "$LOCAL_WORLD_SIZE $SENNIT_INTERFACE'");
  ASSERT_EQ(tagged.status, 0) << tagged.output;
  EXPECT_EQ(tagged.of_rank(0), "h0 0 2 eth0\n") << tagged.output;
  EXPECT_EQ(tagged.of_rank(1), "h2 0 2 eth0\n") << tagged.output;
  EXPECT_EQ(tagged.of_rank(6), "h1 1 2 eth1\n") << tagged.output;
  const Outcome run = sh(kCommand + "run --name " + name_ +
                         " --timeout 120 -- " SENNIT_BINARY_DIR
                         "/bin/sennit bench all_reduce -b 1M -e 1M -n 3 -w 1 --json " +
                         file);
  ASSERT_EQ(run.status, 0) << run.output;
  std::ifstream in(file);
  const nlohmann::json line = nlohmann::json::parse(in);
  EXPECT_EQ(line["wrong"], 0);
  EXPECT_EQ(line["ranks"], 8);
  // Four calls move 1.5 MB each into every host; half of it by each of its NICs.
  for (int host = 0; host < 4; host++)
    for (const char* interface : {"eth0", "eth1"})
      EXPECT_GT(bytes_in(host, interface), 1'000'000) << host << " " << interface;
}

TEST_F(EmulateRailsTest, AFaultOfOneRailSparesTheOther) {
  bring_up("--racks 2 --hosts 2 --rails 2 --nic 200Mbit/s --oversubscription 2");
  const std::string whole = kernel();
  EXPECT_EQ(
      emulate("slow h0.1 10Mbit/s").output,
      fmt::format("h0/eth1 of '{}': both directions slowed to 10 Mbit/s of 200 Mbit/s\n", name_));
  EXPECT_TRUE(slowed(holder(0), "eth1"));
  EXPECT_TRUE(slowed(keeper(), "port-h0.1"));
  EXPECT_FALSE(slowed(holder(0), "eth0"));
  EXPECT_FALSE(slowed(keeper(), "port-h0.0"));
  ask("slow rack1.0 10Mbit/s --direction out");
  EXPECT_TRUE(slowed(keeper(), "up-rack1.0"));
  EXPECT_FALSE(slowed(keeper(), "up-rack1.1"));
  EXPECT_EQ(faults(),
            "h0/eth1: both directions slowed to 10 Mbit/s of 200 Mbit/s\n"
            "rack1.0: out slowed to 10 Mbit/s of 200 Mbit/s; in whole\n");
  ask("slow h0 10Mbit/s");  // all of its NICs
  EXPECT_TRUE(slowed(holder(0), "eth0"));
  ask("heal h0/eth1");
  EXPECT_TRUE(slowed(holder(0), "eth0"));
  EXPECT_FALSE(slowed(holder(0), "eth1"));
  EXPECT_EQ(
      emulate("heal h0").output,
      fmt::format("h0/eth0 of '{0}': whole\nh0/eth1 of '{0}': whole, as it was before\n", name_));
  ask("heal rack1");
  EXPECT_EQ(kernel(), whole);
  EXPECT_EQ(faults(), "");
  const Outcome none = emulate("slow h0.5 10Mbit/s");
  EXPECT_EQ(none.status, 2);
  EXPECT_NE(none.output.find("h0.5: there is no rail 5"), std::string::npos) << none.output;
  EXPECT_EQ(kernel(), whole);
}

TEST_F(EmulateRailsTest, ACutRailIsCutAlone) {
  bring_up("--racks 1 --hosts 2 --rails 2 --nic 200Mbit/s");
  if (const std::string why = no_drops(); !why.empty()) GTEST_SKIP() << "NOT TESTED: " << why;
  const std::string whole = kernel();
  ask("cut h1.1");
  const std::string rules = inside(holder(1), "nft list ruleset");
  EXPECT_NE(rules.find("device \"eth1\""), std::string::npos) << rules;
  EXPECT_EQ(rules.find("device \"eth0\""), std::string::npos) << rules;
  // Asks h1 for a connection to a port where nobody listens: what is refused has arrived.
  const auto reached = [&](const char* third_byte) {
    std::string to = state_["hosts"][1]["address"];
    to = to.substr(0, to.find('.', 3)) + third_byte;
    return inside(holder(0), "timeout 2 bash -c 'exec 3<>/dev/tcp/" + to + "/9'").find("refused") !=
           std::string::npos;
  };
  EXPECT_TRUE(reached(".1.2"));
  EXPECT_FALSE(reached(".17.2"));
  EXPECT_EQ(faults(), "h1/eth1: both directions cut\n");
  ask("heal h1");
  EXPECT_EQ(kernel(), whole);
  // While it was cut, h0 asked in vain who has that address, and takes a while to ask again.
  bool again = false;
  for (int attempt = 0; attempt < 10 && !again; attempt++) again = reached(".17.2");
  EXPECT_TRUE(again);
}

TEST_F(EmulateRailsTest, NothingIsLeft) {
  for (const bool crash : {false, true}) {
    bring_up("--racks 1 --hosts 2 --rails 2");
    ask("slow h0.1 10Mbit/s");
    const pid_t ended = keeper(), host = holder(0);
    if (crash)
      kill(ended, SIGKILL);
    else
      ask("down");
    up_ = false;
    bool gone = false;
    for (int look = 0; look < 500 && !gone; look++) {
      gone = kill(ended, 0) != 0 && kill(host, 0) != 0;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    EXPECT_TRUE(gone);
    EXPECT_EQ(sh(kCommand + "list").output.find(name_ + ":"), std::string::npos);
    EXPECT_FALSE(std::ifstream("/run/sennit/" + name_ + ".json").good());
  }
}

TEST_F(EmulateRailsTest, OtherLibrariesAreRefused) {
  bring_up("--racks 1 --hosts 2 --rails 2");
  for (const std::string& command :
       {"run --mpirun --name " + name_ + " -- true",
        "run --peer gloo --name " + name_ + " -- all_reduce", "compare --name " + name_}) {
    const Outcome run = sh(kCommand + command);
    EXPECT_EQ(run.status, 2) << command << ": " << run.output;
    EXPECT_NE(run.output.find("has 2 rails"), std::string::npos) << command << ": " << run.output;
  }
}

}  // namespace
}  // namespace sennit
