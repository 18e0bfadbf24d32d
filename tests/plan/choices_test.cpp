// choices_test.cpp: what the planner compares and chooses on emulated trees of hosts that share two
// cores.
//
// data/choices*.txt have what plans took there, a line each: bytes are the payload, `whole` is
// whole_stages; a line "tree" says which hosts and oversubscription follow, "message" what a
// message costs a core there, in ns, where that was measured (plan/message_cost.hpp). The planner's
// choices are held against these times; nothing is timed here.
//
// ctest not-under-tsan: it has one thread
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <sstream>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "collectives/algorithm.hpp"
#include "plan/planner.hpp"
#include "plan/shared_cores.hpp"
#include "plan/tuning/calibration.hpp"
#include "tests/support/trials.hpp"
#include "topology/fabric/fabric.hpp"
#include "transports/tcp/overhead.hpp"

namespace sennit {
namespace {

// As `sennit emulate` tells it: hosts of 400 Mbit/s.
TierTree racks(const std::vector<int>& hosts, uint64_t oversubscription) {
  std::string text = "fabric \"emulated\"\nswitch spine tier root\n";
  int host = 0;
  for (size_t r = 0; r < hosts.size(); r++) {
    const uint64_t uplink = static_cast<uint64_t>(hosts[r]) * 50'000'000 / oversubscription;
    text += fmt::format("switch rack{} tier rack\nlink rack{} spine {}B/s burst 256KiB declared\n",
                        r, r, uplink);
    for (int h = 0; h < hosts[r]; h++, host++)
      text += fmt::format("host h{}\nlink h{} rack{} 50000000B/s burst 256KiB declared\n", host,
                          host, r);
  }
  const Result<Fabric> fabric = parse_fabric(text, "racks");
  EXPECT_TRUE(fabric.ok()) << fabric.status().text();
  return *contract(*fabric, ranks_on_all_hosts(*fabric, 1));
}

// As a job finds it in namespaces on two cores.
PlanOptions two_cores(const TierTree& tree,
                      uint64_t message_cpu_ns = SharedCores().message_cpu_ns) {
  PlanOptions options;
  options.cost.shared_cores.message_cpu_ns = message_cpu_ns;
  options.cost.shared_cores.crowding_permille = static_cast<uint64_t>(tree.ranks()) * 500;
  within_one_machine(&options.cost);
  options.cost.goodput_permille = tcp_payload_permille(1500, true);
  options.cost.message_bytes = tcp_message_bytes(true);
  return options;
}

Request request_of(Collective collective, uint64_t count) {
  Request request;
  request.collective = collective;
  request.count = count;
  return request;
}

// Two settings that make the same programs would be timed against one another for nothing.
TEST(Choices, CandidatesAreDifferentSchedules) {
  const auto text = [](const Algorithm& algorithm, const TierTree& tree, const Request& request,
                       const Parameters& parameters) {
    const auto blueprint = algorithm.prepare(tree, request, parameters);
    std::string all;
    for (int p = 0; p < tree.ranks(); p++) {
      const Program program = blueprint->program(p);
      for (const Step& step : program.steps)
        all += fmt::format("{} {} {} {} {};", static_cast<int>(step.kind), step.peer, step.tag,
                           step.target.first_range, step.target.ranges);
      for (const Range& range : program.ranges)
        all += fmt::format("{} {} {};", range.block, range.begin, range.end);
      all += "\n";
    }
    return all;
  };
  for (const auto& hosts :
       {std::vector<int>{4, 4}, {1, 2, 3, 2}, {3, 3, 3}, {2, 2, 2, 2}, {9, 5}, {17, 3}})
    for (const Collective collective :
         {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter,
          Collective::broadcast, Collective::reduce, Collective::gather, Collective::scatter,
          Collective::all_to_all}) {
      const TierTree tree = racks(hosts, 5);
      const Request request = request_of(collective, 1024);
      for (const Algorithm* algorithm : algorithms()) {
        if (!algorithm->applies(tree, request)) continue;
        std::map<std::string, std::string> known;
        for (const Parameters& parameters : algorithm->candidates(tree, request)) {
          const auto [same, is_new] =
              known.emplace(text(*algorithm, tree, request, parameters), parameters.to_text());
          EXPECT_TRUE(is_new) << algorithm->name() << " " << name(collective) << " on "
                              << fmt::format("{}", fmt::join(hosts, ",")) << ": "
                              << parameters.to_text() << " is " << same->second;
        }
      }
    }
}

// Sixteen messages of 512 bytes over an uplink need a sixth more than 8 KiB do, four of 2 KiB a
// twentieth: each has a header, and packets of its own. Measured: 359 and 323 us.
TEST(Choices, HeadersOfSmallMessagesCount) {
  const TierTree tree = racks({4, 4}, 7);
  const PlanOptions options = two_cores(tree);
  const Request request = request_of(Collective::all_to_all, 128);
  EXPECT_NEAR(static_cast<double>(predicted_ns(request, tree, options, "direct", {})), 359e3,
              0.1 * 359e3);
  const Parameters by_rack{.chunks = 1, .radices = {1}, .whole_stages = 0};
  EXPECT_NEAR(static_cast<double>(predicted_ns(request, tree, options, "aggregated", by_rack)),
              323e3, 0.1 * 323e3);
  EXPECT_EQ(make_plan(request, tree, options)->algorithm, "aggregated");
}

// What leaves a rank that is alone in its rack does not pass the next rack's uplink as well: with
// both in a row 111 ms were predicted. Measured: direct 95.9 ms, by relays 96.5.
TEST(Choices, TheBusiestBoundariesMayBeOnDifferentWays) {
  const TierTree tree = racks({1, 2, 3, 2}, 5);
  const PlanOptions options = two_cores(tree, 16'000);
  const Request request = request_of(Collective::all_to_all, (1 << 20) / 4 / 8);
  const Result<Plan> plan = make_plan(request, tree, options);
  ASSERT_EQ(plan->candidates.size(), 2u);
  for (const Candidate& candidate : plan->candidates)
    EXPECT_NEAR(static_cast<double>(candidate.predicted_ns), 96.2e6, 0.05 * 96.2e6)
        << candidate.algorithm;
}

struct Table {
  uint64_t message_cpu_ns = 0;
  TierTree tree;
  std::vector<TimedPlan> plans;
};

std::vector<Table> measured(const std::string& name) {
  std::ifstream file(SENNIT_SOURCE_DIR "/tests/data/" + name);
  std::vector<Table> tables;
  uint64_t message_cpu_ns = SharedCores().message_cpu_ns;
  const auto numbers = [](std::string text) {
    std::ranges::replace(text, ',', ' ');
    std::istringstream words(text);
    return std::vector<int>(std::istream_iterator<int>(words), {});
  };
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string first, list;
    words >> first;
    if (first.empty() || first == "#") continue;
    if (first == "message") {
      words >> message_cpu_ns;
      continue;
    }
    if (first == "tree") {
      uint64_t oversubscription = 0;
      words >> list >> oversubscription;
      tables.push_back({message_cpu_ns, racks(numbers(list), oversubscription), {}});
      continue;
    }
    TimedPlan& plan = tables.back().plans.emplace_back();
    const auto n = static_cast<uint64_t>(tables.back().tree.ranks());
    uint64_t bytes = 0, whole = 0;
    double us = 0;
    words >> bytes >> plan.algorithm >> plan.parameters.chunks >> list >> whole >> us;
    EXPECT_FALSE(words.fail()) << line;
    plan.request = request_of(*parse_collective(first), bytes / 4);
    if (plan.request.collective == Collective::all_to_all)
      plan.request.count /= n - 1;
    else if (payload_bytes(plan.request, static_cast<int>(n)) > static_cast<double>(bytes))
      plan.request.count /= n;
    plan.parameters.whole_stages = static_cast<uint8_t>(whole);
    if (list != "-")
      for (const int radix : numbers(list))
        plan.parameters.radices.push_back(static_cast<uint16_t>(radix));
    plan.measured_ns = static_cast<uint64_t>(us * 1e3);
  }
  return tables;
}

struct Score {
  int cells = 0, near = 0;  // at most 10% slower than the fastest
  double worst = 1;
};

// Of all requests in the table whose choice was timed.
Score judge(const Table& table, const PlanOptions& options) {
  Score score;
  for (size_t i = 0; i < table.plans.size(); i++) {
    const Request& request = table.plans[i].request;
    const auto same = [&](const TimedPlan& timed) { return timed.request == request; };
    if (std::ranges::find_if(table.plans, same) !=
        table.plans.begin() + static_cast<std::ptrdiff_t>(i))
      continue;
    const Plan plan = *make_plan(request, table.tree, options);
    uint64_t best = ~uint64_t{0}, chosen = 0;
    for (const TimedPlan& timed : table.plans) {
      if (!(timed.request == request)) continue;
      best = std::min(best, timed.measured_ns);
      if (timed.algorithm == plan.algorithm && timed.parameters == plan.parameters)
        chosen = timed.measured_ns;
    }
    if (chosen == 0) continue;
    const double factor = static_cast<double>(chosen) / static_cast<double>(best);
    score.cells++;
    score.near += factor <= 1.1 ? 1 : 0;
    score.worst = std::max(score.worst, factor);
    if (factor > 1.1)
      std::cout << fmt::format("{:.2f} {} of {:.0f} bytes, {} ranks: {}, {}\n", factor,
                               name(request.collective), payload_bytes(request, table.tree.ranks()),
                               table.tree.ranks(), plan.algorithm, plan.parameters.to_text());
  }
  return score;
}

struct Scores {
  Score untuned, calibrated;
};

Scores judge(const std::vector<Table>& tables) {
  Scores sums;
  for (const Table& table : tables) {
    PlanOptions options = two_cores(table.tree, table.message_cpu_ns);
    for (const bool fitted : {false, true}) {
      if (fitted) options.cost = calibrate(table.tree, options, table.plans);
      const Score score = judge(table, options);
      Score& sum = fitted ? sums.calibrated : sums.untuned;
      sum.cells += score.cells;
      sum.near += score.near;
      sum.worst = std::max(sum.worst, score.worst);
    }
  }
  const auto& [untuned, calibrated] = sums;
  std::cout << fmt::format("untuned {} of {}, worst {:.2f}; calibrated {} of {}, worst {:.2f}\n",
                           untuned.near, untuned.cells, untuned.worst, calibrated.near,
                           calibrated.cells, calibrated.worst);
  return sums;
}

TEST(Choices, AreNearTheFastestThatWasMeasured) {
  const std::vector<Table> tables = measured("choices.txt");
  ASSERT_EQ(tables.size(), 3u);
  const auto [untuned, calibrated] = judge(tables);
  EXPECT_EQ(untuned.cells, 105);
  EXPECT_GE(untuned.near, 95);
  EXPECT_GE(calibrated.near, 95);
  EXPECT_LE(untuned.worst, 1.3);
}

// Of large messages each algorithm was timed with the number of chunks that is predicted best.
// Which one that is a calibration changes, so it is judged where the model is as it comes.
TEST(Choices, OfLargeMessagesAreNearTheFastest) {
  const std::vector<Table> tables = measured("choices_chunks.txt");
  ASSERT_EQ(tables.size(), 3u);
  const Score untuned = judge(tables).untuned;
  EXPECT_EQ(untuned.cells, 46);
  EXPECT_GE(untuned.near, 45);
  EXPECT_LE(untuned.worst, 1.4);
}

// Here a message costs four times as much, and with what it costs on the other machine the planner
// would choose within 10% of the fastest 88 times, 2.53 times as long at worst. Timed twice: of the
// very same plan the two times differ by 18% in the median.
TEST(Choices, FollowWhatAMessageCosts) {
  if (sennit_test::kSanitized)
    GTEST_SKIP() << "takes a minute, and runs the code of the test above";
  for (const auto& [name, near, near_calibrated, worst] :
       {std::tuple{"choices_slow.txt", 100, 99, 1.25},
        std::tuple{"choices_slow_again.txt", 96, 93, 1.4}}) {
    SCOPED_TRACE(name);
    const std::vector<Table> tables = measured(name);
    ASSERT_EQ(tables.size(), 3u);
    const auto [untuned, calibrated] = judge(tables);
    EXPECT_EQ(untuned.cells, 105);
    EXPECT_GE(untuned.near, near);
    EXPECT_GE(calibrated.near, near_calibrated);
    EXPECT_LE(untuned.worst, worst);
  }
}

}  // namespace
}  // namespace sennit
