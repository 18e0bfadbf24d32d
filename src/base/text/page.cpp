// page.cpp: see base/text/page.hpp.
#include "base/text/page.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/core.h>

#include "base/text/json.hpp"

namespace sennit {
namespace {

constexpr const char* kStyle = R"css(
:root { color-scheme:light dark; --ground:#fbfbfc; --card:#ffffff; --ink:#17202b; --soft:#5d6875;
  --line:#e3e6ea; --axis:#c9d0d8; --node:#f1f4f8; --pale:#9db4d3; --blue:#1b62d6;
  --orange:#cf6a0a; --green:#4d7a2f; --red:#a33f3f; --violet:#7d4cc0; --alarm:#cf2f2f; }
@media (prefers-color-scheme:dark) { :root { --ground:#0f141b; --card:#161d27; --ink:#e7ecf2;
  --soft:#9aa7b5; --line:#2a3441; --axis:#3a4654; --node:#202a37; --pale:#51657f; --blue:#6ea8ff;
  --orange:#ffa24d; --green:#9ccf77; --red:#e58080; --violet:#c39bff; --alarm:#ff7b72; } }
* { box-sizing:border-box; }
body { margin:0; background:var(--ground); color:var(--ink);
  font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans","DejaVu Sans",sans-serif; }
main { max-width:1120px; margin:0 auto; padding:28px 24px 56px; }
h1 { font-size:26px; line-height:1.2; margin:0 0 4px; } h2 { font-size:17px; margin:0 0 10px; }
p { margin:0 0 8px; } .note, .soft { color:var(--soft); }
table + .note, .figures + .note, svg + .note { margin-top:10px; }
section { background:var(--card); border:1px solid var(--line); border-radius:10px;
  padding:18px 20px; margin-top:18px; overflow-x:auto; }
section.alarm { border-color:var(--alarm); }
pre { margin:0; white-space:pre-wrap; font:13px/1.5 ui-monospace,Menlo,"DejaVu Sans Mono",monospace; }
code { font:13px/1.5 ui-monospace,"DejaVu Sans Mono",monospace; overflow-wrap:anywhere; }
table { border-collapse:collapse; font-size:14px; font-variant-numeric:tabular-nums; }
th, td { padding:4px 18px 4px 0; text-align:left; vertical-align:top;
  border-bottom:1px solid var(--line); }
th { color:var(--soft); font-weight:500; }
svg { display:block; max-width:max(100%,820px); height:auto;
  font:13px system-ui,"Noto Sans","DejaVu Sans",sans-serif; }
svg text { fill:var(--ink); } svg .soft { fill:var(--soft); } .axis { stroke:var(--axis); }
.bar { fill:var(--pale); } .curve { fill:none; stroke:var(--pale); stroke-width:2;
  stroke-linejoin:round; } .dot { fill:var(--pale); }
.bar.blue, .dot.blue { fill:var(--blue); } .curve.blue { stroke:var(--blue); }
.bar.orange, .dot.orange { fill:var(--orange); } .curve.orange { stroke:var(--orange); }
.bar.green, .dot.green { fill:var(--green); } .curve.green { stroke:var(--green); }
.bar.red, .dot.red { fill:var(--red); } .curve.red { stroke:var(--red); }
.bar.violet, .dot.violet { fill:var(--violet); } .curve.violet { stroke:var(--violet); }
.curve.dashed { stroke-dasharray:7 4; } .curve.dotted { stroke-dasharray:2 4; }
.mark { stroke:var(--orange); stroke-width:2; stroke-dasharray:5 4; }
)css";

// Between a label and what it belongs to, in pixels.
constexpr double kApart = 8;
constexpr double kDotRadius = 3.2;

}  // namespace

std::string escape(const std::string& text) {
  std::string safe;
  // XML ends at bytes that are no UTF-8, as a name may have; JSON has them replaced.
  const std::string utf8 = parse_json(json_to_text(nlohmann::json(text))).get<std::string>();
  for (const char c : utf8) {
    if (c == '&')
      safe += "&amp;";
    else if (c == '<')
      safe += "&lt;";
    else if (c == '>')
      safe += "&gt;";
    else if (c == '\'')
      safe += "&#39;";
    else if (c == '"')
      safe += "&quot;";
    else if (static_cast<unsigned char>(c) >= 32 || c == '\n' || c == '\t')
      safe += c;
  }
  return safe;
}

std::string html_page(const std::string& title, const std::string& lead, const std::string& body,
                      const std::string& style) {
  return fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
      "content=\"width=device-width\"><title>{0}</title>\n<style>{1}{2}</style></head>\n"
      "<body><main><h1>{0}</h1>\n{3}{4}</main></body></html>\n",
      escape(title), kStyle, style, lead.empty() ? "" : "<p class=\"note\">" + lead + "</p>\n",
      body);
}

std::string html_section(const std::string& heading, const std::string& body) {
  return fmt::format("<section>{}{}</section>\n",
                     heading.empty() ? "" : "<h2>" + escape(heading) + "</h2>\n", body);
}

std::string html_table(const std::vector<std::string>& head,
                       const std::vector<std::vector<std::string>>& rows) {
  std::string text = "<table>";
  const auto add_row = [&](const std::vector<std::string>& cells, const char* element) {
    text += "<tr>";
    for (const std::string& cell : cells)
      text += fmt::format("<{0}>{1}</{0}>", element, escape(cell));
    text += "</tr>\n";
  };
  if (!head.empty()) add_row(head, "th");
  for (const std::vector<std::string>& row : rows) add_row(row, "td");
  return text + "</table>\n";
}

std::string html_note(const std::string& text) {
  return "<p class=\"note\">" + escape(text) + "</p>\n";
}

std::string svg_picture(double width, double height, const std::string& elements) {
  return fmt::format(
      "<svg viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" role=\"img\">{2}</svg>\n", width,
      height, elements);
}

std::string BarChart::draw() const {
  std::string text;
  const auto length = [&](double amount) {
    return most > 0 && amount > 0 ? std::min(amount, most) / most * width : 0;
  };
  for (size_t i = 0; i < bars.size(); i++) {
    const Bar& bar = bars[i];
    const double y = top + row * static_cast<double>(i) + gap / 2, base = y + (row - gap) / 2 + 5;
    text += fmt::format("<text x=\"{:.0f}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>",
                        labels - kApart, base, escape(bar.label));
    const double end = labels + length(bar.amount.value_or(0));
    if (bar.amount)
      text += fmt::format(
          "<rect class=\"bar {}\" x=\"{:.0f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.0f}\" "
          "rx=\"3\"/>",
          bar.style, labels, y, std::max(1.0, end - labels), row - gap);
    text += fmt::format(
        "<text x=\"{:.1f}\" y=\"{:.1f}\">{}{} <tspan class=\"soft\">{}</tspan></text>\n",
        end + (bar.amount ? kApart : 0), base, bar.amount.value_or(0) > most ? "→ " : "",
        escape(bar.value), escape(bar.note));
  }
  if (mark > 0)
    text += fmt::format(
        "<line class=\"mark\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1:.0f}\" y2=\"{2:.0f}\">"
        "<title>{3}</title></line>\n",
        labels + length(mark), top, top + height(), escape(mark_says));
  return text;
}

double Axis::part(double value) const {
  const double part = logarithmic ? std::log(value / least) / std::log(most / least)
                                  : (value - least) / (most - least);
  return std::isfinite(part) ? part : 0;
}

std::string LineChart::draw() const {
  std::string text;
  const auto grid = [&](double x1, double x2, double y1, double y2) {
    text += fmt::format(
        "<line class=\"axis\" x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>", x1, x2,
        y1, y2);
  };
  for (const auto& [value, label] : y.ticks) {
    grid(left, left + width, y_of(value), y_of(value));
    if (labels_of_y && !label.empty())
      text += fmt::format(
          "<text class=\"soft\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>\n",
          left - kApart, y_of(value) + 4, escape(label));
  }
  for (const auto& [value, label] : x.ticks) {
    if (upright_grid) grid(x_of(value), x_of(value), top, top + height);
    if (!label.empty())
      text += fmt::format(
          "<text class=\"soft\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>\n",
          x_of(value), top + height + 20, escape(label));
  }
  for (const Line& line : lines) {
    std::string path;
    for (const auto& [at, value] : line.points)
      path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : " L", x_of(at), y_of(value));
    if (path.empty()) continue;
    text += fmt::format("<path class=\"curve {}\" d=\"{}\"/>\n", line.style, path);
    // A path of one point shows nothing.
    const size_t dots =
        line.points.size() == 1 ? 1 : std::min(line.points.size(), line.tips.size());
    for (size_t i = 0; i < dots; i++)
      text += fmt::format(
          "<circle class=\"dot {}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\">{}</circle>", line.style,
          x_of(line.points[i].first), y_of(line.points[i].second), kDotRadius,
          i < line.tips.size() ? "<title>" + escape(line.tips[i]) + "</title>" : "");
  }
  return text;
}

}  // namespace sennit
