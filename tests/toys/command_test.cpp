// command_test.cpp: the command with the toys linked in (bin/sennit_with_toys) benches the toy
// transport and algorithm, plans with the algorithm, and reads the toy's fabric.
//
// ctest not-under-tsan: it runs a command, whose threads others try
// ctest runs: sennit_with_toys sennit_command
#include <gtest/gtest.h>

#include "tests/support/shell.hpp"

namespace {

using sennit_test::Outcome;
using sennit_test::sh;

// Runs the command with variables before it, such as "SENNIT_TRANSPORTS=toy".
Outcome sennit(const std::string& arguments, const std::string& variables = "") {
  return sh(fmt::format("{} {}/bin/sennit_with_toys {}", variables, SENNIT_BINARY_DIR, arguments));
}

const std::string kNetwork = SENNIT_SOURCE_DIR "/tests/data/topology/forms/toy/two_leaves.toy";

// Every element is checked once.
TEST(ToyCommand, BenchesTheTransportAndTheAlgorithm) {
  const std::string bench =
      "bench all_reduce -t 4 -b 64K -e 64K -n 3 -w 1 -c 1 --algorithm toy --json -";
  const Outcome done = sennit(bench, "SENNIT_TRANSPORTS=toy SENNIT_LOG=info");
  EXPECT_EQ(done.status, 0) << done.output;
  EXPECT_NE(done.output.find("\"algorithm\":\"toy\""), std::string::npos) << done.output;
  EXPECT_NE(done.output.find("\"wrong\":0"), std::string::npos) << done.output;
}

TEST(ToyCommand, PlansWithTheAlgorithmOnTheSourcesFabric) {
  const Outcome done = sennit("plan all_reduce --fabric " + kNetwork + " -b 1M --algorithm toy");
  EXPECT_EQ(done.status, 0) << done.output;
  EXPECT_NE(done.output.find("toy"), std::string::npos) << done.output;
}

TEST(ToyCommand, ShowsTheSourcesFabric) {
  const Outcome done = sennit("topo --fabric " + kNetwork);
  EXPECT_EQ(done.status, 0) << done.output;
  EXPECT_NE(done.output.find("leaf[0-1] of 2 hosts"), std::string::npos) << done.output;
}

TEST(ToyCommand, TellsWhereTheSourceRead) {
  const Outcome done = sennit("topo", "SENNIT_FABRIC=/dev/null TOY_NETWORK=" + kNetwork);
  EXPECT_EQ(done.status, 0) << done.output;
  EXPECT_NE(done.output.find("toy " + kNetwork), std::string::npos) << done.output;
}

// What the command cannot do without the toys, it refuses by naming what there is.
TEST(ToyCommand, TheCommandWithoutThemHasNone) {
  const Outcome refused =
      sh(SENNIT_BINARY_DIR "/bin/sennit plan all_reduce --fabric synthetic:4 --algorithm toy");
  EXPECT_EQ(refused.status, 2) << refused.output;
}

}  // namespace
