// tuned_job_test.cpp: trials and the tuning table in jobs whose ranks are threads.
#include <array>
#include <atomic>
#include <limits>
#include <memory>
#include <numeric>
#include <thread>

#include "api/c_api.hpp"
#include "plan/tuning/table.hpp"
#include "plan/tuning/trials.hpp"
#include "tests/support/ranks.hpp"
#include "tests/support/tuning_file.hpp"

namespace sennit {
namespace {

Request all_reduce(uint64_t count) {
  Request request;
  request.count = count;
  return request;
}

TEST(TunedJob, EveryTrialIsRightAndTheFastestIsKept) {
  const TuningFile file;
  setenv("SENNIT_TUNE", "1", 1);
  constexpr size_t kCount = 30'000;
  std::string algorithm;
  {
    sennit_test::Ranks ranks(4);
    ASSERT_TRUE(ranks.ok());
    ranks.run([&](int rank, sennit_comm_t comm) {
      std::vector<float> x(kCount), y(kCount);
      for (int call = 0; call < 30; call++) {
        std::iota(x.begin(), x.end(), static_cast<float>(rank + call));
        float* const to = rank % 2 ? x.data() : y.data();
        if (call % 5 == 3) {
          sennit_work_t work = nullptr;
          ASSERT_EQ(sennit_all_reduce_start(x.data(), to, kCount, SENNIT_FLOAT32, SENNIT_SUM, comm,
                                            &work),
                    SENNIT_OK);
          ASSERT_EQ(sennit_work_wait(work, -1), SENNIT_OK) << sennit_last_error();
          sennit_work_free(work);
        } else {
          if (call % 5 == 4) sennit_group_start();
          ASSERT_EQ(sennit_all_reduce(x.data(), to, kCount, SENNIT_FLOAT32, SENNIT_SUM, comm),
                    SENNIT_OK)
              << sennit_last_error();
          if (call % 5 == 4) {
            ASSERT_EQ(sennit_group_end(), SENNIT_OK) << sennit_last_error();
          }
        }
        for (size_t i = 0; i < kCount; i += 997)
          ASSERT_EQ(to[i], 4 * static_cast<float>(i) + static_cast<float>(6 + 4 * call))
              << "call " << call;
      }
    });
    Call call;
    call.count = kCount;
    call.type = DataType::float32;
    const Trials* const trials = internal(ranks.comm(0)).trials(call);
    ASSERT_NE(trials, nullptr);
    ASSERT_TRUE(trials->decided());
    EXPECT_GT(trials->plans().size(), 1u);
    for (const double us : trials->measured_us())
      EXPECT_TRUE(us > 0 && us < std::numeric_limits<double>::infinity());
    algorithm = trials->plans()[trials->winner()].algorithm;
  }
  const Result<Tuning> kept = Tuning::read(file.path());
  ASSERT_TRUE(kept.ok()) << kept.status().text();
  EXPECT_EQ(kept->size(), 1u);
  EXPECT_NE(kept->to_text().find(" all_reduce 65536 " + algorithm), std::string::npos)
      << kept->to_text();
}

// A root is done with a small broadcast before the others have come. Where its call is timed, all
// come first: else what it costs the slowest rank could not be told.
TEST(TunedJob, RanksComeTogetherBeforeATimedCallWhoseDataGoesOneWay) {
  const TuningFile file;
  setenv("SENNIT_TUNE", "1", 1);
  constexpr int kRanks = 4, kCalls = 20;
  sennit_test::Ranks ranks(kRanks);
  ASSERT_TRUE(ranks.ok());
  std::array<std::atomic<int>, kCalls> come{};
  std::array<int, kCalls> seen_by_root{};
  ranks.run([&](int rank, sennit_comm_t comm) {
    float x[64] = {};
    for (size_t call = 0; call < kCalls; call++) {
      come[call]++;
      ASSERT_EQ(sennit_broadcast(x, x, 64, SENNIT_FLOAT32, 0, comm), SENNIT_OK)
          << sennit_last_error();
      if (rank == 0) seen_by_root[call] = come[call];
    }
  });
  Call call;
  call.collective = Collective::broadcast;
  call.count = 64;
  call.type = DataType::float32;
  const Trials* const trials = internal(ranks.comm(0)).trials(call);
  ASSERT_NE(trials, nullptr);
  ASSERT_TRUE(trials->decided());
  const size_t plans = trials->plans().size();
  ASSERT_GT(plans, 1u);
  for (size_t i = plans; i < trials->times_us().size() + plans; i++)
    EXPECT_EQ(seen_by_root.at(i), kRanks) << "call " << i;
}

// A calibrated model has other candidates, in another order, than those that were tried before.
TEST(TunedJob, WhatIsOnTrialIsWhatRuns) {
  const TuningFile file;
  setenv("SENNIT_TUNE", "1", 1);
  sennit_test::Ranks ranks(4);
  ASSERT_TRUE(ranks.ok());
  ranks.run([&](int, sennit_comm_t comm) {
    Communicator& inside = internal(comm);
    float x[64] = {};
    Call call;
    call.send = call.recv = x;
    call.count = 64;
    call.type = DataType::float32;
    inside.set_effort({.plans = 8, .rounds = 2});
    for (int pass = 0; pass < 2; pass++) {
      bool decided = false;
      for (size_t i = 0; !decided; i++) {
        const Result<std::unique_ptr<Work>> work = inside.prepare(call);
        ASSERT_TRUE(work.ok()) << work.status().text();
        const Trials* const trials = inside.trials(call);
        decided = trials->decided();
        const Plan& plan = trials->plans()[i % trials->plans().size()];
        if (!decided) {
          EXPECT_EQ((*work)->predicted_ns(), plan.predicted_ns)
              << "pass " << pass << ", call " << i << ": " << plan.algorithm;
        }
        (*work)->start(false);
        ASSERT_TRUE((*work)->wait(-1) && (*work)->finish().ok());
      }
      CostModel slower;  // with which whoever sends much is slow
      slower.shared_memory_post_ns *= 40;
      slower.tiers.resize(inside.tree().tiers.size());
      if (pass == 0) inside.calibrate(slower);
    }
    EXPECT_GT(inside.trials(call)->plans().size(), 2u);
  });
}

TEST(TunedJob, CallsThatAreOnlyStartedWaitForNoRank) {
  const TuningFile file;
  setenv("SENNIT_TUNE", "1", 1);
  sennit_test::Ranks ranks(3);
  ASSERT_TRUE(ranks.ok());
  Call call;
  call.collective = Collective::broadcast;
  call.count = 64;
  call.type = DataType::float32;
  std::atomic<size_t> started{0};  // by rank 0, before which no other starts
  ranks.run([&](int rank, sennit_comm_t comm) {
    float x[64] = {};
    size_t calls = 1;
    for (size_t i = 0; i < calls; i++) {
      while (rank != 0 && started <= i) std::this_thread::yield();
      sennit_work_t work = nullptr;
      ASSERT_EQ(sennit_broadcast_start(x, x, 64, SENNIT_FLOAT32, 0, comm, &work), SENNIT_OK);
      if (rank == 0) started++;
      ASSERT_EQ(sennit_work_wait(work, -1), SENNIT_OK) << sennit_last_error();
      ASSERT_EQ(sennit_work_free(work), SENNIT_OK);
      const Trials* const trials = internal(comm).trials(call);
      ASSERT_NE(trials, nullptr);
      calls = trials->plans().size() + trials->times_us().size();
    }
    EXPECT_GT(calls, 2u);
  });
}

TEST(TunedJob, TakesWhatTheFileSays) {
  uint64_t tree = 0;
  {
    sennit_test::Ranks ranks(4);
    tree = internal(ranks.comm(0)).tree().fingerprint();
  }
  Tuning table;
  table.set(tree, all_reduce(1000), 4,
            {"ring", {.chunks = 1, .radices = {}, .whole_stages = 0}, 5000, 6000});
  const TuningFile file(table.to_text());
  sennit_test::Ranks ranks(4);
  const Communicator& inside = internal(ranks.comm(1));
  const Result<Plan> plan = inside.plan(all_reduce(1000));
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->algorithm, "ring");
  EXPECT_EQ(plan->candidates[0].measured_ns, 6000u);
  EXPECT_EQ(plan->candidates[1].rejected, "slower when measured");
  EXPECT_EQ(inside.plan(all_reduce(100'000))->candidates[0].measured_ns, 0u);
  ranks.run([](int rank, sennit_comm_t comm) {
    std::vector<float> x(1000, static_cast<float>(rank));
    for (int i = 0; i < 3; i++) {
      ASSERT_EQ(sennit_all_reduce(x.data(), x.data(), x.size(), SENNIT_FLOAT32, SENNIT_MAX, comm),
                SENNIT_OK);
      ASSERT_EQ(x[999], 3.0f);
    }
  });
}

// Whole stages are of all_reduce alone: another collective's program would leave data out, and say
// OK.
TEST(TunedJob, ParametersThatAreNotTheCollectivesAreSaid) {
  uint64_t tree = 0;
  {
    sennit_test::Ranks ranks(4);
    tree = internal(ranks.comm(0)).tree().fingerprint();
  }
  for (const Collective collective : {Collective::broadcast, Collective::all_gather,
                                      Collective::reduce, Collective::reduce_scatter}) {
    Tuning table;
    Request request = all_reduce(1000);
    request.collective = collective;
    table.set(tree, request, 4, {"tiered", {.chunks = 1, .radices = {}, .whole_stages = 1}, 1, 1});
    const TuningFile file(table.to_text());
    sennit_comm_t comms[4] = {};
    ASSERT_NE(sennit_comm_init_local(comms, 4, nullptr), SENNIT_OK);
    const std::string error = sennit_last_error();
    EXPECT_NE(error.find(file.path() + ":2:"), std::string::npos) << error;
    EXPECT_NE(error.find("tiered takes no whole stages for"), std::string::npos) << error;
  }
}

TEST(TunedJob, AFileThatIsNoTuningFileIsSaid) {
  const TuningFile file("this is not\n");
  sennit_comm_t comms[2] = {};
  EXPECT_NE(sennit_comm_init_local(comms, 2, nullptr), SENNIT_OK);
  EXPECT_NE(std::string(sennit_last_error()).find(file.path() + ":1:1: expected \"tree\""),
            std::string::npos)
      << sennit_last_error();
}

}  // namespace
}  // namespace sennit
