// plan.cpp: a plan in words.
#include "schedule/plan.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace sennit {
namespace {

// Four digits are enough for a prediction.
std::string time_text(uint64_t ns) {
  if (ns < 10'000) return fmt::format("{} ns", ns);
  const double value = static_cast<double>(ns);
  if (ns < 10'000'000) return fmt::format("{:.5g} us", value * 1e-3);
  if (ns < 10'000'000'000) return fmt::format("{:.5g} ms", value * 1e-6);
  return fmt::format("{:.5g} s", value * 1e-9);
}

std::string candidate_text(const Candidate& candidate) {
  return fmt::format("{}, {}: predicted {}", candidate.algorithm, candidate.parameters.to_text(),
                     time_text(candidate.predicted_ns));
}

}  // namespace

std::string Parameters::to_text() const {
  std::string text = fmt::format("{} chunk{}", chunks, chunks == 1 ? "" : "s");
  if (!radices.empty()) text += fmt::format(", radix {}", fmt::join(radices, " "));
  if (whole_stages == kAllStages)
    text += ", whole pieces";
  else if (whole_stages > 0)
    text += fmt::format(", whole pieces in {} outer stage{}", whole_stages,
                        whole_stages == 1 ? "" : "s");
  return text;
}

std::string Plan::to_text() const {
  std::string text = candidate_text({algorithm, parameters, predicted_ns, "", 0});
  if (bound.known)
    text += fmt::format("\nbound {}: {}", time_text(bound.time_ns), bound.why);
  else
    text += fmt::format("\nbound unknown{}{}", bound.why.empty() ? "" : ": ", bound.why);
  for (const Candidate& c : candidates)
    if (!c.rejected.empty())
      text += fmt::format("\nrejected {}: {}", candidate_text(c), c.rejected);
  return text + fmt::format("\nplan {:016x}\n", hash);
}

}  // namespace sennit
