// `sennit plan --html`: one self-contained page: what each tier needs at least, and what the
// candidates would take beside the bound.
#include <algorithm>

#include <fmt/format.h>

#include "base/page_text.hpp"
#include "command/plan/plan.hpp"
#include "topology/fabric/units.hpp"

namespace sennit::plan {
namespace {

constexpr const char* kPageStyle = R"(
:root { color-scheme:light dark; }
body { margin:0; background:#fbfbfc; color:#17202b; font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif; }
main { max-width:1080px; margin:0 auto; padding:28px 24px 48px; }
h1 { font-size:24px; margin:0 0 2px; } h2 { font-size:16px; margin:0 0 10px; } p { margin:0 0 8px; } .note { color:#5d6875; }
section { background:#fff; border:1px solid #e3e6ea; border-radius:10px; padding:18px 20px; margin-top:18px; overflow-x:auto; }
svg { display:block; max-width:max(100%,820px); height:auto; } text { fill:#17202b; font:14px system-ui,"DejaVu Sans",sans-serif; }
svg + .note { margin-top:10px; }
.soft { fill:#5d6875; } .bar { fill:#9db4d3; } .bar.chosen { fill:#2f6fb7; } .bar.binds { fill:#c8781e; }
.bound { stroke:#c8781e; stroke-width:2; stroke-dasharray:5 4; }
@media (prefers-color-scheme:dark) { body { background:#0f141b; color:#e7ecf2; } .note { color:#9aa7b5; }
 section { background:#161d27; border-color:#2a3441; } text { fill:#e7ecf2; } .soft { fill:#9aa7b5; } .bar { fill:#51657f; } })";

struct Bar {
  std::string label, value, kind, note;
  uint64_t ns = 0;
};

// Horizontal bars on one scale; `mark_ns` is drawn across all of them. A bar of more than kLongest
// times the shortest ends in an arrow, so that the others can be told apart.
std::string bars(const std::vector<Bar>& bars, uint64_t mark_ns) {
  constexpr int kLabel = 330, kWidth = 430, kRow = 28, kRight = 330;
  constexpr uint64_t kLongest = 5;
  uint64_t most = std::max<uint64_t>(1, mark_ns), least = ~uint64_t{0};
  for (const Bar& bar : bars) most = std::max(most, bar.ns), least = std::min(least, bar.ns);
  if (mark_ns > 0 && most / kLongest > least) most = kLongest * least;
  const auto x = [&](uint64_t ns) {
    return static_cast<double>(std::min(ns, most)) / static_cast<double>(most) * kWidth;
  };
  const int height = static_cast<int>(bars.size()) * kRow + 8;
  std::string text = fmt::format("<svg viewBox=\"0 0 {} {}\" width=\"{}\" role=\"img\">\n",
                                 kLabel + kWidth + kRight, height, kLabel + kWidth + kRight);
  for (size_t i = 0; i < bars.size(); i++) {
    const Bar& bar = bars[i];
    const int y = static_cast<int>(i) * kRow + 4;
    text += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>", kLabel - 10,
                        y + 17, escape(bar.label));
    text += fmt::format(
        "<rect class=\"bar {}\" x=\"{}\" y=\"{}\" width=\"{:.1f}\" height=\"{}\" rx=\"3\"/>",
        bar.kind, kLabel, y + 3, std::max(1.0, x(bar.ns)), kRow - 8);
    text += fmt::format("<text x=\"{:.1f}\" y=\"{}\">{} <tspan class=\"soft\">{}</tspan></text>\n",
                        kLabel + x(bar.ns) + 8, y + 17,
                        (bar.ns > most ? "→ " : "") + escape(bar.value), escape(bar.note));
  }
  if (mark_ns > 0)
    text +=
        fmt::format("<line class=\"bound\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"0\" y2=\"{1}\"/>\n",
                    kLabel + x(mark_ns), height);
  return text + "</svg>";
}

}  // namespace

std::string page_of(const Problem& problem, const Plan& plan, const Facts& facts) {
  const uint64_t bound = plan.bound.known ? plan.bound.time_ns : 0;
  const auto of_bound = [&](uint64_t ns) {
    return bound ? times_text(ns, bound) + " x bound" : "";
  };
  std::vector<Bar> tiers, candidates;
  std::vector<TierRow> rows = tier_rows(problem, plan);
  std::reverse(rows.begin(), rows.end());  // the outermost first
  for (const TierRow& row : rows)
    if (bound && row.bound_ns > 0) {
      const Capacity& egress = problem.tree.groups[static_cast<size_t>(row.first)].egress;
      tiers.push_back({fmt::format("{}: {} of {}{}", problem.tree.tiers[row.tier].name, row.groups,
                                   row.alike ? "" : "differing rates, first ", rate_text(egress)),
                       time_text(row.bound_ns),
                       plan.bound.binding_tier == static_cast<int>(row.tier) ? "binds" : "",
                       facts.counted
                           ? bytes_text(static_cast<double>(facts.programs.tier_bytes[row.tier])) +
                                 " leave its groups in all"
                           : "",
                       row.bound_ns});
    }
  for (const Candidate& c : plan.candidates)
    candidates.push_back({c.algorithm + ", " + c.parameters.to_text(), time_text(c.predicted_ns),
                          c.rejected.empty() ? "chosen" : "", of_bound(c.predicted_ns),
                          c.predicted_ns});
  std::string page = fmt::format(
      "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" "
      "content=\"width=device-width\">\n<title>{0}</title>\n<style>{1}</style>\n<main>\n<h1>{0}</"
      "h1>\n"
      "<p class=\"note\">Predicted, not measured. Model: {2}.{3}</p>\n",
      escape(title(problem)), kPageStyle, escape(model_text(problem)),
      problem.assumed()
          ? fmt::format(
                " ASSUMED: the fabric does not say the capacity of {}; one NIC's rate stands in.",
                escape(problem.assumed_tiers))
          : "");
  page += fmt::format("<section><h2>The least that each tier needs</h2>\n");
  page += tiers.empty() ? fmt::format("<p>The bound is unknown: {}</p>", escape(plan.bound.why))
                        : bars(tiers, 0) +
                              fmt::format("<p class=\"note\">In orange the tier that binds: {}</p>",
                                          escape(plan.bound.why));
  page += "</section>\n<section><h2>What could run</h2>\n" + bars(candidates, bound);
  page +=
      fmt::format("<p class=\"note\">In blue what was chosen: {}, {}.{}</p>\n", plan.algorithm,
                  escape(plan.parameters.to_text()),
                  bound ? " The dashed line is the lower bound: no schedule can be faster." : "");
  if (facts.counted)
    page += fmt::format(
        "<p class=\"note\">Per chunk {} rounds and {} messages by all ranks; a rank's scratch "
        "memory is at "
        "most {}.</p>\n",
        facts.programs.rounds, facts.programs.messages,
        bytes_text(static_cast<double>(facts.programs.scratch_bytes)));
  page += "</section>\n</main></html>\n";
  return page;
}

}  // namespace sennit::plan
