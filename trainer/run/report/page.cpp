// page.cpp: a run as one self-contained HTML page: curves of loss, speed and times, the sampled
// text.
#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include <fmt/core.h>

#include "base/text/page.hpp"
#include "trainer/run/report/log.hpp"

namespace sennit::trainer {
namespace {

constexpr const char* kStyle = R"css(
td { padding:2px 18px 2px 0; border:0; } td:first-child { color:var(--soft); white-space:nowrap; }
svg { width:100%; min-width:640px; }
)css";
constexpr const char* kLineStyles[] = {"blue", "orange", "green"};

struct Curve {
  const char* name;
  std::function<std::optional<double>(const StepRecord&)> value;
};

// Whole numbers at even distances, at most about eight of them: 1, 2, 3 or 0, 50, 100.
std::vector<double> ticks(double first, double last) {
  double apart = 1;
  for (int i = 0; (last - first) / apart > 8; i++) apart *= i % 3 == 1 ? 2.5 : 2;
  std::vector<double> steps;
  for (double step = std::ceil(first / apart) * apart; step <= last; step += apart)
    steps.push_back(step);
  return steps;
}

// Curves over the steps, from 0 or the least value to the largest. At most as many as kLineStyles.
std::string chart(const std::string& title, const std::vector<StepRecord>& records, bool from_zero,
                  const std::vector<Curve>& curves) {
  constexpr double kLegend = 220, kKey = 12;  // pixels from one name to the next, and of its square
  constexpr int kLevels = 4;
  double least = from_zero ? 0 : 1e300, most = -1e300;
  LineChart chart;
  std::string legend;
  for (size_t c = 0; c < curves.size(); c++) {
    Line line{curves[c].name, kLineStyles[c], {}, {}};
    for (const StepRecord& record : records)
      if (const std::optional<double> y = curves[c].value(record); y && std::isfinite(*y)) {
        line.points.emplace_back(record.step, *y);
        least = std::min(least, *y);
        most = std::max(most, *y);
      }
    if (line.points.empty()) continue;
    const double x = chart.left + static_cast<double>(c) * kLegend;
    legend += fmt::format(
        "<rect class=\"bar {0}\" x=\"{1}\" y=\"4\" width=\"{2}\" height=\"{2}\"/><text x=\"{3}\" "
        "y=\"15\">{4}</text>\n",
        line.style, x, kKey, x + kKey + 6, escape(line.name));
    chart.lines.push_back(std::move(line));
  }
  if (most < least) return {};
  if (most - least < 1e-12) most = least + 1;
  chart.y = {least, most, false, {}};
  for (int level = 0; level <= kLevels; level++) {
    const double y = least + (most - least) * level / kLevels;
    chart.y.ticks.emplace_back(y, y < 1000 ? fmt::format("{:.4g}", y) : fmt::format("{:.0f}", y));
  }
  const auto first = static_cast<double>(records.front().step),
             last = static_cast<double>(records.back().step);
  chart.x = {first, std::max(first + 1, last), false, {}};
  for (const double step : ticks(first, last))
    chart.x.ticks.emplace_back(step, fmt::format("{:.0f}", step));
  return html_section(title,
                      svg_picture(1000, chart.top + chart.height + 30, chart.draw() + legend));
}

}  // namespace

std::string train_page(const std::vector<StepRecord>& records,
                       const std::vector<std::pair<std::string, std::string>>& facts,
                       const std::string& sample) {
  std::vector<std::vector<std::string>> rows;
  for (const auto& [name, value] : facts) rows.push_back({name, value});
  std::string page = html_section("", html_table({}, rows));
  if (!records.empty()) {
    using R = StepRecord;
    page += chart("Loss, nats a token", records, false,
                  {{"training", [](const R& r) { return std::optional(r.loss); }},
                   {"held out", [](const R& r) { return r.held_out; }}});
    page += chart("Tokens a second", records, true,
                  {{"tokens/s", [](const R& r) { return std::optional(r.tokens_per_s); }}});
    page += chart("Model operations, % of the measured matrix peak", records, true,
                  {{"MFU", [](const R& r) {
                      return r.mfu_measured ? std::optional(100 * *r.mfu_measured) : std::nullopt;
                    }}});
    page +=
        chart("Milliseconds a step", records, true,
              {{"step", [](const R& r) { return std::optional(r.seconds * 1e3); }},
               {"communicating", [](const R& r) { return std::optional(r.comm_s * 1e3); }},
               {"of that exposed", [](const R& r) { return std::optional(r.exposed_s * 1e3); }}});
    page += chart("Norm of the gradient", records, true,
                  {{"before clipping", [](const R& r) { return std::optional(r.gradient_norm); }}});
  }
  if (!sample.empty()) page += html_section("Sampled text", "<pre>" + escape(sample) + "</pre>");
  return html_page("A training run", "", page, kStyle);
}

}  // namespace sennit::trainer
