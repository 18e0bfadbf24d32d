// The charts of the report: bars of the largest message, and time against size.
#include "command/emulate/draw.hpp"
#include "base/page_text.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace sennit::emulate {
namespace {

struct Axis {  // logarithmic
  double least, most;
  double from, to;  // pixels
  double at(double value) const {
    return from +
           (std::log(value) - std::log(least)) / (std::log(most) - std::log(least)) * (to - from);
  }
};

std::string tick_time(double us) {
  if (us >= 1e6) return fmt::format("{:g} s", us / 1e6);
  if (us >= 1e3) return fmt::format("{:g} ms", us / 1e3);
  return fmt::format("{:g} µs", us);
}

std::string tick_size(double bytes) {
  if (bytes >= 1 << 20) return fmt::format("{:g} MiB", bytes / (1 << 20));
  if (bytes >= 1024) return fmt::format("{:g} KiB", bytes / 1024);
  return fmt::format("{:g} B", bytes);
}

using Curve = std::vector<std::pair<double, double>>;  // bytes, µs

std::string draw_curve(const Curve& curve, const Axis& x, const Axis& y, const std::string& name,
                       const std::string& css) {
  std::string path;
  for (const auto& [bytes, us] : curve)
    path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : " L", x.at(bytes), y.at(us));
  std::string text = fmt::format("<path class='curve {}' d='{}'/>", css, path);
  for (const auto& [bytes, us] : curve)
    text += fmt::format(
        "<circle class='dot {}' cx='{:.1f}' cy='{:.1f}' r='3.2'><title>{}, {}: {}</title></circle>",
        css, x.at(bytes), y.at(us), escape(name), readable_size(static_cast<uint64_t>(bytes)),
        readable_time(us));
  return text;
}

std::vector<std::string> library_names(const std::vector<const Point*>& points) {
  std::vector<std::string> names;
  for (const Point* point : points)
    for (const auto& [name, series] : point->libraries)
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  return names;
}

std::string draw_panel(const std::vector<const Point*>& points, const std::string& order,
                       double left, double width, Axis x, const Axis& y, bool first) {
  x.from = left, x.to = left + width;
  std::string text =
      fmt::format("<text class='panel' x='{:.0f}' y='16'>{} order</text>", left, escape(order));
  for (double us = y.least; us <= y.most * 1.01; us *= 10) {
    text += fmt::format("<line class='grid' x1='{:.1f}' x2='{:.1f}' y1='{:.1f}' y2='{:.1f}'/>",
                        x.from, x.to, y.at(us), y.at(us));
    if (first)
      text += fmt::format("<text class='tick' text-anchor='end' x='{:.1f}' y='{:.1f}'>{}</text>",
                          x.from - 8, y.at(us) + 4, tick_time(us));
  }
  const int steps = static_cast<int>(std::lround(std::log(x.most / x.least) / std::log(8.0)));
  const int every = steps > 5 ? 2 : 1;
  for (int i = 0; i <= steps; i++) {
    const double bytes = x.least * std::pow(8, i);
    text += fmt::format("<line class='grid' x1='{:.1f}' x2='{:.1f}' y1='{:.1f}' y2='{:.1f}'/>",
                        x.at(bytes), x.at(bytes), y.to, y.from);
    if ((steps - i) % every == 0)
      text += fmt::format("<text class='tick' text-anchor='middle' x='{:.1f}' y='{:.1f}'>{}</text>",
                          x.at(bytes), y.from + 18, tick_size(bytes));
  }
  Curve bound;
  for (const Point* point : points)
    if (point->bounded() && *point->bound_us >= y.least)
      bound.emplace_back(static_cast<double>(point->bytes), *point->bound_us);
  text += draw_curve(bound, x, y, "lower bound", "bound");
  std::vector<std::string> names = library_names(points);
  std::reverse(names.begin(), names.end());  // the first, sennit, is drawn last and lies on top
  for (const std::string& name : names) {
    Curve curve;
    for (const Point* point : points)
      if (const Series* series = point->find(name); series && !std::isnan(series->median_us()))
        curve.emplace_back(static_cast<double>(point->bytes), series->median_us());
    text += draw_curve(curve, x, y, shown(name), color_class(name));
  }
  return text;
}

}  // namespace

std::string shown(const std::string& library) {
  if (library == "openmpi") return "Open MPI";
  if (library == kProbed) return "sennit, told nothing";
  if (library == kRecommended) return "Open MPI, sennit's order";
  return library == "gloo" ? "Gloo" : library;
}

const char* color_class(const std::string& library) {
  if (library == "sennit" || library == kSimulated) return "sennit";
  if (library == kProbed) return "sennit probed";
  if (library == "openmpi") return "openmpi";
  if (library == kRecommended) return "openmpi reordered";
  return library == "gloo" ? "gloo" : "other";
}

