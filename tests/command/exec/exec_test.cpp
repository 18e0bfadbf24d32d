// exec_test.cpp: `sennit exec` gives a program that was linked to NCCL sennit's library, says of
// each process what the loader bound, and what it cannot reach.
// ctest runs: sennit_command nccl_forwarder sennit_nccl sennit_bindings nccl_client nccl_static_client
// ctest not-sanitized: the programs are not built with the sanitizer, and a sanitized library needs its runtime first
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "nccl/abi.h"
#include "tests/support/shell.hpp"
#include "tests/support/test_folder.hpp"

namespace {

using sennit_test::Outcome;
using sennit_test::sh;

const std::string kBin = SENNIT_BINARY_DIR "/bin/";
const std::string kExec = kBin + "sennit exec ";
const std::string kClient = kBin + "nccl_client";
const std::string kVendor = SENNIT_BINARY_DIR "/tests/fake_vendor/libnccl.so.2";
constexpr int kFakeVersion = 21799;

std::string version_line(int version) { return "version " + std::to_string(version) + ", sum 1"; }

TEST(Exec, AProgramThatWasLinkedToNcclRunsOnSennit) {
  const Outcome alone = sh(kClient);
  EXPECT_EQ(alone.output, version_line(kFakeVersion) + "\n");
  const Outcome outcome = sh(kExec + "-- " + kClient);
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.output, version_line(kNcclVersion) + "\n");
}

TEST(Exec, WhatItStartsDoesToo) {
  const Outcome outcome = sh(kExec + "-- sh -c '" + kClient + "; " + kClient + "'");
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.output, version_line(kNcclVersion) + "\n" + version_line(kNcclVersion) + "\n");
}

TEST(Exec, SennitDisableSendsCallsToTheOther) {
  const Outcome outcome =
      sh("SENNIT_DISABLE=1 SENNIT_NCCL_LIBRARY=" + kVendor + " " + kExec + "-- " + kClient);
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.output, version_line(kFakeVersion) + "\n");
}

TEST(Exec, VerboseSaysWhatTheLoaderBound) {
  const Outcome outcome = sh(kExec + "-v -- sh -c '" + kClient + "'");
  EXPECT_EQ(outcome.status, 0);
  EXPECT_NE(outcome.output.find("nccl_client"), std::string::npos) << outcome.output;
  EXPECT_NE(outcome.output.find("ncclAllReduce of " + kClient + " is bound to " SENNIT_BINARY_DIR),
            std::string::npos)
      << outcome.output;
  EXPECT_NE(outcome.output.find("libnccl.so.2, which is sennit's\n"), std::string::npos)
      << outcome.output;
  EXPECT_EQ(outcome.output.find("not sennit's"), std::string::npos) << outcome.output;
}

TEST(Exec, VerboseNamesTheVendorsLibraryWhereThatIsUsed) {
  const Outcome opened = sh(kExec + "-v -- " + kClient + " open " + kVendor);
  EXPECT_EQ(opened.status, 0);
  EXPECT_NE(opened.output.find("ncclAllReduce of " + kClient + " is bound to " + kVendor +
                               ", which is not sennit's\n"),
            std::string::npos)
      << opened.output;
  const Outcome disabled =
      sh("SENNIT_DISABLE=1 SENNIT_NCCL_LIBRARY=" + kVendor + " " + kExec + "-v -- " + kClient);
  EXPECT_NE(disabled.output.find("is bound to " + kVendor + ", which is not sennit's\n"),
            std::string::npos)
      << disabled.output;
}

TEST(Exec, VerboseSaysWhereNothingWasCalled) {
  const Outcome outcome = sh(kExec + "-v -- " + kClient + " idle");
  EXPECT_EQ(outcome.status, 0);
  EXPECT_NE(outcome.output.find("ncclAllReduce of " + kClient +
                                " was not called, so it is bound to no file\n"),
            std::string::npos)
      << outcome.output;
}

TEST(Exec, VerboseReportsNcclThatIsLinkedStatically) {
  const std::string program = kBin + "nccl_static_client";
  const Outcome outcome = sh(kExec + "-v -- " + program);
  EXPECT_EQ(outcome.status, 0);
  EXPECT_NE(outcome.output.find("ncclAllReduce is linked statically into " + program +
                                ", out of sennit's reach\n"),
            std::string::npos)
      << outcome.output;
}

TEST(Exec, KeepsWhatWasPreloadedBefore) {
  const Outcome outcome = sh("LD_PRELOAD=libm.so.6 " + kExec + "-- sh -c 'echo $LD_PRELOAD'");
  EXPECT_NE(outcome.output.find("/sennit/libnccl.so.2:libm.so.6\n"), std::string::npos)
      << outcome.output;
}

TEST(Exec, APathThatTheLoaderWouldCutIsNotPreloaded) {
  const sennit::trainer::TestFolder folder;
  const std::string home = folder / "my tools";
  std::filesystem::create_directories(home + "/bin");
  std::filesystem::create_directories(home + "/lib/sennit");
  std::filesystem::copy_file(kBin + "sennit", home + "/bin/sennit");
  std::ofstream(home + "/lib/sennit/libnccl.so.2");
  const Outcome outcome = sh("'" + home + "/bin/sennit' exec -- true");
  EXPECT_EQ(outcome.status, 3);
  EXPECT_NE(outcome.output.find(home + "/lib/sennit: in LD_PRELOAD a blank or a colon"),
            std::string::npos)
      << outcome.output;
}

TEST(Exec, SaysWhatCannotBeStarted) {
  const Outcome absent = sh(kExec + "-- no-such-program");
  EXPECT_EQ(absent.status, 127);
  EXPECT_EQ(absent.output, "sennit exec: no-such-program: No such file or directory\n");
  EXPECT_EQ(sh("(" + kExec + "-- no-such-program 2>&-)").status, 127) << "also where nobody hears";
  EXPECT_EQ(sh(kExec + "-- /").status, 126);
  const Outcome nothing = sh(kExec);
  EXPECT_EQ(nothing.status, 2);
  EXPECT_NE(nothing.output.find("command"), std::string::npos);
}

TEST(Exec, TheProgramsArgumentsArriveAsTheyStand) {
  const std::string words = "printf '%s|' '[1,2]' '[]' '[a,,b]' '' '{}' -v -- --mpi --help";
  const std::string arrived = "[1,2]|[]|[a,,b]||{}|-v|--|--mpi|--help|";
  EXPECT_EQ(sh(kExec + "-- " + words).output, arrived);
  EXPECT_EQ(sh(kExec + words).output, arrived) << "as env(1) and srun have it";
  EXPECT_EQ(sh(kExec + "-- '{}'").output, "sennit exec: {}: No such file or directory\n");
}

TEST(Exec, TheStatusIsTheProgramsOwn) { EXPECT_EQ(sh(kExec + "-- sh -c 'exit 42'").status, 42); }

}  // namespace
