// `sennit diagnose` and `sennit top` on an emulated tree with a slow link, of jobs that have ended
// and of one that runs.
//
// ctest quiet: it judges how long messages take
// ctest runs: sennit_command
// ctest not-sanitized: a sanitizer's ranks are slower than the links
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <regex>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "diagnose/recorded/recordings.hpp"
#include "tests/command/emulate/emulated.hpp"
#include "tests/support/shell.hpp"
#include "tests/support/test_folder.hpp"

namespace sennit {
namespace {

using nlohmann::json;
using sennit_test::Outcome;
using sennit_test::sh;
using sennit_test::sh_output;

const std::string kSennit = SENNIT_BINARY_DIR "/bin/sennit ";

class DiagnoseEmulated : public EmulatedTest {
 protected:
  void SetUp() override {
    EmulatedTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    ASSERT_EQ(sh(kCommand + "up --name " + name_ +
                 " --racks 3 --hosts 2 --nic 400Mbit/s --oversubscription 4")
                  .status,
              0);
  }
  void TearDown() override { sh(kCommand + "down --name " + name_); }
  json verdict() {
    trainer::TestFolder folder;
    const Outcome ran =
        sh("SENNIT_TRACE=" + folder.path() + " " + kCommand + "run --timeout 100 --name " + name_ +
           " -- " + kSennit + "bench all_reduce -b 4M -e 4M -n 4 -w 1");
    EXPECT_EQ(ran.status, 0) << ran.output;
    const std::string page = folder / "page.html";
    const Outcome told = sh_output(kSennit + "diagnose --json - --html " + page + " --fabric " +
                                   fabric_.path() + "/fabric " + folder.path());
    page_ = sh_output("cat " + page).output;
    text_ = sh_output(kSennit + "diagnose " + folder.path()).output;
    return json::parse(told.output);
  }
  const std::string name_ = "diagnose-" + std::to_string(getpid());
  std::string page_, text_;
  trainer::TestFolder fabric_;
};

TEST_F(DiagnoseEmulated, NamesTheSlowLinkAndNothingOnceItIsHealed) {
  ASSERT_EQ(sh(kCommand + "slow rack1 60Mbit/s --direction out --name " + name_).status, 0);
  const json slow = verdict();
  EXPECT_EQ(slow["verdict"], "slow_link") << slow.dump(1);
  EXPECT_EQ(slow["blamed_links"], json({"out of rack1"})) << slow.dump(1);
  EXPECT_GT(slow["cost"].get<double>(), 0.4) << slow.dump(1);
  EXPECT_NE(page_.find("out of rack1: "), std::string::npos);
  EXPECT_NE(page_.find("box bad"), std::string::npos) << "it is not marked in the picture";
  EXPECT_NE(text_.find("; next: sennit topo --check"), std::string::npos) << text_;
  EXPECT_NE(text_.find("they took, the oldest first: "), std::string::npos) << text_;
  // The next job would plan by what traffic has shown.
  const std::string fabric = sh_output("cat " + fabric_.path() + "/fabric").output;
  EXPECT_TRUE(std::regex_search(fabric, std::regex("arc rack1 .* measured source \"by traffic 20")))
      << fabric;
  const auto bound_us = [](const std::string& of) {
    const std::string plan = kSennit + "plan all_reduce -b 4M --json - --fabric '" + of + "'";
    return json::parse(sh_output(plan).output)["bound_us"].get<double>();
  };
  EXPECT_GT(bound_us(fabric_.path() + "/fabric"),
            2 * bound_us("racks=3x2;nic=400Mbit/s;oversubscription=4"));
  ASSERT_EQ(sh(kCommand + "heal rack1 --name " + name_).status, 0);
  const json healed = verdict();
  EXPECT_NE(healed["verdict"], "slow_link") << healed.dump(1);
}

// Whatever is judged by the messages, for which a lossy link, or a host behind it, is now slow and
// now not: the kernel says that segments are lost, and its counters where.
TEST_F(DiagnoseEmulated, SaysWhatTheKernelCountedWhereSegmentsAreLost) {
  ASSERT_EQ(sh(kCommand + "lose rack1 10 --direction out --name " + name_).status, 0);
  const json lossy = verdict();
  bool told = false;
  for (const std::string line : lossy["evidence"])
    told |= line.starts_with("the kernel: ") &&
            line.find(" of segments sent again on ") != std::string::npos;
  EXPECT_TRUE(told) << lossy.dump(1);
  uint64_t out_of_rack1 = 0, others = 0;
  for (const json& connection : lossy["connections"]) {
    const int from = connection["from"], to = connection["to"];
    const bool leaves = (from == 2 || from == 3) && to != 2 && to != 3;
    (leaves ? out_of_rack1 : others) += connection["segments_again"].get<uint64_t>();
    EXPECT_GT(connection["segments"].get<uint64_t>(), 0u);
    EXPECT_GT(connection["least_round_trip_s"].get<double>(), 0);
    EXPECT_LT(connection["least_round_trip_s"].get<double>(), 0.5);
  }
  EXPECT_GT(out_of_rack1, 5 * others) << lossy.dump(1);
}

// Rank 3's clock is a thousand seconds ahead of the others'.
TEST_F(DiagnoseEmulated, KnowsHowFarClocksAreApart) {
  constexpr int64_t kAhead = 1000;
  const std::string apart = "unshare --time --monotonic " + std::to_string(kAhead) + " ";
  if (sh(apart + "true").status != 0) GTEST_SKIP() << "NOT TESTED, no time namespaces here";
  trainer::TestFolder folder;
  const Outcome ran =
      sh("SENNIT_TRACE=" + folder.path() + " " + kCommand + "run --timeout 100 --name " + name_ +
         " -- sh -c 'test \"$RANK\" = 3 && exec " + apart + "\"$@\"; exec \"$@\"' sh " + kSennit +
         "bench all_reduce -b 4M -e 4M -n 8 -w 1");
  ASSERT_EQ(ran.status, 0) << ran.output;
  std::vector<std::string> passed_over;
  const Result<diagnose::JobRecording> job =
      diagnose::read_job({{folder.path()}, {}, {}}, &passed_over);
  ASSERT_TRUE(job.ok()) << job.status().text();
  ASSERT_EQ(job->ranks.size(), 6u);
  constexpr int64_t kNsPerS = 1'000'000'000, kMostErrorNs = 50'000'000;
  for (const diagnose::RankRecording& rank : job->ranks) {
    ASSERT_TRUE(rank.clock.known()) << "rank " << rank.rank;
    EXPECT_EQ(rank.clock.root, 0);
    const int64_t truth = rank.rank == 3 ? kAhead * kNsPerS : 0;
    EXPECT_LE(std::abs(rank.clock.ahead_ns - truth), static_cast<int64_t>(rank.clock.error_ns))
        << "rank " << rank.rank << ": " << rank.clock.ahead_ns << " ns";
    EXPECT_LT(rank.clock.error_ns, static_cast<uint64_t>(kMostErrorNs)) << "rank " << rank.rank;
  }
  const Outcome told = sh_output(kSennit + "diagnose --json - " + folder.path());
  const json third = json::parse(told.output)["ranks"][3];
  EXPECT_LE(std::abs(third["clock_ahead_ns"].get<int64_t>() - kAhead * kNsPerS),
            third["clock_error_ns"].get<int64_t>());
}

// ---- while it runs ----

// A job on the emulated tree in the background, whose log grows in a file.
class DiagnoseLive : public DiagnoseEmulated {
 protected:
  void SetUp() override {
    DiagnoseEmulated::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    job_ = std::thread([this] {
      ran_ = sh("SENNIT_TRACE=" + folder_.path() + " " + kCommand + "run --timeout 200 --name " +
                name_ + " -- " + kSennit + "bench all_reduce -b 4M -e 4M -n 80 -w 1 > " + log_ +
                " 2>&1");
    });
  }
  // What is left of the job shows nothing more: it ends with its hosts.
  void TearDown() override {
    DiagnoseEmulated::TearDown();
    if (job_.joinable()) job_.join();
  }
  std::string log() const { return sh_output("cat " + log_).output; }
  // Until it has the text, or the job has ended.
  bool log_gets(const std::regex& text) const {
    for (;;) {
      const std::string so_far = log();
      if (std::regex_search(so_far, text)) return true;
      if (so_far.find("Avg bus bandwidth") != std::string::npos) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
    }
  }
  trainer::TestFolder folder_;
  const std::string log_ = folder_ / "log.txt";
  Outcome ran_;
  std::thread job_;
};

// Where the job was planned while the machine was busy, one host of the rack may speak for it, and
// then its own link has the same traffic.
TEST_F(DiagnoseLive, ALinkThatBecomesSlowIsNamedAndTakenBackOnceItIsHealed) {
  const std::regex warned("warning: out of rack1(:| or out of h[23]:)");
  ASSERT_TRUE(log_gets(std::regex("algbw"))) << log();
  std::this_thread::sleep_for(std::chrono::seconds(3));
  EXPECT_EQ(log().find("of its capacity"), std::string::npos) << log();
  ASSERT_EQ(sh(kCommand + "slow rack1 60Mbit/s --direction out --name " + name_).status, 0);
  EXPECT_TRUE(log_gets(warned)) << log();
  const Outcome top = sh(kSennit + "top --once " + folder_.path());
  EXPECT_TRUE(std::regex_search(top.output, std::regex("rank 0 says: out of rack1(:| or out of )")))
      << top.output;
  // Also where the recordings of other hosts are not seen.
  const std::string alone = folder_ / "rank0";
  sh("mkdir " + alone + " && cp " + folder_.path() + "/sennit-trace-*-0 " + alone);
  const Outcome told = sh_output(kSennit + "diagnose --json - " + alone);
  const json blamed = json::parse(told.output)["blamed_links"];
  EXPECT_TRUE(blamed == json({"out of rack1"}) || blamed == json({"out of rack1", "out of h2"}) ||
              blamed == json({"out of rack1", "out of h3"}))
      << told.output;
  ASSERT_EQ(sh(kCommand + "heal rack1 --name " + name_).status, 0);
  EXPECT_TRUE(log_gets(std::regex("warning: no longer: out of rack1(:| or out of )"))) << log();
}

TEST_F(DiagnoseLive, OfAJobThatIsWellNothingIsSaid) {
  job_.join();
  EXPECT_EQ(ran_.status, 0) << log();
  // On a busy machine a rank may come late, which is told as what it is.
  EXPECT_EQ(log().find("of its capacity"), std::string::npos) << log();
}

}  // namespace
}  // namespace sennit
