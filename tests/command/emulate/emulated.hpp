// emulated.hpp: tests of `sennit emulate` on namespaces, left out where a machine has none.
#pragma once

#include <string>

#include <gtest/gtest.h>

#include "tests/support/shell.hpp"

namespace sennit {

inline const std::string kCommand = SENNIT_BINARY_DIR "/bin/sennit emulate ";

// Skips its tests, aloud, where nothing can be emulated; that is tried once a program.
class EmulatedTest : public testing::Test {
 protected:
  void SetUp() override {
    static const sennit_test::Outcome kTrial =
        sennit_test::sh(kCommand + "run --racks 1 --hosts 1 -- true");
    if (kTrial.status == 3)
      GTEST_SKIP() << "NOT TESTED, no emulated fabric on this machine: " << kTrial.output;
    ASSERT_EQ(kTrial.status, 0) << kTrial.output;
  }
};

}  // namespace sennit
