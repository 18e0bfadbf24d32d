// bench_launch_test.cpp: `sennit bench --ranks N` where all ranks fail alike: the error is printed
// once, with the number of ranks that it came from; the exit status stays. And that no rank is left
// where it, or examples/ranks, is ended.
//
// ctest runs: sennit_command
#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/net/reserved_port.hpp"
#include "tests/support/shell.hpp"

namespace {

std::string run(const std::string& arguments, int* status) {
  const sennit_test::Outcome outcome = sennit_test::sh_output(
      SENNIT_BINARY_DIR "/bin/sennit bench all_reduce --ranks 8 " + arguments + " 2>&1 >/dev/null");
  *status = outcome.status;
  return outcome.output;
}

TEST(BenchLaunch, OneErrorOfAllRanksIsPrintedOnce) {
  int status = 0;
  const std::string text = run("-b 1K -e 1K --algorithm magic", &status);
  EXPECT_NE(status, 0);
  const std::string fact = "there is no algorithm 'magic'";
  const size_t at = text.find(fact);
  ASSERT_NE(at, std::string::npos) << text;
  EXPECT_EQ(text.find(fact, at + 1), std::string::npos) << text;
  EXPECT_NE(text.find("ranks 0-7 (8 of them): "), std::string::npos) << text;
}

TEST(BenchLaunch, OneErrorOfAllRanksOfTuneIsPrintedOnceToo) {
  const sennit_test::Outcome outcome = sennit_test::sh(
      SENNIT_BINARY_DIR "/bin/sennit tune all_reduce --ranks 3 --fabric /does/not/exist");
  EXPECT_EQ(outcome.status, 2);
  EXPECT_EQ(outcome.lines().size(), 1u) << outcome.output;
  EXPECT_NE(outcome.output.find("sennit tune: ranks 0-2 (3 of them): "), std::string::npos)
      << outcome.output;
}

constexpr const char* kNoLauncher =
    "env -u RANK -u WORLD_SIZE -u OMPI_COMM_WORLD_RANK -u PMIX_RANK -u PMI_RANK -u SLURM_PROCID "
    "-u SLURM_STEP_ID -u SLURM_STEP_NODELIST ";
constexpr const char* kTwoRanks =
    SENNIT_BINARY_DIR "/bin/sennit bench all_reduce --ranks 2 -b 1K -e 1K -n 1 -w 0 --json - ";

// SLURM_PROCID alone is no rank: the script of an sbatch job has it.
TEST(BenchLaunch, AScriptOfSbatchStartsLocalRanks) {
  const sennit_test::Outcome outcome = sennit_test::sh_output(
      std::string(kNoLauncher) + "SLURM_PROCID=0 SLURM_NTASKS=8 " + kTwoRanks + "2>/dev/null");
  EXPECT_EQ(outcome.status, 0);
  EXPECT_NE(outcome.output.find("\"ranks\":2"), std::string::npos) << outcome.output;
}

TEST(BenchLaunch, AnMpiLauncherThatSaysTooLittleIsNamed) {
  const sennit_test::Outcome outcome =
      sennit_test::sh(std::string(kNoLauncher) + "PMI_RANK=0 PMI_SIZE=4 " + kTwoRanks);
  EXPECT_EQ(outcome.status, 2);
  EXPECT_NE(outcome.output.find("PMI_RANK=0 of PMI_SIZE=4"), std::string::npos) << outcome.output;
}

// A terminal signals the ranks as well, of which one may end before the launcher has looked.
TEST(BenchLaunch, ControlCIsNoFailureOfARank) {
  const sennit_test::Outcome outcome = sennit_test::sh(
      std::string(kNoLauncher) +
      "setsid " SENNIT_BINARY_DIR
      "/bin/sennit bench all_reduce --ranks 3 -b 1M -e 1M -n 1000000 >/dev/null & job=$!; "
      "until [ $(wc -w < /proc/$job/task/$job/children) = 3 ]; do sleep 0.1; done; "
      "env kill -STOP $job; env kill -INT -- -$job; sleep 0.3; env kill -CONT $job; wait $job");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_EQ(outcome.output.find("was killed by signal"), std::string::npos) << outcome.output;
}

// Of the script of examples/, which starts its ranks in the background of a shell.
TEST(BenchLaunch, RanksOfTheScriptEndWithIt) {
  const sennit_test::Outcome outcome = sennit_test::sh(
      "started=$(mktemp); " SENNIT_SOURCE_DIR
      "/examples/ranks 2 sh -c 'echo $$ >> \"$0\"; exec sleep 600' $started & script=$!; "
      "until [ $(wc -l < $started) = 2 ]; do sleep 0.1; done; kill $script; wait $script; "
      "for rank in $(cat $started); do kill -0 $rank && echo $rank is left && kill $rank; done; "
      "rm $started");
  EXPECT_EQ(outcome.output.find("is left"), std::string::npos) << outcome.output;
}

// Else it would start those that are left, and wait for them.
TEST(BenchLaunch, TheScriptMayEndBeforeAllItsRanksHaveStarted) {
  const sennit_test::Outcome outcome = sennit_test::sh(
      SENNIT_SOURCE_DIR
      "/examples/ranks 20 sh -c '[ $RANK = 0 ] && kill $PPID; sleep 5 >/dev/null 2>&1'");
  EXPECT_EQ(outcome.status, 143) << outcome.output;
}

// Jobs that start at once on one host must not meet at one port: their ranks would be told that the
// job has another size.
TEST(BenchLaunch, NoTwoJobsGetTheSamePort) {
  std::vector<std::unique_ptr<sennit::ReservedPort>> reserved;
  std::set<int> ports;
  for (int i = 0; i < 300; i++) {
    reserved.push_back(std::make_unique<sennit::ReservedPort>());
    const int port = reserved.back()->number();
    ASSERT_NE(port, 0);
    EXPECT_TRUE(ports.insert(port).second && ports.insert(port + 1).second)
        << port << " is given twice";
  }
}

}  // namespace
