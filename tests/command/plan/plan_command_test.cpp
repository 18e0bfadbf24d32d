// plan_command_test.cpp: `sennit plan` and `sennit simulate` as their users call them: the
// reference cluster's bounds, the choices beside the best schedules known for it, and calls that
// are off.
//
// ctest not-under-tsan: it runs a command, whose threads others try
// ctest runs: sennit_command
#include <algorithm>
#include <fstream>

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/support/shell.hpp"
#include "tests/support/trials.hpp"

namespace {

using nlohmann::json;
using sennit_test::Outcome;
using sennit_test::sh;

const std::string kSennit = SENNIT_BINARY_DIR "/bin/sennit ";
// The latency model of the reference tables; their messages take 1 us to post and reductions
// nothing.
const std::string kModel = " -d uint8 --fabric meta24k --post 1us --reduce free --json -";
const std::string kSmall = " --fabric 'racks=2x3;nic=50GB/s;oversubscription=7'";
// More ranks than are simulated.
const std::string kLongRing =
    " --algorithm ring --fabric 'racks=129x8;nic=50GB/s;uplink=50GB/s;cables=2'";

json answer(const std::string& arguments) {
  const Outcome outcome = sh(kSennit + arguments + " 2>&1");
  EXPECT_EQ(outcome.status, 0) << arguments << "\n" << outcome.output;
  return json::parse(outcome.output, nullptr, false);
}

// Of the tiers rank, host, rack and pod, in ms; three digits.
void expect_bounds(const std::string& collective, const std::vector<double>& ms, double bound_ms,
                   const std::string& tier) {
  const json plan = answer("plan " + collective + " -b 1G" + kModel);
  ASSERT_TRUE(plan.is_object());
  EXPECT_EQ(plan["binding_tier"], tier) << collective;
  EXPECT_NEAR(plan["bound_us"].get<double>() / 1e3, bound_ms, bound_ms * 2e-3) << collective;
  ASSERT_EQ(plan["tiers"].size(), ms.size());
  for (size_t t = 0; t < ms.size(); t++)
    EXPECT_NEAR(plan["tiers"][t]["bound_us"].get<double>() / 1e3, ms[t], ms[t] * 5e-3 + 5e-4)
        << collective << ", " << plan["tiers"][t]["tier"];
}

TEST(Plan, BoundsOfTheReferenceCluster) {
  if (sennit_test::kSanitized) GTEST_SKIP() << "takes minutes under a sanitizer";
  expect_bounds("all_reduce", {4.295, 5.367, 2.683, 0.086}, 5.367, "host");
  expect_bounds("broadcast", {2.147, 2.684, 1.342, 0.049}, 2.684, "host");
  expect_bounds("all_gather", {2.147, 2.684, 1.341, 0.043}, 2.684, "host");
  expect_bounds("reduce_scatter", {2.147, 2.684, 1.341, 0.043}, 2.684, "host");
  expect_bounds("all_to_all", {2.147, 21.47, 21.46, 131.5}, 131.5, "pod");
}

// The best tiered schedules that a search found under this model, microseconds.
TEST(Simulate, ChoicesOfTheReferenceClusterAreNoWorseThanTheBestKnown) {
  if (sennit_test::kSanitized) GTEST_SKIP() << "takes minutes under a sanitizer";
  const auto expect = [](const char* collective,
                         const std::vector<std::pair<const char*, double>>& best) {
    for (const auto& [bytes, us] : best) {
      const json simulated = answer(fmt::format("simulate {} -b {}{}", collective, bytes, kModel));
      ASSERT_TRUE(simulated.is_object());
      EXPECT_LE(simulated["time_us"].get<double>(), us)
          << collective << " " << bytes << ": " << simulated["parameters"];
      EXPECT_GE(simulated["time_us"], simulated["bound_us"]) << collective << " " << bytes;
    }
  };
  expect("all_reduce", {{"1K", 97},
                        {"1M", 153},
                        {"16M", 320},
                        {"64M", 696},
                        {"256M", 1'911},
                        {"1G", 6'352},
                        {"16G", 89'863}});
  for (const char* collective : {"all_gather", "reduce_scatter"})
    expect(collective,
           {{"1M", 98}, {"16M", 169}, {"64M", 355}, {"256M", 974}, {"1G", 3'200}, {"16G", 44'970}});
}

// 16,384 ranks are 5 pods and a third of the sixth. The bound is that of the whole cluster to three
// digits.
TEST(Simulate, AThirdOfAPodCostsNextToNothing) {
  if (sennit_test::kSanitized) GTEST_SKIP() << "takes minutes under a sanitizer";
  for (const auto& [bytes, us] : std::vector<std::pair<const char*, double>>{{"1K", 97},
                                                                             {"1M", 153},
                                                                             {"16M", 320},
                                                                             {"64M", 696},
                                                                             {"256M", 1'911},
                                                                             {"1G", 6'352},
                                                                             {"16G", 89'863}}) {
    const json simulated =
        answer(fmt::format("simulate all_reduce --ranks 16384 -b {}{}", bytes, kModel));
    ASSERT_TRUE(simulated.is_object());
    EXPECT_EQ(simulated["ranks"], 16384);
    EXPECT_LE(simulated["time_us"].get<double>(), us) << bytes;
    EXPECT_GE(simulated["time_us"], simulated["bound_us"]) << bytes;
  }
}

// Of the fluid table of the reference cluster: what sennit has as it has it there, and the two that
// differ by what perf/RESULTS.md says (fewer hops than theirs; a double tree over ranks, not
// hosts).
TEST(Simulate, FluidTimesOfTheReferenceCluster) {
  if (sennit_test::kSanitized) GTEST_SKIP() << "takes minutes under a sanitizer";
  const auto fluid_us = [](const std::string& algorithm) {
    const json simulated =
        answer("simulate all_reduce -b 1G --fluid --algorithm " + algorithm + kModel);
    EXPECT_TRUE(simulated.is_object()) << algorithm;
    return simulated.is_object() ? simulated["time_us"].get<double>() : 0;
  };
  EXPECT_NEAR(fluid_us("ring"), 237'600, 0.05 * 237'600);
  EXPECT_NEAR(fluid_us("tiered"), 5'710, 0.05 * 5'710);
  EXPECT_NEAR(fluid_us("double_tree"), 16'500, 0.05 * 16'500);
}

// Ranks of the reference cluster are GPUs: nobody has to say that these reduce for nothing.
TEST(Plan, RanksThatAreGpusPostAndReduceAsGpusDo) {
  if (sennit_test::kSanitized) GTEST_SKIP() << "takes minutes under a sanitizer";
  const json unsaid = answer("plan all_reduce -d uint8 --fabric meta24k --json -"),
             said = answer("plan all_reduce" + kModel);
  ASSERT_TRUE(unsaid.is_object() && said.is_object());
  EXPECT_EQ(unsaid["model"], said["model"]);
  EXPECT_EQ(unsaid["predicted_us"], said["predicted_us"]);
  EXPECT_EQ(unsaid["model"]["on_gpus"], true);
  const json hosts = answer("plan all_reduce --json -" + kSmall);
  EXPECT_EQ(hosts["model"]["on_gpus"], false);
  EXPECT_EQ(hosts["model"]["reduce_bytes_per_s"], 8'000'000'000);
}

// An all-to-all of 24,576 ranks is counted from the sizes of groups: its programs would be too
// many.
TEST(Plan, CountsWhatNobodyCouldMake) {
  const json plan = answer("plan all_to_all --algorithm direct" + kModel);
  ASSERT_TRUE(plan.is_object());
  EXPECT_EQ(plan["messages_per_chunk"], 24'576ull * 24'575);
  EXPECT_EQ(plan["rounds_per_chunk"], 1);
}

TEST(Plan, WhatIsAskedForIsTheChoice) {
  const json plan = answer("plan all_reduce -b 16M --chunks 3 --radices 3 --json -" + kSmall);
  ASSERT_TRUE(plan.is_object());
  EXPECT_EQ(plan["parameters"]["chunks"], 3);
  ASSERT_GT(plan["candidates"].size(), 1u);
  EXPECT_EQ(plan["candidates"][0]["parameters"], plan["parameters"]);
  EXPECT_TRUE(plan["candidates"][0]["rejected"].is_null());
  for (size_t i = 1; i < plan["candidates"].size(); i++)
    EXPECT_TRUE(plan["candidates"][i]["rejected"].is_string()) << plan["candidates"][i];
}

TEST(Plan, SaysWhyTheOthersLost) {
  const json plan = answer("plan all_reduce -b 16M --json -" + kSmall);
  ASSERT_TRUE(plan.is_object());
  EXPECT_EQ(plan["ranks"], 6);
  EXPECT_EQ(plan["binding_tier"], "rack");
  ASSERT_GT(plan["candidates"].size(), 3u);
  EXPECT_TRUE(plan["candidates"][0]["rejected"].is_null());
  EXPECT_EQ(plan["candidates"][0]["predicted_us"], plan["predicted_us"]);
  for (size_t i = 1; i < plan["candidates"].size(); i++) {
    EXPECT_TRUE(plan["candidates"][i]["rejected"].is_string());
    EXPECT_GE(plan["candidates"][i]["predicted_us"], plan["predicted_us"]);
  }
  EXPECT_GT(plan["rounds_per_chunk"], 0);
}

TEST(Plan, MarksWhatIsAssumed) {
  const Outcome outcome =
      sh(kSennit + "plan all_reduce -b 1M --fabric 'racks=2x3;nic=unknown' 2>&1");
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_NE(outcome.output.find("lower bound unknown"), std::string::npos) << outcome.output;
  EXPECT_NE(outcome.output.find("ASSUMED: the fabric does not say the capacity of rank, rack: the "
                                "model assumes 10Gbit/s a host, for a group of hosts a quarter of "
                                "what is below,"),
            std::string::npos)
      << outcome.output;
  const auto says = [](const char* fabric, const char* what) {
    const Outcome plan =
        sh(kSennit + "plan all_reduce -b 1M --ranks-per-host 2 --fabric " + fabric);
    EXPECT_NE(plan.output.find(what), std::string::npos) << plan.output;
  };
  says("'racks=1x2;nic=1GB/s'", "assumes within a host the rate at which ranks reduce,");
  says("'racks=2x2;nic=1GB/s'",
       "assumes within a host the rate at which ranks reduce, for a group of hosts a quarter of "
       "what is below,");
}

TEST(Plan, AssumesOfLatenciesWhatTheWireTakes) {
  const auto plan = [](const std::string& more) {
    const Outcome outcome =
        sh(kSennit + "plan all_reduce -b 1K --json - --fabric 'racks=2x4;nic=50GB/s;uplink=50GB/s" +
           more);
    EXPECT_EQ(outcome.status, 0) << outcome.output;
    return json::parse(outcome.output);
  };
  const json wired = plan(";wire=infiniband'"), unknown = plan("'"), said = plan(";latency=5us'"),
             asked = plan(";wire=infiniband' --latency 9us");
  EXPECT_EQ(wired["tiers"][1]["latency_us"], 1.7);
  EXPECT_TRUE(wired["tiers"][1]["latency_assumed"]);
  EXPECT_EQ(wired["model"]["post_us"], 0.3);
  EXPECT_EQ(unknown["tiers"][1]["latency_us"], 30);
  EXPECT_EQ(said["tiers"][1]["latency_us"], 5);
  EXPECT_FALSE(said["tiers"][1]["latency_assumed"]);
  EXPECT_EQ(asked["tiers"][1]["latency_us"], 9);
  EXPECT_LT(wired["predicted_us"].get<double>() * 5, unknown["predicted_us"].get<double>());
  const Outcome text = sh(kSennit + "plan all_reduce -b 1K --fabric 'racks=2x4;wire=roce'");
  EXPECT_NE(text.output.find("1.5us and 200ns a switch latency of RDMA ASSUMED over roce"),
            std::string::npos)
      << text.output;
}

TEST(Plan, SaysFromWhichSizeMessagesAskOverRdma) {
  const std::string plan = "plan all_reduce -b 256K --fabric 'racks=2x4;nic=25GB/s;uplink=50GB/s;";
  const Outcome text = sh(kSennit + plan + "latency=2us;wire=roce'");
  EXPECT_NE(text.output.find(", over RDMA 3 times as much above 8 KiB"), std::string::npos)
      << text.output;
  EXPECT_EQ(sh(kSennit + plan + "latency=2us'").output.find("over RDMA"), std::string::npos);
  const json asks = answer(plan + "wire=roce' --json -");
  EXPECT_EQ(asks["model"]["eager_bytes"], 8192);
  EXPECT_EQ(asks["model"]["asking_latencies"], 2);
  const Outcome more = sh("SENNIT_EAGER_BYTES=1G " + kSennit + plan + "wire=roce' --json -");
  EXPECT_LT(json::parse(more.output)["predicted_us"], asks["predicted_us"]);
}

// The closed form beside the simulator: how far it may be off.
TEST(Plan, SaysWhatTheSimulatorSays) {
  const json planned = answer("plan all_reduce -b 16M --json -" + kSmall);
  const json simulated = answer("simulate all_reduce -b 16M --json -" + kSmall);
  EXPECT_EQ(planned["simulated_us"], simulated["time_us"]);
  const json of_kinds = answer("plan broadcast -b 16M" + kModel);
  EXPECT_EQ(of_kinds["simulated_us"], answer("simulate broadcast -b 16M" + kModel)["time_us"]);
  const json many = answer("plan gather -b 16M" + kModel);
  EXPECT_TRUE(many["simulated_us"].is_null()) << "ranks of which no two are known to do the same";
}

TEST(Plan, DrawsAPageWithItsLegend) {
  const Outcome outcome = sh(kSennit + "plan all_reduce -b 16M --html -" + kSmall);
  EXPECT_EQ(outcome.status, 0);
  for (const char* words :
       {"rack: 2 of 21.43 GB/s", "In orange the tier that binds", "In blue what was chosen",
        "dashed line is the lower bound", "a rank&#39;s scratch memory", "</html>"})
    EXPECT_NE(outcome.output.find(words), std::string::npos) << words << "\n" << outcome.output;
}

// Where nothing costs anything, some predictions are 0, and bars have a length all the same.
TEST(Plan, DrawsWhatTakesNoTime) {
  const Outcome outcome =
      sh(kSennit + "plan all_reduce -b 4 --latency 0ns --post 0ns --reduce free --html -" + kSmall);
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.output.find("nan\""), std::string::npos) << outcome.output;
  EXPECT_NE(outcome.output.find("dashed line is the lower bound"), std::string::npos);
  EXPECT_NE(outcome.output.find("width=\"430.0\""), std::string::npos) << "the longest bar";
}

TEST(Simulate, JsonSaysWhatWasAskedAndWhereItBinds) {
  const json planned = answer("plan all_reduce -b 16M -d int32 -o max --json -" + kSmall);
  const json simulated = answer("simulate all_reduce -b 16M -d int32 -o max --json -" + kSmall);
  ASSERT_TRUE(planned.is_object() && simulated.is_object());
  for (const char* key : {"datatype", "op", "binding_tier", "bound_why", "bound_us"})
    EXPECT_EQ(simulated[key], planned[key]) << key;
  EXPECT_EQ(simulated["op"], "max");
}

// Both racks send half the vector to each other and take half: all four of their links carry as
// much. A message's bytes count evenly over its time; with other numbers of chunks a part of a
// link's load may come out above 1, where its rate changed.
TEST(Simulate, TellsTheBusiestLinks) {
  const json simulated =
      answer("simulate all_reduce -b 16M --chunks 8 --reduce free --links 4 --json -" + kSmall);
  ASSERT_TRUE(simulated.is_object());
  ASSERT_EQ(simulated["links"].size(), 4u);
  for (const json& link : simulated["links"]) {
    EXPECT_EQ(link["tier"], "rack") << link;
    EXPECT_EQ(link["bytes"], 16 << 20) << link;
    EXPECT_GT(link["mean_load"].get<double>(), 0.3) << link;
    for (const json& part : link["load"]) EXPECT_LE(part.get<double>(), 1.001) << link;
  }
  EXPECT_EQ(sh(kSennit + "simulate all_reduce --fabric meta24k --links 4 2>&1").status, 2);
}

// On the receiver's links a message waits for the one before it between the same ranks.
TEST(Simulate, TellsTheLoadOfLinksForWhichMessagesQueue) {
  const json simulated = answer(
      "simulate gather -b 16M --chunks 64 --links 20 --json - "
      "--fabric 'racks=1,1,4;nic=100MB/s;oversubscription=5;latency=30us'");
  ASSERT_TRUE(simulated.is_object());
  ASSERT_FALSE(simulated["links"].empty());
  EXPECT_EQ(simulated["links"][0]["link"], "into h0");
  EXPECT_GT(simulated["links"][0]["mean_load"].get<double>(), 0.99);
  for (const json& link : simulated["links"])
    for (const json& part : link["load"]) EXPECT_LE(part.get<double>(), 1.01) << link;
}

// Ranks of one host, of whose memory the fabric says nothing, and racks whose uplink is unknown.
TEST(Simulate, TellsTheLoadOfAssumedCapacities) {
  struct Fabric {
    std::string options;
    std::string tier;
  };
  for (const Fabric& fabric :
       {Fabric{" --fabric 'racks=2x2;nic=1GB/s;oversubscription=2' --ranks-per-host 4", "rank"},
        Fabric{" --fabric 'racks=2x2;nic=1GB/s'", "rack"}}) {
    const std::string& tier = fabric.tier;
    const json simulated =
        answer("simulate all_gather -b 4M --links 100 --json -" + fabric.options);
    ASSERT_TRUE(simulated.is_object());
    const json& tiers = simulated["tiers"];
    const auto row = std::find_if(tiers.begin(), tiers.end(),
                                  [&](const json& one) { return one["tier"] == tier; });
    ASSERT_NE(row, tiers.end()) << tiers;
    const json& links = simulated["links"];
    EXPECT_TRUE(std::any_of(links.begin(), links.end(), [&](const json& link) {
      return link["tier"] == tier;
    })) << links;
    const auto load = (*row)["load"].get<std::vector<double>>();
    const double busy = (*row)["busiest_us"].get<double>() / simulated["time_us"].get<double>();
    EXPECT_GT(busy, 0.3) << tier;
    EXPECT_GT(*std::max_element(load.begin(), load.end()), 0.1) << tier;
  }
  const json ring = answer("simulate all_reduce --json -" + kLongRing);
  ASSERT_TRUE(ring.is_object());
  EXPECT_TRUE(ring["tiers"][0]["load"].is_null()) << "nobody watched";
  EXPECT_GT(ring["scratch_bytes"], 0) << "what arrives is added up from there";
  const json planned = answer("plan all_reduce --chunks 4 --json -" + kLongRing);
  ASSERT_TRUE(planned.is_object());
  EXPECT_EQ(planned["messages_per_chunk"], 2 * 1031 * 1032);
  EXPECT_EQ(planned["scratch_bytes"],
            answer("simulate all_reduce --chunks 4 --json -" + kLongRing)["scratch_bytes"]);
}

// A host of whose link a quarter is left: what it costs, and that a schedule for that costs less.
TEST(Simulate, PlansAroundSlowLinks) {
  const std::string tree =
      " -b 16000000 --json - --fabric 'racks=2x4;nic=400Mbit/s;oversubscription=7'";
  const json whole = answer("simulate all_reduce" + tree);
  const json slow = answer("simulate all_reduce --slow h0=0.25" + tree);
  ASSERT_TRUE(whole.is_object() && slow.is_object());
  EXPECT_FALSE(whole.contains("planned_anew"));
  EXPECT_GT(slow["time_us"].get<double>(), 3 * whole["time_us"].get<double>());
  EXPECT_EQ(slow["parameters"], whole["parameters"]) << "the schedule is the same";
  const json& anew = slow["planned_anew"];
  EXPECT_LT(anew["time_us"].get<double>(), 0.6 * slow["time_us"].get<double>());
  EXPECT_LT(anew["time_us"].get<double>(), 1.05 * anew["bound_us"].get<double>());
  EXPECT_NEAR(slow["bound_us"].get<double>(), anew["bound_us"].get<double>(), 1);
  const json one_way = answer("simulate all_reduce --slow h0/out=0.25" + tree);
  EXPECT_LE(one_way["time_us"].get<double>(), 1.01 * slow["time_us"].get<double>());
}

// A link may be known in one direction alone.
TEST(Simulate, ALinkIsSlowWhereItsCapacityIsKnown) {
  const std::string file =
      testing::TempDir() + "/sennit-one-way-" + std::to_string(getpid()) + ".fabric";
  std::ofstream(file) << "switch s\nhost a\nhost b\narc a s 1GB/s\narc s a unknown\n"
                         "link b s 1GB/s\n";
  const auto status = [&](const std::string& slow) {
    return sh(kSennit + "simulate all_reduce -b 1M --slow " + slow + " --fabric " + file).status;
  };
  EXPECT_EQ(status("a/out=0.5"), 0);
  EXPECT_EQ(status("b=0.5"), 0);
  EXPECT_EQ(status("a/in=0.5"), 2);
  EXPECT_EQ(status("a=0.5"), 2);
  std::remove(file.c_str());
}

TEST(Simulate, ATierOfAnyNameGoesIntoTheTrace) {
  const std::string file =
      testing::TempDir() + "/sennit-tier-name-" + std::to_string(getpid()) + ".fabric";
  std::ofstream(file) << "switch root\nswitch r[0-1] tier \"ra\\ck\"\nhost h[0-3]\n"
                         "link h[0-1] r0 1GB/s\nlink h[2-3] r1 1GB/s\nlink r[0-1] root 1GB/s\n";
  const json trace = answer("simulate all_reduce -b 1M --trace - --fabric " + file);
  ASSERT_TRUE(trace.is_object());
  EXPECT_NE(trace.dump().find("ra\\\\ck"), std::string::npos);
  std::remove(file.c_str());
}

// Over RDMA messages ask before they move, and the more may be under way, the more ask at once.
TEST(Simulate, TakesTheLimitOfWhatIsInFlight) {
  const std::string call =
      kSennit + "simulate broadcast -b 4M --algorithm chain --chunks 64 --json - --fabric " +
      "'hosts=2;nic=50GB/s;latency=100us;wire=roce'";
  const auto time_us = [](const Outcome& outcome) {
    EXPECT_EQ(outcome.status, 0) << outcome.output;
    return json::parse(outcome.output)["time_us"].get<double>();
  };
  EXPECT_GT(time_us(sh("SENNIT_IN_FLIGHT_BYTES=64K " + call)), 2 * time_us(sh(call)));
}

TEST(Simulate, SaysWhomTheDiagnosisWouldName) {
  const std::string tree =
      " --diagnose -b 16M --json - --fabric 'racks=4x2;nic=400Mbit/s;oversubscription=5'";
  const json slow = answer("simulate all_reduce --slow rack1/out=0.5" + tree);
  ASSERT_TRUE(slow.is_object() && slow.contains("diagnosis"));
  EXPECT_EQ(slow["diagnosis"]["verdict"], "slow_link") << slow["diagnosis"];
  EXPECT_EQ(slow["diagnosis"]["blamed_links"], json({"out of rack1"})) << slow["diagnosis"];
  EXPECT_NEAR(slow["diagnosis"]["factor"].get<double>(), 2, 0.2) << slow["diagnosis"];
  const json whole = answer("simulate all_reduce" + tree);
  ASSERT_TRUE(whole.is_object() && whole.contains("diagnosis"));
  EXPECT_EQ(whole["diagnosis"]["verdict"], "well") << whole["diagnosis"];
}

TEST(Simulate, WritesATraceOfAllMessages) {
  const std::string file =
      testing::TempDir() + "/sennit-trace-" + std::to_string(getpid()) + ".json";
  const Outcome outcome =
      sh(kSennit + "simulate broadcast -b 16M --every-rank --trace " + file + kSmall + " 2>&1");
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  std::ifstream in(file);
  const json trace = json::parse(in, nullptr, false);
  ASSERT_TRUE(trace.is_object()) << "not JSON";
  size_t messages = 0, processes = 0, threads = 0;
  double bytes = 0;
  for (const json& event : trace["traceEvents"]) {
    EXPECT_GT(event["pid"].get<int>(), 0) << "viewers keep 0 for the idle process";
    processes += event["name"] == "process_name";
    threads += event["name"] == "thread_name";
    if (event["ph"] == "X") {
      messages++;
      bytes += event["args"]["bytes"].get<double>();
      EXPECT_GE(event["dur"], 0);
    }
  }
  EXPECT_GE(processes, 5u);
  EXPECT_GE(threads, 5u);
  std::remove(file.c_str());
  EXPECT_NE(outcome.output.find(std::to_string(messages) + " messages"), std::string::npos)
      << outcome.output;
  EXPECT_GE(bytes, 5.0 * (16 << 20)) << "every other rank receives all of it";
}

// Two million messages, which took minutes and two gigabytes while every rank was simulated: one of
// each kind is. The times of all ranks were 583 and 262 us, in 275 and 162 s.
TEST(Simulate, OneOfEachKindUnderARootOfTheReferenceCluster) {
  if (sennit_test::kSanitized) GTEST_SKIP() << "a sanitizer needs an address space without a limit";
  const auto within_memory = [](const std::string& call) {
    return json::parse(sennit_test::sh_output("ulimit -v 2000000; timeout 300 " + kSennit +
                                              "simulate " + call + " --fabric meta24k --json -")
                           .output,
                       nullptr, false);
  };
  const json broadcast = within_memory("broadcast -b 64M");
  ASSERT_TRUE(broadcast.is_object());
  EXPECT_TRUE(broadcast["by_kind"]);
  EXPECT_LT(broadcast["ranks_simulated"].get<int>(), 50);
  EXPECT_NEAR(broadcast["time_us"].get<double>(), 583, 0.03 * 583);
  const json reduce = within_memory("reduce -b 16M");
  ASSERT_TRUE(reduce.is_object());
  EXPECT_NEAR(reduce["time_us"].get<double>(), 262, 0.03 * 262);
}

// 24,575 programs of two megabytes each, no two alike: the kernel used to end it after minutes.
TEST(Simulate, WhatNeedsMoreMemoryThanThereIsIsRefusedAtOnce) {
  if (sennit_test::kSanitized) GTEST_SKIP() << "a sanitizer needs an address space without a limit";
  const Outcome outcome = sh("ulimit -v 4000000; timeout 300 " + kSennit +
                             "simulate all_to_all -b 16M --fabric meta24k --ranks 24575 2>&1");
  EXPECT_EQ(outcome.status, 3) << outcome.output;
  EXPECT_NE(outcome.output.find("simulating 24575 ranks"), std::string::npos) << outcome.output;
  EXPECT_NE(outcome.output.find("needs about"), std::string::npos) << outcome.output;
  EXPECT_NE(outcome.output.find("use --ranks"), std::string::npos) << outcome.output;
}

TEST(Plan, MakesNoMorePlacesThanAreAskedFor) {
  if (sennit_test::kSanitized) GTEST_SKIP() << "a sanitizer needs an address space without a limit";
  const std::string call = "ulimit -v 4000000; timeout 300 " + kSennit +
                           "plan all_reduce -b 1M --fabric hosts=100000 --ranks-per-host 4096 ";
  const Outcome all = sh(call);
  EXPECT_EQ(all.status, 2) << all.output;
  EXPECT_NE(all.output.find("409600000 ranks, and 1048576 is the most"), std::string::npos)
      << all.output;
  const Outcome few = sh(call + "--ranks 8 --json -");
  EXPECT_EQ(few.status, 0) << few.output;
  EXPECT_EQ(json::parse(few.output, nullptr, false)["ranks"], 8);
}

// Calls, and what the error says of each.
void expect_refused(const std::vector<std::pair<std::string, std::string>>& calls) {
  for (const auto& [call, word] : calls) {
    const Outcome outcome = sh(kSennit + call + " 2>&1");
    EXPECT_EQ(outcome.status, 2) << call << "\n" << outcome.output;
    EXPECT_NE(outcome.output.find(word), std::string::npos) << call << "\n" << outcome.output;
  }
}

TEST(Plan, RefusesACallThatIsOff) {
  std::string many_racks;  // too long for a file's name
  for (int rack = 0; rack < 300; rack++) many_racks += ",4";
  const std::vector<std::pair<std::string, std::string>> calls = {
      {"plan all_redcue", "all_redcue"},
      {"plan all_reduce -b 12Q" + kSmall, "12Q"},
      {"plan all_reduce -d float33" + kSmall, "float33"},
      {"plan all_gather -b 8 " + kSmall, "less than one"},
      {"plan broadcast -r 6" + kSmall, "from 0 to 5"},
      {"plan broadcast -r -1" + kSmall, "--root"},
      {"plan all_reduce --ranks 7" + kSmall, "places for 2 to 6"},
      {"plan all_reduce --json= --html x" + kSmall,
       "sennit plan: --json: expected a value and found the option --html"},
      {"plan all_reduce --ranks ''" + kSmall, "sennit plan: --ranks: expected a value and found"},
      {"plan all_reduce --ranks 1" + kSmall, "--ranks"},
      {"plan all_reduce --fabric 'hosts=1;nic=50GB/s'", "needs two"},
      {"plan all_reduce --fabric ''", "--fabric: expected a value"},
      {"simulate all_reduce --algorithm ''" + kSmall, "--algorithm: expected a value"},
      {"export all_reduce --fabric ''", "--fabric: expected a value"},
      {"plan all_reduce --fabric meta24k --ranks-per-host 4096", "1048576 is the most"},
      {"plan all_reduce -r 5" + kSmall, "all_reduce has no root"},
      {"plan all_gather -o max" + kSmall, "all_gather reduces nothing"},
      {"plan all_reduce -o band" + kSmall, "--op band: bitwise operations are of integer types"},
      {"export reduce -o bxor -d float16" + kSmall, "not of float16"},
      {"plan all_reduce -b 1000000000G" + kSmall, "too large"},
      {"simulate all_gather -b 1000000000G" + kSmall, "too large"},
      {"export all_to_all -b 1000000000G" + kSmall, "too large"},
      {"simulate all_reduce --algorithm ring --radices 2" + kSmall,
       "--radices and --whole-stages are of tiered"},
      {"plan barrier -b 1G" + kSmall, "barrier moves no data"},
      {"plan barrier -d int8" + kSmall, "barrier moves no data"},
      {"plan send_recv" + kSmall, "send_recv is of two ranks"},
      {"plan all_reduce -b 3" + kSmall, "less than one float32: expected 4"},
      {"plan all_reduce -b ' -1'" + kSmall, "--bytes"},
      {"simulate all_gather --whole-stages 1" + kSmall, "--whole-stages 1: of all_reduce only"},
      {"plan all_reduce --radices 2,x" + kSmall, "--radices"},
      {"plan all_reduce --json - --html -" + kSmall, "standard output holds one"},
      {"plan all_reduce --json ./x --html ./x" + kSmall,
       "sennit plan: --json ./x and --html ./x: a file holds one of them"},
      {"plan all_reduce --ranks 1" + kSmall, "sennit plan: --ranks: Value 1 not in range"},
      {"simulate all_reduce --fabric meta24k --ranks 1024 --algorithm ring --chunks 32 "
       "--every-rank",
       "6.7e+07 messages of 1024 ranks"},
      {"plan all_reduce --post soon" + kSmall, "--post soon"},
      {"plan all_reduce --post 10000000000s" + kSmall, "of 11 days at most"},
      {"simulate all_reduce --latency 10000000000s" + kSmall, "of 11 days at most"},
      {"plan all_reduce --reduce 0GB/s" + kSmall, "--reduce 0GB/s"},
      {"plan all_reduce --fabric no_such_file", "no such file"},
      {"plan all_reduce --fabric 'racks=4" + many_racks + ";nics=1Gbit/s'",
       "expected hosts, racks"},
      {"plan all_reduce --algorithm quick" + kSmall, "--algorithm may be one of"},
      {"plan all_gather --algorithm double_tree" + kSmall, "--algorithm may be one of"},
      {"plan all_to_all --radices 2" + kSmall, "--radices"},
      {"simulate all_reduce --fluid --trace x" + kSmall, "--trace"}};
  expect_refused(calls);
}

TEST(Plan, WhatCouldNotBeWrittenIsNoSuccess) {
  for (const std::string& call :
       {std::string("--help"), std::string("--version"), std::string("plan --help"),
        std::string("job --gpu list"), "plan all_reduce --json -" + kSmall}) {
    const Outcome outcome = sh(kSennit + call + " > /dev/full");
    EXPECT_EQ(outcome.status, 1) << call << "\n" << outcome.output;
  }
}

TEST(Simulate, RefusesACallThatIsOff) {
  expect_refused(
      {{"simulate all_reduce --slow h9=0.5" + kSmall, "no host or switch 'h9' is below another"},
       {"simulate all_reduce --slow h0=2" + kSmall, "the share is not within 0.001 and 1"},
       {"simulate all_reduce --slow h0" + kSmall, "expected LINK=SHARE, as in h3=0.5"},
       {"simulate all_reduce --slow h0=0.25 --fabric 'racks=2x3;nic=unknown'",
        "--slow h0=0.25: the fabric does not say what it carries"},
       {"simulate all_reduce --groups 2 --slow h0=0.5" + kSmall, "--slow"},
       {"simulate all_reduce --diagnose --ranks 1025 --fabric meta24k",
        "1025 ranks; links of at most 1024 are judged: use --ranks"},
       {"simulate all_reduce --tolerance 2" + kSmall, "--tolerance"},
       {"simulate all_reduce --every-rank" + kLongRing, "--every-rank: the time of a ring of more"},
       {"simulate all_reduce --trace x" + kLongRing, "--trace: the time of a ring of more"},
       {"simulate all_reduce --links 3" + kLongRing, "--links: the time of a ring of more"},
       {"simulate all_reduce --cable-hash 7" + kLongRing, "--cable-hash: the time of a ring"}});
}

}  // namespace
