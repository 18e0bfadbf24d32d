// Figures of a comparison: series by library, medians, ratios, the table for people, and reading a
// record back.
#include <algorithm>
#include <cmath>
#include <fstream>

#include <fmt/core.h>

#include "base/median.hpp"
#include "base/text/json.hpp"
#include "command/emulate/compare.hpp"

namespace sennit::emulate {
namespace {

double median_if_any(const std::vector<double>& values) {
  return values.empty() ? std::nan("") : median(values);
}

// A setting by which the library has no time is the slowest.
bool quicker(const Series& a, const Series& b) {
  const double time = a.median_us(), other = b.median_us();
  return !std::isnan(time) && (std::isnan(other) || time < other);
}

// What a line says, in the series of its setting. Nothing takes no time: that is none.
void take_time(const nlohmann::json& line, std::vector<Series>* all) {
  const std::string setting = line.value("setting", "");
  auto series =
      std::find_if(all->begin(), all->end(), [&](const Series& s) { return s.setting == setting; });
  if (series == all->end()) series = all->insert(series, {.setting = setting, .time_us = {}});
  const size_t round = line.at("round");
  std::vector<double>& times = series->time_us;
  if (times.size() <= round) times.resize(round + 1, std::nan(""));
  const nlohmann::json& time = line.at("time_us");
  if (time.is_number() && time > 0) times[round] = time;
}

}  // namespace

double bus_factor(const std::string& collective, double ranks) {
  if (collective == "all_reduce") return 2 * (ranks - 1) / ranks;
  return collective == "broadcast" || collective == "reduce" ? 1 : (ranks - 1) / ranks;
}

double Series::median_us() const {
  std::vector<double> known;
  for (const double time : time_us)
    if (!std::isnan(time)) known.push_back(time);
  return median_if_any(known);
}

const Series* Point::find(const std::string& library) const {
  for (const auto& [name, series] : libraries)
    if (name == library) return &series;
  return nullptr;
}

std::string Point::best_peer() const {
  std::string best;
  for (const auto& [name, series] : libraries) {
    const double time = series.median_us();
    if (name == "sennit" || name == kProbed || name == kSimulated || name == kRecommended ||
        std::isnan(time))
      continue;
    if (best.empty() || time < find(best)->median_us()) best = name;
  }
  return best;
}

void Comparison::add(const nlohmann::json& line) {
  const std::string collective = line.at("collective"), order = line.at("order"),
                    library = line.at("library");
  const uint64_t bytes = line.at("bytes");
  auto point = std::find_if(points.begin(), points.end(), [&](const Point& p) {
    return p.collective == collective && p.order == order && p.bytes == bytes;
  });
  if (point == points.end()) {
    points.push_back({.collective = collective,
                      .order = order,
                      .bytes = bytes,
                      .bound_us = {},
                      .binding_tier = "",
                      .simulated = false,
                      .libraries = {},
                      .settings = {}});
    point = points.end() - 1;
  }
  if (line.value("bound_us", nlohmann::json()).is_number()) point->bound_us = line["bound_us"];
  point->simulated = line.value("simulated", false);
  if (line.value("binding_tier", nlohmann::json()).is_string())
    point->binding_tier = line["binding_tier"];
  std::vector<Series>& all = point->settings[library];
  take_time(line, &all);
  auto shown = std::find_if(point->libraries.begin(), point->libraries.end(),
                            [&](const auto& entry) { return entry.first == library; });
  if (shown == point->libraries.end()) shown = point->libraries.insert(shown, {library, {}});
  shown->second = *std::min_element(all.begin(), all.end(), quicker);
}

Result<Comparison> Comparison::read(const std::string& file) {
  std::ifstream stream(file);
  if (!stream) return Status(SENNIT_NOT_FOUND, fmt::format("{}: cannot read it", file));
  Comparison comparison;
  int number = 0;
  for (std::string text; std::getline(stream, text);) {
    number++;
    try {
      const nlohmann::json line = parse_json(text);
      if (line.is_discarded())
        return invalid(fmt::format("{}:{}: not a line of JSON", file, number));
      if (number == 1) {
        comparison.about = line;
        continue;
      }
      const int64_t round = line.at("round");
      if (round < 0 || round >= kMostRounds)
        return invalid(fmt::format("{}:{}: round {}: expected one from 0 to {}", file, number,
                                   round, kMostRounds - 1));
      comparison.add(line);
    } catch (const nlohmann::json::exception& error) {
      return invalid(
          fmt::format("{}:{}: not a line of a comparison: {}", file, number, error.what()));
    }
  }
  if (!comparison.about.contains("about"))
    return invalid(fmt::format(
        "{}:1: expected the first line that `sennit emulate compare --json` writes", file));
  return comparison;
}

std::optional<double> ratio(const Series& series, const Series& other) {
  std::vector<double> ratios;
  for (size_t i = 0; i < std::min(series.time_us.size(), other.time_us.size()); i++) {
    const double r = series.time_us[i] / other.time_us[i];
    if (!std::isnan(r)) ratios.push_back(r);
  }
  if (ratios.empty()) return std::nullopt;
  return median_if_any(ratios);
}

std::string with_setting(const std::string& library, const std::string& setting) {
  return setting.empty() ? library : fmt::format("{} ({})", library, setting);
}

std::string readable_time(double us) {
  if (us >= 1e6) return fmt::format("{:.3f} s", us / 1e6);
  if (us >= 1e5) return fmt::format("{:.0f} ms", us / 1e3);
  if (us >= 1e3) return fmt::format("{:.2f} ms", us / 1e3);
  return fmt::format("{:.0f} µs", us);
}

std::string readable_size(uint64_t bytes) {
  if (bytes >= 1'000'000 && bytes % 1'000'000 == 0) return fmt::format("{} MB", bytes / 1'000'000);
  if (bytes >= 1 << 20 && bytes % (1 << 20) == 0) return fmt::format("{} MiB", bytes >> 20);
  if (bytes >= 1024 && bytes % 1024 == 0) return fmt::format("{} KiB", bytes >> 10);
  return fmt::format("{} B", bytes);
}

std::string Comparison::table() const {
  const double ranks =
      about.value("ranks_per_host", 1.0) * static_cast<double>(about.at("hosts").size());
  std::string text =
      fmt::format("{:<15} {:>8} {:<9} {:<23} {:>9} {:>7} {:>7} {:>9} {:>8} {:<5} {:>9}{}\n",
                  "collective", "size", "order", "library", "time", "algbw", "busbw", "bound",
                  "of bound", "tier", "best peer", "  setting");
  text += fmt::format("{:<15} {:>8} {:<9} {:<23} {:>9} {:>7} {:>7} {:>9} {:>8} {:<5} {:>9}{}\n", "",
                      "", "", "", "", "GB/s", "GB/s", "", "", "", "÷ time", "");
  std::vector<Point> sorted = points;
  std::stable_sort(sorted.begin(), sorted.end(), [](const Point& a, const Point& b) {
    return std::tie(a.collective, a.bytes) < std::tie(b.collective, b.bytes);
  });
  for (const Point& point : sorted) {
    const std::string best = point.best_peer();
    const bool bounded = point.bounded();
    bool first = true;
    for (const auto& [library, series] : point.libraries) {
      const double time = series.median_us();
      const std::string of_bound = bounded ? fmt::format("{:.3f}", *point.bound_us / time) : "-";
      const std::optional<double> gain =
          best.empty() ? std::nullopt : ratio(*point.find(best), series);
      const double algbw = static_cast<double>(point.bytes) / time / 1e3;
      text += fmt::format(
          "{:<15} {:>8} {:<9} {:<23} {:>9} {:>7.3g} {:>7.3g} {:>9} {:>8} {:<5} {:>9}{}\n",
          first ? point.collective : "", first ? readable_size(point.bytes) : "",
          first ? point.order : "", library, std::isnan(time) ? "-" : readable_time(time), algbw,
          algbw * bus_factor(point.collective, ranks),
          bounded ? readable_time(*point.bound_us) : "-", of_bound,
          point.binding_tier.empty() ? "-" : point.binding_tier,
          gain ? fmt::format("{:.2f}", *gain) : "-",
          series.setting.empty() ? "" : "  " + series.setting);
      first = false;
    }
  }
  return text;
}

}  // namespace sennit::emulate
