// fabric_test.cpp: the fabric: its bounds, its fingerprint, damaged texts. What its text form reads
// and writes, and the exact text of every error, is in tests/data/topology/forms/fabric.
//
// ctest not-under-tsan: it has one thread
#include "topology/fabric/fabric.hpp"

#include <random>

#include <gtest/gtest.h>

#include "tests/support/seed.hpp"

namespace sennit {
namespace {

TEST(Fabric, HostlistsCannotGrowWithoutBound) {
  for (const char* text :
       {"host a[0-999999999]", "host a[0-999][0-999][0-999][0-999][0-999][0-999][0-999]",
        "host a[0-300000],b[0-300000]", "host a[0-524287]\nhost b",
        "host a[0-524287]\nswitch b[0-524287]",
        "host a[0-399999]\nswitch s\nlink a[0-399999] s unknown plane 1\n"
        "link a[0-399999] s unknown plane 2\nlink a[0-399999] s unknown plane 3\n"}) {
    const Result<Fabric> fabric = parse_fabric(text, "f");
    ASSERT_FALSE(fabric.ok()) << text;
    EXPECT_NE(fabric.status().text().find("at most"), std::string::npos) << fabric.status().text();
  }
}

TEST(Fabric, FingerprintIsOfContent) {
  const auto fingerprint = [](const char* text) {
    return parse_fabric(text, "f").value().fingerprint();
  };
  const uint64_t one = fingerprint("host a\nswitch s tier rack\nlink a s 1GB/s");
  EXPECT_EQ(one, fingerprint("switch s tier rack\nhost a\nlink s a 1GB/s measured source probe"));
  EXPECT_NE(one, fingerprint("switch s tier pod\nhost a\nlink a s 1GB/s"));
  EXPECT_NE(one, fingerprint("switch s tier rack\nhost b\nlink b s 1GB/s"));
  EXPECT_NE(one, fingerprint("switch s tier rack\nhost a\nlink a s 2GB/s"));
  EXPECT_NE(one, fingerprint("switch s tier rack\nhost a\narc a s 1GB/s"));
  EXPECT_NE(one, fingerprint("switch s tier rack\nhost a\nlink a s 1GB/s latency 1us"));
  EXPECT_NE(one, fingerprint("switch s tier rack\nhost a\nlink a s 1GB/s cables 2"));
}

TEST(Fabric, NamesCannotMultiplyWithoutBound) {
  const std::string longest(256, 'x');
  for (const std::string& text : {"host " + longest + "[0-99999]", "host \"" + longest + "\"",
                                  "host a\nswitch s\nlink a s 1GB/s source " + longest}) {
    const Result<Fabric> fabric = parse_fabric(text, "f");
    ASSERT_FALSE(fabric.ok());
    EXPECT_NE(fabric.status().text().find("name"), std::string::npos) << fabric.status().text();
  }
}

// Damaged texts must give a fabric or an error that names a place, never a crash.
TEST(Fabric, DamagedTextsAreHandled) {
  std::mt19937 random(sennit_test::seed());
  const std::string good =
      "fabric \"f\"\nswitch s[0-2] tier rack\nhost h[0-3] # four\nnic h0/e host h0\n"
      "link h[0-3] s0 400Mbit/s latency 5us cables 2 plane 1 measured\narc s0 s1 unknown source x\n"
      "link s1 s2 250Gbit/s cables 2 ports 7-12:4xHDR@64-?,8-13:1xHDR/4xHDR\nnote \"n\"\n";
  const std::string alphabet = "[]-,:/\"#\n\\ 09ahs/\t\x01\xff";
  for (int round = 0; round < 3000; round++) {
    std::string text = good;
    for (unsigned changes = 1 + random() % 4; changes-- > 0;) {
      const size_t at = random() % text.size();
      switch (random() % 3) {
        case 0:
          text.erase(at, 1 + random() % 5);
          break;
        case 1:
          text.insert(at, 1, alphabet[random() % alphabet.size()]);
          break;
        default:
          text[at] = alphabet[random() % alphabet.size()];
          break;
      }
      if (text.empty()) text = "h";
    }
    const Result<Fabric> fabric = parse_fabric(text, "f");
    if (!fabric) {
      ASSERT_EQ(fabric.status().text().rfind("f:", 0), 0u) << fabric.status().text();
      continue;
    }
    const Result<Fabric> again = parse_fabric(fabric->to_text(), "again");
    ASSERT_TRUE(again.ok()) << text << again.status().text();
    ASSERT_EQ(again->fingerprint(), fabric->fingerprint()) << text;
  }
}

}  // namespace
}  // namespace sennit
