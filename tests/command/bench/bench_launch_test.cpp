// bench_launch_test.cpp: `sennit bench --ranks N` where all ranks fail alike: the error is printed
// once, with the number of ranks that it came from; the exit status stays.
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
