// registry.cpp: the list of all algorithms, sorted by name. Filled before main() by the entries at the ends
// of the algorithms' files, read-only afterwards.
#include <algorithm>

#include "algorithm.hpp"

namespace sennit {
namespace {

std::vector<const Algorithm*>& registry() {
  static std::vector<const Algorithm*> all;
  return all;
}

}  // namespace

std::span<const Algorithm* const> algorithms() { return registry(); }

const Algorithm* find_algorithm(std::string_view name) {
  for (const Algorithm* a : registry())
    if (a->name() == name) return a;
  return nullptr;
}

AlgorithmEntry::AlgorithmEntry(const Algorithm* algorithm) {
  auto& all = registry();
  const auto less = [](const Algorithm* a, const Algorithm* b) { return a->name() < b->name(); };
  all.insert(std::upper_bound(all.begin(), all.end(), algorithm, less), algorithm);
}

}  // namespace sennit
