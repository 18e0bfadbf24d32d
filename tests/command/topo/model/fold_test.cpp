// fold_test.cpp: names that `sennit topo` has folded into lists expand to the same names.
//
// ctest links: sennit_commands
// ctest not-under-tsan: it has one thread
#include "command/topo/model/fold.hpp"

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include <fmt/core.h>
#include <gtest/gtest.h>

#include "tests/support/seed.hpp"
#include "topology/text/scan.hpp"

namespace sennit::topo {
namespace {

TEST(TopoFold, FoldedNamesExpandToTheSame) {
  std::mt19937 random(sennit_test::seed());
  for (int round = 0; round < 300; round++) {
    std::vector<std::string> names;
    const int width = static_cast<int>(random() % 4);
    for (int i = 0; i < 200; i++)
      if (random() % 3 != 0)
        names.push_back(fmt::format("n{:0{}}{}", i, width, random() % 9 == 0 ? "-ib" : ""));
    if (names.empty()) names.push_back("alone");
    const std::string folded = fold_names(names);
    std::vector<std::string> expanded;
    // Commas outside of brackets separate lists.
    size_t begin = 0;
    int depth = 0;
    for (size_t i = 0; i <= folded.size(); i++) {
      if (i < folded.size() && folded[i] == '[') depth++;
      if (i < folded.size() && folded[i] == ']') depth--;
      if (i != folded.size() && (folded[i] != ',' || depth > 0)) continue;
      const Token token{std::string_view(folded).substr(begin, i - begin), 1, begin + 1, false};
      const Result<std::vector<std::string>> some = expand_hostlist("folded", token, 1000);
      ASSERT_TRUE(some.ok()) << some.status().text();
      expanded.insert(expanded.end(), some->begin(), some->end());
      begin = i + 1;
    }
    std::sort(names.begin(), names.end());
    std::sort(expanded.begin(), expanded.end());
    ASSERT_EQ(expanded, names) << folded;
  }
}

}  // namespace
}  // namespace sennit::topo
