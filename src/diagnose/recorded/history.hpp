// history.hpp: since when calls of one plan take longer than they did.
//
// A job's own calls say better than any simulator what its messages take while all is well: hashes
// that put two flows on one cable, hosts that differ, work that shares their cores. So what is slow
// now is held against what was before, where that is recorded.
#pragma once

#include <cstddef>

#include "diagnose/edges.hpp"

namespace sennit::diagnose {

// The first call that took longer: the split of all calls in two that leaves least of their times
// unexplained, where those after it take longer than those before by more than chance explains,
// and than that calls which follow one another are alike. 0: there is none. `least`: by what
// factor.
size_t find_change(const std::vector<double>& times_ns, double least);

// Takes the calls before the change out, and keeps what they took, as what they take while all is
// well; returns how many they were. 0: there was no change, and nothing is changed.
size_t take_history(ObservedPlan* observed, double least);

}  // namespace sennit::diagnose
