// pmpi_test.cpp: a program of Open MPI's goes through sennit under `sennit exec --mpi`: the same
// results, on every rank, and nearly all of its collectives; without sennit where that is asked
// for. What the programs check is in program.cpp and corners.cpp, which tests/pmpi/on_mpis.sh runs
// on other MPIs.
// ctest runs: sennit_command pmpi_forwarder sennit_pmpi_openmpi sennit_bindings pmpi_program pmpi_corners pmpi_fortran pmpi_device
// ctest needs: MPI_CXX
// ctest not-sanitized: the program is not built with the sanitizer, and a sanitized library needs its runtime first
// ctest variable: OMPI_ALLOW_RUN_AS_ROOT=1
// ctest variable: OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
#include <gtest/gtest.h>

#include <regex>
#include <string>

#include "tests/support/shell.hpp"

namespace {

using sennit_test::Outcome;
using sennit_test::sh;

const std::string kBin = SENNIT_BINARY_DIR "/bin/";
constexpr int kRanks = 3;
const std::string kRun =
    "mpirun --oversubscribe --mca mpi_yield_when_idle 1 -np " + std::to_string(kRanks) + " " + kBin;
const std::string kJob = kRun + "pmpi_program";

// By sennit, by MPI itself, of each process that says so.
struct Counts {
  int processes = 0;
  long least_by_sennit = 1L << 40, by_sennit = 0, by_mpi = 0;
};
Counts counts_in(const std::string& output) {
  const std::regex line("collectives by sennit: ([0-9]+), by MPI itself: ([0-9]+)");
  Counts counts;
  for (std::sregex_iterator match(output.begin(), output.end(), line), end; match != end; ++match) {
    const long sennits = std::stol((*match)[1]);
    counts.processes++;
    counts.least_by_sennit = std::min(counts.least_by_sennit, sennits);
    counts.by_sennit += sennits;
    counts.by_mpi += std::stol((*match)[2]);
  }
  return counts;
}

TEST(Pmpi, AProgramOfOpenMpiRunsOnSennit) {
  const Outcome outcome = sh(kBin + "sennit exec --mpi -v -- " + kJob);
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_NE(outcome.output.find("ok\n"), std::string::npos) << outcome.output;
  const Counts counts = counts_in(outcome.output);
  EXPECT_EQ(counts.processes, kRanks) << outcome.output;
  EXPECT_GT(counts.least_by_sennit, 500) << outcome.output;
  EXPECT_GT(counts.by_mpi, 0) << "the program asks for what sennit has not, too";
  EXPECT_NE(outcome.output.find("MPI_Allreduce of " + kBin + "pmpi_program is bound to"),
            std::string::npos)
      << outcome.output;
  EXPECT_NE(outcome.output.find("libsennit_pmpi.so, which is sennit's\n"), std::string::npos);
  EXPECT_EQ(outcome.output.find("not sennit's"), std::string::npos) << outcome.output;
}

TEST(Pmpi, SennitDisableLeavesEverythingToMpi) {
  const Outcome outcome = sh("SENNIT_DISABLE=1 " + kBin + "sennit exec --mpi -v -- " + kJob);
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_NE(outcome.output.find("ok\n"), std::string::npos) << outcome.output;
  EXPECT_EQ(counts_in(outcome.output).processes, 0);
}

TEST(Pmpi, WhatHasNoMpiIsLeftAlone) {
  const Outcome outcome = sh(kBin + "sennit exec --mpi -- sh -c 'echo $((1 + 1))'");
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.output, "2\n");
}

