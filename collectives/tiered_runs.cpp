// tiered_runs.cpp: see tiered_runs.hpp.
#include "tiered_runs.hpp"

#include "schedule.hpp"

namespace sennit::tiered {

RunList::RunList(std::vector<Run> runs, bool weighted) : runs_(std::move(runs)) {
  units_.reserve(runs_.size() + 1);
  units_.push_back(0);
  for (const Run& r : runs_) units_.push_back(units_.back() + (r.end - r.begin));
  if (!weighted) return;
  weights_.reserve(runs_.size() + 1);
  weights_.push_back(0);
  for (const Run& r : runs_)
    weights_.push_back(weights_.back() + static_cast<unsigned __int128>(r.end - r.begin) * r.weight);
  if (weights_.back() == 0) weights_.clear();
}

uint64_t RunList::cut(uint64_t part) const {
  if (part == 0) return 0;
  if (part >= kUnits) return units();
  if (weights_.empty()) return static_cast<uint64_t>(static_cast<unsigned __int128>(units()) * part / kUnits);
  const unsigned __int128 target = weights_.back() * part / kUnits;
  const auto after = std::upper_bound(weights_.begin(), weights_.end(), target);
  const size_t run = static_cast<size_t>(after - weights_.begin()) - 1;
  if (run >= runs_.size()) return units();
  return units_[run] + static_cast<uint64_t>((target - weights_[run]) / runs_[run].weight);
}

}  // namespace sennit::tiered
