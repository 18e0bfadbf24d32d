// perf/pairs.py, whose exit status says whether anything became slower: it must not be 0 where
// nothing was measured. The programs that it runs print figures of their own.
//
// ctest not-under-tsan: it runs a script
#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>

#include "tests/support/shell.hpp"
#include "tests/support/test_folder.hpp"

namespace {

using sennit_test::Outcome;

class BenchPairs : public testing::Test {
 protected:
  // What stands for a `sennit` whose calls take that long.
  std::string program(const std::string& name, int time_us) const {
    std::string file = folder_ / name;
    std::ofstream(file) << "#!/bin/sh\necho '{\"time_us\": " << time_us << "}'\n";
    std::filesystem::permissions(file, std::filesystem::perms::owner_all);
    return file;
  }
  Outcome pairs(const std::string& arguments, int after_us = 100) const {
    return sennit_test::sh("python3 " SENNIT_SOURCE_DIR "/perf/pairs.py --sizes 8 --before " +
                           program("before", 100) + " --after " + program("after", after_us) + " " +
                           arguments);
  }

 private:
  sennit::trainer::TestFolder folder_;
};

TEST_F(BenchPairs, OnePairIsHeldAgainstTheLimit) {
  const Outcome same = pairs("--where host --pairs 1");
  EXPECT_EQ(same.status, 0) << same.output;
  EXPECT_NE(same.output.find("after / before 1.000"), std::string::npos) << same.output;
  EXPECT_EQ(pairs("--where host --pairs 1", 200).status, 1);
  EXPECT_EQ(pairs("--where host --pairs 3", 200).status, 1);
}

TEST_F(BenchPairs, NothingThatIsMeasuredIsNoSuccess) {
  const Outcome none = pairs("--where host --pairs 0", 200);
  EXPECT_EQ(none.status, 2) << none.output;
  EXPECT_NE(none.output.find("--pairs 0: "), std::string::npos) << none.output;
  const Outcome nowhere = pairs("--where hosts", 200);
  EXPECT_EQ(nowhere.status, 2) << nowhere.output;
  EXPECT_NE(nowhere.output.find("--where hosts: expected host, tree"), std::string::npos)
      << nowhere.output;
}

}  // namespace
