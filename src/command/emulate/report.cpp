// The page that `sennit emulate report` writes: self-contained HTML, no script, light and dark.
// What was emulated, where and when stands at its head, so that no figure travels without it.
#include <algorithm>
#include <cmath>

#include <fmt/core.h>

#include "base/text/page.hpp"
#include "command/emulate/draw.hpp"

namespace sennit::emulate {
namespace {

constexpr const char* kStyle = R"css(
.tiles { display:grid; grid-template-columns:repeat(auto-fit,minmax(230px,1fr)); gap:16px; margin-top:20px; }
.tile { background:var(--card); border:1px solid var(--line); border-radius:10px; padding:18px 20px; }
.tile b { display:block; font-size:34px; line-height:1.15; color:var(--blue); letter-spacing:-0.02em; }
.tile span { color:var(--soft); }
dl { display:grid; grid-template-columns:max-content 1fr; gap:4px 16px; margin:14px 0 0; }
dt { color:var(--soft); } dd { margin:0; }
svg { width:100%; min-width:760px; }
svg .tick { fill:var(--soft); font-size:12px; } svg .strong { fill:var(--ink); font-weight:600; }
svg .over { paint-order:stroke; stroke:var(--card); stroke-width:6px; stroke-linejoin:round; }
svg .panel { font-weight:600; font-size:14px; } svg .name { font-weight:600; }
svg .rank { font-variant-numeric:tabular-nums; }
.node { fill:var(--node); stroke:var(--line); } .node.switch { stroke:var(--soft); }
.link { stroke:var(--soft); stroke-opacity:.45; }
.curve.blue { stroke-width:3; } .curve.probed, .curve.reordered { stroke-dasharray:5 4; }
.bar.probed { fill-opacity:.55; } .bar.reordered { fill-opacity:.45; }
.dot.probed { fill:var(--card); stroke:var(--blue); stroke-width:1.6; }
.dot.reordered { fill:var(--card); stroke:var(--orange); stroke-width:1.6; }
.curve.bound { stroke:var(--ink); stroke-width:1.6; stroke-dasharray:2 4; } .dot.bound { fill:var(--ink); }
.mark { stroke:var(--ink); stroke-width:1.6; stroke-dasharray:3 4; }
.legend { display:flex; flex-wrap:wrap; gap:6px 22px; margin:4px 0 12px; padding:0; list-style:none; }
.legend svg { width:26px; min-width:26px; height:12px; display:inline-block; vertical-align:-1px; margin-right:7px; }
table { width:100%; font-size:13.5px; } th, td { padding:5px 8px; text-align:right; white-space:nowrap; }
th.text, td.text { text-align:left; }
tr.first td { border-top:1px solid var(--soft); } tr.ours td { font-weight:600; }
)css";

std::string row(const Point& point, const std::string& library, const Series& series, bool first,
                double ranks) {
  const double time = series.median_us();
  const bool known = !std::isnan(time), bounded = point.bounded();
  const std::string best = point.best_peer();
  const std::optional<double> gain =
      best.empty() || !known ? std::nullopt : ratio(*point.find(best), series);
  const double algbw = static_cast<double>(point.bytes) / time / 1e3;
  const std::string cells[] = {
      first ? readable_size(point.bytes) : "",
      known ? readable_time(time) : "–",
      known ? fmt::format("{:.3g}", algbw) : "–",
      known ? fmt::format("{:.3g}", algbw * bus_factor(point.collective, ranks)) : "–",
      bounded ? readable_time(*point.bound_us) : "–",
      bounded && known ? fmt::format("{:.2f}", *point.bound_us / time) : "–",
      bounded ? escape(point.binding_tier) : "–",
      gain ? fmt::format("{:.2f} ×", *gain) : "–",
  };
  std::string text = fmt::format(
      "<tr class='{}{}'><td class=text>{}</td><td class=text>{}</td>", first ? "first " : "",
      library == "sennit" || library == kProbed || library == kSimulated ? "ours" : "",
      first ? escape(point.order) : "", escape(with_setting(shown(library), series.setting)));
  for (const std::string& cell : cells) text += fmt::format("<td>{}</td>", cell);
  return text + "</tr>\n";
}

std::string table(const std::vector<const Point*>& points, double ranks) {
  std::string text =
      "<div class=scroll><table><thead><tr><th class=text>order</th><th "
      "class=text>library</th><th>size</th>"
      "<th>time</th><th>algbw</th><th>busbw</th><th>bound</th><th>of bound</th><th>tier</th><th>vs "
      "best peer</th>"
      "</tr></thead><tbody>\n";
  for (const Point* point : points) {
    bool first = true;
    for (const auto& [library, series] : point->libraries) {
      text += row(*point, library, series, first, ranks);
      first = false;
    }
  }
  return text + "</tbody></table></div>";
}

std::string legend(const std::vector<const Point*>& points) {
  std::vector<std::string> names;
  for (const Point* point : points)
    for (const auto& [name, series] : point->libraries)
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  std::string text = "<ul class=legend>";
  const auto entry = [&](const std::string& css, const std::string& name) {
    text += fmt::format(
        "<li><svg viewBox='0 0 26 12'><path class='curve {0}' d='M0 6 L26 6'/><circle class='dot "
        "{0}' cx='13' cy='6' r='3.2'/></svg>{1}</li>",
        css, escape(name));
  };
  for (const std::string& name : names) entry(color_class(name), shown(name));
  entry("bound", "lower bound at the nominal rates");
  return text + "</ul>";
}

std::string tiles(const std::vector<const Point*>& largest) {
  std::string text;
  for (const Point* point : largest) {
    const Series* ours = point->find("sennit");
    const std::string best = point->best_peer();
    if (!ours || best.empty()) continue;
    const std::optional<double> gain = ratio(*point->find(best), *ours);
    if (!gain) continue;
    std::string bound;
    if (point->bounded())
      bound = fmt::format(", {:.2f} of the bound", *point->bound_us / ours->median_us());
    if (const Series* probed = point->find(kProbed))
      bound += fmt::format("; {} when told nothing of the tree: it then measures it first",
                           readable_time(probed->median_us()));
    text += fmt::format(
        "<div class=tile><b>{:.2g} ×</b>as fast as {} with ranks in <strong>{}</strong> "
        "order<br><span>{} of {}: {} against {}{}</span></div>",
        *gain, escape(shown(best)), escape(point->order), escape(point->collective),
        readable_size(point->bytes), readable_time(ours->median_us()),
        readable_time(point->find(best)->median_us()), bound);
  }
  return text.empty() ? "" : "<div class=tiles>" + text + "</div>";
}

bool simulated(const nlohmann::json& about) { return about.value("simulated", false); }

std::string about_section(const nlohmann::json& about) {
  const auto text = [&](const char* key) {
    const std::string value = about.value(key, "");
    return escape(value.empty() ? "not there" : value);
  };
  const int rounds = about.value("rounds", 1);
  std::string what, machine = text("machine"), versions = "sennit " + text("sennit"), figures;
  if (simulated(about)) {
    what = "Nothing was sent over it: its links and the ranks exist in the model only.";
    figures = text("model");
  } else {
    what =
        "Each host has its own network, UTS, IPC and mount namespace; every link is shaped in both "
        "directions.";
    machine += "; all hosts share its cores";
    for (const Peer& peer : peers())
      if (about.contains(peer.name))
        versions += fmt::format(", {} {}", peer.shown, text(peer.name.c_str()));
    figures = fmt::format(
        "medians of {} round{}, libraries in turns; an iteration takes as long as its slowest rank",
        rounds, rounds == 1 ? "" : "s");
  }
  return fmt::format(
      "<section><h2>The {} tree</h2><p class=soft>{}. {} Below the hosts: the ranks that each "
      "order puts there.</p><div "
      "class=scroll>{}</div><dl><dt>command</dt><dd><code>{}</code></dd><dt>date</dt><dd>{}</dd>"
      "<dt>machine</dt><dd>{}</dd><dt>versions</dt><dd>{}</dd><dt>figures</dt><dd>{}</dd></dl></"
      "section>",
      simulated(about) ? "simulated" : "emulated", escape(about.at("about")), what,
      draw_tree(about), text("command"), text("date"), machine, versions, figures);
}

// What the page's figures are; stands at its head.
std::string caption(const nlohmann::json& about) {
  if (simulated(about))
    return fmt::format(
        "<strong>Simulated</strong>, not measured: {}. Sennit's own schedules on a model of the "
        "tree, at flow level; no message was sent, and no other library takes part. Emulating it "
        "was not possible where this was made: {}",
        escape(about.at("about")), escape(about.value("why", "")));
  return fmt::format(
      "{}: measured on one machine that emulates the tree with Linux network namespaces. Real "
      "programs and real TCP; not a real cluster.",
      escape(about.at("about")));
}

// Throws where the record's first line lacks what a page shows.
Result<std::string> page_of(const Comparison& comparison) {
  std::vector<std::string> collectives;
  for (const Point& point : comparison.points)
    if (std::find(collectives.begin(), collectives.end(), point.collective) == collectives.end())
      collectives.push_back(point.collective);
  if (collectives.empty()) return invalid("the record holds no measurement");
  const double ranks = comparison.about.value("ranks_per_host", 1.0) *
                       static_cast<double>(comparison.about.at("hosts").size());
  const bool marked = simulated(comparison.about);
  std::string body;
  for (const std::string& collective : collectives) {
    std::vector<const Point*> points, largest;
    for (const Point& point : comparison.points)
      if (point.collective == collective) points.push_back(&point);
    std::stable_sort(points.begin(), points.end(),
                     [](const Point* a, const Point* b) { return a->bytes > b->bytes; });
    for (const Point* point : points)
      if (point->bytes == points[0]->bytes) largest.push_back(point);
    if (collective == collectives[0]) body += tiles(largest) + about_section(comparison.about);
    body += fmt::format(
        "<section><h2>{}, {}</h2><p class=soft>{}ime; shorter is better.{}</p>"
        "<div class=scroll>{}</div></section>",
        escape(collective), readable_size(points[0]->bytes), marked ? "Simulated t" : "T",
        points[0]->bounded() ? " The dotted line is the lower bound: no schedule can be faster on "
                               "links of these rates."
                             : "",
        draw_bars(largest));
    if (const std::string curves = draw_curves(comparison, collective); !curves.empty())
      body += fmt::format(
          "<section><h2>{}: {}time against size</h2><p class=soft>Both axes "
          "logarithmic.{}</p>{}<div "
          "class=scroll>{}</div></section>",
          escape(collective), marked ? "simulated " : "",
          marked ? ""
                 : " Below 1 MB the shapers' burst of 256 KiB lets messages pass faster than the "
                   "bound, which is therefore not drawn.",
          legend(points), curves);
    body += fmt::format(
        "<section><h2>{}: all {}figures</h2><p class=soft>algbw = size ÷ time and busbw = algbw × "
        "nccl-tests' factor, in GB/s; of bound = bound ÷ time; tier: where the bound binds; vs "
        "best peer: above 1 is faster than the quickest other library in that "
        "order.</p>{}</section>",
        escape(collective), marked ? "simulated " : "", table(points, ranks));
  }
  return html_page(marked ? "Collectives on an oversubscribed tree, simulated"
                          : "Collectives on an oversubscribed tree",
                   caption(comparison.about), body, kStyle);
}

}  // namespace

Result<std::string> report_page(const Comparison& comparison) {
  try {
    return page_of(comparison);
  } catch (const nlohmann::json::exception& error) {
    return invalid(
        fmt::format("the first line of the record is not one that this release of "
                    "`sennit emulate compare` writes: {}",
                    error.what()));
  }
}

}  // namespace sennit::emulate
