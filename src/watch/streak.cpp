// streak.cpp: see watch/streak.hpp.
#include "watch/streak.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace sennit::watch {
namespace {

// Factors that are apart by less are one.
constexpr double kMuch = 1.4;

bool much_different(const LiveVerdict& a, const LiveVerdict& b) {
  const double was = a.about == VerdictAbout::link ? a.factor : a.late_ns;
  const double is = a.about == VerdictAbout::link ? b.factor : b.late_ns;
  return was > 0 && is > 0 && std::abs(std::log(is / was)) > std::log(kMuch);
}

}  // namespace

bool blames_same(const LiveVerdict& a, const LiveVerdict& b) {
  if (a.about != b.about || a.tier != b.tier) return false;
  for (const diagnose::DirectedGroup& link : a.suspects)
    if (is_blamed(b, link) || (a.both_ways && is_blamed(b, {link.group, !link.egress})))
      return true;
  return std::any_of(a.ranks.begin(), a.ranks.end(), [&](int rank) {
    return std::find(b.ranks.begin(), b.ranks.end(), rank) != b.ranks.end();
  });
}

// By majority: what most looks find counts, though one or another finds nothing, or something else.
void Streak::count(const std::optional<LiveVerdict>& found) {
  const bool again = found && candidate_ && blames_same(*found, *candidate_);
  if (again)
    held_++;
  else if (candidate_ && --held_ > 0)
    return;
  else
    held_ = found ? 1 : 0;
  const uint64_t since_ns = again ? candidate_->since_ns : 0;
  candidate_ = found;
  if (again) candidate_->since_ns = since_ns;
}

bool Streak::has_held() const {
  return candidate_ && held_ >= (candidate_->tier >= 0 ? kLookLongAtTier : kLookLong);
}

std::vector<LiveVerdict> Streak::see(std::optional<LiveVerdict> found) {
  std::vector<LiveVerdict> now;
  const bool as_told = told_ && found && blames_same(*found, *told_);
  count(as_told ? std::nullopt : found);
  missing_ = told_ && !as_told ? missing_ + 1 : 0;
  different_ = as_told && much_different(*told_, *found) ? different_ + 1 : 0;
  if (missing_ >= kLookLong) {
    now.push_back(*std::exchange(told_, std::nullopt));
    now.back().withdrawn = true;
  }
  const bool is_new = !told_ && has_held();
  if (is_new || different_ >= kLookLong) {
    if (!is_new) found->since_ns = told_->since_ns;
    told_ = is_new ? std::exchange(candidate_, std::nullopt) : std::move(found);
    missing_ = different_ = 0;
    if (is_new) held_ = 0;
    now.push_back(*told_);
  }
  return now;
}

}  // namespace sennit::watch