// What few programs do, each by sennit alone.
class Corner : public testing::TestWithParam<const char*> {};
TEST_P(Corner, GoesThroughSennit) {
  const Outcome outcome =
      sh("timeout 300 " + kBin + "sennit exec --mpi -v -- " + kRun + "pmpi_corners " + GetParam());
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_NE(outcome.output.find("ok\n"), std::string::npos) << outcome.output;
  const Counts counts = counts_in(outcome.output);
  EXPECT_EQ(counts.processes, kRanks) << outcome.output;
  EXPECT_EQ(counts.by_mpi, 0) << outcome.output;
  EXPECT_GT(counts.least_by_sennit, 0) << outcome.output;
  constexpr int kOfErrors = 33;
  if (GetParam() == std::string("errors")) {
    EXPECT_EQ(counts.least_by_sennit, kOfErrors) << outcome.output;
  }
}
INSTANTIATE_TEST_SUITE_P(Pmpi, Corner,
                         testing::Values("freed", "blocked", "progress", "threads", "fortran",
                                         "types", "nonblocking", "grids", "errors", "handler"),
                         [](const auto& test) { return std::string(test.param); });

// In Open MPI Fortran's functions call the profiling interface.
TEST(Pmpi, RanksInFortranAndRanksInCAreOneJob) {
  const std::string program = kBin + "pmpi_fortran ";
  if (sh(program + "c").status == 77) GTEST_SKIP() << "NOT TESTED, no Fortran of Open MPI's";
  const Outcome outcome =
      sh("timeout 300 " + kBin + "sennit exec --mpi -v -- mpirun --oversubscribe -np 1 " + program +
         "c : -np 2 " + program + "f");
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  const Counts counts = counts_in(outcome.output);
  EXPECT_EQ(counts.processes, kRanks) << outcome.output;
  EXPECT_EQ(counts.least_by_sennit, 5) << outcome.output;
  EXPECT_EQ(counts.by_mpi, 0) << outcome.output;
}

// The processor cannot touch it, and half of the ranks have theirs on the host.
TEST(Pmpi, MemoryOfADeviceIsPackedByAnMpiThatKnowsOfIt) {
  const Outcome outcome =
      sh("timeout 300 " + kBin + "sennit exec --mpi -v -- " + kRun + "pmpi_device");
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_NE(outcome.output.find("ok\n"), std::string::npos) << outcome.output;
  const Counts counts = counts_in(outcome.output);
  EXPECT_EQ(counts.processes, kRanks) << outcome.output;
  EXPECT_EQ(counts.by_mpi, 0) << outcome.output;
}

TEST(Pmpi, ProcessesOfTwoWorldsMakeACommunicator) {
  const Outcome outcome =
      sh("timeout 300 " + kBin + "sennit exec --mpi -v -- " + kRun + "pmpi_corners spawned");
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_EQ(outcome.output.find("MPI itself does the collectives"), std::string::npos)
      << outcome.output;
  const Counts counts = counts_in(outcome.output);
  EXPECT_EQ(counts.processes, kRanks + 2) << outcome.output;
  EXPECT_GE(counts.least_by_sennit, 100) << outcome.output;
}

// The others would wait for it, as MPI's programs have no late ranks.
TEST(Pmpi, ARankThatCannotTakePartLeavesTheJobToMpi) {
  const std::string corner = kBin + "pmpi_corners nonblocking";
  for (const std::string off : {"SENNIT_INTERFACE=nosuch0", "SENNIT_TRANSPORTS=nosuch0"}) {
    const Outcome outcome =
        sh("timeout 300 " + kBin + "sennit exec --mpi -v -- mpirun --oversubscribe -np 2 " +
           corner + " : -np 1 env " + off + " " + corner);
    EXPECT_EQ(outcome.status, 0) << outcome.output;
    EXPECT_NE(outcome.output.find("ok\n"), std::string::npos) << outcome.output;
    EXPECT_NE(outcome.output.find("nosuch0"), std::string::npos) << outcome.output;
    const Counts counts = counts_in(outcome.output);
    EXPECT_EQ(counts.processes, kRanks) << outcome.output;
    EXPECT_EQ(counts.by_sennit, 0) << outcome.output;
  }
}

// mpirun ends a job of which a rank has died; nothing of sennit's keeps the others.
TEST(Pmpi, ARankThatDiesEndsTheJob) {
  const Outcome outcome = sh("timeout 300 " + kBin + "sennit exec --mpi -- " + kJob + " die");
  EXPECT_NE(outcome.status, 0);
  EXPECT_NE(outcome.status, 124) << "it hangs: " << outcome.output;
}

}  // namespace
