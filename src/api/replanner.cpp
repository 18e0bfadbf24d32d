// replanner.cpp: see api/replanner.hpp.
#include "api/replanner.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/core.h>

#include "base/index.hpp"
#include "base/log.hpp"
#include "diagnose/links.hpp"
#include "plan/anew.hpp"

namespace sennit {
namespace {

constexpr double kLeastGain = 0.1;

// Whether a capacity that was planned for is as good as another: what one link shows from second to
// second differs by about a seventh.
bool about_the_same(const std::vector<SlowBoundary>& a, const std::vector<SlowBoundary>& b) {
  constexpr double kApart = 0.15;
  return std::equal(
      a.begin(), a.end(), b.begin(), b.end(), [](const SlowBoundary& x, const SlowBoundary& y) {
        return x.group == y.group && x.egress == y.egress &&
               std::abs(std::log(x.permille / static_cast<double>(y.permille))) < kApart;
      });
}

double ms(uint64_t ns) { return static_cast<double>(ns) / 1e6; }

}  // namespace

// By name and direction; of what two communicators say, the slower.
std::vector<SlowBoundary> Replanner::all_known() const {
  std::map<std::pair<std::string, bool>, uint32_t> least;
  for (const auto& [who, slow] : known_)
    for (const SlowBoundary& one : slow) {
      const auto [entry, added] = least.try_emplace({one.group, one.egress}, one.permille);
      if (!added) entry->second = std::min(entry->second, one.permille);
    }
  std::vector<SlowBoundary> all;
  for (const auto& [which, permille] : least) all.push_back({which.first, which.second, permille});
  return all;
}

Result<TierTree> Replanner::tree_of(const std::vector<int>& members) const {
  std::vector<Placement> placements;
  for (const int rank : members) placements.push_back(placements_[index(rank)]);
  return contract(fabric_, placements);
}

void Replanner::follow(const watch::LiveVerdict& verdict) {
  if (verdict.about != VerdictAbout::link) return;
  const Result<TierTree> tree = tree_of(verdict.members);
  if (!tree) return;
  const Who who{verdict.comm, verdict.members};
  std::vector<SlowBoundary> slow = diagnose::slow_boundaries(verdict.links, verdict.factor);
  std::erase_if(slow, [&](const SlowBoundary& one) {
    return std::none_of(tree->groups.begin(), tree->groups.end(),
                        [&](const Group& group) { return group.name == one.group; });
  });
  if (slow.empty()) return;  // it says nothing that could be planned for
  known_.erase(who);
  if (!verdict.withdrawn) known_[who] = slow;
  const std::vector<SlowBoundary> wanted = all_known(), now = proposals_.proposed();
  if (about_the_same(wanted, now)) return;
  if (wanted.empty()) {
    log(LogLevel::warn, "plans are what they were before: {}", verdict.sentence);
    return proposals_.propose(wanted);
  }
  const PlanNote& note = verdict.judged;
  Plan stale;
  stale.algorithm = note.algorithm;
  stale.parameters = note.parameters;
  const Result<PlannedAnew> anew =
      plan_anew(slowed(*tree, note.slow), slowed(*tree, wanted), note.request, stale, options_);
  if (!anew) return log(LogLevel::debug, "planning anew: {}", anew.status().text());
  const std::string times = fmt::format("{:.1f} ms in place of {:.1f} ms, by the simulator",
                                        ms(anew->anew_ns), ms(anew->stale_ns));
  if (anew->gain() < kLeastGain)
    return log(LogLevel::warn, "nothing is to be gained by planning around what is slow: {}",
               times);
  log(LogLevel::warn, "planning around what is slow: {}", times);
  proposals_.propose(wanted);
}

}  // namespace sennit
