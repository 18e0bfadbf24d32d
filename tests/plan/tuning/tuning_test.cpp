// tuning_test.cpp: the tuning table's text, the trials of a request, and the command (jobs:
// tests/api/tuned_job_test.cpp).
//
// ctest runs: sennit_command
#include "plan/planner.hpp"
#include "plan/tuning/table.hpp"

#include <array>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <thread>

#include <nlohmann/json.hpp>

#include "api/c_api.hpp"
#include "plan/tuning/trials.hpp"
#include "tests/support/ranks.hpp"
#include "tests/support/seed.hpp"
#include "tests/support/shell.hpp"
#include "tests/support/trials.hpp"
#include "tests/support/tuning_file.hpp"

namespace sennit {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

Request all_reduce(uint64_t count) {
  Request request;
  request.count = count;
  return request;
}

TEST(Tuning, HoldsForSizesFromAPowerOfTwoToTheNext) {
  Tuning table;
  table.set(7, all_reduce(1000), 4,
            {"ring", {.chunks = 3, .radices = {}, .whole_stages = 0}, 5, 6});
  EXPECT_NE(table.find(7, all_reduce(512), 4), nullptr);
  EXPECT_NE(table.find(7, all_reduce(1023), 4), nullptr);
  EXPECT_EQ(table.find(7, all_reduce(1024), 4), nullptr);
  EXPECT_EQ(table.find(8, all_reduce(1000), 4), nullptr) << "another tree";
  Request other = all_reduce(1000);
  other.collective = Collective::broadcast;
  EXPECT_EQ(table.find(7, other, 4), nullptr);
}

TEST(Tuning, IsReadAsWritten) {
  Tuning table;
  table.set(0xdeadbeefcafe, all_reduce(1 << 20), 4,
            {"tiered", {.chunks = 8, .radices = {4, 2}, .whole_stages = 1}, 5, 6});
  table.set(1, all_reduce(1), 4, {"ring", {}, 0, ~uint64_t{0}});
  const std::string text = table.to_text();
  const Result<Tuning> again = Tuning::parse(text, "file");
  ASSERT_TRUE(again.ok()) << again.status().text();
  EXPECT_EQ(again->to_text(), text);
  const Tuned* tuned = again->find(0xdeadbeefcafe, all_reduce(1 << 20), 4);
  ASSERT_NE(tuned, nullptr);
  EXPECT_EQ(tuned->algorithm, "tiered");
  EXPECT_EQ(tuned->parameters, (Parameters{.chunks = 8, .radices = {4, 2}, .whole_stages = 1}));
  EXPECT_EQ(tuned->measured_ns, 6u);
}

TEST(Tuning, KeepsTheCostModelOfATree) {
  const TierTree tree = TierTree::uniform({4, 2}, {1'000'000'000, 500'000'000});
  CostModel fitted;
  fitted.shared_cores.message_cpu_ns = 7'000;
  fitted.latency_ns = 14'000;
  fitted.tiers = {{1000, 990, 0}, {300, 950, 120'000}, {1200, 1000, 0}};
  Tuning table;
  table.set_cost(tree.fingerprint(), fitted);
  EXPECT_FALSE(table.empty());
  const Result<Tuning> again = Tuning::parse(table.to_text(), "f");
  ASSERT_TRUE(again.ok()) << again.status().text();
  EXPECT_EQ(again->to_text(), table.to_text());
  CostModel cost;
  cost.shared_cores.crowding_permille = 4'000;  // the job's own, not of the fit
  again->calibrate(TierTree::uniform({2, 4}, {1'000'000'000, 500'000'000}), &cost);
  EXPECT_TRUE(cost.tiers.empty()) << "another tree";
  again->calibrate(tree, &cost);
  fitted.shared_cores.crowding_permille = 4'000;
  EXPECT_EQ(cost, fitted);
}

TEST(Tuning, WhatWasFittedOverRdmaIsForRdma) {
  const TierTree tree = TierTree::uniform({4, 2}, {1'000'000'000, 500'000'000});
  for (const Way fitted_over : {Way::sockets, Way::rdma}) {
    CostModel fitted;
    fitted.way = fitted_over;
    fitted.tiers.resize(tree.tiers.size(), TierCost{700, 950, 0});
    Tuning table;
    table.set_cost(tree.fingerprint(), fitted);
    const Result<Tuning> again = Tuning::parse(table.to_text(), "f");
    ASSERT_TRUE(again.ok()) << again.status().text();
    for (const Way way : {Way::sockets, Way::rdma}) {
      CostModel cost;
      cost.way = way;
      again->calibrate(tree, &cost);
      EXPECT_EQ(cost.tiers.empty(), way != fitted_over);
    }
  }
}

// A job over TCP on the same hosts takes nothing from one over RDMA, and the other way round.
TEST(Tuning, KeepsACalibrationForEachWay) {
  const TierTree tree = TierTree::uniform({4, 2}, {1'000'000'000, 500'000'000});
  const auto fitted = [&](Way way, uint64_t post_ns) {
    CostModel cost;
    cost.way = way;
    cost.post_ns = post_ns;
    cost.tiers.resize(tree.tiers.size(), TierCost{700, 950, 0});
    Tuning table;
    table.set_cost(tree.fingerprint(), cost);
    return table;
  };
  const TuningFile file;
  const auto post_over = [&](Way way) {
    const Result<Tuning> all = Tuning::read(file.path());
    EXPECT_TRUE(all.ok()) << all.status().text();
    CostModel cost;
    cost.way = way;
    if (all) all->calibrate(tree, &cost);
    return cost.post_ns;
  };
  const uint64_t unfitted = CostModel().post_ns;
  ASSERT_TRUE(fitted(Way::rdma, 311).add_to(file.path()).ok());
  EXPECT_EQ(post_over(Way::rdma), 311u);
  EXPECT_EQ(post_over(Way::sockets), unfitted);
  ASSERT_TRUE(fitted(Way::sockets, 5'111).add_to(file.path()).ok());
  EXPECT_EQ(post_over(Way::rdma), 311u);
  EXPECT_EQ(post_over(Way::sockets), 5'111u);
  ASSERT_TRUE(fitted(Way::sockets, 5'222).add_to(file.path()).ok());
  EXPECT_EQ(post_over(Way::rdma), 311u);
  EXPECT_EQ(post_over(Way::sockets), 5'222u);
}

TEST(Tuning, ErrorsNameThePlace) {
  const std::pair<const char*, const char*> cases[] = {
      {"tree", "f:1:5: expected a fingerprint of 16 hexadecimal digits behind it"},
      {"\ntree xyz", "f:2:6: expected a fingerprint"},
      {"forest 12", "f:1:1: expected \"tree\""},
      {"tree 12 all_reduc 8", "f:1:9: expected a collective"},
      {"tree 12 all_reduce 8 ring chunks 0 radices - whole 0 predicted_ns 1 measured_ns 1",
       "from 1 to 1048576 chunks"},
      {"tree 12 all_reduce 8 ring chunks 1 radices 2,,3 whole 0 predicted_ns 1 measured_ns 1",
       "f:1:44: expected"},
      {"tree 12 all_reduce 8 ring chunks 1 radices - whole 256 predicted_ns 1 measured_ns 1",
       "f:1:52: expected"},
      {"tree 12 all_reduce 8 ring chunks 1 radices - whole 0 predicted_ns 1 measured_ns 1 x",
       "the end of the line"},
      {"tree 12 broadcast 8 tiered chunks 1 radices - whole 1 predicted_ns 1 measured_ns 1",
       "f:1:21: expected other parameters: tiered takes no whole stages for broadcast, not 1"},
      {"tree 12 all_reduce 8 leaders chunks 1 radices - whole 2 predicted_ns 1 measured_ns 1",
       "leaders takes up to 1 whole stages for all_reduce, not 2"},
      {"tree 12 all_reduce 8 ring chunks 1 radices 4,2 whole 0 predicted_ns 1 measured_ns 1",
       "ring takes no radices for all_reduce, not 4,2"},
      {"tree 12 all_reduce 8 tiered chunks 1 radices 4,1 whole 0 predicted_ns 1 measured_ns 1",
       "tiered takes radices from 2 for all_reduce, not 4,1"},
      {"tree 12 broadcast 8 tree chunks 1 radices 4,3 whole 0 predicted_ns 1 measured_ns 1",
       "tree takes at most 1 radices for broadcast, not 4,3"},
      {"tree 12 all_reduce 8 rang chunks 1 radices - whole 0 predicted_ns 1 measured_ns 1",
       "f:1:22: expected one of the algorithms"},
      {"cost 12 post_ns 1 message_cpu_ns 1 latency_ns 1 shared_memory_post_ns 1 reduce_bytes_per_s "
       "1 "
       "latency_permille 1,2 goodput_permille 1 burst_ns 1",
       "f:1:1: expected as many latencies"},
      {"cost 12 post_ns 1 message_cpu_ns 1 latency_ns 1 shared_memory_post_ns 1 reduce_bytes_per_s "
       "1 "
       "latency_permille - goodput_permille - burst_ns -",
       "f:1:1: expected as many latencies"},
      {"cost 12 post_ns 1 message_cpu_ns 1 latency_ns 1 shared_memory_post_ns 1 reduce_bytes_per_s "
       "1 "
       "latency_permille 1 goodput_permille 0 burst_ns 1",
       "f:1:1: expected rates and goodputs above 0"}};
  for (const auto& [text, error] : cases) {
    const Result<Tuning> parsed = Tuning::parse(text, "f");
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_NE(parsed.status().text().find(error), std::string::npos) << parsed.status().text();
  }
}

TEST(Tuning, DamagedTextsAreReadOrRefused) {
  std::mt19937_64 random(sennit_test::seed());
  Tuning table;
  for (uint64_t i = 1; i < 5; i++)
    table.set(i, all_reduce(i << i), 4,
              {"tiered", {.chunks = 2, .radices = {4}, .whole_stages = 0}, i, i});
  CostModel cost;
  cost.tiers.resize(2);
  table.set_cost(9, cost);
  const std::string whole = table.to_text();
  size_t refused = 0;
  for (int round = 0; round < 5000; round++) {
    std::string text = whole;
    for (uint64_t i = random() % 4 + 1; i > 0; i--)
      text[random() % text.size()] = static_cast<char>(random());
    const Result<Tuning> parsed = Tuning::parse(text, "f");
    refused += !parsed.ok();
    if (parsed.ok()) {
      EXPECT_TRUE(Tuning::parse(parsed->to_text(), "f").ok()) << text;
    } else {
      EXPECT_TRUE(parsed.status().text().starts_with("f:")) << parsed.status().text();
    }
  }
  EXPECT_GT(refused, 0u);
}

TEST(Tuning, JobsThatWriteAtOnceLoseNothing) {
  const TuningFile file;
  std::vector<std::thread> writers;
  for (uint64_t w = 0; w < 8; w++)
    writers.emplace_back([&, w] {
      for (uint64_t i = 0; i < 10; i++) {
        Tuning one;
        one.set(w * 100 + i, all_reduce(1), 4, {"ring", {}, 1, 1});
        EXPECT_TRUE(one.add_to(file.path()).ok());
      }
    });
  for (std::thread& writer : writers) writer.join();
  const Result<Tuning> all = Tuning::read(file.path());
  ASSERT_TRUE(all.ok()) << all.status().text();
  EXPECT_EQ(all->size(), 80u);
}

// Four candidates, of which the last is hopeless.
Plan some_plan(const TierTree& tree) {
  Plan plan = *make_plan(all_reduce(1 << 20), tree, {});
  plan.candidates = {{"tiered", {}, 100, "", 0},
                     {"ring", {}, 150, "slow", 0},
                     {"direct", {}, 200, "slow", 0},
                     {"double_tree", {}, 900, "slow", 0}};
  return plan;
}

TEST(Trials, GiveEveryPlanItsTurnAndKeepTheFastest) {
  const TierTree tree = TierTree::uniform({2, 2}, {1'000'000'000, 1'000'000'000});
  Trials trials(some_plan(tree), all_reduce(1 << 20), tree, {.plans = 4, .rounds = 3});
  ASSERT_EQ(trials.plans().size(), 3u) << "hopeless plans are not tried";
  EXPECT_NE(trials.plans()[0].hash, trials.plans()[1].hash);
  std::vector<int> samples;
  for (size_t call = 0; call < 3 * (3 + 1); call++) {
    ASSERT_FALSE(trials.to_decide());
    const Trials::Turn turn = trials.next();
    EXPECT_EQ(turn.plan, call % 3);
    if (turn.sample >= 0) samples.push_back(turn.sample);
  }
  EXPECT_EQ(samples, (std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7, 8}));
  ASSERT_TRUE(trials.to_decide());
  trials.decide({10, 9.9, 7, 10, 9.8, kNever, 10, 9.9, 8});
  EXPECT_EQ(trials.winner(), 2u);
  EXPECT_EQ(trials.next().plan, 2u);
  EXPECT_EQ(trials.next().sample, -1);
}

TEST(Trials, TimeTheLastCallOfATurn) {
  const TierTree tree = TierTree::uniform({2, 2}, {1'000'000'000, 1'000'000'000});
  Trials trials(some_plan(tree), all_reduce(1 << 20), tree, {.plans = 2, .rounds = 2, .calls = 3});
  const int samples = 2;  // by turn: none of the first round
  for (int turn = 0; turn < 6; turn++)
    for (int call = 0; call < 3; call++) {
      EXPECT_FALSE(trials.to_decide());
      const Trials::Turn next = trials.next();
      EXPECT_EQ(next.plan, static_cast<size_t>(turn % 2));
      EXPECT_EQ(next.sample, turn >= samples && call == 2 ? turn - samples : -1);
    }
  EXPECT_TRUE(trials.to_decide());
}

// What the table has was predicted by another model, which may have been off by any factor.
TEST(Trials, TryWhatIsKnownBesideAsManyOthers) {
  const TierTree tree = TierTree::uniform({2, 2}, {1'000'000'000, 1'000'000'000});
  Plan plan = some_plan(tree);
  plan.candidates.insert(plan.candidates.begin(),
                         {"tiered", {.chunks = 2, .radices = {}, .whole_stages = 0}, 1, "", 500});
  const Trials one(plan, all_reduce(1 << 20), tree, {.plans = 1, .rounds = 3});
  ASSERT_EQ(one.plans().size(), 2u);
  EXPECT_EQ(one.plans()[1].parameters.chunks, 1u);
  EXPECT_EQ(Trials(plan, all_reduce(1 << 20), tree, {.plans = 4, .rounds = 3}).plans().size(), 4u)
      << "the last is hopeless";
}

TEST(Trials, KeepThePlannersChoiceWhereTheOthersAreHardlyFaster) {
  const TierTree tree = TierTree::uniform({2, 2}, {1'000'000'000, 1'000'000'000});
  Trials trials(some_plan(tree), all_reduce(1 << 20), tree, {.plans = 4, .rounds = 3});
  trials.decide({10, 9.8, 12, 10, 9.9, 11, 10, 9.9, 11});
  EXPECT_EQ(trials.winner(), 0u);
}

TEST(Trials, HoldEachPlanAgainstTheOthersOfItsRound) {
  // The second is a tenth slower, on a machine that is twice as slow in every other round; once it
  // was lucky.
  const std::vector<double> typical = typical_times({20, 22, 10, 11, 20, 12, 10, 11, 20, 22}, 2);
  EXPECT_NEAR(typical[1] / typical[0], 1.1, 1e-9);
  EXPECT_NEAR(typical[0] * typical[1], 110, 1e-9) << "as in the fastest round";
  // A round in which one has no time tells nothing; where that is all of them, what there is
  // counts.
  EXPECT_NEAR(typical_times({5, kNever, 10, 20}, 2)[1], 20, 1e-9);
  EXPECT_EQ(typical_times({5, kNever, 4, kNever}, 2), (std::vector<double>{4, kNever}));
}

TEST(Trials, BarriersAreTakenOffAsTheyWereThen) {
  EXPECT_EQ(without_barriers(10'000, 10, 10, {500, 510, 9'000}), 490u)
      << "one barrier was disturbed";
  EXPECT_EQ(without_barriers(10'000, 10, 1, {500}), 950u);
  EXPECT_EQ(without_barriers(10'000, 10, 10, {1'200}), 50u)
      << "faster than barriers alone: never nothing";
}

TEST(TuneCommand, ShowsPredictedAndMeasured) {
  const TuningFile file;
  const sennit_test::Outcome outcome = sennit_test::sh_output(
      std::string(SENNIT_BINARY_DIR
                  "/bin/sennit tune all_reduce broadcast --ranks 3 -b 4K -f 16 --plans 1 --json ") +
      file.path() + ".json -e " + (sennit_test::kSanitized ? "4K" : "64K") + " 2>&1");
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_NE(outcome.output.find("before that the model's own choice takes"), std::string::npos)
      << outcome.output;
  EXPECT_NE(outcome.output.find("calibrated the model's own choice takes"), std::string::npos)
      << outcome.output;
  int timed = 0, planned = 0, kept_plans = 0;
  {
    std::ifstream lines(file.path() + ".json");
    for (std::string line; std::getline(lines, line); timed++) {
      const nlohmann::json plan = nlohmann::json::parse(line);
      EXPECT_GT(plan.at("measured_us").get<double>(), 0) << line;
      EXPECT_GT(plan.at("predicted_us").get<double>(), 0) << line;
      planned += plan.at("planned").get<bool>();
      kept_plans += plan.at("kept").get<bool>();
      EXPECT_EQ(plan.at("turns_us").size(), 5u) << line;
    }
  }
  std::filesystem::remove(file.path() + ".json");
  const int requests = sennit_test::kSanitized ? 2 : 4;
  EXPECT_GE(timed, requests);
  EXPECT_GE(planned, requests) << "the model's choice of every request was tried";
  EXPECT_EQ(kept_plans, requests) << "one for each request";
  EXPECT_NE(outcome.output.find("kept in " + file.path()), std::string::npos) << outcome.output;
  const Result<Tuning> kept = Tuning::read(file.path());
  ASSERT_TRUE(kept.ok()) << kept.status().text();
  EXPECT_EQ(kept->size(), static_cast<size_t>(requests)) << kept->to_text();
}

// Within a host a broadcast's chunks have 128 KiB at the least.
TEST(TuneCommand, TriesEveryNumberOfChunks) {
  const TuningFile file;
  const std::string json = file.path() + ".json";
  const sennit_test::Outcome outcome = sennit_test::sh_output(
      SENNIT_BINARY_DIR
      "/bin/sennit tune broadcast --ranks 3 -b 512K -e 512K --every-chunk --plans 1000 --rounds 1 "
      "--file " +
      file.path() + " --json " + json + " 2>&1");
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  std::map<std::string, std::set<int>> chunks;
  {
    std::ifstream lines(json);
    for (std::string line; std::getline(lines, line);) {
      const nlohmann::json plan = nlohmann::json::parse(line);
      EXPECT_TRUE(plan.at("bound_us").is_null()) << "nobody told the memory's rate: " << line;
      chunks[plan.at("algorithm")].insert(plan.at("chunks").get<int>());
    }
  }
  std::filesystem::remove(json);
  EXPECT_EQ(chunks["tiered"], (std::set{1, 2, 3, 4})) << outcome.output;
}

TEST(TuneCommand, CallsThatAreOff) {
  for (const char* arguments : {"", "all_reduc", "barrier", "all_reduce -b 2M -e 1M",
                                "all_reduce -b x", "all_reduce --rank"}) {
    const std::string tune = SENNIT_BINARY_DIR "/bin/sennit tune ";
    EXPECT_NE(sennit_test::sh_output(tune + arguments + " >/dev/null 2>&1").status, 0) << arguments;
  }
  // What could not be kept is not measured, and a file that is something else is left alone.
  const sennit_test::Outcome nowhere = sennit_test::sh_output(
      SENNIT_BINARY_DIR
      "/bin/sennit tune all_reduce --ranks 2 -b 1K -e 1K --json /no/such/file 2>&1");
  EXPECT_EQ(nowhere.status, 2) << nowhere.output;
  EXPECT_NE(nowhere.output.find("--json /no/such/file: No such file"), std::string::npos)
      << nowhere.output;
  EXPECT_EQ(nowhere.output.find("predicted"), std::string::npos)
      << "nothing was measured: " << nowhere.output;
  const TuningFile file("hello\n");
  const std::string of_two =
      SENNIT_BINARY_DIR "/bin/sennit tune all_reduce --ranks 2 -b 1K -e 1K 2>&1";
  const sennit_test::Outcome other = sennit_test::sh_output(of_two);
  EXPECT_EQ(other.status, 2) << other.output;
  EXPECT_NE(other.output.find(file.path() + ":1:1: expected \"tree\""), std::string::npos)
      << other.output;
  EXPECT_EQ(sennit_test::sh_output("cat " + file.path()).output, "hello\n");
  const std::string of_one_rank = SENNIT_BINARY_DIR "/bin/sennit tune all_reduce 2>/dev/null";
  EXPECT_EQ(sennit_test::sh_output(of_one_rank).status, 2);
}

}  // namespace
}  // namespace sennit
