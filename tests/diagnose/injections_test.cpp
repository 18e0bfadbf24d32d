// perf/diagnosis/injections: what it would measure nothing for is refused, so that an empty table
// is not taken for one without errors.
//
// ctest runs: injections
// ctest not-under-tsan: it runs a command, whose threads others try
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "tests/support/shell.hpp"

namespace {

TEST(Injections, WhatWouldMeasureNothingIsRefused) {
  const std::pair<const char*, const char*> wrong[] = {
      {"--only NIC", "--only NIC: expected one of nothing; uneven work; late rank"},
      {"--severity 1.3", "--severity 1.3: expected one of 1.05, 1.1, 1.25, 1.5, 2"},
      {"--least-ranks 32", "--least-ranks 32: is more than --most-ranks 16"}};
  for (const auto& [arguments, expected] : wrong) {
    const sennit_test::Outcome outcome =
        sennit_test::sh(std::string("timeout 60 " SENNIT_BINARY_DIR "/bin/injections --trials 1 "
                                    "--most-ranks 16 ") +
                        arguments);
    EXPECT_EQ(outcome.status, 2) << arguments;
    EXPECT_NE(outcome.output.find(expected), std::string::npos) << outcome.output;
  }
}

}  // namespace
