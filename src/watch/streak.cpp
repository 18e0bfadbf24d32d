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

bool blames_just_these(const LiveVerdict& a, const LiveVerdict& b) {
  return a.ranks == b.ranks && a.suspects == b.suspects;
}

// Of what both blame in part. Who came late as the job began may be early now, and must not be
// blamed for good. Of links it is no news where one more is suspected: which one it is was told.
bool blames_others(const LiveVerdict& told, const LiveVerdict& found) {
  return told.ranks != found.ranks ||
         !std::all_of(told.suspects.begin(), told.suspects.end(),
                      [&](const diagnose::DirectedGroup& link) { return is_blamed(found, link); });
}

// Whether every rank that is blamed now was blamed before. A link that is slow is the same one,
// whichever are suspected of it.
bool blames_no_more(const LiveVerdict& told, const LiveVerdict& found) {
  return std::includes(told.ranks.begin(), told.ranks.end(), found.ranks.begin(),
                       found.ranks.end());
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

// Whether looks in a row, of which this is the last, have found what was told, but not as it was
// told.
bool Streak::is_otherwise(const LiveVerdict& found) {
  different_ = much_different(*told_, found) ? different_ + 1 : 0;
  const bool again = others_ > 0 && blames_just_these(*blames_others_, found);
  const uint64_t since_ns = again ? blames_others_->since_ns : found.since_ns;
  others_ = blames_others(*told_, found) ? (again ? others_ + 1 : 1) : 0;
  blames_others_ = found;
  blames_others_->since_ns = since_ns;
  return different_ >= kLookLong || others_ >= patience_;
}

std::vector<LiveVerdict> Streak::see(std::optional<LiveVerdict> found) {
  std::vector<LiveVerdict> now;
  const bool as_told = told_ && found && blames_same(*found, *told_);
  count(as_told ? std::nullopt : found);
  missing_ = told_ && !as_told ? missing_ + 1 : 0;
  const bool otherwise = as_told && is_otherwise(*found);
  if (!as_told) different_ = others_ = 0;
  if (missing_ >= kLookLong) {
    now.push_back(*std::exchange(told_, std::nullopt));
    now.back().withdrawn = true;
  }
  const bool is_new = !told_ && has_held();
  if (is_new) {
    told_ = std::exchange(candidate_, std::nullopt);
    patience_ = told_->tier >= 0 ? kLookLongAtTier : kLookLong;
    held_ = 0;
  } else if (otherwise) {
    found->since_ns = blames_no_more(*told_, *found) ? told_->since_ns : blames_others_->since_ns;
    if (others_ >= patience_) patience_ *= 2;
    told_ = std::move(found);
  } else {
    return now;
  }
  missing_ = different_ = others_ = 0;
  now.push_back(*told_);
  return now;
}

std::optional<LiveVerdict> Streak::end() {
  std::optional<LiveVerdict> over = std::exchange(told_, std::nullopt);
  if (over) over->withdrawn = true;
  *this = Streak();
  return over;
}

}  // namespace sennit::watch
