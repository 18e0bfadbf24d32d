// perf/starts.py, perf/sample.py and perf/reality.py where something is off: they end, and say what
// it is and what to do.
//
// ctest not-under-tsan: it runs scripts
#include <algorithm>
#include <fstream>
#include <iterator>
#include <string>

#include <gtest/gtest.h>

#include "tests/support/shell.hpp"
#include "tests/support/test_folder.hpp"

namespace {

using sennit::trainer::TestFolder;
using sennit_test::Outcome;

Outcome script(const std::string& command) {
  return sennit_test::sh("timeout 300 python3 -B " SENNIT_SOURCE_DIR "/perf/" + command);
}

// The others would wait for it at a barrier for ever.
TEST(BenchScripts, StartsEndWhereARankFails) {
  const TestFolder folder;
  const Outcome failed = script("starts.py --ranks 2 --library " + (folder / "none.so"));
  EXPECT_EQ(failed.status, 1) << failed.output;
  EXPECT_NE(failed.output.find("starts.py: rank "), std::string::npos) << failed.output;
  EXPECT_NE(failed.output.find("none.so: cannot open shared object file"), std::string::npos)
      << failed.output;
}

// As a run leaves it that is killed while it writes.
TEST(BenchScripts, ALineThatIsCutShortIsNamed) {
  const TestFolder folder;
  const std::string record = folder / "record";
  const std::string whole = R"({"what": "predicted", "piece": ["a", "b", "c"], "rows": []})";
  std::ofstream(record) << whole << '\n' << R"({"what": "pre)";
  for (const std::string& command :
       {"reality.py report " + record, "sample.py " + record + " --report"}) {
    const Outcome outcome = script(command);
    EXPECT_EQ(outcome.status, 1) << outcome.output;
    EXPECT_NE(outcome.output.find(record + ":2: no whole line of JSON"), std::string::npos)
        << outcome.output;
    EXPECT_NE(outcome.output.find("remove this line"), std::string::npos) << outcome.output;
  }
}

// Whole but for its end; what is appended must not hang on it.
TEST(BenchScripts, ALineWithoutAnEndIsWhole) {
  const TestFolder folder;
  const std::string record = folder / "record";
  std::ofstream(record) << R"({"what": "predicted", "piece": ["a", "b", "c"], "rows": []})";
  const Outcome appended = sennit_test::sh(
      "cd " SENNIT_SOURCE_DIR
      "/perf && timeout 300 python3 -B -c 'import pathlib, reality; "
      "reality.append(pathlib.Path(\"" +
      record + "\"), {\"what\": \"predicted\", \"piece\": [\"a\", \"b\", \"d\"], \"rows\": []})'");
  EXPECT_EQ(appended.status, 0) << appended.output;
  std::ifstream file(record);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2) << text;
  const Outcome report = script("reality.py report " + record);
  EXPECT_EQ(report.status, 0) << report.output;
}

}  // namespace