std::string draw_bars(const std::vector<const Point*>& orders) {
  constexpr double kLabels = 190, kWidth = 1040, kFigures = 210, kBar = 20, kGap = 6;
  double longest = 0;
  for (const Point* point : orders)
    for (const auto& [name, series] : point->libraries)
      if (!std::isnan(series.median_us())) longest = std::max(longest, series.median_us());
  const auto length = [&](double us) { return us / longest * (kWidth - kLabels - kFigures); };
  std::string text;
  double y = 8;
  for (const Point* point : orders) {
    text += fmt::format("<text class='panel' x='0' y='{:.0f}'>{} order</text>", y + 14,
                        escape(point->order));
    y += 24;
    const double top = y;
    for (const auto& [name, series] : point->libraries) {
      const double us = series.median_us();
      text += fmt::format("<text class='label' text-anchor='end' x='{:.0f}' y='{:.0f}'>{}</text>",
                          kLabels - 10, y + kBar - 5, escape(shown(name)));
      if (std::isnan(us)) {
        text += fmt::format("<text class='tick' x='{:.0f}' y='{:.0f}'>has none</text>", kLabels,
                            y + kBar - 5);
      } else {
        const std::string of_bound =
            point->bound_us ? fmt::format(" · {:.2f} of bound", *point->bound_us / us) : "";
        text += fmt::format(
            "<rect class='bar {}' x='{:.0f}' y='{:.0f}' width='{:.1f}' height='{:.0f}' rx='3'/>"
            "<text class='figure' x='{:.1f}' y='{:.0f}'>{}<tspan class='tick'>{}</tspan></text>",
            color_class(name), kLabels, y, length(us), kBar, kLabels + length(us) + 8, y + kBar - 5,
            readable_time(us), of_bound);
      }
      y += kBar + kGap;
    }
    if (point->bound_us) {
      const double x = kLabels + length(*point->bound_us);
      text += fmt::format(
          "<line class='boundline' x1='{0:.1f}' x2='{0:.1f}' y1='{1:.0f}' "
          "y2='{2:.0f}'><title>lower bound: "
          "{3}</title></line>",
          x, top - 4, y - kGap + 4, readable_time(*point->bound_us));
    }
    y += 12;
  }
  return fmt::format("<svg viewBox='0 0 {:.0f} {:.0f}' role='img'>{}</svg>", kWidth, y, text);
}

std::string draw_curves(const Comparison& comparison, const std::string& collective) {
  constexpr double kWidth = 1040, kHeight = 380, kLeft = 62, kBetween = 26;
  std::vector<std::string> orders;
  double least = 1e300, most = 0, smallest = 1e300, largest = 0;
  for (const Point& point : comparison.points) {
    if (point.collective != collective) continue;
    if (std::find(orders.begin(), orders.end(), point.order) == orders.end())
      orders.push_back(point.order);
    smallest = std::min(smallest, static_cast<double>(point.bytes));
    largest = std::max(largest, static_cast<double>(point.bytes));
    for (const auto& [name, series] : point.libraries)
      if (const double us = series.median_us(); !std::isnan(us))
        least = std::min(least, us), most = std::max(most, us);
  }
  if (orders.empty() || most == 0 || smallest == largest) return "";
  const auto decade = [](double value, bool up) {
    const double power = std::log10(value);
    return std::pow(10, up ? std::ceil(power) : std::floor(power));
  };
  const auto octal = [](double value, bool up) {
    const double power = std::log2(value) / 3;
    return std::pow(8, up ? std::ceil(power - 0.03) : std::floor(power));
  };
  const Axis x{octal(smallest, false), octal(largest, true), 0, 0};
  const Axis y{decade(least, false), decade(most, true), kHeight - 30, 30};
  const double width = (kWidth - kLeft - 24 - kBetween * static_cast<double>(orders.size() - 1)) /
                       static_cast<double>(orders.size());
  std::string text;
  for (size_t i = 0; i < orders.size(); i++) {
    std::vector<const Point*> points;
    for (const Point& point : comparison.points)
      if (point.collective == collective && point.order == orders[i]) points.push_back(&point);
    std::sort(points.begin(), points.end(),
              [](const Point* a, const Point* b) { return a->bytes < b->bytes; });
    text += draw_panel(points, orders[i], kLeft + static_cast<double>(i) * (width + kBetween),
                       width, x, y, i == 0);
  }
  return fmt::format("<svg viewBox='0 0 {:.0f} {:.0f}' role='img'>{}</svg>", kWidth, kHeight, text);
}

}  // namespace sennit::emulate
