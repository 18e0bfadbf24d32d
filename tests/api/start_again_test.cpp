// start_again_test.cpp: sennit_comm_init_env again and again in the same processes, as programs do
// that make a communicator per phase: with finalize and without, by ranks that are quick and ranks
// that still leave, with several jobs alive at once, from several threads, and after a start that
// failed. Under torchrun's variables, Slurm's, and mpirun.
//
// ctest alone: it runs launchers
#include <chrono>
#include <filesystem>
#include <memory>
#include <random>
#include <thread>

#include <fmt/core.h>

#include "sennit/sennit.h"
#include "tests/support/processes.hpp"
#include "tests/support/seed.hpp"
#include "tests/support/shell.hpp"
#include "tests/support/trials.hpp"

using namespace std::chrono_literals;
using sennit_test::Processes;

// libpmix keeps some memory after PMIx_Finalize; the leak checker, where there is one, asks here.
extern "C" const char* __lsan_default_suppressions();
extern "C" const char* __lsan_default_suppressions() { return "leak:pmix\nleak:vasprintf\n"; }

namespace {

constexpr int kRanks = 4;

struct Manner {
  int starts = sennit_test::trials(100);
  bool finalize = false;
  size_t alive = 1;     // communicators at once
  bool dawdle = false;  // ranks come and leave at random times
};
const Manner kManners[] = {{.finalize = true},
                           {.finalize = false},
                           {.starts = sennit_test::trials(25), .alive = 3},
                           {.starts = sennit_test::trials(25), .dawdle = true}};

std::string last_error(const std::string& what) { return what + ": " + sennit_last_error(); }

// Empty: right.
std::string use(sennit_comm_t comm, int round) {
  int rank = -1, size = 0;
  sennit_comm_rank(comm, &rank);
  sennit_comm_size(comm, &size);
  int64_t x = int64_t{rank} * 1000 + round;
  const int64_t want = int64_t{size} * (size - 1) / 2 * 1000 + int64_t{size} * round;
  if (sennit_all_reduce(&x, &x, 1, SENNIT_INT64, SENNIT_SUM, comm) != SENNIT_OK)
    return last_error("all_reduce");
  return x == want ? "" : fmt::format("{} instead of {}", x, want);
}

// Finalizes, where that is the manner, and destroys the oldest until `count` are left. Empty: all
// went well.
std::string end_all_but(size_t count, const Manner& manner, std::vector<sennit_comm_t>* comms) {
  while (comms->size() > count) {
    if (manner.finalize && sennit_comm_finalize(comms->front()) != SENNIT_OK)
      return last_error("finalize");
    sennit_comm_destroy(comms->front());
    comms->erase(comms->begin());
  }
  return {};
}

// "done", or what went wrong first.
std::string start_again(const Manner& manner, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<sennit_comm_t> comms;
  for (int round = 0; round < manner.starts; round++) {
    if (manner.dawdle) std::this_thread::sleep_for(std::chrono::microseconds(random() % 20'000));
    sennit_comm_t comm = nullptr;
    if (sennit_comm_init_env(&comm, nullptr) != SENNIT_OK)
      return last_error(fmt::format("start {}", round));
    comms.push_back(comm);
    for (const sennit_comm_t each : comms)
      if (const std::string wrong = use(each, 1); !wrong.empty())
        return fmt::format("round {}: {}", round, wrong);
    if (const std::string wrong = end_all_but(manner.alive - 1, manner, &comms); !wrong.empty())
      return wrong;
  }
  const std::string wrong = end_all_but(0, manner, &comms);
  return wrong.empty() ? "done" : wrong;
}

// A rank comes too late and the others' start fails; all of them try until it works. How often
// differs.
std::string start_until_it_works(int rank, int late_rank, std::chrono::milliseconds late) {
  if (rank == late_rank) std::this_thread::sleep_for(late);
  sennit_comm_t comm = nullptr;
  for (int tries = 0; sennit_comm_init_env(&comm, nullptr) != SENNIT_OK; tries++)
    if (tries == 50) return last_error("the last of 50");
  const std::string wrong = use(comm, 1);
  sennit_comm_destroy(comm);
  return wrong.empty() ? start_again({.starts = 3}, 0) : wrong;  // as if nothing had happened
}

void expect_done(Processes& ranks, std::chrono::milliseconds limit) {
  const auto reports = ranks.reports(limit);
  for (int r = 0; r < ranks.size(); r++) {
    ASSERT_TRUE(reports[static_cast<size_t>(r)].has_value()) << "rank " << r << " hangs";
    EXPECT_EQ(*reports[static_cast<size_t>(r)], "done") << "rank " << r;
  }
}

// Slurm's variables instead of torchrun's, with numbers that lead to the port that the fixture
// reserves.
void as_slurm(int rank) {
  const int port = std::atoi(std::getenv("MASTER_PORT")) + 1;
  for (const char* name :
       {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"})
    unsetenv(name);
  const auto set = [](const char* name, int value) {
    setenv(name, std::to_string(value).c_str(), 1);
  };
  set("SLURM_PROCID", rank);
  set("SLURM_NTASKS", kRanks);
  set("SLURM_LOCALID", rank);
  set("SLURM_STEP_NUM_NODES", 1);
  set("SLURM_JOB_ID", 0);
  set("SLURM_STEP_ID", (port + 16000 - 16384) % 16000);
  setenv("SLURM_STEP_NODELIST", "localhost", 1);
}

TEST(StartAgain, UnderTorchrunsVariablesAndSlurms) {
  const uint64_t seed = sennit_test::seed();
  std::vector<std::unique_ptr<Processes>> jobs;
  for (const Manner& manner : kManners)
    for (const bool slurm : {false, true})
      jobs.push_back(std::make_unique<Processes>(kRanks, [&](int rank) {
        if (slurm) as_slurm(rank);
        return start_again(manner, seed + static_cast<uint64_t>(rank));
      }));
  for (size_t i = 0; i < jobs.size(); i++) {
    SCOPED_TRACE(fmt::format("manner {}, {}", i / 2, i % 2 ? "slurm" : "torchrun"));
    expect_done(*jobs[i], 100s);
  }
}

// Rank 0 begins to listen between two tries of the others, who must take the same of its addresses
// nevertheless: over tcp, ranks of two networks do not reach each other.
TEST(StartAgain, WhereRankZeroHasSeveralAddresses) {
  const uint64_t seed = sennit_test::seed();
  Processes ranks(
      kRanks,
      [&](int rank) {
        setenv("MASTER_ADDR", "127.0.0.1,::1", 1);
        return start_again({.starts = sennit_test::trials(15), .dawdle = true},
                           seed + static_cast<uint64_t>(rank));
      },
      Processes::Environment{{"SENNIT_TRANSPORTS", "tcp"}});
  expect_done(ranks, 240s);
}

TEST(StartAgain, FromThreeThreads) {
  Processes ranks(kRanks, [](int) {
    std::string reports[3];
    std::vector<std::thread> threads;
    for (std::string& report : reports)
      threads.emplace_back([&report] { report = start_again({.starts = 5}, 0); });
    for (std::thread& thread : threads) thread.join();
    for (const std::string& report : reports)
      if (report != "done") return report;
    return std::string("done");
  });
  expect_done(ranks, 240s);
}

TEST(StartAgain, AfterAStartThatFailed) {
  std::vector<std::unique_ptr<Processes>> jobs;
  for (const int late_rank : {3, 0})
    for (const auto late : {1200ms, 2500ms})
      jobs.push_back(std::make_unique<Processes>(
          kRanks, [=](int rank) { return start_until_it_works(rank, late_rank, late); },
          Processes::Environment{{"SENNIT_ARRIVAL_TIMEOUT", "1000"}}));
  for (auto& job : jobs) expect_done(*job, 240s);
}

// ---- under mpirun, whose PMIx server carries the ids ----

// Runs test `name` of this program under mpirun, `what` in its environment.
void under_mpirun(const std::string& name, const std::string& what) {
  if (std::getenv("UNDER_MPIRUN") || std::system("command -v mpirun >/dev/null") != 0)
    GTEST_SKIP() << "no mpirun here";
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  const auto [status, output] = sennit_test::sh(fmt::format(
      "UNDER_MPIRUN='{}' timeout 120 mpirun --allow-run-as-root --oversubscribe -np {} {} "
      "--gtest_color=no --gtest_filter=UnderMpirun.{}",
      what, kRanks, self, name));
  EXPECT_EQ(status, 0) << output;
  size_t passed = 0;
  for (size_t at = 0; (at = output.find("[  PASSED  ] 1 test", at)) != output.npos; at++) passed++;
  EXPECT_EQ(passed, size_t{kRanks}) << output;
}

TEST(UnderMpirun, StartAgain) {
  const char* const which = std::getenv("UNDER_MPIRUN");
  if (!which) GTEST_SKIP() << "started by LaunchedBy.Mpirun";
  EXPECT_EQ(start_again(kManners[std::atoi(which)], sennit_test::seed()), "done");
}

TEST(UnderMpirun, AfterAStartThatFailed) {
  const char* const late = std::getenv("UNDER_MPIRUN");
  if (!late) GTEST_SKIP() << "started by LaunchedBy.MpirunAfterAStartThatFailed";
  setenv("SENNIT_ARRIVAL_TIMEOUT", "1000", 1);
  const int rank = std::atoi(std::getenv("OMPI_COMM_WORLD_RANK"));
  for (const int late_rank : {3, 0})
    EXPECT_EQ(start_until_it_works(rank, late_rank, std::chrono::milliseconds(std::atoi(late))),
              "done");
}

TEST(LaunchedBy, Mpirun) {
  for (const char* const manner : {"0", "1"}) under_mpirun("StartAgain", manner);
}

TEST(LaunchedBy, MpirunAfterAStartThatFailed) { under_mpirun("AfterAStartThatFailed", "1500"); }

}  // namespace
