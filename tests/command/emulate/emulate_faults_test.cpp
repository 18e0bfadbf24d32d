// Faults on the links of an emulated tree: what the kernel is told and what it then lets pass, that
// jobs go on once a link is healed, and that a healed link is what it was. Needs root, for the view
// into the tree's namespaces that this test takes.
//
// ctest quiet: it builds network namespaces
// ctest runs: sennit_command
// ctest links: sennit_commands
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <functional>
#include <future>
#include <memory>
#include <regex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "command/emulate/faults/link.hpp"
#include "tests/command/emulate/flow.hpp"
#include "tests/command/emulate/standing_tree.hpp"
#include "tests/support/shell.hpp"
#include "tests/support/test_folder.hpp"

namespace sennit {
namespace {

using sennit_test::Flow;
using sennit_test::Outcome;
using sennit_test::sh;

constexpr int64_t kFlowBytes = 1'000'000;
constexpr double kSlowBytesPerS =
    10e6 / 8;  // of 10Mbit/s, where a whole link has twenty times that
// No flow of kFlowBytes passes a link so slow in less: all but a burst has to wait for it.
constexpr double kSlowSeconds = (kFlowBytes - emulate::kBurstKiB * 1024) / kSlowBytesPerS;

bool eventually(const std::function<bool()>& condition) {
  for (int i = 0; i < 1500; i++) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return false;
}

// A tree of two racks with two hosts each, every link of 200 Mbit/s.
class EmulateFaultsTest : public StandingTree {
 protected:
  void SetUp() override {
    StandingTree::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    bring_up("--racks 2 --hosts 2 --nic 200Mbit/s --uplink 200Mbit/s");
  }

