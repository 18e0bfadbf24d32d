// timeline.cpp: see diagnose/recorded/timeline.hpp.
#include "diagnose/recorded/timeline.hpp"

#include <algorithm>

#include <fmt/core.h>

#include "base/median.hpp"

namespace sennit::diagnose {

std::string timeline(const std::vector<double>& times_ns, size_t since) {
  constexpr size_t kStretches = 10;
  constexpr double kNsPerMs = 1e6, kLongMs = 100;
  const size_t calls = times_ns.size();
  const size_t each = std::max<size_t>(1, (calls + kStretches - 1) / kStretches);
  std::string text;
  for (size_t from = 0; from < calls;) {
    const size_t to = std::min(from < since ? std::min(since, calls) : calls, from + each);
    const auto begin = times_ns.begin();
    const double ms = median(std::vector<double>(begin + static_cast<std::ptrdiff_t>(from),
                                                 begin + static_cast<std::ptrdiff_t>(to))) /
                      kNsPerMs;
    if (from == since && since > 0) text += "| ";
    text += fmt::format("{:.{}f} ", ms, ms < 1 ? 3 : ms < kLongMs ? 1 : 0);
    from = to;
  }
  return text + "ms";
}

}  // namespace sennit::diagnose
