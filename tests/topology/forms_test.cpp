// forms_test.cpp: every registered text form reads the fixtures in its folder,
// tests/data/topology/forms/NAME, as SENNIT_FABRIC would on host "here", and bears damaged ones.
//
// Beside each input lies what is to come of it, INPUT.expected: the fabric, or the error. Inputs
// called bad_* are errors. INPUT.tree is of the tests of that form alone. A new form needs its
// folder, and nothing here.
//
// ctest not-under-tsan: it has one thread
#include <random>

#include <gtest/gtest.h>

#include "tests/fuzz/check_form.hpp"
#include "tests/support/seed.hpp"
#include "tests/topology/cases.hpp"
#include "topology/source.hpp"

namespace sennit {
namespace {

class Forms : public ::testing::TestWithParam<TextForm> {
 protected:
  const std::vector<std::filesystem::path> inputs_ =
      inputs_of("forms/" + std::string(GetParam().name));
};

TEST_P(Forms, Fixtures) {
  const TextForm& form = GetParam();
  run_cases(inputs_, [&](const std::filesystem::path& path) {
    const std::string text = read_text(path);
    const Result<Fabric> fabric = form.parse(text, path.filename(), "here");
    const bool bad = path.filename().string().rfind("bad_", 0) == 0;
    EXPECT_EQ(fabric.ok(), !bad) << path;
    if (!fabric) return fabric.status().text() + "\n";
    // What is well formed is also recognised as what it is.
    const Result<Fabric> same = parse_any_form(text, path.filename(), "here");
    EXPECT_TRUE(same.ok() && same->to_text() == fabric->to_text()) << path;
    const Result<Fabric> again = parse_fabric(fabric->to_text(), "again");
    EXPECT_TRUE(again.ok()) << path << again.status().text();
    if (again) {
      EXPECT_EQ(again->to_text(), fabric->to_text()) << path;
      EXPECT_EQ(again->fingerprint(), fabric->fingerprint()) << path;
    }
    return fabric->to_text();
  });
}

// A little of what tests/fuzz does for minutes.
TEST_P(Forms, DamagedTextsAreHandled) {
  constexpr int kRounds = 300;
  std::mt19937 random(sennit_test::seed());
  std::vector<std::string> good;
  for (const std::filesystem::path& path : inputs_) good.push_back(read_text(path));
  ASSERT_FALSE(good.empty());
  const std::string alphabet = "[]{}<>-,:/\"'#=()\n\\ 019ahsx;\t\x01\xff";
  for (int round = 0; round < kRounds; round++) {
    std::string text = good[random() % good.size()];
    for (unsigned changes = 1 + random() % 4; changes-- > 0 && !text.empty();) {
      const size_t at = random() % text.size();
      switch (random() % 3) {
        case 0:
          text.erase(at, 1 + random() % 8);
          break;
        case 1:
          text.insert(at, 1, alphabet[random() % alphabet.size()]);
          break;
        default:
          text[at] = alphabet[random() % alphabet.size()];
      }
    }
    ASSERT_EQ(test::check_form(GetParam(), text), "") << text;
  }
}

INSTANTIATE_TEST_SUITE_P(Every, Forms,
                         ::testing::ValuesIn(text_forms().begin(), text_forms().end()),
                         [](const auto& form) { return std::string(form.param.name); });

}  // namespace
}  // namespace sennit