  // Packets that the rule of that link and direction has dropped.
  static int64_t dropped(pid_t process, const std::string& direction) {
    const std::string rule = inside(process, "nft list table netdev fault_" + direction);
    std::smatch found;
    return std::regex_search(rule, found, std::regex("counter packets ([0-9]+)"))
               ? std::stoll(found[1])
               : -1;
  }
  std::unique_ptr<Flow> flow(int from, int to, int64_t bytes) const {
    return std::make_unique<Flow>(holder(from), holder(to), state_["hosts"][to]["address"], bytes);
  }
  double seconds(int from, int to) const {
    const auto one = flow(from, to, kFlowBytes);
    const double took = one->wait();
    EXPECT_EQ(one->received(), kFlowBytes);
    return took;
  }
  void expect_slow(int from, int to) const { EXPECT_GE(seconds(from, to), kSlowSeconds); }
  // A whole link takes a twentieth of the slow time. A busy machine may take longer than half of
  // it, now and then; a slow link does so each time.
  void expect_fast(int from, int to) const {
    constexpr int kTries = 5;
    double quickest = seconds(from, to);
    for (int i = 1; i < kTries && quickest >= kSlowSeconds / 2; i++)
      quickest = std::min(quickest, seconds(from, to));
    EXPECT_LT(quickest, kSlowSeconds / 2);
  }
};

TEST_F(EmulateFaultsTest, OneDirectionOfAHostIsSlow) {
  const std::string whole = kernel();
  ask("slow h2 10Mbit/s --direction out");
  EXPECT_NE(inside(holder(2), "tc qdisc show dev eth0").find("rate 10Mbit"), std::string::npos);
  expect_slow(2, 3);
  expect_fast(3, 2);
  ask("heal h2");
  EXPECT_EQ(kernel(), whole);
  expect_fast(2, 3);
}

TEST_F(EmulateFaultsTest, ASlowRackSparesWhatStaysInside) {
  const std::string whole = kernel();
  ask("slow rack1 10Mbit/s --direction in");
  EXPECT_NE(inside(keeper(), "tc qdisc show dev down-rack1").find("rate 10Mbit"),
            std::string::npos);
  expect_slow(0, 2);
  expect_fast(2, 0);
  expect_fast(2, 3);
  expect_fast(3, 2);
  ask("heal rack1 --direction out");  // the other one
  EXPECT_NE(kernel(), whole);
  ask("heal rack1");
  EXPECT_EQ(kernel(), whole);
  expect_fast(0, 2);
}

TEST_F(EmulateFaultsTest, FaultsAddUpAndAreReplacedByTheirLike) {
  if (const std::string why = no_drops(); !why.empty()) GTEST_SKIP() << "NOT TESTED: " << why;
  const std::string whole = kernel();
  ask("slow h1 100Mbit/s");
  EXPECT_EQ(faults(), "h1: both directions slowed to 100 Mbit/s of 200 Mbit/s\n");
  ask("slow h1 50Mbit/s");
  ask("lose h1 2.5 --direction in");
  ask("cut rack0");
  EXPECT_EQ(faults(),
            "h1: out slowed to 50 Mbit/s of 200 Mbit/s; in slowed to 50 Mbit/s of 200 Mbit/s, "
            "losing 2.5% of its packets\nrack0: both directions cut\n");
  EXPECT_NE(inside(holder(1), "nft list ruleset").find("numgen random mod 1000000 < 25000"),
            std::string::npos);
  ask("lose h1 100% --direction in");
  EXPECT_EQ(inside(holder(1), "nft list ruleset").find("numgen"), std::string::npos);
  EXPECT_GE(dropped(holder(1), "h1_in"), 0);
  ask("heal h1 --direction in");
  EXPECT_EQ(faults(),
            "h1: out slowed to 50 Mbit/s of 200 Mbit/s; in whole\nrack0: both directions cut\n");
  ask("heal rack0");
  EXPECT_EQ(emulate("heal h1").output, "h1 of '" + name_ + "': whole\n");
  EXPECT_EQ(emulate("heal h1").output, "h1 of '" + name_ + "': whole, as it was before\n");
  EXPECT_EQ(faults(), "");
  EXPECT_EQ(kernel(), whole);
}

TEST_F(EmulateFaultsTest, ThePodsOfThreeTiersHaveLinksToo) {
  ASSERT_EQ(emulate("down").status, 0);
  bring_up("--pods 2 --racks 2 --hosts 1 --nic 200Mbit/s");
  const std::string whole = kernel();
  ask("slow pod1 10Mbit/s");
  for (const char* device : {"up-pod1", "down-pod1"})
    EXPECT_NE(inside(keeper(), std::string("tc qdisc show dev ") + device).find("rate 10Mbit"),
              std::string::npos);
  expect_slow(0, 1);
  ask("heal pod1");
  EXPECT_EQ(kernel(), whole);
}

TEST_F(EmulateFaultsTest, ACutFlowStandsStillAndGoesOn) {
  if (const std::string why = no_drops(); !why.empty()) GTEST_SKIP() << "NOT TESTED: " << why;
  for (const std::string direction : {"out", "in", "both"}) {
    const auto one = flow(2, 0, INT64_MAX);
    const auto moves_from = [&](int64_t from) {
      return eventually([&] { return one->received() > from + kFlowBytes; });
    };
    ASSERT_TRUE(moves_from(0));
    ask("cut rack1 --direction " + direction);
    int64_t last = -1;
    EXPECT_TRUE(eventually([&] {  // what was behind the cut arrives
      const int64_t before = std::exchange(last, one->received());
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      return before == last;
    }));
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    EXPECT_EQ(one->received(), last) << direction;
    ask("heal rack1");
    EXPECT_TRUE(moves_from(last)) << direction;
    one->stop();
    one->wait();
    EXPECT_EQ(one->received(), one->sent());
  }
}

// A benchmark over all hosts of a tree, which begins when this object is made.
class RunningJob {
 public:
  RunningJob(const std::string& name, const std::string& bench)
      : file_(folder_ / "bench.json"), ended_(std::async(std::launch::async, [=, this] {
          return sh(kCommand + "run --name " + name +
                    " --timeout 120 -- " SENNIT_BINARY_DIR "/bin/sennit bench all_reduce " + bench +
                    " --json " + file_);
        })) {}
  bool has_ended() const {
    return ended_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  }
  void expect_right_end() {
    const Outcome outcome = ended_.get();
    EXPECT_EQ(outcome.status, 0) << outcome.output;
    std::ifstream in(file_);
    const nlohmann::json line = nlohmann::json::parse(in, nullptr, false);
    ASSERT_TRUE(line.is_object()) << outcome.output;
    EXPECT_EQ(line["wrong"], 0);
  }

