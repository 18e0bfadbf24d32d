// `sennit diagnose` and `sennit trace` as their users call them: on jobs that are well, on an
// emulated tree with a slow link, and on what cannot be read.
//
// ctest quiet: it judges how long messages take
// ctest runs: sennit_command
// ctest not-under-tsan: it runs a command, whose threads others try
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <regex>
#include <set>
#include <string>
#include <thread>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/clock.hpp"
#include "diagnose/dump.hpp"
#include "diagnose/recorded/recordings.hpp"
#include "record/notes.hpp"
#include "record/recording.hpp"
#include "tests/command/emulate/emulated.hpp"
#include "tests/support/shell.hpp"
#include "tests/support/test_folder.hpp"
#include "tests/support/trials.hpp"

namespace sennit {
namespace {

using nlohmann::json;
using sennit_test::Outcome;
using sennit_test::sh;
using sennit_test::sh_output;

const std::string kSennit = SENNIT_BINARY_DIR "/bin/sennit ";

class DiagnoseCommand : public testing::Test {
 protected:
  // A job of this host, whose recordings stay in the folder.
  Outcome bench(const std::string& arguments) const {
    return sh("SENNIT_TRACE=" + folder_.path() + " " + kSennit + "bench " + arguments);
  }
  trainer::TestFolder folder_;
};

json read_json(const std::string& file) {
  std::ifstream stream(file);
  return json::parse(stream);
}

// Every send has its receive, and the arrow goes forward.
TEST_F(DiagnoseCommand, TraceDrawsEveryMessage) {
  ASSERT_EQ(bench("all_reduce --ranks 3 -b 1M -e 1M -n 3 -w 0").status, 0);
  const std::string file = folder_ / "trace.json";
  const Outcome outcome = sh(kSennit + "trace " + folder_.path() + " -o " + file);
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_NE(outcome.output.find("of 3 of 3 ranks in "), std::string::npos) << outcome.output;
  const json trace = read_json(file);
  std::map<int, double> starts, ends;
  std::map<std::string, int> slices;
  std::set<int> ranks;
  for (const json& event : trace["traceEvents"]) {
    const std::string kind = event["ph"];
    if (kind == "s") starts[event["id"]] = event["ts"];
    if (kind == "f") ends[event["id"]] = event["ts"];
    if (kind != "X") continue;
    ranks.insert(event["pid"].get<int>());
    EXPECT_GE(event["dur"].get<double>(), 0);
    const std::string name = event["name"];
    slices[name.substr(0, name.find(' '))]++;
  }
  EXPECT_EQ(ranks, (std::set<int>{1, 2, 3}));
  EXPECT_GT(starts.size(), 10u);
  EXPECT_EQ(starts.size(), ends.size());
  EXPECT_EQ(slices["to"], slices["from"]);
  EXPECT_EQ(static_cast<size_t>(slices["to"]), starts.size());
  EXPECT_GT(slices["all_reduce"], 8);  // 3 ranks, 3 calls and their twins in place
  EXPECT_GT(slices["reduce"], 0);
  for (const auto& [id, ts] : starts) EXPECT_LE(ts, ends.at(id)) << "arrow " << id;
}

TEST_F(DiagnoseCommand, AWellJobIsWell) {
  ASSERT_EQ(bench("all_reduce --ranks 2 -b 1K -e 1K -n 100 -w 0").status, 0);
  const Outcome outcome = sh(kSennit + "diagnose " + folder_.path());
  // On a busy machine a rank may come late by a part of calls that take microseconds.
  const bool late = outcome.lines()[0].find(" late by ") != std::string::npos;
  EXPECT_EQ(outcome.status, late ? 1 : 0) << outcome.output;
  if (!late) {
    EXPECT_EQ(outcome.lines()[0], "nothing is wrong that the recordings show");
  }
  EXPECT_NE(outcome.output.find("2 of 2 ranks recorded, 0 running, 0 gone"), std::string::npos);
  const Outcome alone = sh_output(kSennit + "diagnose --json - " + folder_.path());
  const json verdict = json::parse(alone.output);
  EXPECT_EQ(verdict["verdict"], std::string(late ? "late_rank" : "well"));
  EXPECT_EQ(verdict["ranks"].size(), 2u);
  EXPECT_EQ(verdict["hang"], nullptr);
}

TEST_F(DiagnoseCommand, RanksWithoutARecordingAreNamed) {
  ASSERT_EQ(bench("all_reduce --ranks 3 -b 1K -e 1K -n 10 -w 0").status, 0);
  for (const auto& entry : std::filesystem::directory_iterator(folder_.path()))
    if (entry.path().string().ends_with("-0")) std::filesystem::remove(entry.path());
  const Outcome outcome = sh(kSennit + "diagnose " + folder_.path());
  EXPECT_NE(outcome.output.find("no recording of rank 0 is there"), std::string::npos)
      << outcome.output;
  EXPECT_NE(outcome.output.find("not all could be looked at: rank 0's recording"),
            std::string::npos)
      << outcome.output;
}

TEST_F(DiagnoseCommand, WhatCannotBeReadIsNamedAndTheRestIsLookedAt) {
  ASSERT_EQ(bench("all_reduce --ranks 3 -b 1K -e 1K -n 10 -w 0").status, 0);
  std::string named, cut;
  for (const auto& entry : std::filesystem::directory_iterator(folder_.path())) {
    named += " " + entry.path().string();
    if (entry.path().string().ends_with("-1")) cut = entry.path().string();
  }
  std::filesystem::resize_file(cut, 5000);
  const Outcome outcome = sh(kSennit + "diagnose /nowhere" + named);
  EXPECT_NE(outcome.status, 2) << outcome.output;
  for (const std::string& text :
       {std::string("passed over: /nowhere: No such file or directory"), "passed over: " + cut,
        std::string("no recording of rank 1 is there"), std::string("2 of 3 ranks recorded")})
    EXPECT_NE(outcome.output.find(text), std::string::npos) << text << " in:\n" << outcome.output;
  const Outcome alone = sh(kSennit + "diagnose " + cut);
  EXPECT_EQ(alone.status, 2) << alone.output;
  EXPECT_NE(alone.output.find(cut + " is cut off"), std::string::npos) << alone.output;
}

TEST_F(DiagnoseCommand, TopShowsOneFrame) {
  // So large, and without a check, after which ranks wait for each other: barriers take less time.
  ASSERT_EQ(bench("all_reduce --ranks 3 -b 8M -e 8M -n 40 -w 0 -c 0").status, 0);
  const Outcome outcome = sh(kSennit + "top --once " + folder_.path());
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  for (const char* const text : {"3 of 3 ranks recorded here", "communicator 1: ", " calls/s",
                                 " MB/s into ", "all_reduce of 8MiB float32",
                                 "in calls, and waiting there for the last: 0:", "rank 0 says"})
    EXPECT_NE(outcome.output.find(text), std::string::npos) << text << " in:\n" << outcome.output;
  EXPECT_EQ(outcome.output.find('\033'), std::string::npos);
  EXPECT_EQ(sh(kSennit + "top --once /nowhere").status, 2);
}

// Also when another job is started beside it.
TEST_F(DiagnoseCommand, TopStaysWithItsJob) {
  std::unique_ptr<Recording> its = Recording::open({0x11, 0, 2, "a"}, folder_.path());
  FILE* const top = popen((kSennit + "top " + folder_.path() + " 2>&1").c_str(), "r");
  ASSERT_NE(top, nullptr);
  const auto next_line = [&]() -> std::string {
    char line[1000];
    return fgets(line, sizeof line, top) ? line : "";
  };
  const auto next_job = [&] {
    std::string line = next_line();
    while (line.starts_with("rank 0 says")) line = next_line();
    return line;
  };
  const std::string job = "job 0000000000000011: 1 of 2 ranks recorded here\n";
  EXPECT_EQ(next_line(), "sennit top: no recording of rank 1 is there\n");
  EXPECT_EQ(next_job(), job);
  const std::unique_ptr<Recording> other = Recording::open({0x22, 0, 1, "b"}, folder_.path());
  for (int frame = 0; frame < 2; frame++) EXPECT_EQ(next_job(), job);
  const std::string file = its->path();
  its.reset();
  std::filesystem::remove(file);
  for (std::string line = next_line(); !line.empty(); line = next_line())
    EXPECT_EQ(line.find("sennit top:"), std::string::npos) << line << "is said once alone";
  EXPECT_EQ(pclose(top), 0);
}

// A rank of a job of two, in whose first call both are, or rank 0 alone.
std::unique_ptr<Recording> in_a_call(int rank, const std::string& folder, bool called) {
  std::unique_ptr<Recording> its = Recording::open({0x33, rank, 2, "a"}, folder);
  its->note(encode(CommunicatorNote{1, {0, 1}}));
  TraceEvent event;
  event.kind = EventKind::call_begin;
  event.comm = event.seq = 1;
  event.posted_ns = now_ns() - 1'000'000'000;
  if (called) its->record(event);
  return its;
}

TEST_F(DiagnoseCommand, TopShowsWhomOthersWaitForAndWhoSaysNothing) {
  const std::unique_ptr<Recording> zero = in_a_call(0, folder_.path(), true),
                                   one = in_a_call(1, folder_.path(), false);
  const Outcome outcome = sh(kSennit + "top --once " + folder_.path());
  EXPECT_NE(outcome.output.find(" 0:100%,100% 1:0%,0%\n"), std::string::npos) << outcome.output;
  EXPECT_NE(outcome.output.find("rank 0 says nothing: it does not watch"), std::string::npos)
      << outcome.output;
  EXPECT_EQ(outcome.output.find("nothing is wrong"), std::string::npos) << outcome.output;
}

// As one of another host: what it recorded last is now.
TEST_F(DiagnoseCommand, TopDoesNotTakeWhoIsInItsFirstCallForOneThatIsInNone) {
  const std::unique_ptr<Recording> zero = in_a_call(0, folder_.path(), true),
                                   one = in_a_call(1, folder_.path(), true);
  VerdictNote told;
  told.sentence = "a link is slow";
  zero->note(encode(told));
  constexpr int64_t kNobody = 0;
  std::fstream file(one->path(), std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(offsetof(RecordingHeader, pid)));
  file.write(reinterpret_cast<const char*>(&kNobody), sizeof kNobody);
  file.close();
  const Outcome outcome = sh(kSennit + "top --once " + folder_.path());
  EXPECT_NE(outcome.output.find(" 0:100%,0%\n"), std::string::npos) << outcome.output;
  EXPECT_NE(outcome.output.find("rank 0 says: a link is slow\n"), std::string::npos)
      << outcome.output;
  EXPECT_EQ(outcome.output.find("says nothing"), std::string::npos) << outcome.output;
}

// They do not change, and may be of another day.
TEST_F(DiagnoseCommand, CopiesAreShownOnceAndWithTheirDate) {
  const trainer::TestFolder copies;
  for (const int rank : {0, 1})
    ASSERT_TRUE(
        diagnose::dump_recording(in_a_call(rank, folder_.path(), true)->path(), copies.path())
            .ok());
  const Outcome top = sh("timeout 20 " + kSennit + "top " + copies.path());
  EXPECT_EQ(top.status, 0) << top.output;
  const Outcome outcome = sh(kSennit + "diagnose " + copies.path());
  EXPECT_TRUE(std::regex_search(outcome.output, std::regex("2 of 2 ranks recorded, 0 running, 0 "
                                                           "gone, 2 copies of \\d+-\\d+-\\d+ ")))
      << outcome.output;
}

TEST_F(DiagnoseCommand, ErrorsSayWhatAndWhere) {
  const std::pair<std::string, std::string> kWrong[] = {
      {"diagnose /nowhere", "/nowhere: No such file or directory"},
      {"diagnose " + folder_.path(), "there is no recording of a rank in " + folder_.path()},
      {"trace " + folder_.path(), "sennit trace: there is no recording of a rank in"},
      {"diagnose --job xyz", "--job xyz: expected a job's number, of up to 16 hexadecimal digits"},
      {"diagnose --pid 999999999", "process 999999999: there is none"},
      {"diagnose --pid 1 " + folder_.path(), "--pid"},
      {"diagnose --quiet-ms 0", "--quiet-ms"},
      {"diagnose --routes /nowhere",
       "--routes: /nowhere: cannot be read: No such file or directory"},
      {"diagnose --routes " SENNIT_SOURCE_DIR
       "/tests/data/topology/forms/ibnetdiscover/degraded.dump",
       "there are no forwarding tables in it: put what `dump_fts` writes behind"},
      {"diagnose --routes " SENNIT_SOURCE_DIR "/README.md",
       "README.md:3:1: expected Switch, Ca, Rt"},
      {"diagnose --json - --fabric -", "standard output holds one"},
      {"diagnose --html ./x --fabric ./x", "a file holds one of them"},
      {"diagnose --json ''", "--json: expected a value and found none"},
      {"trace --job ''", "--job: expected a value and found none"},
      {"top --once --job ''", "--job: expected a value and found none"},
      {"diagnose --colour", "--colour"}};
  for (const auto& [arguments, text] : kWrong) {
    const Outcome outcome = sh(kSennit + arguments);
    EXPECT_EQ(outcome.status, 2) << arguments << ": " << outcome.output;
    EXPECT_NE(outcome.output.find(text), std::string::npos) << arguments << ": " << outcome.output;
  }
  ASSERT_EQ(bench("all_reduce --ranks 2 -b 1K -e 1K -n 10 -w 0").status, 0);
  EXPECT_EQ(sh(kSennit + "trace -o /nowhere/t.json " + folder_.path()).status, 2);
  EXPECT_EQ(sh(kSennit + "diagnose --json /nowhere/t.json " + folder_.path()).status, 2);
}

TEST_F(DiagnoseCommand, AFolderForCopiesThatIsNotThereIsToldAtTheStart) {
  const std::string call = "SENNIT_DUMP={} " + kSennit + "bench all_reduce --ranks 2 -b 1K -e 1K";
  const auto of = [&](const std::string& folder) {
    return sh(std::string(call).replace(call.find("{}"), 2, folder)).output;
  };
  EXPECT_NE(of("/nowhere/d").find("warning: SENNIT_DUMP: /nowhere/d: No such file or directory"),
            std::string::npos);
  EXPECT_NE(of("/dev/null").find("SENNIT_DUMP: /dev/null: Not a directory"), std::string::npos);
  EXPECT_EQ(of(folder_.path()).find("SENNIT_DUMP"), std::string::npos);
}

TEST_F(DiagnoseCommand, ThePageIsLegibleOnADarkGround) {
  ASSERT_EQ(bench("all_reduce --ranks 2 -b 1K -e 1K -n 10 -w 0").status, 0);
  const std::string page = sh_output(kSennit + "diagnose --html - " + folder_.path()).output;
  EXPECT_TRUE(std::regex_search(page, std::regex("prefers-color-scheme:dark\\) \\{\\s*\\.box \\{")))
      << "the picture's colours are those of a light one";
}

// ---- on an emulated tree ----

class DiagnoseEmulated : public EmulatedTest {
 protected:
  void SetUp() override {
    EmulatedTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    if (sennit_test::kSanitized)
      GTEST_SKIP() << "SKIPPED: a sanitizer's ranks are slower than the links";
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
