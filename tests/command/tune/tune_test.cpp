// `sennit tune` as a user runs it: what it refuses, before anything is tried or written.
//
// ctest runs: sennit_command
#include <filesystem>
#include <string>

#include <gtest/gtest.h>

#include "tests/support/shell.hpp"
#include "tests/support/test_folder.hpp"

using sennit_test::Outcome;

namespace {

// No launcher's variables reach it.
const std::string kTune =
    "env -u RANK -u WORLD_SIZE -u OMPI_COMM_WORLD_RANK -u PMIX_RANK -u PMI_RANK "
    "-u SLURM_PROCID timeout 120 " SENNIT_BINARY_DIR "/bin/sennit tune ";
Outcome tune(const std::string& arguments) { return sennit_test::sh(kTune + arguments); }

TEST(Tune, SizesBelowAnElementForEachRankAreRefused) {
  const sennit::trainer::TestFolder folder;
  const std::string file = folder / "tuning";
  const Outcome none = tune("all_gather --ranks 4 -b 1 -e 8 --file " + file);
  EXPECT_EQ(none.status, 2) << none.output;
  EXPECT_NE(none.output.find("-b 1 -e 8: the largest size is 4 bytes, and all_gather of float32 by "
                             "4 ranks needs 16: use a larger -e"),
            std::string::npos)
      << none.output;
  EXPECT_FALSE(std::filesystem::exists(file));
}

TEST(Tune, OptionsGivenWithoutAValueNameThemselves) {
  for (const char* option : {"--file", "--fabric", "-e", "--json"}) {
    const Outcome empty = tune("all_reduce --ranks 2 " + std::string(option) + " ''");
    EXPECT_EQ(empty.status, 2) << empty.output;
    EXPECT_NE(empty.output.find("expected a value and found none"), std::string::npos)
        << empty.output;
  }
}

TEST(Tune, ItsFileIsNotThatOfTheLines) {
  const Outcome same = tune("all_reduce --ranks 2 --file ./x --json ./x");
  EXPECT_EQ(same.status, 2) << same.output;
  EXPECT_NE(same.output.find("a file holds one of them"), std::string::npos) << same.output;
}

// As other commands have it: nothing but the lines, and no file of that name.
TEST(Tune, JsonGoesToStandardOutput) {
  const sennit::trainer::TestFolder folder;
  const Outcome lines = sennit_test::sh_output(
      "cd " + folder.path() + " && " + kTune +
      "all_reduce --ranks 2 -b 1K -e 1K --plans 1 --rounds 1 --file tuning --json - 2> table");
  EXPECT_EQ(lines.status, 0) << lines.output;
  ASSERT_FALSE(lines.output.empty());
  for (const std::string& line : lines.lines()) EXPECT_TRUE(line.starts_with("{")) << line;
  EXPECT_FALSE(std::filesystem::exists(folder / "-"));
}

}  // namespace
