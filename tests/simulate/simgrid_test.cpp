// simgrid_test.cpp: sennit's simulator judged by SimGrid: the same programs on the same fabric
// within 5%; the replay itself against times worked out by hand; and that a wrong simulation is
// noticed. simgrid_judge does all sizes and fabrics.
//
// ctest not-sanitized: the judge replays, and nothing of the library runs there
// ctest needs: SIMGRID
// ctest links: simgrid_replay
// ctest runs: simgrid_judge
#include <cmath>
#include <iostream>

#include <gtest/gtest.h>

#include "perf/simgrid/cases.hpp"
#include "simulate/simulate.hpp"
#include "tests/support/shell.hpp"
#include "tests/support/verify_programs.hpp"
#include "topology/source.hpp"

namespace sennit::judge {
namespace {

constexpr double kWanted = 0.05;
constexpr uint64_t kMiB = 1 << 20;

Ground ground_of(std::string_view spec) { return *make_ground({.name = spec, .spec = spec}); }

Request bytes_request(uint64_t count) {
  Request request;
  request.type = DataType::uint8;
  request.count = count;
  return request;
}

ReplayOptions free_of_charge() {
  ReplayOptions options;
  options.cost.post_ns = 0;
  options.cost.reduce_bytes_per_s = uint64_t{1} << 50;
  return options;
}

double time_of(const Ground& ground, uint64_t bytes, const Maker& maker,
               const ReplayOptions& options = free_of_charge(), uint32_t chunks = 1) {
  const HandMade blueprint(maker);
  const Result<Replayed> replayed =
      replay(ground.fabric, ground.tree, bytes_request(bytes), blueprint, chunks, options);
  EXPECT_TRUE(replayed.ok()) << replayed.status().text();
  return replayed ? replayed->time_s : 0;
}

TEST(Replay, FourFlowsShareAnUplink) {
  const Ground ground = ground_of("racks=2x4;nic=50MB/s;uplink=28.6MB/s;latency=20us");
  const double time_s =
      time_of(ground, 10'000'000, one_message_each({{0, 4}, {1, 5}, {2, 6}, {3, 7}}));
  EXPECT_NEAR(time_s, 40.0 / 28.6 + 20e-6, 1e-7);
}

TEST(Replay, AFlowHeldBackElsewhereLeavesItsShare) {
  const Maker maker = one_message_each({{0, 4}, {1, 4}, {2, 5}});
  // A third of the uplink each, 23.3 MB/s, is less than half of h4's NIC.
  const Ground narrow = ground_of("racks=2x4;nic=50MB/s;uplink=70MB/s;latency=20us");
  EXPECT_NEAR(time_of(narrow, 10'000'000, maker), 30.0 / 70 + 20e-6, 1e-7);
  // 25, 25 and 45 MB/s: the third is done after 0.222 s, the others after 0.4 s.
  const Ground wide = ground_of("racks=2x4;nic=50MB/s;uplink=95MB/s;latency=20us");
  EXPECT_NEAR(time_of(wide, 10'000'000, maker), 0.4 + 20e-6, 1e-7);
  // Alone, the third takes 0.2 s.
  EXPECT_NEAR(time_of(wide, 10'000'000, one_message_each({{2, 5}})), 0.2 + 20e-6, 1e-7);
}

TEST(Replay, MessagesOfAPairGoOneAfterTheOther) {
  const Ground ground = ground_of("hosts=3;nic=1000B/s;latency=1us");
  // The two to 1 count as one flow beside the one to 2: 2 is served after 2 s, 1 after 3 s.
  EXPECT_NEAR(time_of(ground, 1000, one_message_each({{0, 1}, {0, 1}, {0, 2}})), 3 + 1e-6, 1e-7);
}

TEST(Replay, PostingReducingAndLatencyTakeTheirTime) {
  const Ground ground = ground_of("hosts=2;nic=1GB/s;latency=7us");
  ReplayOptions options;
  options.cost.post_ns = 3'000;
  options.cost.reduce_bytes_per_s = 1'000'000'000;
  const Maker maker = [](int position) {
    ProgramBuilder builder;
    if (position == 0) {
      builder.send(1, builder.input(kWholeVector), 0);
      return builder.finish();
    }
    const Operand slot = builder.scratch(kWholeVector);
    builder.recv(0, slot, 0);
    const std::vector<Operand> terms = {slot, builder.input(kWholeVector)};
    builder.reduce(builder.output(kWholeVector), terms, true);
    return builder.finish();
  };
  // 100 kB: posting 3 us, moving 100, on its way 7, reading twice as much 200.
  EXPECT_NEAR(time_of(ground, 100'000, maker, options), 310e-6, 1e-7);
}

TEST(Replay, LargeMessagesWaitForTheirReceive) {
  const Ground ground = ground_of("hosts=3;nic=1GB/s;latency=1us");
  // 1 sends to 2 only after what it gets from 0; 2 posts the receive only after what it gets from
  // 0, later.
  const Maker maker = [](int position) {
    ProgramBuilder builder;
    const auto half = share(0, 2);
    if (position == 0) builder.send(2, builder.input(kWholeVector), 0);
    if (position == 1) builder.send(2, builder.input(half), 0);
    if (position == 2) {
      const Operand slot = builder.scratch(kWholeVector);
      builder.recv(0, slot, 0);
      builder.recv(1, builder.part(slot, half), 0);  // into memory that is written before
    }
    return builder.finish();
  };
  EXPECT_NEAR(time_of(ground, 1'000'000, maker), 1502e-6, 1e-7);
  ReplayOptions eager = free_of_charge();
  eager.cost.eager_bytes = kMiB;
  // Both share 2's NIC at first: 0.5 MB each in 1 ms, and the rest of the large one in half a ms.
  EXPECT_NEAR(time_of(ground, 1'000'000, maker, eager), 1501e-6, 1e-7);
}

TEST(Replay, SaysWhatItCannotDo) {
  const Ground ground = ground_of("hosts=2;nic=1GB/s;latency=1us");
  const HandMade lonely([](int position) {
    ProgramBuilder builder;
    if (position == 1) builder.recv(0, builder.scratch(kWholeVector), 0);
    return builder.finish();
  });
  const Result<Replayed> stuck =
      replay(ground.fabric, ground.tree, bytes_request(1000), lonely, 1, free_of_charge());
  EXPECT_EQ(stuck.status().kind(), SENNIT_INTERNAL);
  EXPECT_NE(stuck.status().text().find("position 1 waits for ever"), std::string::npos);

  const Ground unknown = ground_of("hosts=2;latency=1us");
  const HandMade one(one_message_each({{0, 1}}));
  EXPECT_EQ(replay(unknown.fabric, unknown.tree, bytes_request(1000), one, 1, {}).status().text(),
            "judge: the capacity from h0 to root is unknown");

  Ground ring = ground_of("racks=2x2;nic=1GB/s;uplink=1GB/s;latency=1us");
  Link across = ring.fabric.links[0];
  across.from = ring.fabric.find("rack0");
  across.to = ring.fabric.find("rack1");
  ring.fabric.links.push_back(across);
  EXPECT_NE(replay(ring.fabric, ring.tree, bytes_request(1000), one, 1, {})
                .status()
                .text()
                .find("not a tree"),
            std::string::npos);

  ReplayOptions hasty;
  hasty.limit_s = 1;
  const Ground large = *make_ground(fabric_cases()[9]);
  EXPECT_EQ(judge(large, make_request(large, Collective::all_to_all, kMiB), "direct", hasty)
                .status()
                .kind(),
            SENNIT_TIMED_OUT);
}

void expect_agreement(const Ground& ground, Collective collective, const Algorithm& algorithm,
                      uint64_t bytes, double* worst) {
  const Request request = make_request(ground, collective, bytes);
  if (!algorithm.applies(ground.tree, request)) return;
  const Result<Verdict> verdict = judge(ground, request, algorithm.name(), {});
  ASSERT_TRUE(verdict.ok()) << verdict.status().text();
  EXPECT_NEAR(verdict->ratio(), 1, kWanted)
      << algorithm.name() << ' ' << name(collective) << " of " << bytes << " bytes on "
      << ground.name << ", " << verdict->parameters.to_text() << ": sennit " << verdict->sennit_s
      << " s, SimGrid " << verdict->simgrid_s << " s";
  *worst = std::max(*worst, std::abs(verdict->ratio() - 1));
}

// Fabrics of 8 to 32 ranks: everything.
TEST(Judge, AgreesOnSmallFabrics) {
  for (const FabricCase& which : fabric_cases()) {
    const Result<Ground> ground = make_ground(which);
    ASSERT_TRUE(ground.ok()) << ground.status().text();
    if (ground->tree.ranks() > 32) continue;
    double worst = 0;
    for (int c = 0; c < kCollectives - 1; c++)
      for (const Algorithm* algorithm : algorithms())
        for (const uint64_t bytes : {kMiB, 1024 * kMiB})
          expect_agreement(*ground, static_cast<Collective>(c), *algorithm, bytes, &worst);
    std::cout << ground->name << ": within " << 100 * worst << "%\n";
  }
}

// Those of 64 to 512 hosts: the algorithms whose messages grow with the ranks, not with their
// square.
TEST(Judge, AgreesOnLargeFabrics) {
  for (const FabricCase& which : fabric_cases()) {
    const Result<Ground> ground = make_ground(which);
    ASSERT_TRUE(ground.ok()) << ground.status().text();
    if (ground->tree.ranks() <= 32) continue;
    double worst = 0;
    for (const char* algorithm : {"double_tree", "leaders", "tiered"})
      expect_agreement(*ground, Collective::all_reduce, *find_algorithm(algorithm), 4 * kMiB,
                       &worst);
    expect_agreement(*ground, Collective::broadcast, *find_algorithm("tree"), 4 * kMiB, &worst);
    expect_agreement(*ground, Collective::scatter, *find_algorithm("gather_scatter"), 4 * kMiB,
                     &worst);
    std::cout << ground->name << ": within " << 100 * worst << "%\n";
  }
}

// A fabric whose uplinks are 10% faster than the replay's is told apart.
TEST(Judge, NoticesAWrongCapacity) {
  Ground ground = ground_of("racks=2x4;nic=400Mbit/s;oversubscription=7;latency=60us");
  const Request request = make_request(ground, Collective::all_reduce, 16 * kMiB);
  EXPECT_NEAR(judge(ground, request, "ring", {})->ratio(), 1, 0.001);
  for (Link& link : ground.fabric.links)
    if (link.capacity.bytes_per_s < 50'000'000)
      link.capacity.bytes_per_s += link.capacity.bytes_per_s / 10;
  EXPECT_GT(judge(ground, request, "ring", {})->ratio(), 1 + kWanted);
}

TEST(Judge, NothingToJudgeIsNoAgreement) {
  const sennit_test::Outcome outcome =
      sennit_test::sh(SENNIT_BINARY_DIR
                      "/bin/simgrid_judge --fabrics 1 --sizes 1M --collectives all_to_all "
                      "--algorithms double_tree");
  EXPECT_EQ(outcome.status, 1) << outcome.output;
  EXPECT_NE(outcome.output.find("NOTHING JUDGED"), std::string::npos) << outcome.output;
}

}  // namespace
}  // namespace sennit::judge
