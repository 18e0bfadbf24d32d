// probe_emulated_test.cpp: probing over emulated fabrics that nobody described, for real. Needs
// root or unprivileged user namespaces. How close the rates come depends on how busy this machine
// is; the groups must be exact.
//
// ctest quiet: it builds network namespaces
// ctest runs: sennit_command
// ctest not-under-tsan: it runs a command, whose threads others try
#include <stdlib.h>
#include <unistd.h>

#include <cmath>
#include <functional>
#include <regex>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "tests/support/shell.hpp"
#include "tests/support/trials.hpp"
#include "topology/fabric/fabric.hpp"

namespace {

using sennit_test::Outcome;
using sennit_test::sh;

constexpr const char* kBench = "bench all_reduce -b 4000 -e 4000 -n 1 -w 0";

std::string command(const std::string& shape, const std::string& probe,
                    const std::string& what = kBench) {
  return "SENNIT_LOG=info SENNIT_PROBE=" + probe +
         " " SENNIT_BINARY_DIR
         "/bin/sennit emulate run --timeout 180 --no-fabric --nic 200Mbit/s " +
         shape + " -- " SENNIT_BINARY_DIR "/bin/sennit " + what;
}

// The groups of hosts that the log of rank 0 shows.
std::set<std::string> groups_in(const std::string& output) {
  std::set<std::string> groups;
  static const std::regex line(R"(\n +\{([^}]*)\}: out)");
  for (std::sregex_iterator it(output.begin(), output.end(), line), end; it != end; ++it)
    groups.insert((*it)[1]);
  return groups;
}

class ProbeEmulated : public testing::Test {
 protected:
  // Has this command measure these groups, with rates that are `right`. What else this machine does
  // may be stronger than what tells them apart: then it measures again, but not for ever.
  static void measure(
      const std::string& command, const std::set<std::string>& groups,
      const std::function<bool()>& right = [] { return true; }) {
    constexpr int kMostTries = 5;
    std::string output;
    for (int i = 0; i < kMostTries; i++) {
      const Outcome outcome = sh(command);
      output = outcome.output;
      ASSERT_EQ(outcome.status, 0) << output;
      if (groups_in(output) == groups && right()) return;
    }
    EXPECT_EQ(groups_in(output), groups) << output;
    EXPECT_TRUE(right()) << output;
  }
  // Of what the last command saved.
  sennit::TierTree saved_tree() const {
    const auto fabric = sennit::parse_fabric(sh("cat " + cache_ + "/saved").output, "saved");
    EXPECT_TRUE(fabric.ok()) << fabric.status().text();
    if (!fabric.ok()) return {};
    const auto tree = contract(*fabric, ranks_on_all_hosts(*fabric, 1));
    EXPECT_TRUE(tree.ok()) << tree.status().text();
    return tree.ok() ? *tree : sennit::TierTree{};
  }
  void SetUp() override {
    if (sh("unshare --user --map-root-user --net true").status != 0 &&
        sh("unshare --net true").status != 0)
      GTEST_SKIP() << "SKIPPED: no network namespaces here; run as root";
    char directory[] = "/tmp/sennit-probe-XXXXXX";
    ASSERT_NE(mkdtemp(directory), nullptr);
    cache_ = directory;
    setenv("XDG_CACHE_HOME", directory, 1);
  }
  void TearDown() override {
    if (!cache_.empty()) sh("rm -r " + cache_);
  }
  std::string cache_;
};

TEST_F(ProbeEmulated, FindsRacksOfAnyOrder) {
  // It measures although the environment says not to. Standard output of `sennit topo` is the
  // fabric file.
  measure("( " +
              command("--racks 2 --hosts 3 --oversubscription 7 --order dealt", "0",
                      "topo --probe --save -") +
              " > " + cache_ + "/saved )",
          {"h0,h1,h2", "h3,h4,h5"}, [&] {
            const sennit::TierTree tree = saved_tree();
            const auto near = [&](int rack) {  // within 10% unless the machine is busy
              return std::abs(tree.oversubscription(rack) - 7) <= 1.75;
            };
            return tree.groups.size() > 2 && near(1) && near(2);
          });
  // Every figure says who measured it, and when; a note what that cost.
  const std::string saved = sh("cat " + cache_ + "/saved").output;
  EXPECT_TRUE(std::regex_search(
      saved,
      std::regex(
          R"(link h0 probed. \d+\S+ measured source "probe 20\d\d-\d\d-\d\d \d\d:\d\d UTC")")))
      << saved;
  EXPECT_TRUE(std::regex_search(
      saved,
      std::regex(
          R"(note "probe 20.* UTC: probed 6 hosts in \d+ rounds: 2 groups, told apart by factors )"
          R"(of [0-9.]+ and more.*; it took [0-9.]+ s and sent \d+ MB")")))
      << saved;
  const Outcome shown = sh(SENNIT_BINARY_DIR "/bin/sennit topo --fabric " + cache_ + "/saved");
  EXPECT_NE(shown.output.find("(measured, probe 20"), std::string::npos) << shown.output;
}

TEST_F(ProbeEmulated, ComparisonsProbeOnce) {
  const Outcome outcome = sh(SENNIT_BINARY_DIR
                             "/bin/sennit emulate compare --racks 2 --hosts 1 --nic 200Mbit/s "
                             "--libraries sennit --orders dealt --probed "
                             "--sizes 1000000 --rounds 1 --iterations 1");
  ASSERT_EQ(outcome.status, 0) << outcome.output;
  size_t rows = 0;
  for (size_t at = 0; (at = outcome.output.find("sennit, probed ", at)) != std::string::npos; at++)
    rows++;
  EXPECT_EQ(rows, 2u) << "one as it came, one in the table\n" << outcome.output;
}

TEST_F(ProbeEmulated, FindsUnequalRacks) {
  if (sennit_test::kSanitized)
    GTEST_SKIP() << "SKIPPED: a sanitizer is too slow to measure round trips";
  // Any rack can send more than the others take: else no rate tells a lone host from one inside.
  measure(command("--racks 1,2,2 --oversubscription 5", "1"), {"h0", "h1,h2", "h3,h4"});
}

TEST_F(ProbeEmulated, TakesTheCacheOnlyForTheSameHosts) {
  const std::string name = "probe-" + std::to_string(getpid());
  const std::string up = SENNIT_BINARY_DIR "/bin/sennit emulate up --name " + name +
                         " --nic 200Mbit/s --racks 2 "
                         "--hosts 1 --oversubscription 7";
  EXPECT_EQ(sh(up).status, 0);
  const std::string run =
      "SENNIT_LOG=info SENNIT_PROBE=1 " SENNIT_BINARY_DIR "/bin/sennit emulate run --name " + name +
      " --no-fabric -- " SENNIT_BINARY_DIR "/bin/sennit bench all_reduce -b 4000 -e 4000 -n 1 -w 0";
  const Outcome first = sh(run), second = sh(run);
  sh(SENNIT_BINARY_DIR "/bin/sennit emulate down --name " + name);
  EXPECT_NE(first.output.find("probed 2 hosts in"), std::string::npos) << first.output;
  EXPECT_NE(second.output.find("was probed before"), std::string::npos) << second.output;
  EXPECT_EQ(second.output.find("probed 2 hosts in"), std::string::npos) << second.output;
  const auto tiers = [](const std::string& output) {
    return output.substr(output.find("# tiers:"),
                         output.find(';', output.find("# tiers:")) - output.find("# tiers:"));
  };
  EXPECT_EQ(tiers(first.output), tiers(second.output));
  const Outcome other = sh(command("--racks 2 --hosts 1 --oversubscription 7", "1"));
  EXPECT_NE(other.output.find("probed 2 hosts in"), std::string::npos)
      << "another network, but " << other.output;
}

TEST_F(ProbeEmulated, SaysWhatTheOptionMayBe) {
  const Outcome outcome = sh(command("--racks 2 --hosts 1", "yes"));
  EXPECT_NE(outcome.status, 0);
  EXPECT_NE(outcome.output.find("SENNIT_PROBE is 'yes': expected 0, 1 or again"), std::string::npos)
      << outcome.output;
}

}  // namespace
