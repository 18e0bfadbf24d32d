// A job on an emulated tree plans around a link that gets slow while calls run, and back when it is
// well again: without anybody's help, and with the right sums.
//
// ctest quiet: it builds network namespaces
// ctest runs: sennit_command calls
// ctest not-under-tsan: it runs a command, whose threads others try
#include <chrono>
#include <string>
#include <thread>

#include <fmt/core.h>
#include <gtest/gtest.h>

#include "tests/command/emulate/emulated.hpp"
#include "tests/support/shell.hpp"
#include "tests/support/test_folder.hpp"
#include "tests/support/trials.hpp"

namespace sennit {
namespace {

using sennit_test::Outcome;
using sennit_test::sh;
using sennit_test::sh_output;

const std::string kCalls = SENNIT_BINARY_DIR "/bin/calls ";
const std::string kAround = "planning around what is slow: ";
const std::string kBack = "plans are what they were before";

size_t count(const std::string& text, const std::string& what) {
  size_t found = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) found++;
  return found;
}

class EmulateReplanning : public EmulatedTest {
 protected:
  void SetUp() override {
    EmulatedTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    if (sennit_test::kSanitized)
      GTEST_SKIP() << "SKIPPED: a sanitizer's ranks are slower than the links";
    ASSERT_EQ(emulate("up --racks 2 --hosts 3 --nic 200Mbit/s --oversubscription 4").status, 0);
  }
  // Ends what still runs on the tree.
  void TearDown() override {
    emulate("down");
    if (job_.joinable()) job_.join();
  }
  Outcome emulate(const std::string& words) const {
    return sh(kCommand + words + " --name " + name_);
  }
  // Calls of 2 MB, for so long.
  void run(int seconds, const std::string& environment) {
    job_ = std::thread([=, this] {
      ended_ =
          sh(environment + kCommand + "run --order fabric --timeout 300 --name " + name_ + " -- " +
             kCalls + "-b 2000000 -t " + std::to_string(seconds) + " > " + log_ + " 2>&1");
    });
    ASSERT_TRUE(log_gets("call ")) << log();
    std::this_thread::sleep_for(std::chrono::seconds(3));
  }
  std::string log() const { return sh_output("cat " + log_).output; }
  // A busy machine may take long.
  bool log_gets(const std::string& text) const {
    constexpr int kLooks = 400;
    for (int i = 0; i < kLooks; i++) {
      if (log().find(text) != std::string::npos) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
    }
    return false;
  }

  const std::string name_ = fmt::format("replanning-{}", getpid());
  const trainer::TestFolder folder_;
  const std::string log_ = folder_ / "log.txt";
  Outcome ended_;
  std::thread job_;
};

TEST_F(EmulateReplanning, GoesAroundAHostAndBack) {
  run(250, "");
  ASSERT_EQ(emulate("slow h1 50Mbit/s").status, 0);
  EXPECT_TRUE(log_gets(kAround)) << log();
  std::this_thread::sleep_for(std::chrono::seconds(6));
  EXPECT_EQ(count(log(), kBack), 0u) << "it goes back while the link is slow\n" << log();
  ASSERT_EQ(emulate("heal h1").status, 0);
  EXPECT_TRUE(log_gets(kBack)) << log();
  EXPECT_EQ(log().find("wrong sum"), std::string::npos) << log();
}

// By its own, and where the same calls are to give the same bits.
class EmulateReplanningOff : public EmulateReplanning,
                             public testing::WithParamInterface<const char*> {};

TEST_P(EmulateReplanningOff, IsOffByAnOption) {
  run(250, GetParam());
  ASSERT_EQ(emulate("slow h1 50Mbit/s").status, 0);
  EXPECT_TRUE(log_gets("of its capacity")) << log();
  std::this_thread::sleep_for(std::chrono::seconds(2));
  EXPECT_EQ(log().find("planning"), std::string::npos) << log();
}

INSTANTIATE_TEST_SUITE_P(Options, EmulateReplanningOff,
                         testing::Values("SENNIT_REPLAN=0 ", "SENNIT_REPRODUCIBLE=1 "));

}  // namespace
}  // namespace sennit
