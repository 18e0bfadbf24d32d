// places.cpp: see collectives/tiered/places.hpp.
#include "collectives/tiered/places.hpp"

#include "base/sort_stretches.hpp"

namespace sennit::tiered {
namespace {

constexpr auto kEarlier = [](const Interval& a, const Interval& b) { return a.begin < b.begin; };

// Of ascending intervals that may overlap.
void join(Places& places) {
  size_t kept = 0;
  for (const Interval& p : places) {
    if (kept > 0 && p.begin <= places[kept - 1].end)
      places[kept - 1].end = std::max(places[kept - 1].end, p.end);
    else
      places[kept++] = p;
  }
  places.resize(kept);
}

}  // namespace

void arrange(Places& places) {
  const auto out_of_order = [](const Interval& a, const Interval& b) { return b.begin < a.end; };
  if (std::adjacent_find(places.begin(), places.end(), out_of_order) == places.end()) return;
  sort_stretches(places, kEarlier);
  join(places);
}

Places unite(const Places& a, const Places& b) {
  Places all(a.size() + b.size());
  std::merge(a.begin(), a.end(), b.begin(), b.end(), all.begin(), kEarlier);
  join(all);
  return all;
}

}  // namespace sennit::tiered
