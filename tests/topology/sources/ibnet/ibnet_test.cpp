// ibnet_test.cpp: InfiniBand subnets from dumps: captured from ibsim and opensm
// (tests/data/topology/forms/ibnetdiscover), and made to measure, with the truth known group by
// group.
//
// ctest not-under-tsan: it has one thread
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>

#include <fmt/core.h>
#include <gtest/gtest.h>

#include "tests/support/seed.hpp"
#include "tests/topology/cases.hpp"
#include "tests/topology/sources/ibnet/ibnet_subnets.hpp"
#include "topology/source.hpp"
#include "topology/sources/ibnet/ibnet.hpp"
#include "topology/sources/ibnet/names.hpp"
#include "topology/sources/ibnet/routes.hpp"

namespace sennit {
namespace {

Fabric fabric_of_text(const std::string& text) {
  const Result<IbSubnet> subnet = parse_ibnetdiscover(text, "dump");
  EXPECT_TRUE(subnet.ok()) << subnet.status().text();
  return subnet ? fabric_of(*subnet) : Fabric();
}

// X.dump gives the tree over its hosts, X.dump.tree; the fabric is in X.dump.expected.
TEST(Ibnet, DumpsToTrees) {
  std::vector<std::filesystem::path> dumps = inputs_of("forms/ibnetdiscover");
  std::erase_if(dumps, [](const std::filesystem::path& path) {
    return path.filename().string().rfind("bad_", 0) == 0;
  });
  run_cases(
      dumps,
      [](const std::filesystem::path& path) {
        const Result<IbSubnet> subnet = parse_ibnetdiscover(read_text(path), path.filename());
        EXPECT_TRUE(subnet.ok()) << subnet.status().text();
        if (!subnet) return subnet.status().text() + "\n";
        const Fabric fabric = fabric_of(*subnet);
        const Result<TierTree> tree = contract(fabric, ranks_on_all_hosts(fabric, 0));
        if (!tree) return tree.status().text() + "\n";
        EXPECT_EQ(tree->check(), "") << path;
        return tree->to_text();
      },
      kTree);
}

void expect_truth(const std::string& text, const Truth& truth) {
  const Fabric fabric = fabric_of_text(text);
  EXPECT_TRUE(fabric.conflicts.empty()) << fabric.conflicts[0];
  const std::vector<Placement> ranks = ranks_on_all_hosts(fabric, 1);
  const Result<TierTree> tree = contract(fabric, ranks);
  ASSERT_TRUE(tree.ok()) << tree.status().text();
  ASSERT_EQ(tree->check(), "");
  const Truth found = truth_of(*tree, ranks);
  for (const auto& [hosts, egress] : truth) {
    const auto entry = found.find(hosts);
    ASSERT_TRUE(entry != found.end())
        << hosts.size() << " hosts from " << *hosts.begin() << " are no group";
    EXPECT_EQ(entry->second, egress) << hosts.size() << " hosts from " << *hosts.begin();
  }
  EXPECT_EQ(found.size(), truth.size());
}

TEST(IbnetTruth, TwoLevelsSevenToOneWith2048Hosts) {
  const Subnet subnet = two_level(2048, 28, 4, 4);
  expect_truth(subnet.text(), subnet.truth);
}
TEST(IbnetTruth, ThreeLevelsWithUnequalPods) {
  const Subnet subnet = pods({{4, 4}, {3, 2, 4}, {5}, {2, 2, 2, 2}}, 1, false);
  expect_truth(subnet.text(), subnet.truth);
}
TEST(IbnetTruth, TwoLeavesSwapped) {
  const Subnet straight = pods({{4, 3}, {2, 5, 4}}, 2, false);
  const Subnet swapped = pods({{4, 3}, {2, 5, 4}}, 2, true);
  EXPECT_NE(straight.truth, swapped.truth);
  expect_truth(straight.text(), straight.truth);
  expect_truth(swapped.text(), swapped.truth);
}
TEST(IbnetTruth, EightRails) {
  for (const int cores : {0, 2}) {
    const Subnet subnet = rails(3, 4, 8, 2, cores);
    expect_truth(subnet.text(), subnet.truth);
  }
}
TEST(IbnetTruth, ParallelCablesOneLaneAndAMissingUplink) {
  const Subnet subnet = degraded();
  expect_truth(subnet.text(), subnet.truth);
}

// The same, as opensm and ibnetdiscover saw them on an ibsim that had these texts for netlists.
TEST(IbnetTruth, CapturedFromIbsim) {
  const std::map<std::string, Subnet> captured = {
      {"unequal_pods", pods({{4, 4}, {3, 2, 4}, {5}}, 1, false)},
      {"swapped_leaves", pods({{4, 3}, {2, 5, 4}}, 2, true)},
      {"eight_rails", rails(2, 3, 8, 2, 1)},
      {"degraded", degraded()}};
  const std::filesystem::path folder =
      std::filesystem::path(SENNIT_SOURCE_DIR) / "tests/data/topology/forms/ibnetdiscover";
  for (const auto& [name, subnet] : captured) {
    SCOPED_TRACE(name);
    expect_truth(read_text(folder / (name + ".dump")), subnet.truth);
  }
}

// "LEAF DOWN UP" a line, in Gbit/s, from a script that reads the dump by itself; nothing without
// python3.
std::map<std::string, double> oversubscription_of(const std::filesystem::path& dump) {
  const std::string command =
      fmt::format("python3 {}/tests/topology/sources/ibnet/ibnet_oversubscription.py {}",
                  SENNIT_SOURCE_DIR, dump.string());
  std::map<std::string, double> ratios;
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> out(popen(command.c_str(), "r"), &pclose);
  char name[256];
  char down[64];
  char up[64];
  const auto number = [](const char* text) {  // "600" or "600/11"
    const char* const slash = std::strchr(text, '/');
    return std::atof(text) / (slash != nullptr ? std::atof(slash + 1) : 1);
  };
  while (out && std::fscanf(out.get(), "%255s %63s %63s", name, down, up) == 3)
    ratios[name] = number(down) / number(up);
  return ratios;
}

// Two readings that share nothing agree on every leaf's oversubscription.
TEST(Ibnet, OversubscriptionEqualsThatOfAPlainScript) {
  if (std::system("python3 -c '' 2>/dev/null") != 0)
    GTEST_SKIP() << "SKIPPED: python3 is not installed";
  const std::filesystem::path folder =
      std::filesystem::path(SENNIT_SOURCE_DIR) / "tests/data/topology/forms/ibnetdiscover";
  const std::filesystem::path large =
      std::filesystem::path(::testing::TempDir()) / fmt::format("sennit_{}.dump", getpid());
  std::ofstream(large) << two_level(2048, 28, 4, 4).text();
  for (const auto& [dump, leaves] : {std::pair(folder / "plain.dump", 2),
                                     {folder / "degraded.dump", 3},
                                     {folder / "unequal_pods.dump", 6},
                                     {folder / "swapped_leaves.dump", 5},
                                     {large, 74}}) {
    SCOPED_TRACE(dump);
    const std::map<std::string, double> script = oversubscription_of(dump);
    EXPECT_EQ(script.size(), static_cast<size_t>(leaves));
    const Fabric fabric = fabric_of_text(read_text(dump));
    const TierTree tree = contract(fabric, ranks_on_all_hosts(fabric, 1)).value();
    size_t compared = 0;
    for (size_t g = 1; g < tree.groups.size(); g++) {
      const auto ratio = script.find(tree.groups[g].name);
      if (tree.groups[g].children == 0 || ratio == script.end()) continue;
      EXPECT_NEAR(tree.oversubscription(static_cast<int>(g)), ratio->second, 1e-9 * ratio->second)
          << ratio->first;
      compared++;
    }
    EXPECT_EQ(compared, script.size());
  }
  std::filesystem::remove(large);
}

// SENNIT_FABRIC may name a dump.
TEST(Ibnet, DumpsAreFabricFiles) {
  const std::filesystem::path folder =
      std::filesystem::path(SENNIT_SOURCE_DIR) / "tests/data/topology/forms/ibnetdiscover";
  const Result<Fabric> fabric = read_sources({"node0", folder / "degraded.dump"}, false);
  ASSERT_TRUE(fabric.ok()) << fabric.status().text();
  EXPECT_EQ(fabric->fingerprint(),
            fabric_of_text(read_text(folder / "degraded.dump")).fingerprint());
  const Status bad = read_sources({"node0", folder / "bad_twice.dump"}, false).status();
  EXPECT_NE(bad.text().find("bad_twice.dump:4:10: expected a node that line 1"), std::string::npos)
      << bad.text();
}

// The ranks of a host have their own rails.
TEST(Ibnet, RailsAreHomePlanes) {
  const Fabric fabric = fabric_of_text(rails(2, 2, 8, 1, 1).text());
  const TierTree tree = contract(fabric, ranks_on_all_hosts(fabric, 8)).value();
  ASSERT_EQ(tree.ranks(), 32);
  for (int p = 0; p < 32; p++) EXPECT_EQ(tree.home_plane[static_cast<size_t>(p)], p % 8);
}

// Every speed's data rate, from the published rate of a 4x cable (Gbit/s): 54.54 and 545.45 are
// 600/11.
TEST(Ibnet, DataRates) {
  EXPECT_EQ(ib_data_rate(4, IbSpeed::sdr), 1'000'000'000u);
  EXPECT_EQ(ib_data_rate(1, IbSpeed::sdr), 250'000'000u);
  EXPECT_EQ(ib_data_rate(4, IbSpeed::ddr), 2'000'000'000u);
  EXPECT_EQ(ib_data_rate(4, IbSpeed::qdr), 4'000'000'000u);
  EXPECT_EQ(ib_data_rate(12, IbSpeed::qdr), 12'000'000'000u);
  EXPECT_EQ(ib_data_rate(4, IbSpeed::fdr10), 5'000'000'000u);
  EXPECT_EQ(ib_data_rate(4, IbSpeed::fdr), 6'818'181'818u);
  EXPECT_EQ(ib_data_rate(4, IbSpeed::edr), 12'500'000'000u);
  EXPECT_EQ(ib_data_rate(4, IbSpeed::hdr), 25'000'000'000u);
  EXPECT_EQ(ib_data_rate(2, IbSpeed::hdr), 12'500'000'000u);
  EXPECT_EQ(ib_data_rate(4, IbSpeed::ndr), 50'000'000'000u);
  EXPECT_EQ(ib_data_rate(4, IbSpeed::xdr), 100'000'000'000u);
  EXPECT_EQ(ib_data_rate(0, IbSpeed::xdr), 0u);
  EXPECT_EQ(ib_data_rate(4, IbSpeed::unknown), 0u);
}

TEST(Ibnet, RatesHaveNames) {
  for (const char* name : {"1xSDR", "2xHDR", "4xFDR10", "4xFDR", "12xEDR", "4xNDR", "4xXDR"}) {
    const int width = std::atoi(name);
    const IbSpeed speed = ib_speed_named(std::string_view(name).substr(width < 10 ? 2 : 3));
    EXPECT_EQ(ib_rate_name(width, speed), name);
    EXPECT_EQ(ib_data_rate(name), ib_data_rate(width, speed));
    EXPECT_GT(ib_data_rate(name), 0u);
  }
  for (const char* name :
       {"", "4", "4x", "x", "xHDR", "4xABC", "4x???", "-4xHDR", "99999999999xHDR", "4 xHDR"})
    EXPECT_EQ(ib_data_rate(name), 0u) << name;
}

// PortInfo by its fields' first bits and widths.
class PortInfo {
 public:
  PortInfo& set(size_t bit, size_t bits, uint32_t value) {
    for (size_t i = 0; i < bits; i++) {
      const uint8_t mask = static_cast<uint8_t>(0x80 >> ((bit + i) % 8));
      uint8_t& byte = bytes_[(bit + i) / 8];
      byte = static_cast<uint8_t>((value >> (bits - 1 - i) & 1) != 0 ? byte | mask : byte & ~mask);
    }
    return *this;
  }
  PortInfo& widths(uint32_t enabled, uint32_t supported, uint32_t active) {
    return set(232, 8, enabled).set(240, 8, supported).set(248, 8, active);
  }
  PortInfo& speeds(uint32_t enabled, uint32_t supported, uint32_t active) {
    return set(284, 4, enabled).set(256, 4, supported).set(280, 4, active);
  }
  PortInfo& extended(uint32_t enabled, uint32_t supported, uint32_t active) {
    return set(160, 32, 1u << 14).set(507, 5, enabled).set(500, 4, supported).set(496, 4, active);
  }
  PortInfo& extended2(uint32_t enabled, uint32_t supported, uint32_t active) {
    set(160, 32, 1u << 14 | 1u << 15).set(480, 16, 1u << 11);
    return set(453, 3, enabled).set(451, 2, supported).set(449, 2, active);
  }
  IbPortRates rates(bool fdr10 = false) const { return ib_port_rates(bytes_, bytes_, fdr10); }
  std::string now(bool fdr10 = false) const {
    return ib_rate_name(rates(fdr10).width, rates(fdr10).speed);
  }
  const std::array<uint8_t, 64>& bytes() const { return bytes_; }

 private:
  std::array<uint8_t, 64> bytes_{};
};

TEST(Ibnet, PortsSayWidthAndSpeed) {
  const PortInfo qdr = PortInfo().widths(0xff, 3, 2).speeds(0xf, 7, 4);
  EXPECT_EQ(PortInfo().widths(3, 3, 1).speeds(7, 7, 1).now(), "1xSDR");
  EXPECT_EQ(PortInfo().widths(3, 3, 2).speeds(7, 7, 2).now(), "4xDDR");
  EXPECT_EQ(qdr.now(), "4xQDR");
  EXPECT_EQ(qdr.now(true), "4xFDR10");
  const char* const names[] = {"4xFDR", "4xEDR", "4xHDR", "4xNDR"};
  for (uint32_t i = 0; i < 4; i++)
    EXPECT_EQ(PortInfo(qdr).extended(0x1f, 15, 1u << i).now(), names[i]);
  EXPECT_EQ(PortInfo(qdr).extended(0x1f, 15, 8).extended2(7, 1, 1).now(), "4xXDR");
  EXPECT_EQ(PortInfo(qdr).extended(0x1f, 15, 8).extended2(7, 1, 0).now(), "4xNDR");
  EXPECT_EQ(PortInfo(qdr).extended(0x1f, 15, 8).extended2(7, 1, 2).now(), "")
      << "nobody knows it yet";
  EXPECT_EQ(PortInfo(qdr).extended(0x1f, 15, 8).set(160, 32, 0).now(), "4xQDR") << "not valid";
  EXPECT_EQ(PortInfo().now(), "");
  // A switch's capabilities are those of its port 0.
  const PortInfo first = PortInfo().set(160, 32, 1u << 14);
  const PortInfo port = PortInfo(qdr).set(496, 4, 4);
  EXPECT_EQ(ib_port_rates(port.bytes(), first.bytes(), false).speed, IbSpeed::hdr);
}

TEST(Ibnet, BothEndsSayWhatTheyCouldDo) {
  const auto able = [](const PortInfo& a, const PortInfo& b) {
    return ib_able_name(a.rates(), b.rates());
  };
  const PortInfo hdr = PortInfo().widths(0xff, 3, 1).speeds(0xf, 7, 4).extended(0x1f, 7, 4);
  const PortInfo edr = PortInfo().widths(3, 3, 1).speeds(7, 7, 4).extended(3, 3, 2);
  const PortInfo xdr = PortInfo(hdr).extended(0x1f, 15, 4).extended2(7, 1, 1);
  EXPECT_EQ(able(hdr, hdr), "4xHDR");
  EXPECT_EQ(able(hdr, edr), "4xEDR");
  EXPECT_EQ(able(xdr, xdr), "4xXDR");
  EXPECT_EQ(able(xdr, hdr), "4xHDR");
  EXPECT_EQ(able(hdr, PortInfo(hdr).extended(30, 7, 0)), "4xQDR")
      << "extended speeds are switched off";
  EXPECT_EQ(able(hdr, PortInfo(hdr).widths(1, 3, 1)), "1xHDR") << "somebody wants one lane";
  EXPECT_EQ(able(hdr, PortInfo()), "") << "a dump does not say";
}

TEST(Ibnet, NaturalOrder) {
  EXPECT_TRUE(natural_less("h2", "h10"));
  EXPECT_TRUE(natural_less("h2a1", "h2a11"));
  EXPECT_TRUE(natural_less("h", "h0"));
  EXPECT_FALSE(natural_less("h10", "h2"));
  EXPECT_FALSE(natural_less("h2", "h2"));
  EXPECT_NE(natural_less("h01", "h1"), natural_less("h1", "h01"));
}

// A table is as long as its highest LID, however few lines it has.
TEST(Ibnet, TablesThatTakeTooMuchMemoryAreRefused) {
  RouteTables tables;
  std::optional<RouteTables::Wrong> wrong;
  size_t switches = 0;
  while (!wrong && switches * 0xffff <= RouteTables::kMostBytes) {
    ASSERT_TRUE(
        tables.takes(fmt::format("Unicast lids of switch guid 0x{:x}", ++switches), &wrong));
    if (!wrong) tables.takes("0xffff 001 :", &wrong);
  }
  ASSERT_TRUE(wrong.has_value());
  EXPECT_EQ(wrong->expected, "smaller LIDs: the tables take 256 MiB");
}

// Those of switches without a way to anywhere take room as well.
TEST(Ibnet, TooManyTablesAreRefused) {
  RouteTables tables;
  std::optional<RouteTables::Wrong> wrong;
  constexpr size_t kLeastBytes = 256 * sizeof(int);
  for (size_t guid = 1; !wrong && guid * kLeastBytes <= RouteTables::kMostBytes; guid++)
    tables.takes(fmt::format("Unicast lids of switch guid 0x{:x}", guid), &wrong);
  ASSERT_TRUE(wrong.has_value());
  EXPECT_EQ(wrong->expected, "fewer switches: the tables take 256 MiB");
}

// Its dump in each of them has the port that is there, and no port is there twice.
TEST(Ibnet, AnAdapterMayHavePortsInTwoSubnets) {
  const auto adapter = [](int leaf, int node) {
    return fmt::format(
        "Ca 2 \"H-10{0}\" # \"node{0} mlx4_0\"\n"
        "[{1}] \"S-20{1}\"[{2}] # lid 2 lmc 0 \"leaf{1}\" lid 1 4xEDR\n",
        node, leaf, node + 1);
  };
  const auto dump = [&](int leaf) {
    return fmt::format(
               "Switch 2 \"S-20{0}\" # \"leaf{0}\" base port 0 lid 1 lmc 0\n"
               "[1] \"H-100\"[{0}] # \"node0 mlx4_0\" lid 2 4xEDR\n"
               "[2] \"H-101\"[{0}] # \"node1 mlx4_0\" lid 3 4xEDR\n",
               leaf) +
           adapter(leaf, 0) + adapter(leaf, 1);
  };
  const Fabric fabric = fabric_of_text(dump(1) + dump(2));
  EXPECT_TRUE(fabric.conflicts.empty()) << fabric.conflicts[0];
  EXPECT_EQ(fabric.links.size(), 8u) << fabric.to_text();
  const Result<TierTree> tree = contract(fabric, ranks_on_all_hosts(fabric, 1));
  ASSERT_TRUE(tree.ok()) << tree.status().text();
  ASSERT_EQ(tree->ranks(), 2) << fabric.to_text();
  EXPECT_EQ(tree->groups[1].egress.bytes_per_s, 2 * kCable);
  EXPECT_EQ(tree->groups[1].planes, 2);
  const Status twice = parse_ibnetdiscover(dump(1) + adapter(1, 0), "dump").status();
  EXPECT_NE(twice.text().find("expected a port that is not listed already"), std::string::npos)
      << twice.text();
}

// The walk of one rail may have found port 2 of an adapter before that of another finds port 1.
TEST(Ibnet, PortsStandByNumberInWhateverOrderTheyAreFound) {
  IbNode node;
  for (const int number : {2, 4, 1, 3, 2}) {
    IbPort port;
    port.number = number;
    port.lid = static_cast<int>(node.ports.size()) + 1;
    add_port(&node, port);
  }
  ASSERT_EQ(node.ports.size(), 4u);
  for (int i = 0; i < 4; i++) EXPECT_EQ(node.ports[static_cast<size_t>(i)].number, i + 1);
  EXPECT_EQ(node.ports[1].lid, 1) << "the first that was found";
}

// Damaged dumps give a fabric that contracts, or an error that names a place within the text.
TEST(Ibnet, DamagedDumpsAreHandled) {
  std::mt19937 random(sennit_test::seed());
  std::vector<std::string> good;
  for (const auto& entry : std::filesystem::directory_iterator(
           std::filesystem::path(SENNIT_SOURCE_DIR) / "tests/data/topology/forms/ibnetdiscover"))
    if (entry.path().extension() == ".dump") good.push_back(read_text(entry.path()));
  std::sort(good.begin(), good.end());
  const std::string alphabet = "[]\"#=()\n\r\t 019fSHRx-?\x01\xff";
  for (int round = 0; round < 4000; round++) {
    std::string text = good[random() % good.size()];
    for (unsigned changes = 1 + random() % 4; changes-- > 0 && !text.empty();) {
      const size_t at = random() % text.size();
      switch (random() % 4) {
        case 0:
          text.insert(at, 1, alphabet[random() % alphabet.size()]);
          break;
        case 1:
          text[at] = alphabet[random() % alphabet.size()];
          break;
        case 2:
          text.erase(at, random() % 80);
          break;
        default:  // a piece from elsewhere
          text.insert(at, text.substr(random() % text.size(), random() % 200));
      }
    }
    is_ibnetdiscover(text);
    const Result<IbSubnet> subnet = parse_ibnetdiscover(text, "f");
    if (subnet) {
      const Fabric fabric = fabric_of(*subnet);
      const Result<Fabric> again = parse_fabric(fabric.to_text(), "again");
      EXPECT_TRUE(again.ok()) << again.status().text() << "\n" << text;
      const std::vector<Placement> ranks = ranks_on_all_hosts(fabric, 1);
      if (ranks.empty()) continue;
      const Result<TierTree> tree = contract(fabric, ranks);
      EXPECT_TRUE(tree.ok() && tree->check().empty()) << text;
      continue;
    }
    size_t line = 0;
    size_t column = 0;
    ASSERT_EQ(std::sscanf(subnet.status().text().c_str(), "f:%zu:%zu: expected", &line, &column), 2)
        << subnet.status().text();
    std::istringstream lines(text);
    std::string at;
    for (size_t i = 0; i < line; i++) {
      at.clear();
      std::getline(lines, at);
    }
    EXPECT_GE(column, 1u) << text;
    EXPECT_LE(column, at.size() + 1) << subnet.status().text() << "\n" << text;
  }
}

}  // namespace
}  // namespace sennit
