// Records of comparisons that are not as this release writes them: each is refused with what is
// wrong, or drawn without what it lacks.
//
// ctest not-under-tsan: it has one thread
// ctest links: sennit_commands
#include <fstream>
#include <string>
#include <vector>

#include <fmt/core.h>
#include <gtest/gtest.h>

#include "command/emulate/compare.hpp"
#include "tests/support/test_folder.hpp"

namespace sennit::emulate {
namespace {

constexpr const char* kAbout =
    R"({"about": "2 racks", "hosts": [{"name": "h0", "rack": 0, "bits_per_s": 8e8},)"
    R"({"name": "h1", "rack": 1, "bits_per_s": 8e8}], "racks": [)"
    R"({"name": "rack0", "pod": 0, "bits_per_s": 4e8},)"
    R"({"name": "rack1", "pod": 0, "bits_per_s": 4e8}],)"
    R"("pods": [], "orders": ["fabric"], "places": {"fabric": [0, 1]}, "ranks_per_host": 1})";

std::string line(uint64_t bytes, const std::string& time_us, const std::string& round = "0",
                 const std::string& more = "") {
  return fmt::format(
      R"({{"collective": "all_gather", "order": "fabric", "library": "sennit", "bytes": {}, )"
      R"("round": {}, "time_us": {}{}}})",
      bytes, round, time_us, more);
}

// The page of a record, or what is wrong with it.
Result<std::string> page_of(const std::vector<std::string>& lines) {
  const trainer::TestFolder folder;
  const std::string file = folder / "record.jsonl";
  std::ofstream stream(file);
  for (const std::string& text : lines) stream << text << "\n";
  stream.close();
  const Result<Comparison> comparison = Comparison::read(file);
  return comparison ? report_page(*comparison) : comparison.status();
}

bool has_places(const std::string& page) {
  return page.find("nan\"") == std::string::npos && page.find("inf\"") == std::string::npos &&
         page.find("nan ") == std::string::npos && page.find("inf ") == std::string::npos;
}

TEST(EmulateRecord, AFirstLineThatLacksSomethingIsRefused) {
  const Result<std::string> whole = page_of({kAbout, line(8, "5")});
  ASSERT_TRUE(whole.ok()) << whole.status().text();
  const std::pair<const char*, const char*> changes[] = {{"\"hosts\"", "\"guests\""},
                                                         {"\"racks\"", "\"shelves\""},
                                                         {"\"pods\"", "\"pot\""},
                                                         {"\"orders\"", "\"order\""},
                                                         {"\"places\"", "\"place\""},
                                                         {"\"rack\": 1", "\"rack\": 2"},
                                                         {"\"rack\": 1", "\"rack\": -1"},
                                                         {"\"rack\": 1", "\"rack\": \"one\""},
                                                         {"\"pods\": []", "\"pods\": [{}]"},
                                                         {"[0, 1]", "[0, 2]"},
                                                         {"{\"fabric\": [0, 1]}", "{}"},
                                                         {"\"bits_per_s\"", "\"rate\""}};
  for (const auto& [part, instead] : changes) {
    std::string about = kAbout;
    about.replace(about.find(part), std::string(part).size(), instead);
    const Result<std::string> page = page_of({about, line(8, "5")});
    ASSERT_FALSE(page.ok()) << instead;
    EXPECT_NE(page.status().text().find("first line"), std::string::npos) << page.status().text();
  }
  const char* const empty = R"({"about": "x", "hosts": [], "racks": [], "pods": []})";
  EXPECT_FALSE(page_of({empty, line(8, "5")}).ok());
}

TEST(EmulateRecord, ARoundThatNoCommandAsksForIsRefused) {
  for (const char* round : {"-1", "1000", "1000000000000000000", "18446744073709551615"}) {
    const Result<std::string> page = page_of({kAbout, line(8, "5", round)});
    ASSERT_FALSE(page.ok()) << round;
    EXPECT_NE(page.status().text().find("record.jsonl:2: round "), std::string::npos)
        << page.status().text();
  }
  EXPECT_TRUE(page_of({kAbout, line(8, "5", "999")}).ok());
}

// As bench measures sizes of less than an element for each rank.
TEST(EmulateRecord, SizesOfNothingAreOnNoLogarithmicAxis) {
  const Result<std::string> page = page_of({kAbout, line(0, "5"), line(64, "6"), line(512, "7")});
  ASSERT_TRUE(page.ok()) << page.status().text();
  EXPECT_TRUE(has_places(*page));
  EXPECT_NE(page->find("time against size"), std::string::npos);
  EXPECT_TRUE(page_of({kAbout, line(0, "5")}).ok());
}

TEST(EmulateRecord, NothingTakesNoTime) {
  const Result<std::string> page =
      page_of({kAbout, line(64, "0"), line(512, "7"), line(4096, "-3"), line(32768, "9")});
  ASSERT_TRUE(page.ok()) << page.status().text();
  EXPECT_TRUE(has_places(*page));
}

// Of a collective that none of the libraries has.
TEST(EmulateRecord, ASizeWithoutAnyTimeIsDrawn) {
  const Result<std::string> page =
      page_of({kAbout, line(16'000'000, "null", "0", R"(, "bound_us": 5000.0)")});
  ASSERT_TRUE(page.ok()) << page.status().text();
  EXPECT_TRUE(has_places(*page));
  EXPECT_NE(page->find("has none"), std::string::npos);
}

}  // namespace
}  // namespace sennit::emulate
