// failure_sets.hpp: what survivors tell of the dead, taken from their reports and compared: every
// survivor must name the same ranks, of those that were killed. A report is "status: text | failed
// ranks", or, where the rank was still starting, "init failed: text".
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <optional>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/core.h>

namespace sennit_test {

// The coordinator gathers reports for 150 ms.
inline constexpr auto kOneBlow = std::chrono::milliseconds(100);

// "3,5-7" -> 3, 5, 6, 7
inline std::set<int> parse_ranks(const std::string& text) {
  std::set<int> ranks;
  std::stringstream in(text);
  for (std::string part; std::getline(in, part, ',');) {
    const size_t dash = part.find('-');
    const int first = std::stoi(part),
              last = dash == part.npos ? first : std::stoi(part.substr(dash + 1));
    for (int r = first; r <= last; r++) ranks.insert(r);
  }
  return ranks;
}

// The ranks that an error calls dead, or missing at the start.
inline std::set<int> named_dead(const std::string& report) {
  static const std::regex one(R"(rank (\d+) (?:\(host [^)]*\)|at \S+) (?:died|does not answer))");
  static const std::regex unreached(R"(cannot reach rank (\d+) at)");
  static const std::regex missing(R"(ranks? ([\d,-]+) did not come)");
  std::set<int> ranks;
  for (const std::regex* form : {&one, &unreached, &missing})
    for (std::sregex_iterator it(report.begin(), report.end(), *form), end; it != end; ++it)
      ranks.merge(parse_ranks((*it)[1]));
  return ranks;
}

// Who was killed, and within which time.
struct Blow {
  std::vector<int> victims;
  std::chrono::steady_clock::duration gap{};
};

// Of blows that hit several ranks at once: how many there were, and of how many all were named in
// one error. On a busy machine a process may take longer to end than the coordinator gathers; most
// must be.
struct AtOneBlow {
  int all = 0, named_whole = 0;
};

// The same story from every survivor.
inline void expect_same_set(const std::vector<std::optional<std::string>>& reports,
                            const Blow& blow, const std::string& where, AtOneBlow* at_one_blow) {
  const std::set<int> killed(blow.victims.begin(), blow.victims.end());
  // Who comes when rank 0 has given up finds nobody there, and may have been named as missing.
  std::set<int> may_be_named = killed, late;
  std::optional<std::set<int>> first;
  bool started = true;
  std::string all = where + "\n";
  for (size_t r = 0; r < reports.size(); r++) {
    if (killed.count(static_cast<int>(r))) continue;
    ASSERT_TRUE(reports[r].has_value()) << where << ": rank " << r << " hangs";
    started &= reports[r]->find("init failed") == std::string::npos;
    if (reports[r]->find("init failed: cannot reach rank 0") != std::string::npos)
      late.insert(static_cast<int>(r));
    all += fmt::format("  rank {}: {}\n", r, *reports[r]);
  }
  may_be_named.insert(late.begin(), late.end());
  for (size_t r = 0; r < reports.size(); r++) {
    if (killed.count(static_cast<int>(r)) || late.count(static_cast<int>(r))) continue;
    const std::string& report = *reports[r];
    const std::set<int> named = named_dead(report);
    ASSERT_FALSE(named.empty()) << all;
    ASSERT_TRUE(std::ranges::includes(may_be_named, named)) << all;
    if (const size_t bar = report.find('|'); bar != report.npos) {
      std::istringstream in(report.substr(bar + 1));
      const std::set<int> failed{std::istream_iterator<int>(in), std::istream_iterator<int>()};
      ASSERT_EQ(failed, named) << all;
    }
    // While they start, whoever dies first ends it, and with rank 0 goes who would tell all the
    // same.
    if (!started && killed.size() > 1) continue;
    if (!first) first = named;
    ASSERT_EQ(named, *first) << all;
  }
  if (!first || killed.size() < 2 || blow.gap >= kOneBlow) return;
  at_one_blow->all++;
  at_one_blow->named_whole += *first == killed;
}

}  // namespace sennit_test
