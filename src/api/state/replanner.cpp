// replanner.cpp: see api/state/replanner.hpp.
#include "api/state/replanner.hpp"

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

bool are_one(const SlowBoundary& a, const SlowBoundary& b) {
  return a.group == b.group && a.egress == b.egress;
}

// Whether a capacity that was planned for is as good as another: what one link shows from second to
// second differs by about a seventh.
bool about_the_same(uint32_t a_permille, uint32_t b_permille) {
  constexpr double kApart = 0.15;
  return std::abs(std::log(a_permille / static_cast<double>(b_permille))) < kApart;
}

bool about_the_same(const std::vector<SlowBoundary>& a, const std::vector<SlowBoundary>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const SlowBoundary& x, const SlowBoundary& y) {
                      return are_one(x, y) && about_the_same(x.permille, y.permille);
                    });
}

// Whether all that is slow was planned for, as slow as it is or slower.
bool only_heals(const std::vector<SlowBoundary>& planned, const std::vector<SlowBoundary>& slow) {
  return std::all_of(slow.begin(), slow.end(), [&](const SlowBoundary& one) {
    return std::any_of(planned.begin(), planned.end(), [&](const SlowBoundary& before) {
      return are_one(before, one) &&
             (before.permille <= one.permille || about_the_same(before.permille, one.permille));
    });
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
  if (verdict.withdrawn)
    known_.erase(who);
  else if (slow.empty())
    return;  // it says nothing that could be planned for
  else
    known_[who] = slow;
  const std::vector<SlowBoundary> wanted = all_known(), now = proposals_.proposed();
  if (about_the_same(wanted, now)) return;
  // The plan that the verdict was told of was made before others were slow: what is gained over it
  // says nothing of the plans that are made now.
  if (verdict.withdrawn && only_heals(now, wanted)) {
    log(LogLevel::warn, "{}: {}",
        wanted.empty() ? "plans are what they were before" : "planning around less than before",
        verdict.sentence);
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
