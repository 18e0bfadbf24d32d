// by_chance.hpp: how likely a rank that is like all others is among the latest as often as one is.
//
// Where ranks are alike each is as likely the latest as another, whatever their work takes and
// however that differs from call to call. So it is asked how often a rank is among the latest, and
// not by how much: some that is late by much in a few calls may be so by chance.
#pragma once

#include <cstddef>
#include <vector>

namespace sennit {

// `late`: by rank, and then by stretch of time, the oldest first, how late each was. Of each rank
// how likely that is by chance: in all stretches, or in those since some time, of which there are
// `least` or more. 1: there are fewer. It is that of the least likely of several counts, so
// chance comes below a bound a few times as often as the bound says: of 32 ranks three times, of
// 256 eight.
std::vector<double> likely_by_chance(const std::vector<std::vector<double>>& late, size_t least);

}  // namespace sennit
