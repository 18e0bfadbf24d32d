// `sennit diagnose`, `sennit trace` and `sennit top` as their users call them: on jobs that are
// well, and on what cannot be read.
//
// ctest quiet: it judges how long messages take
// ctest runs: sennit_command
// ctest not-under-tsan: it runs a command, whose threads others try
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <regex>
#include <set>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/clock.hpp"
#include "diagnose/dump.hpp"
#include "record/notes.hpp"
#include "record/recording.hpp"
#include "tests/support/shell.hpp"
#include "tests/support/test_folder.hpp"

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

}  // namespace
}  // namespace sennit
