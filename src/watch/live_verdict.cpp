// live_verdict.cpp: see watch/live_verdict.hpp.
#include "watch/live_verdict.hpp"

#include <algorithm>

#include <fmt/core.h>

#include "base/text/json.hpp"

namespace sennit::watch {

bool is_blamed(const LiveVerdict& verdict, const diagnose::DirectedGroup& link) {
  return std::any_of(verdict.suspects.begin(), verdict.suspects.end(), [&](const auto& suspect) {
    return suspect.group == link.group && (verdict.both_ways || suspect.egress == link.egress);
  });
}

std::string json_of(const LiveVerdict& verdict) {
  constexpr double kNsPerS = 1e9;
  const bool link = verdict.kind == LiveKind::slow_link;
  nlohmann::ordered_json json = {
      {"verdict", link ? "slow_link" : "late_rank"},
      {"withdrawn", verdict.withdrawn},
      {"sentence", verdict.sentence},
      {"time_s", static_cast<double>(verdict.when_ns) / kNsPerS},
      {"communicator", verdict.comm},
      {"blamed_links", verdict.links},
      {"blamed_ranks", verdict.ranks},
      {"factor", verdict.factor},
      {"cost", verdict.cost},
      {"confidence", verdict.confidence},
  };
  if (link) json["plan"] = fmt::format("{:016x}", verdict.plan);
  if (!link) json["late_s"] = verdict.late_ns / kNsPerS;
  return json_to_text(json, -1);
}

}  // namespace sennit::watch
