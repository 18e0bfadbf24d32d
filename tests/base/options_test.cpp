// options_test.cpp: the option table: frozen here and in OPTIONS.md, so that neither changes
// unnoticed.
//
// ctest not-under-tsan: it has one thread
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include <fmt/core.h>

#include "base/options.hpp"

namespace {

TEST(Options, TheDocumentHasExactlyThisTable) {
  std::string table = "| option | default | meaning |\n|---|---|---|\n";
  for (const sennit::Option& option : sennit::options())
    table += fmt::format("| `{}` | {} | {} |\n", option.name,
                         option.default_value.empty() ? "none" : option.default_value, option.help);
  std::stringstream document;
  document << std::ifstream(SENNIT_SOURCE_DIR "/OPTIONS.md").rdbuf();
  EXPECT_NE(document.str().find(table), std::string::npos) << "the table in OPTIONS.md should be\n"
                                                           << table;
}

TEST(Options, SizesAreReadAndWritten) {
  EXPECT_EQ(*sennit::parse_bytes("4096"), 4096u);
  EXPECT_EQ(*sennit::parse_bytes("64K"), 65536u);
  EXPECT_EQ(*sennit::parse_bytes("1.5MiB"), 1572864u);
  EXPECT_EQ(*sennit::parse_bytes("2G"), 2147483648u);
  EXPECT_EQ(*sennit::parse_bytes("1073741824G"), uint64_t{1} << 60);
  for (const char* wrong : {"", "K", "-1", "12Q", "1e30", "4 K", "1073741825G"})
    EXPECT_FALSE(sennit::parse_bytes(wrong).ok()) << wrong;
  EXPECT_EQ(sennit::format_bytes(1536), "1.5 KiB");
}

// What is meant to be for ever would be over at once where moments wrap around.
TEST(Options, TimesAreSmallEnoughForSumsAndNanoseconds) {
  for (const char* name : {"SENNIT_ARRIVAL_TIMEOUT", "SENNIT_HEARTBEAT_TIMEOUT", "SENNIT_STALL"}) {
    setenv(name, "1000000000000", 1);
    EXPECT_TRUE(sennit::check_options().ok()) << sennit::check_options().text();
    EXPECT_EQ(sennit::option_integer(name), 1'000'000'000'000);
    for (const char* wrong :
         {"1000000000001", "9223372036854775807", "9223372036854775808", "-1", "5s", "1e3"}) {
      setenv(name, wrong, 1);
      EXPECT_EQ(sennit::check_options().text(),
                fmt::format("{}={}: expected a number of milliseconds, of 1000000000000 at most",
                            name, wrong));
    }
    unsetenv(name);
  }
}

TEST(Options, UnknownNamesGetTheNearest) {
  setenv("SENNIT_TRANSPORT", "tcp", 1);
  const sennit::Status status = sennit::check_options();
  unsetenv("SENNIT_TRANSPORT");
  EXPECT_EQ(status.text(),
            "SENNIT_TRANSPORT is not an option of sennit; did you mean SENNIT_TRANSPORTS?");
  EXPECT_TRUE(sennit::check_options().ok()) << sennit::check_options().text();
}

TEST(Options, WordsAreOfTheirTable) {
  for (const char* known : {"0", "1", "again", ""}) {
    setenv("SENNIT_PROBE", known, 1);
    EXPECT_TRUE(sennit::check_options().ok()) << known;
  }
  setenv("SENNIT_PROBE", "yes", 1);
  EXPECT_EQ(sennit::check_options().text(), "SENNIT_PROBE is 'yes': expected 0, 1 or again");
  unsetenv("SENNIT_PROBE");
}

}  // namespace
