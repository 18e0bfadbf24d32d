// bench_launch_test.cpp: `sennit bench --ranks N` where all ranks fail alike: the error is printed once, with
// the number of ranks that it came from; the exit status stays.
#include <gtest/gtest.h>

#include <string>

#include "shell.hpp"

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

}  // namespace
