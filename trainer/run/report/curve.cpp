// curve.cpp: see trainer/run/report/curve.hpp.
#include "trainer/run/report/curve.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <vector>

#include <fmt/core.h>

namespace sennit::trainer {
namespace {

constexpr int kAcross = 2, kDown = 4;  // dots of a cell

// The bits of Unicode's U+2800 to U+28FF, by row and column of the dot.
constexpr unsigned kDot[kDown][kAcross] = {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};

class Canvas {
 public:
  Canvas(int columns, int rows) : columns_(columns), cells_(static_cast<size_t>(columns * rows)) {}

  void dot(int x, int y) { cell(x / kAcross, y / kDown) |= kDot[y % kDown][x % kAcross]; }
  void mark(int x, int y) { cell(x / kAcross, y / kDown) = kMark; }

  std::string line(int row) const {
    std::string text;
    for (int column = 0; column < columns_; column++) {
      const unsigned dots = cells_[static_cast<size_t>(row * columns_ + column)];
      if (dots == kMark)
        text += 'o';
      else if (dots == 0)
        text += ' ';
      else  // UTF-8 of U+2800 + dots
        text +=
            {'\xe2', static_cast<char>(0xa0 | dots >> 6), static_cast<char>(0x80 | (dots & 0x3f))};
    }
    text.erase(text.find_last_not_of(' ') + 1);
    return text;
  }

 private:
  static constexpr unsigned kMark = 0x100;
  unsigned& cell(int column, int row) {
    return cells_[static_cast<size_t>(row * columns_ + column)];
  }

  int columns_;
  std::vector<unsigned> cells_;
};

}  // namespace

std::string loss_curve(std::span<const StepRecord> records, int columns, int rows) {
  double least = std::numeric_limits<double>::infinity(), most = -least;
  size_t shown = 0;
  for (const StepRecord& record : records) {
    shown += std::isfinite(record.loss) ? 1 : 0;
    for (const double value : {record.loss, record.held_out.value_or(record.loss)}) {
      if (!std::isfinite(value)) continue;
      least = std::min(least, value);
      most = std::max(most, value);
    }
  }
  if (shown < 2) return "";
  if (most - least < 1e-9) most = least + 1;  // a flat line, at the bottom

  const int width = columns * kAcross, height = rows * kDown;
  const int64_t first = records.front().step,
                steps = std::max<int64_t>(1, records.back().step - first);
  const auto x_of = [&](int64_t step) {
    return static_cast<int>(
        std::clamp<int64_t>((step - first) * (width - 1) / steps, 0, width - 1));
  };
  const auto y_of = [&](double loss) {
    return static_cast<int>(std::lround((most - loss) / (most - least) * (height - 1)));
  };
  Canvas canvas(columns, rows);
  int x_before = -1, y_before = 0;
  for (const StepRecord& record : records) {
    if (!std::isfinite(record.loss)) continue;
    const int x = x_of(record.step), y = y_of(record.loss);
    canvas.dot(x, y);
    if (x_before >= 0) {  // a line from the step before; within a column, all that its steps span
      const int dots = std::max(x - x_before, std::abs(y - y_before));
      for (int i = 1; i < dots; i++)
        canvas.dot(x_before + (x - x_before) * i / dots, y_before + (y - y_before) * i / dots);
    }
    x_before = x;
    y_before = y;
  }
  bool held_out = false;
  for (const StepRecord& record : records)
    if (record.held_out && std::isfinite(*record.held_out)) {
      canvas.mark(x_of(record.step), y_of(*record.held_out));
      held_out = true;
    }

  std::string text = fmt::format("loss{}\n", held_out ? ", and held out: o" : "");
  for (int row = 0; row < rows; row++) {
    const bool labelled = row % 3 == 0 || row == rows - 1;
    const double value = most - (most - least) * row / std::max(1, rows - 1);
    text += labelled ? fmt::format("{:7.3f} ┤{}\n", value, canvas.line(row))
                     : fmt::format("{:7} │{}\n", "", canvas.line(row));
  }
  const std::string last = fmt::format("step {}", records.back().step);
  std::string axis;
  for (int column = 0; column < columns; column++) axis += "─";
  return text + fmt::format("{:7} └{}\n{:9}{:<{}}{}\n", "", axis, "", first,
                            std::max(1, columns - static_cast<int>(last.size())), last);
}

}  // namespace sennit::trainer
