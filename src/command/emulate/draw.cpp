// The charts of the report: bars of the largest message, and time against size.
#include "command/emulate/draw.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include <fmt/core.h>

namespace sennit::emulate {
namespace {

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

std::vector<std::string> library_names(const std::vector<const Point*>& points) {
  std::vector<std::string> names;
  for (const Point* point : points)
    for (const auto& [name, series] : point->libraries)
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  return names;
}

// A line with a dot and its figures for each size.
void add_line(const std::string& name, const std::string& style,
              std::vector<std::pair<double, double>> points, LineChart* chart) {
  Line line{name, style, std::move(points), {}};
  for (const auto& [bytes, us] : line.points)
    line.tips.push_back(fmt::format("{}, {}: {}", name, readable_size(static_cast<uint64_t>(bytes)),
                                    readable_time(us)));
  chart->lines.push_back(std::move(line));
}

// Times of the libraries in one order against sizes, in a frame whose axes are set. The bound lies
// below, sennit on top.
void add_lines(const std::vector<const Point*>& points, LineChart* chart) {
  std::vector<std::pair<double, double>> bound;
  for (const Point* point : points)
    if (point->bounded() && *point->bound_us >= chart->y.least)
      bound.emplace_back(static_cast<double>(point->bytes), *point->bound_us);
  add_line("lower bound", "bound", std::move(bound), chart);
  std::vector<std::string> names = library_names(points);
  std::reverse(names.begin(), names.end());  // the first, sennit, is drawn last
  for (const std::string& name : names) {
    std::vector<std::pair<double, double>> times;
    for (const Point* point : points)
      if (const Series* series = point->find(name); series && !std::isnan(series->median_us()))
        times.emplace_back(static_cast<double>(point->bytes), series->median_us());
    add_line(shown(name), color_class(name), std::move(times), chart);
  }
}

// Times by powers of ten.
Axis axis_of_times(double least, double most) {
  Axis axis{std::pow(10, std::floor(std::log10(least))),
            std::pow(10, std::ceil(std::log10(most))),
            true,
            {}};
  for (double us = axis.least; us <= axis.most * 1.01; us *= 10)
    axis.ticks.emplace_back(us, tick_time(us));
  return axis;
}

// Sizes by powers of eight; where there are many only every second has its label.
Axis axis_of_sizes(double least, double most) {
  constexpr double kSlack = 0.03;  // of a power: 16,000,000 is below 16 MiB
  constexpr int kManySteps = 5;
  const double first = std::floor(std::log2(least) / 3);
  const double last = std::ceil(std::log2(most) / 3 - kSlack);
  Axis axis{std::pow(8, first), std::pow(8, last), true, {}};
  const int steps = static_cast<int>(std::lround(last - first)), every = steps > kManySteps ? 2 : 1;
  for (int i = 0; i <= steps; i++) {
    const double bytes = axis.least * std::pow(8, i);
    axis.ticks.emplace_back(bytes, (steps - i) % every == 0 ? tick_size(bytes) : "");
  }
  return axis;
}

}  // namespace

std::string shown(const std::string& library) {
  if (library == kProbed) return "sennit, told nothing";
  if (library == kRecommended) return "Open MPI, sennit's order";
  const Peer* peer = find_peer(library);
  return peer ? peer->shown : library;
}

const char* color_class(const std::string& library) {
  if (library == "sennit" || library == kSimulated) return "blue";
  if (library == kProbed) return "blue probed";
  if (library == kRecommended) return "orange reordered";
  const Peer* peer = find_peer(library);
  return peer ? peer->color : "pale";
}

std::string draw_bars(const std::vector<const Point*>& orders) {
  constexpr double kLabels = 190, kWidth = 1040, kFigures = 210, kHeading = 24, kBetween = 12;
  double longest = 0;
  for (const Point* point : orders)
    for (const auto& [name, series] : point->libraries)
      if (!std::isnan(series.median_us())) longest = std::max(longest, series.median_us());
  std::string text;
  double y = 8;
  for (const Point* point : orders) {
    text += fmt::format("<text class='panel' x='0' y='{:.0f}'>{} order</text>", y + 14,
                        escape(point->order));
    BarChart chart;
    chart.most = longest;
    chart.top = y + kHeading;
    chart.labels = kLabels;
    chart.width = kWidth - kLabels - kFigures;
    if (point->bounded()) {
      chart.mark = *point->bound_us;
      chart.mark_says = "lower bound: " + readable_time(*point->bound_us);
    }
    for (const auto& [name, series] : point->libraries) {
      const double us = series.median_us();
      Bar bar{shown(name), "has none", "", color_class(name), std::nullopt};
      if (!std::isnan(us)) {
        bar.value = readable_time(us);
        bar.amount = us;
        if (point->bounded()) bar.note = fmt::format("· {:.2f} of bound", *point->bound_us / us);
      }
      chart.bars.push_back(std::move(bar));
    }
    text += chart.draw();
    y = chart.top + chart.height() + kBetween;
  }
  return svg_picture(kWidth, y, text);
}

std::string draw_curves(const Comparison& comparison, const std::string& collective) {
  constexpr double kWidth = 1040, kHeight = 380, kLeft = 62, kRight = 24, kBetween = 56, kTop = 30;
  std::map<std::string, std::vector<const Point*>> by_order;
  std::vector<std::string> orders;
  double least = 1e300, most = 0, smallest = 1e300, largest = 0;
  for (const Point& point : comparison.points) {
    // What was less than an element for each rank is of 0 bytes, which have no logarithm.
    if (point.collective != collective || point.bytes == 0) continue;
    if (by_order[point.order].empty()) orders.push_back(point.order);
    by_order[point.order].push_back(&point);
    smallest = std::min(smallest, static_cast<double>(point.bytes));
    largest = std::max(largest, static_cast<double>(point.bytes));
    for (const auto& [name, series] : point.libraries)
      if (const double us = series.median_us(); !std::isnan(us)) {
        least = std::min(least, us);
        most = std::max(most, us);
      }
  }
  if (orders.empty() || most == 0 || smallest == largest) return "";
  const auto panels = static_cast<double>(orders.size());
  LineChart chart;
  chart.x = axis_of_sizes(smallest, largest);
  chart.y = axis_of_times(least, most);
  chart.left = kLeft;
  chart.top = kTop;
  chart.width = (kWidth - kLeft - kRight - kBetween * (panels - 1)) / panels;
  chart.height = kHeight - 2 * kTop;
  chart.upright_grid = true;
  std::string text;
  for (const std::string& order : orders) {
    std::vector<const Point*>& points = by_order[order];
    std::sort(points.begin(), points.end(),
              [](const Point* a, const Point* b) { return a->bytes < b->bytes; });
    chart.lines.clear();
    add_lines(points, &chart);
    text += fmt::format("<text class='panel' x='{:.0f}' y='16'>{} order</text>", chart.left,
                        escape(order)) +
            chart.draw();
    chart.left += chart.width + kBetween;
    chart.labels_of_y = false;
  }
  return svg_picture(kWidth, kHeight, text);
}

}  // namespace sennit::emulate
