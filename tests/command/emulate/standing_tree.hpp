// standing_tree.hpp: tests of a tree that is up, with a view into its namespaces. They need root.
#pragma once

#include <unistd.h>

#include <fstream>
#include <string>
#include <vector>

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/command/emulate/emulated.hpp"
#include "tests/support/shell.hpp"

namespace sennit {

// Takes down after each test what the test has brought up.
class StandingTree : public EmulatedTest {
 protected:
  using Outcome = sennit_test::Outcome;

  void SetUp() override {
    EmulatedTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    if (geteuid() != 0) GTEST_SKIP() << "SKIPPED: this test looks into namespaces; run as root";
  }
  void TearDown() override {
    if (up_) sennit_test::sh(kCommand + "down --name " + name_);
  }
  void bring_up(const std::string& tree) {
    const Outcome up = sennit_test::sh(kCommand + "up " + tree + " --name " + name_);
    ASSERT_EQ(up.status, 0) << up.output;
    up_ = true;
    std::ifstream file("/run/sennit/" + name_ + ".json");
    state_ = nlohmann::json::parse(file);
  }

  // `sennit emulate COMMAND` on the tree.
  Outcome emulate(const std::string& command) const {
    return sennit_test::sh(kCommand + command + " --name " + name_);
  }
  void ask(const std::string& command) const {
    const Outcome outcome = emulate(command);
    EXPECT_EQ(outcome.status, 0) << command << ": " << outcome.output;
  }
  // What `list` says of the tree's faults.
  std::string faults() const {
    std::string text;
    bool ours = false;
    for (const std::string& line : sennit_test::sh(kCommand + "list").lines()) {
      const bool of_a_fault = line.starts_with("  ");
      if (!of_a_fault) ours = line.starts_with(name_ + ":");
      if (of_a_fault && ours) text += line.substr(2) + "\n";
    }
    return text;
  }

  pid_t keeper() const { return state_["keeper"]; }
  pid_t holder(int host) const { return state_["hosts"][host]["holder"]; }
  // In the network namespace of a process of the tree.
  static std::string inside(pid_t process, const std::string& command) {
    return sennit_test::sh(fmt::format("nsenter -t {} -n {}", process, command)).output;
  }
  // Every queue of the tree and every rule that drops packets.
  std::string kernel() const {
    std::vector<pid_t> processes = {keeper()};
    for (const auto& host : state_["hosts"]) processes.push_back(host["holder"]);
    std::string text;
    for (const pid_t process : processes)
      text += inside(process, "tc qdisc show") + inside(process, "nft list ruleset");
    return text;
  }
  // Why this machine drops no packets; empty where it does.
  std::string no_drops() const {
    const Outcome trial = emulate("cut h0");
    const Outcome healed = emulate("heal h0");
    EXPECT_EQ(healed.status, 0) << healed.output;
    EXPECT_EQ(faults(), "");
    return trial.status == 3 ? trial.output : "";
  }

  const std::string name_ = fmt::format("test-{}-standing", getpid());
  nlohmann::json state_;
  bool up_ = false;
};

}  // namespace sennit
