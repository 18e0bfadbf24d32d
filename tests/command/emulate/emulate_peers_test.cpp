// The libraries that `sennit emulate` measures beside sennit: those that are installed run by every
// one of their settings, and of those that are not it says how to get them. Needs root or
// unprivileged user namespaces.
//
// ctest quiet: it builds network namespaces
// ctest runs: sennit_command
// ctest not-sanitized: what other libraries leak is not ours to mend
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/command/emulate/emulated.hpp"
#include "tests/support/shell.hpp"
#include "tests/support/test_folder.hpp"

namespace sennit {
namespace {

using sennit_test::Outcome;
using sennit_test::sh;
using sennit_test::sh_output;

const std::string kFolder = SENNIT_BINARY_DIR "/bin/";
const std::string kTree = "--racks 2 --hosts 2 --oversubscription 2 ";

using EmulatePeersTest = EmulatedTest;

class EveryPeer : public EmulatePeersTest, public testing::WithParamInterface<std::string> {};

// By what is said of a setting that is not there.
std::vector<std::string> settings_of(const std::string& peer) {
  const Outcome refused =
      sh(kCommand + "run " + kTree + "--peer " + peer + " --setting none -- all_reduce");
  EXPECT_EQ(refused.status, 2) << refused.output;
  const std::string before = " has ";
  std::stringstream names(refused.output.substr(refused.output.rfind(before) + before.size()));
  std::vector<std::string> settings;
  for (std::string name; names >> name; settings.push_back(name))
    if (name.back() == ',') name.pop_back();
  return settings;
}

TEST_P(EveryPeer, RunsByEverySetting) {
  const std::string peer = GetParam();
  if (!std::filesystem::exists(kFolder + peer + "_perf"))
    GTEST_SKIP() << "NOT TESTED: "
                 << sh(kCommand + "run " + kTree + "--peer " + peer + " -- all_reduce").output;
  const std::vector<std::string> settings = settings_of(peer);
  ASSERT_FALSE(settings.empty());
  for (const std::string& setting : settings) {
    const Outcome run =
        sh_output(kCommand + "run " + kTree + "--order dealt --timeout 180 --peer " + peer +
                  " --setting " + setting + " -- all_reduce -b 64K -e 64K -n 1 -w 0 -c 1");
    ASSERT_EQ(run.status, 0) << setting << ": " << run.output;
    const nlohmann::json line = nlohmann::json::parse(run.output, nullptr, false);
    ASSERT_TRUE(line.is_object()) << run.output;
    EXPECT_EQ(line["library"], peer);
    EXPECT_EQ(line["ranks"], 4);
    EXPECT_EQ(line["wrong"], 0) << setting;
  }
}

INSTANTIATE_TEST_SUITE_P(All, EveryPeer, testing::Values("openmpi", "gloo", "mpich", "openmpi5"),
                         [](const auto& about) { return about.param; });

// A sennit that lies alone in its folder has no peers.
TEST_F(EmulatePeersTest, WhatIsMissingIsLeftOutLoudly) {
  const trainer::TestFolder folder;
  std::filesystem::copy_file(kFolder + "sennit", folder.path() + "/sennit");
  const std::string compare = folder.path() + "/sennit emulate compare " + kTree +
                              "--rounds 1 --iterations 1 --sizes 64 --libraries ";
  const Outcome two = sh(compare + "mpich,sennit,gloo");
  EXPECT_EQ(two.status, 0) << two.output;
  for (const char* expected :
       {"LEFT OUT: mpich: MPICH is not installed", "./run peers", "LEFT OUT: gloo: Gloo is not",
        "install libgloo-dev", "all_reduce of 64 B:  sennit"})
    EXPECT_NE(two.output.find(expected), std::string::npos) << expected << "\n" << two.output;
  const Outcome recommended = sh(compare + "sennit --recommended --orders dealt");
  EXPECT_EQ(recommended.status, 0) << recommended.output;
  for (const char* expected : {"LEFT OUT: openmpi", "dealt order, all_reduce of 64 B:  sennit"})
    EXPECT_NE(recommended.output.find(expected), std::string::npos) << recommended.output;
  const Outcome none = sh(compare + "openmpi5");
  EXPECT_EQ(none.status, 2) << none.output;
  EXPECT_NE(none.output.find("./run peers"), std::string::npos) << none.output;
  const Outcome unknown = sh(compare + "sennit,nccl");
  EXPECT_EQ(unknown.status, 2) << unknown.output;
  EXPECT_NE(unknown.output.find("expected one of openmpi, gloo, mpich, openmpi5"),
            std::string::npos)
      << unknown.output;
}

TEST_F(EmulatePeersTest, ASettingIsOfAPeer) {
  const Outcome run = sh(kCommand + "run " + kTree + "--setting ring -- true");
  EXPECT_EQ(run.status, 2) << run.output;
  EXPECT_NE(run.output.find("--peer"), std::string::npos) << run.output;
  const Outcome mpirun = sh(kCommand + "run " + kTree + "--mpirun --setting ring -- true");
  EXPECT_EQ(mpirun.status, 2) << mpirun.output;
}

TEST_F(EmulatePeersTest, APeerHasItsOwnLauncher) {
  const Outcome run = sh(kCommand + "run " + kTree + "--mpirun --peer gloo -- all_reduce");
  EXPECT_EQ(run.status, 2) << run.output;
  EXPECT_NE(run.output.find("--mpirun"), std::string::npos) << run.output;
}

// Before memory is taken for it.
TEST(EmulatePeers, ASizeThatAPeerCannotCountIsRefused) {
  if (!std::filesystem::exists(kFolder + "openmpi_perf"))
    GTEST_SKIP() << "NOT TESTED: Open MPI is not installed";
  const Outcome run = sh("timeout 300 " + kFolder + "openmpi_perf all_reduce -b 16G -e 16G");
  EXPECT_EQ(run.status, 2) << run.output;
  EXPECT_NE(run.output.find("openmpi: all_reduce of 17179869184 bytes: 4294967296 elements, and "
                            "its calls count up to 2147483647"),
            std::string::npos)
      << run.output;
}

// The record says by which settings a peer was tried, the table by which it was the quickest.
TEST_F(EmulatePeersTest, TheQuickestSettingIsKept) {
  if (!std::filesystem::exists(kFolder + "openmpi_perf"))
    GTEST_SKIP() << "NOT TESTED: Open MPI is not installed";
  const trainer::TestFolder folder;
  const std::string record = folder.path() + "/record";
  const Outcome run =
      sh(kCommand + "compare " + kTree +
         "--rounds 1 --iterations 5 --sizes 64 --libraries openmpi --json " + record);
  ASSERT_EQ(run.status, 0) << run.output;
  std::ifstream file(record);
  std::string line, best;
  std::getline(file, line);  // what was compared
  double least_us = 1e9;
  int settings = 0;
  for (; std::getline(file, line); settings++) {
    const nlohmann::json point = nlohmann::json::parse(line);
    if (point["time_us"] >= least_us) continue;
    least_us = point["time_us"];
    best = point["setting"];
  }
  EXPECT_GT(settings, 1);
  const std::string table = run.output.substr(run.output.rfind("÷ time"));
  EXPECT_NE(table.find("1.00  " + best + "\n"), std::string::npos) << best << "\n" << run.output;

  // A message that the shapers let pass has no bound, and the page claims none.
  const std::string page = folder.path() + "/page.html";
  const Outcome report = sh(kCommand + "report " + record + " " + page);
  ASSERT_EQ(report.status, 0) << report.output;
  std::ifstream html(page);
  const std::string text((std::istreambuf_iterator<char>(html)), std::istreambuf_iterator<char>());
  EXPECT_NE(text.find("shorter is better"), std::string::npos);
  for (const char* claim : {"of the bound", "dotted line is"})
    EXPECT_EQ(text.find(claim), std::string::npos) << claim;
}

}  // namespace
}  // namespace sennit
