// `sennit plan --html`: one self-contained page: what each tier needs at least, and what the
// candidates would take beside the bound.
#include <algorithm>
#include <utility>

#include <fmt/core.h>

#include "base/text/page.hpp"
#include "command/plan/plan.hpp"
#include "topology/fabric/units.hpp"

namespace sennit::plan {
namespace {

// A bar of more than so many times the shortest ends in an arrow, so that the others can be told
// apart.
constexpr double kLongest = 5;

std::string bars_of(std::vector<Bar> bars, uint64_t bound_ns) {
  BarChart chart;
  chart.bars = std::move(bars);
  chart.mark = static_cast<double>(bound_ns);
  chart.most = std::max(1.0, chart.mark);
  double least = 1e300;
  for (const Bar& bar : chart.bars) {
    chart.most = std::max(chart.most, *bar.amount);
    if (*bar.amount > 0) least = std::min(least, *bar.amount);
  }
  if (bound_ns > 0) chart.most = std::min(chart.most, kLongest * least);
  constexpr double kLabels = 330, kWidth = 430, kValues = 330;
  chart.labels = kLabels;
  chart.width = kWidth;
  return svg_picture(kLabels + kWidth + kValues, chart.height() + 8, chart.draw());
}

// The least that each tier needs, the outermost first.
std::vector<Bar> tier_bars(const Problem& problem, const Plan& plan, const Facts& facts) {
  std::vector<Bar> bars;
  std::vector<TierRow> rows = tier_rows(problem, plan);
  std::reverse(rows.begin(), rows.end());
  for (const TierRow& row : rows) {
    if (!plan.bound.known || row.bound_ns == 0) continue;
    const Capacity& egress = problem.tree.groups[static_cast<size_t>(row.first)].egress;
    Bar bar;
    bar.label = fmt::format("{}: {} of {}{}", problem.tree.tiers[row.tier].name, row.groups,
                            row.alike ? "" : "differing rates, first ", rate_text(egress));
    bar.value = time_text(row.bound_ns);
    if (facts.counted)
      bar.note = bytes_text(static_cast<double>(facts.programs.tier_bytes[row.tier])) +
                 " leave its groups in all";
    if (plan.bound.binding_tier == static_cast<int>(row.tier)) bar.style = "orange";
    bar.amount = static_cast<double>(row.bound_ns);
    bars.push_back(std::move(bar));
  }
  return bars;
}

std::vector<Bar> candidate_bars(const Plan& plan) {
  std::vector<Bar> bars;
  for (const Candidate& c : plan.candidates)
    bars.push_back({c.algorithm + ", " + c.parameters.to_text(), time_text(c.predicted_ns),
                    plan.bound.known && plan.bound.time_ns > 0
                        ? times_text(c.predicted_ns, plan.bound.time_ns) + " x bound"
                        : "",
                    c.rejected.empty() ? "blue" : "", static_cast<double>(c.predicted_ns)});
  return bars;
}

}  // namespace

std::string page_of(const Problem& problem, const Plan& plan, const Facts& facts) {
  const uint64_t bound = plan.bound.known ? plan.bound.time_ns : 0;
  std::string lead = fmt::format("Predicted, not measured. Model: {}.", model_text(problem));
  if (problem.assumed())
    lead +=
        fmt::format(" ASSUMED: the fabric does not say the capacity of {}; the model assumes {}.",
                    problem.assumed_tiers, assumption_text(problem));
  const std::vector<Bar> tiers = tier_bars(problem, plan, facts);
  const std::string needs =
      tiers.empty()
          ? "<p>The bound is unknown: " + escape(plan.bound.why) + "</p>"
          : bars_of(tiers, 0) + html_note("In orange the tier that binds: " + plan.bound.why);
  std::string runs =
      bars_of(candidate_bars(plan), bound) +
      html_note(fmt::format(
          "In blue what was chosen: {}, {}.{}", plan.algorithm, plan.parameters.to_text(),
          bound ? " The dashed line is the lower bound: no schedule can be faster." : ""));
  if (facts.counted)
    runs += html_note(fmt::format(
        "Per chunk {} rounds and {} messages by all ranks; a rank's scratch memory is at most {}.",
        facts.programs.rounds, facts.programs.messages,
        bytes_text(static_cast<double>(facts.programs.scratch_bytes))));
  return html_page(
      title(problem), escape(lead),
      html_section("The least that each tier needs", needs) + html_section("What could run", runs));
}

}  // namespace sennit::plan
