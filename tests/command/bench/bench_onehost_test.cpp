// perf/onehost_compare measures the sizes that it was asked for, or none.
//
// ctest runs: onehost_compare
// ctest needs: MPI_CXX
// ctest not-sanitized: the program is not built with the sanitizer
// ctest variable: OMPI_ALLOW_RUN_AS_ROOT=1
// ctest variable: OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
#include <string>

#include <gtest/gtest.h>

#include "tests/support/shell.hpp"

namespace {

TEST(BenchOnehost, ASizeThatIsNoneIsRefused) {
  for (const std::string what : {"16G", "", "-8", "1e300"}) {
    const sennit_test::Outcome outcome = sennit_test::sh(
        "timeout 300 " SENNIT_BINARY_DIR "/bin/onehost_compare -p 1 all_reduce:" + what);
    EXPECT_NE(outcome.status, 0) << what;
    EXPECT_NE(outcome.output.find("'all_reduce:" + what + "': expected bytes"), std::string::npos)
        << outcome.output;
  }
}

// MPI counts in an int, and a count that were cut would be another measurement.
TEST(BenchOnehost, ASizeThatMpiCannotCountIsRefused) {
  const sennit_test::Outcome outcome = sennit_test::sh(
      "timeout 300 " SENNIT_BINARY_DIR "/bin/onehost_compare -p 1 all_reduce:16384M");
  EXPECT_NE(outcome.status, 0);
  EXPECT_NE(outcome.output.find("4294967296 elements, and MPI counts up to 2147483647"),
            std::string::npos)
      << outcome.output;
}

}  // namespace
