// spread.hpp: how far the times of calls of one plan, and of their messages, are from the usual
// ones.
#pragma once

#include <string>
#include <vector>

#include "diagnose/edges.hpp"

namespace sennit::diagnose {

// Logarithms of times over their medians.
struct Spread {
  std::vector<double> calls;  // what whole calls took
  // What a call's edges took, of those that carry enough to be judged, over what they usually take,
  // less what all of that call's edges differ by.
  std::vector<double> edges;

  void add(const Spread& other);
};
Spread spread_of(const ObservedPlan& observed);

// A table's head, and the columns behind the first two: the values that so many percent of them are
// below, the deviation, and how many they are.
extern const char* const kSpreadHead;
std::string spread_text(const std::vector<double>& logarithms);

}  // namespace sennit::diagnose
