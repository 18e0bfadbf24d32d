// simulate_groups_test.cpp: `sennit simulate --groups` as its users call it: the data-parallel
// groups of the reference cluster, what a bad order costs, and calls that are off.
//
// ctest not-under-tsan: it runs a command, whose threads others try
// ctest runs: sennit_command
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/support/shell.hpp"
#include "tests/support/trials.hpp"

namespace {

using nlohmann::json;
using sennit_test::Outcome;
using sennit_test::sh;

const std::string kSimulate = SENNIT_BINARY_DIR "/bin/sennit simulate ";
const std::string kSmall = " --fabric 'pods=4x4x2;nic=50GB/s;oversubscription=1,7;latency=14us'";

json answer(const std::string& arguments) {
  const Outcome outcome = sh(kSimulate + arguments + " --json - 2>&1");
  EXPECT_EQ(outcome.status, 0) << arguments << "\n" << outcome.output;
  return json::parse(outcome.output, nullptr, false);
}

TEST(SimulateGroups, DataParallelOnTheReferenceCluster) {
  if (sennit_test::kSanitized) GTEST_SKIP() << "the next does it with fewer ranks";
  // Tensor and pipeline groups of 8 and 16 leave every 128th rank: 24 of the 128 in each of 5 pods,
  // 8 in one.
  const json found = answer(
      "all_gather -b 8G -d uint8 --fabric meta24k --ranks 16384 --groups 128 --stride 128 --fluid");
  ASSERT_TRUE(found.is_object());
  EXPECT_EQ(found["groups"], 128);
  EXPECT_EQ(found["idle_ranks"], 0);
  const double unit_us = 8.0 * (1 << 30) / 50e9 * 1e6;  // M/B
  EXPECT_NEAR(found["bound_us"].get<double>(), 127.0 / 128 * unit_us, 1);
  EXPECT_NEAR(found["time_us"].get<double>(), 127.0 / 128 * unit_us, 0.01 * unit_us);
}

TEST(SimulateGroups, SaysWhatABadOrderCosts) {
  const json bad =
      answer("reduce_scatter -b 1G -d uint8 --reduce free --groups 4 --stride 8" + kSmall);
  ASSERT_TRUE(bad.is_object());
  EXPECT_EQ(bad["binding_tier"], "pod");
  EXPECT_NEAR(bad["bound_us"].get<double>(), 5.25 * (1 << 30) / 50e9 * 1e6, 1);
  EXPECT_GE(bad["time_us"], bad["bound_us"]);
  EXPECT_NEAR(bad["best_bound_us"].get<double>(), 0.75 * (1 << 30) / 50e9 * 1e6, 1);
  EXPECT_GE(bad["best_time_us"], bad["best_bound_us"]);
  EXPECT_NEAR(bad["time_us"].get<double>() / bad["best_time_us"].get<double>(), 7, 0.5);
  EXPECT_EQ(bad["schedules"].size(), 1u);
  EXPECT_EQ(bad["schedules"][0]["groups"], 8);
  const json good = answer("reduce_scatter -b 1G -d uint8 --reduce free --groups 4" + kSmall);
  ASSERT_TRUE(good.is_object());
  EXPECT_EQ(good["stride"], 1);
  EXPECT_EQ(good["time_us"], bad["best_time_us"]);
  const Outcome text =
      sh(kSimulate + "reduce_scatter -b 1G -d uint8 --reduce free --groups 4 --stride 8" + kSmall +
         " 2>&1");
  EXPECT_NE(text.output.find("8 groups of 4 ranks, 8 apart"), std::string::npos) << text.output;
  EXPECT_NE(text.output.find("1 in a pod"), std::string::npos) << text.output;
  EXPECT_NE(text.output.find("times as long"), std::string::npos) << text.output;
}

// Nobody says what the uplinks carry: groups that cross them have no bound to be compared by.
TEST(SimulateGroups, AnOrderWhoseBoundIsUnknownIsNoShortOne) {
  const std::string call = "all_gather -b 1M --groups 2 --fabric 'racks=2x4;nic=1GB/s'";
  const json found = answer(call);
  ASSERT_TRUE(found.is_object());
  const json& across = found["orders"].back();
  EXPECT_EQ(across["stride"], 4);
  EXPECT_TRUE(across["bound_us"].is_null() && across["binding_tier"].is_null()) << across;
  EXPECT_EQ(found["best_stride"], 1);
  const std::string text = sh(kSimulate + call + " 2>&1").output;
  EXPECT_NE(text.find("       4      unknown          -          -\n"), std::string::npos) << text;
  EXPECT_NE(text.find("is known to have a lower bound"), std::string::npos) << text;
  EXPECT_EQ(text.find("0.00"), text.find("0.00 s")) << text;
}

TEST(SimulateGroups, RefusesACallThatIsOff) {
  const std::vector<std::pair<std::string, std::string>> calls = {
      {"all_reduce --stride 2", "--groups"},
      {"all_reduce --groups 1", "--groups"},
      {"all_reduce --groups 8 --stride 5", "need 40 ranks, and there are 32"},
      {"all_reduce --groups 4 --radices 2", "--radices"},
      {"all_gather -b 8 --groups 4", "for each of 4 ranks"},
      {"broadcast -r 4 --groups 4", "from 0 to 3"},
      {"all_reduce --groups 4 --algorithm quick", "quick"},
      {"all_reduce --groups 4 --json - --trace -", "standard output holds one of them"},
      {"all_reduce --groups 4 --json ./x --trace ./x", "a file holds one of them"},
      {"all_reduce --groups 4 --tolerance nan", "--tolerance: expected a part of 1"},
      {"all_reduce --groups 4 --fluid --trace x", "--trace"}};
  for (const auto& [call, word] : calls) {
    const Outcome outcome = sh(kSimulate + call + kSmall + " 2>&1");
    EXPECT_EQ(outcome.status, 2) << call << "\n" << outcome.output;
    EXPECT_NE(outcome.output.find(word), std::string::npos) << call << "\n" << outcome.output;
  }
}

}  // namespace
