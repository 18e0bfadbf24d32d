// page.cpp: a run as one self-contained HTML page: curves of loss, speed and times, the sampled
// text.
#include <algorithm>
#include <cmath>
#include <functional>

#include <fmt/format.h>

#include "base/page_text.hpp"
#include "trainer/run/report/log.hpp"

namespace sennit::trainer {
namespace {

constexpr const char* kStyle = R"(
:root { color-scheme:light dark; }
body { margin:0; background:#fbfbfc; color:#17202b; font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif; }
main { max-width:1080px; margin:0 auto; padding:28px 24px 48px; }
h1 { font-size:24px; margin:0 0 2px; } h2 { font-size:16px; margin:0 0 10px; }
section { background:#fff; border:1px solid #e3e6ea; border-radius:10px; padding:18px 20px; margin-top:18px; overflow-x:auto; }
table { border-collapse:collapse; } td { padding:2px 18px 2px 0; vertical-align:top; } td:first-child { color:#5d6875; white-space:nowrap; }
svg { display:block; width:100%; min-width:640px; height:auto; } text { fill:#17202b; font:13px system-ui,"DejaVu Sans",sans-serif; }
.soft { fill:#5d6875; } .axis { stroke:#c9d0d8; } .line { fill:none; stroke-width:2; } .line0 { stroke:#2f6fb7; } .line1 { stroke:#c8781e; } .line2 { stroke:#6d7f52; }
.key0 { fill:#2f6fb7; } .key1 { fill:#c8781e; } .key2 { fill:#6d7f52; } pre { white-space:pre-wrap; margin:0; font:13px/1.5 ui-monospace,"DejaVu Sans Mono",monospace; }
@media (prefers-color-scheme:dark) { body { background:#0f141b; color:#e7ecf2; } td:first-child { color:#9aa7b5; }
 section { background:#161d27; border-color:#2a3441; } text { fill:#e7ecf2; } .soft { fill:#9aa7b5; } .axis { stroke:#3a4654; } })";

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

// Curves over the steps, from 0 or the least value to the largest.
std::string chart(const std::string& title, const std::vector<StepRecord>& records, bool from_zero,
                  const std::vector<Curve>& curves) {
  constexpr double kLeft = 70, kTop = 26, kWidth = 900, kHeight = 240;
  double least = from_zero ? 0 : 1e300, most = -1e300;
  for (const StepRecord& record : records)
    for (const Curve& curve : curves)
      if (const std::optional<double> y = curve.value(record); y && std::isfinite(*y)) {
        least = std::min(least, *y);
        most = std::max(most, *y);
      }
  if (most < least) return {};
  if (most - least < 1e-12) most = least + 1;
  const auto first = static_cast<double>(records.front().step),
             last = static_cast<double>(records.back().step);
  const auto x_of = [&](double step) {
    return kLeft + (step - first) / std::max(1.0, last - first) * kWidth;
  };
  const auto y_of = [&](double y) { return kTop + (most - y) / (most - least) * kHeight; };
  std::string text = fmt::format("<section><h2>{}</h2><svg viewBox=\"0 0 1000 {}\" role=\"img\">\n",
                                 escape(title), kTop + kHeight + 30);
  for (int tick = 0; tick <= 4; tick++) {
    const double y = least + (most - least) * tick / 4;
    text += fmt::format(
        "<line class=\"axis\" x1=\"{0}\" x2=\"{1}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\"/><text "
        "class=\"soft\" "
        "x=\"{3}\" y=\"{4:.1f}\" text-anchor=\"end\">{5}</text>\n",
        kLeft, kLeft + kWidth, y_of(y), kLeft - 8, y_of(y) + 4,
        y < 1000 ? fmt::format("{:.4g}", y) : fmt::format("{:.0f}", y));
  }
  for (const double step : ticks(first, last))
    text += fmt::format(
        "<text class=\"soft\" x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{:.0f}</text>\n",
        x_of(step), kTop + kHeight + 20, step);
  for (size_t c = 0; c < curves.size(); c++) {
    std::string points;
    for (const StepRecord& record : records)
      if (const std::optional<double> y = curves[c].value(record); y && std::isfinite(*y))
        points += fmt::format("{:.1f},{:.1f} ", x_of(static_cast<double>(record.step)), y_of(*y));
    if (points.empty()) continue;
    const double x = kLeft + static_cast<double>(c) * 220;
    text += fmt::format(
        "<polyline class=\"line line{0}\" points=\"{1}\"/><rect class=\"key{0}\" x=\"{2}\" y=\"4\" "
        "width=\"12\" "
        "height=\"12\"/><text x=\"{3}\" y=\"15\">{4}</text>\n",
        c, points, x, x + 18, escape(curves[c].name));
  }
  return text + "</svg></section>\n";
}

}  // namespace

std::string train_page(const std::vector<StepRecord>& records,
                       const std::vector<std::pair<std::string, std::string>>& facts,
                       const std::string& sample) {
  std::string page = fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
      "content=\"width=device-width\"><title>sennit "
      "train</title><style>{}</style></head><body><main>\n"
      "<h1>A training run</h1>\n<section><table>\n",
      kStyle);
  for (const auto& [name, value] : facts)
    page += fmt::format("<tr><td>{}</td><td>{}</td></tr>\n", escape(name), escape(value));
  page += "</table></section>\n";
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
  if (!sample.empty())
    page += fmt::format("<section><h2>Sampled text</h2><pre>{}</pre></section>\n", escape(sample));
  return page + "</main></body></html>\n";
}

}  // namespace sennit::trainer
