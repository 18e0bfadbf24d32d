// registry.cpp: the list of all algorithms, sorted by name. Filled before main() by the entries at
// the ends of the algorithms' files, read-only afterwards.
#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "collectives/algorithm.hpp"

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

Status check_parameters(const Algorithm& algorithm, Collective collective,
                        const Parameters& parameters) {
  const Takes takes = algorithm.takes(collective);
  const auto refuse = [&](const std::string& takes_what, const std::string& given) {
    return invalid(fmt::format("{} takes {} for {}, not {}", algorithm.name(), takes_what,
                               name(collective), given));
  };
  const std::vector<uint16_t>& radices = parameters.radices;
  if (radices.size() > takes.radices)
    return refuse(
        takes.radices == 0 ? "no radices" : fmt::format("at most {} radices", takes.radices),
        fmt::format("{}", fmt::join(radices, ",")));
  if (std::ranges::any_of(radices, [&](uint16_t radix) { return radix < takes.least_radix; }))
    return refuse(fmt::format("radices from {}", takes.least_radix),
                  fmt::format("{}", fmt::join(radices, ",")));
  if (parameters.whole_stages > takes.whole_stages)
    return refuse(takes.whole_stages == 0
                      ? "no whole stages"
                      : fmt::format("up to {} whole stages", takes.whole_stages),
                  std::to_string(parameters.whole_stages));
  if (parameters.chunks == 0 || parameters.chunks > kMostChunks)
    return refuse(fmt::format("from 1 to {} chunks", kMostChunks),
                  std::to_string(parameters.chunks));
  return {};
}

AlgorithmEntry::AlgorithmEntry(const Algorithm* algorithm) {
  auto& all = registry();
  const auto less = [](const Algorithm* a, const Algorithm* b) { return a->name() < b->name(); };
  all.insert(std::upper_bound(all.begin(), all.end(), algorithm, less), algorithm);
}

}  // namespace sennit
