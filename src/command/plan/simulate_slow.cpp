// `sennit simulate --slow h3=0.5`: the schedule that was planned for the fabric as it is declared,
// on one where some links carry less, beside one that is planned anew for that.
#include <algorithm>
#include <charconv>
#include <cmath>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "command/plan/simulate.hpp"
#include "topology/fabric/units.hpp"

namespace sennit::plan {
namespace {

// "h3=0.5", "rack1/out=0.25".
Status parse_one(const std::string& text, const TierTree& tree, std::vector<SlowBoundary>* slow) {
  constexpr double kWhole = 1000;
  const auto wrong = [&](const std::string& what) {
    return invalid(fmt::format(
        "--slow {}: {}; expected LINK=SHARE, as in h3=0.5 or rack1/out=0.25: a host or a switch, "
        "for what joins it to the one above, and the part of its capacity that is left",
        text, what));
  };
  const size_t equals = text.rfind('=');
  if (equals == std::string::npos) return wrong("it has no '='");
  double share = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data() + equals + 1, end, share);
  if (error != std::errc() || stop != end || !(share >= 1 / kWhole) || share > 1)
    return wrong("the share is not within 0.001 and 1");
  std::string link = text.substr(0, equals);
  const bool out = link.ends_with("/out"), in = link.ends_with("/in");
  if (out || in) link.resize(link.rfind('/'));
  const bool known =
      !link.empty() && std::any_of(tree.groups.begin(), tree.groups.end(), [&](const Group& group) {
        return group.name == link && group.parent >= 0;
      });
  if (!known) return wrong(fmt::format("no host or switch '{}' is below another here", link));
  for (const Group& group : tree.groups)
    if (group.name == link && group.parent >= 0 &&
        !((in || group.egress.known()) && (out || group.ingress.known())))
      return wrong("the fabric does not say what it carries");
  for (const bool egress : {true, false})
    if (!(egress ? in : out))
      slow->push_back({link, egress, static_cast<uint32_t>(std::lround(share * kWhole))});
  return {};
}

}  // namespace

Result<std::vector<SlowBoundary>> parse_slow(const std::vector<std::string>& texts,
                                             const TierTree& tree) {
  std::vector<SlowBoundary> slow;
  for (const std::string& text : texts) SENNIT_RETURN_IF_ERROR(parse_one(text, tree, &slow));
  return slow;
}

std::string anew_text(const PlannedAnew& anew, const TierTree& tree) {
  const Plan& plan = anew.plan;
  return fmt::format(
      "\nslow links: planned anew for them it would take {}, {:.1f}% less{}; {}, {}\n",
      time_text(anew.anew_ns), 100 * anew.gain(),
      plan.bound.known
          ? fmt::format(", {:.2f} x the lower bound of {} ({})",
                        static_cast<double>(anew.anew_ns) / static_cast<double>(plan.bound.time_ns),
                        time_text(plan.bound.time_ns), tier_name(tree, plan.bound.binding_tier))
          : "",
      plan.algorithm, plan.parameters.to_text());
}

nlohmann::ordered_json anew_json(const PlannedAnew& anew) {
  return {{"algorithm", anew.plan.algorithm},
          {"parameters", anew.plan.parameters.to_text()},
          {"time_us", us(anew.anew_ns)},
          {"bound_us", anew.plan.bound.known ? nlohmann::ordered_json(us(anew.plan.bound.time_ns))
                                             : nlohmann::ordered_json()},
          {"gain", anew.gain()}};
}

}  // namespace sennit::plan