 private:
  const trainer::TestFolder folder_;
  std::string file_;
  std::future<Outcome> ended_;
};

// Bytes that have reached the host whose namespaces a process holds.
int64_t bytes_in(pid_t holder) {
  std::ifstream file(fmt::format("/proc/{}/net/dev", holder));
  for (std::string word; file >> word;)
    if (int64_t bytes = 0; word == "eth0:" && file >> bytes) return bytes;
  return 0;
}

TEST_F(EmulateFaultsTest, AJobWaitsOutACut) {
  if (const std::string why = no_drops(); !why.empty()) GTEST_SKIP() << "NOT TESTED: " << why;
  // Two seconds and more: each all-reduce moves 1.5 MB into every host.
  RunningJob job(name_, "-b 1M -e 1M -n 40 -w 0");
  ASSERT_TRUE(eventually([&] { return bytes_in(holder(2)) > 2'000'000; }));
  ask("cut h2");
  EXPECT_TRUE(eventually([&] { return dropped(keeper(), "h2_out") > 0; }));
  EXPECT_TRUE(eventually([&] { return dropped(holder(2), "h2_in") > 0; }));
  EXPECT_FALSE(job.has_ended());
  ask("heal h2");
  job.expect_right_end();
}

TEST_F(EmulateFaultsTest, AJobGetsThroughLosses) {
  if (const std::string why = no_drops(); !why.empty()) GTEST_SKIP() << "NOT TESTED: " << why;
  ask("lose h1 3");
  RunningJob job(name_, "-b 64K -e 64K -n 30 -w 0");
  job.expect_right_end();
  EXPECT_GT(dropped(keeper(), "h1_out"), 0);
  EXPECT_GT(dropped(holder(1), "h1_in"), 0);
}

TEST_F(EmulateFaultsTest, ADelayIsNetemsOrRefused) {
  const std::string whole = kernel();
  const Outcome outcome = emulate("delay h2 40ms");
  if (outcome.status != 0) {
    EXPECT_EQ(outcome.status, 3);
    EXPECT_NE(outcome.output.find("h2: a delay takes netem"), std::string::npos) << outcome.output;
    EXPECT_EQ(faults(), "");
    EXPECT_EQ(kernel(), whole);
    GTEST_SKIP() << "NOT TESTED beyond the refusal: " << outcome.output;
  }
  for (const std::string& queues : {inside(holder(2), "tc qdisc show dev eth0"),
                                    inside(keeper(), "tc qdisc show dev port-h2")}) {
    EXPECT_NE(queues.find("delay 40ms"), std::string::npos) << queues;
    EXPECT_NE(queues.find("rate 200Mbit"), std::string::npos) << queues;
  }
  EXPECT_EQ(faults(), "h2: both directions delayed by 40ms\n");
  EXPECT_GE(seconds(3, 2), 3 * 0.040);  // a round trip to connect, and data one way
  ask("slow h2 10Mbit/s");
  expect_slow(3, 2);
  ask("delay h2 1ms");
  EXPECT_EQ(faults(), "h2: both directions slowed to 10 Mbit/s of 200 Mbit/s, delayed by 1ms\n");
  ask("heal h2");
  EXPECT_EQ(kernel(), whole);
  expect_fast(3, 2);
}

// Where the kernel has no netem: what it would be told.
TEST(EmulateFaults, DelaysLieBelowTheRate) {
  emulate::LinkFaults faults;
  const emulate::LinkDirection direction{
      "h0_out", 8'000'000, &faults.out, {1, "eth0"}, {2, "port-h0"}};
  const emulate::Fault whole, late{.delay_ns = 1'500'000}, later{.delay_ns = 2'000'000};
  const std::string bucket = emulate::shape("eth0", 8'000'000);
  EXPECT_EQ(shaping(direction, whole, late),
            bucket + "qdisc replace dev eth0 parent 1:1 handle 2: netem delay 1500us limit 2798\n");
  EXPECT_EQ(shaping(direction, late, later),
            bucket + "qdisc replace dev eth0 parent 1:1 handle 2: netem delay 2000us limit 2798\n");
  EXPECT_EQ(shaping(direction, late, whole), "qdisc del dev eth0 root\n" + bucket);
  EXPECT_EQ(shaping(direction, late, late), "");
  EXPECT_EQ(dropping(direction, whole, late), "");
}

TEST_F(EmulateFaultsTest, CallsThatAreOff) {
  const std::string whole = kernel();
  const std::vector<std::pair<std::string, std::string>> rows = {
      {"slow h9 10Mbit/s", "h9: there is no such host or switch"},
      {"slow h9 10Mbit/s", "lower ends: h0 to h3, rack0 to rack1"},
      {"cut spine", "spine: is the top of the tree"},
      {"slow h2 fast", "slow h2 fast: expected a rate below the 200 Mbit/s of the link"},
      {"slow h2 200Mbit/s", "expected a rate below the 200 Mbit/s"},
      {"slow h2 1kbit/s", "at least 80kbit/s"},
      {"slow h2 unknown", "expected a rate"},
      {"slow h2", "rate is required"},
      {"cut", "link is required"},
      {"cut h2 --direction sideways", "{out,in,both}"},
      {"lose h2 0", "from 0.0001 to 100"},
      {"lose h2 0.00001", "from 0.0001 to 100"},
      {"lose h2 100.5", "from 0.0001 to 100"},
      {"lose h2 nan", "from 0.0001 to 100"},
      {"lose h2 half", "lose h2 half: expected which percentage"},
      {"lose h2 %", "from 0.0001 to 100"},
      {"delay h2 5", "delay h2 5: expected a time from 1us to 10s"},
      {"delay h2 11s", "expected a time from 1us to 10s"},
      {"delay h2 0ms", "expected a time from 1us to 10s"}};
  for (const auto& [command, said] : rows) {
    const Outcome outcome = emulate(command);
    EXPECT_EQ(outcome.status, 2) << command << ": " << outcome.output;
    EXPECT_NE(outcome.output.find(said), std::string::npos) << command << ": " << outcome.output;
  }
  const Outcome outcome = sh(kCommand + "slow h2 10Mbit/s --name no-such-tree");
  EXPECT_EQ(outcome.status, 2);
  EXPECT_NE(outcome.output.find("no emulated fabric 'no-such-tree' is up"), std::string::npos);
  EXPECT_EQ(faults(), "");
  EXPECT_EQ(kernel(), whole);
}

TEST_F(EmulateFaultsTest, WhatTheMachineLacksIsSaid) {
  const std::string whole = kernel();
  const trainer::TestFolder programs;
  sh("ln -s \"$(command -v tc)\" " + programs / "tc");
  const Outcome without_nft =
      sh("PATH=" + programs.path() + " " + kCommand + "lose h2 2 --name " + name_);
  EXPECT_EQ(without_nft.status, 3);
  EXPECT_NE(
      without_nft.output.find("there is no such program in PATH; install the package nftables"),
      std::string::npos)
      << without_nft.output;
  const Outcome without_rights =
      sh("setpriv --bounding-set -all --inh-caps -all " + kCommand + "cut h2 --name " + name_);
  EXPECT_EQ(without_rights.status, 3);
  EXPECT_NE(without_rights.output.find("a tree is for who brought it up"), std::string::npos)
      << without_rights.output;
  EXPECT_EQ(faults(), "");
  EXPECT_EQ(kernel(), whole);
}

TEST_F(EmulateFaultsTest, CommandsAtOnceAllCount) {
  std::vector<std::future<void>> asked;
  for (int host = 0; host < 4; host++)
    asked.push_back(
        std::async(std::launch::async, [=, this] { ask(fmt::format("slow h{} 50Mbit/s", host)); }));
  for (auto& one : asked) one.get();
  std::string expected;
  for (int host = 0; host < 4; host++)
    expected += fmt::format("h{}: both directions slowed to 50 Mbit/s of 200 Mbit/s\n", host);
  EXPECT_EQ(faults(), expected);
}

}  // namespace
}  // namespace sennit
