// choices_test.cpp: what the planner compares and chooses on emulated trees of hosts that share two cores.
#include <gtest/gtest.h>

#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "algorithm.hpp"
#include "fabric.hpp"
#include "headers.hpp"
#include "plan.hpp"

namespace sennit {
namespace {

// As `sennit emulate` tells it: hosts of 400 Mbit/s.
TierTree racks(const std::vector<int>& hosts, uint64_t oversubscription) {
  std::string text = "fabric \"emulated\"\nswitch spine tier root\n";
  int host = 0;
  for (size_t r = 0; r < hosts.size(); r++) {
    const uint64_t uplink = static_cast<uint64_t>(hosts[r]) * 50'000'000 / oversubscription;
    text +=
        fmt::format("switch rack{} tier rack\nlink rack{} spine {}B/s burst 256KiB declared\n", r, r, uplink);
    for (int h = 0; h < hosts[r]; h++, host++)
      text += fmt::format("host h{}\nlink h{} rack{} 50000000B/s burst 256KiB declared\n", host, host, r);
  }
  const Result<Fabric> fabric = parse_fabric(text, "racks");
  EXPECT_TRUE(fabric.ok()) << fabric.status().text();
  return *contract(*fabric, ranks_on_all_hosts(*fabric, 1));
}

// As a job finds it in namespaces on two cores.
PlanOptions two_cores(const TierTree& tree) {
  PlanOptions options;
  options.cost.crowding_permille = static_cast<uint64_t>(tree.ranks()) * 500;
  options.cost.within_one_machine();
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
  for (const auto& hosts : {std::vector<int>{4, 4}, {1, 2, 3, 2}, {3, 3, 3}, {2, 2, 2, 2}, {9, 5}, {17, 3}})
    for (const Collective collective :
         {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter, Collective::broadcast,
          Collective::reduce, Collective::gather, Collective::scatter, Collective::all_to_all}) {
      const TierTree tree = racks(hosts, 5);
      const Request request = request_of(collective, 1024);
      for (const Algorithm* algorithm : algorithms()) {
        if (!algorithm->applies(tree, request)) continue;
        std::map<std::string, std::string> known;
        for (const Parameters& parameters : algorithm->candidates(tree, request)) {
          const auto [same, is_new] =
              known.emplace(text(*algorithm, tree, request, parameters), parameters.to_text());
          EXPECT_TRUE(is_new) << algorithm->name() << " " << name(collective) << " on "
                              << fmt::format("{}", fmt::join(hosts, ",")) << ": " << parameters.to_text()
                              << " is " << same->second;
        }
      }
    }
}

// Sixteen messages of 512 bytes over an uplink need a sixth more than 8 KiB do, four of 2 KiB a twentieth:
// each has a header, and packets of its own. Measured: 359 and 323 us.
TEST(Choices, HeadersOfSmallMessagesCount) {
  const TierTree tree = racks({4, 4}, 7);
  const PlanOptions options = two_cores(tree);
  const Request request = request_of(Collective::all_to_all, 128);
  EXPECT_NEAR(static_cast<double>(predicted_ns(request, tree, options, "direct", {})), 359e3, 0.1 * 359e3);
  const Parameters by_rack{.chunks = 1, .radices = {1}, .whole_stages = 0};
  EXPECT_NEAR(static_cast<double>(predicted_ns(request, tree, options, "aggregated", by_rack)), 323e3,
              0.1 * 323e3);
  EXPECT_EQ(make_plan(request, tree, options)->algorithm, "aggregated");
}

}  // namespace
}  // namespace sennit
