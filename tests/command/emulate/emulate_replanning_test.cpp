// A job on an emulated tree plans around a link that gets slow while calls run, and back when it is
// well again: without anybody's help, and with the right sums.
//
// ctest quiet: it builds network namespaces
// ctest runs: sennit_command calls
#include <chrono>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include <fmt/core.h>
#include <gtest/gtest.h>

#include "tests/command/emulate/emulated.hpp"
#include "tests/support/shell.hpp"
#include "tests/support/trials.hpp"

namespace sennit {
namespace {

using sennit_test::Outcome;
using sennit_test::sh;

const std::string kCalls = SENNIT_BINARY_DIR "/bin/calls ";

class EmulateReplanning : public EmulatedTest {
 protected:
  void SetUp() override {
    EmulatedTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    if (sennit_test::kSanitized)
      GTEST_SKIP() << "SKIPPED: a sanitizer's ranks are slower than the links";
    ASSERT_EQ(
        sh(kCommand + "up --racks 2 --hosts 3 --nic 200Mbit/s --oversubscription 4 --name " + name_)
            .status,
        0);
  }
  void TearDown() override { sh(kCommand + "down --name " + name_); }

  // What ranks say while calls of 2 MB run; a link is slow from the 8th second to the 20th.
  std::string said(const std::string& link, const std::string& rate, const std::string& options,
                   int seconds) {
    std::future<Outcome> job = std::async(std::launch::async, [&] {
      return sh(options + kCommand + "run --order fabric --timeout 100 --name " + name_ + " -- " +
                kCalls + "-b 2000000 -t " + std::to_string(seconds));
    });
    std::this_thread::sleep_for(std::chrono::seconds(8));
    EXPECT_EQ(sh(kCommand + "slow " + link + " " + rate + " --name " + name_).status, 0);
    std::this_thread::sleep_for(std::chrono::seconds(12));
    EXPECT_EQ(sh(kCommand + "heal " + link + " --name " + name_).status, 0);
    const Outcome outcome = job.get();
    EXPECT_EQ(outcome.status, 0) << outcome.output;
    return outcome.output;
  }
  const std::string name_ = fmt::format("replanning-{}", getpid());
};

TEST_F(EmulateReplanning, GoesAroundAHostAndBack) {
  const std::string text = said("h1", "50Mbit/s", "", 34);
  const size_t around = text.find("planning around what is slow: ");
  ASSERT_NE(around, std::string::npos) << text;
  EXPECT_NE(text.rfind("h1: ", around), std::string::npos) << text;
  const std::string back = "plans are what they were before";
  const size_t at = text.find(back, around);
  ASSERT_NE(at, std::string::npos) << text;
  EXPECT_EQ(text.find(back, at + 1), std::string::npos) << "they came and went\n" << text;
}

TEST_F(EmulateReplanning, IsOffByAnOption) {
  const std::string text = said("h1", "50Mbit/s", "SENNIT_REPLAN=0 ", 20);
  EXPECT_NE(text.find("h1: "), std::string::npos) << text;
  EXPECT_EQ(text.find("planning"), std::string::npos) << text;
}

}  // namespace
}  // namespace sennit
