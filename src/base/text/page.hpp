// page.hpp: self-contained HTML pages: one style sheet for light and dark, their frame, tables, bar
// and line charts. No script. What writes a page gives it words and figures; text that it passes is
// escaped here, markup (body, a chart's SVG) is not.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace sennit {

// Text for HTML and SVG, in elements and in attributes: what means something in markup becomes an
// entity; of what XML forbids control characters are left out, and bytes that are no UTF-8 replaced
// by U+FFFD.
std::string escape(const std::string& text);

// The whole page. lead: markup of the paragraph below the title; empty: none. style: CSS of this
// page's own, behind the common sheet, whose colours are variables (--ink, --soft, --line, --blue,
// --orange, ...).
std::string html_page(const std::string& title, const std::string& lead, const std::string& body,
                      const std::string& style = "");
// A card with a heading (empty: none) and markup.
std::string html_section(const std::string& heading, const std::string& body);
// Cells are text. head: empty: none.
std::string html_table(const std::vector<std::string>& head,
                       const std::vector<std::vector<std::string>>& rows);
std::string html_note(const std::string& text);  // a small paragraph
// SVG elements as a picture of its own.
std::string svg_picture(double width, double height, const std::string& elements);

// ---- charts: SVG elements, in pixels ----
//
// `style` is a CSS class. The common sheet knows blue, orange, green, red, violet and pale; pages
// add their own.

// A row of a BarChart: `label` stands before the bar, `value` and then `note` behind it.
struct Bar {
  std::string label, value, note;
  std::string style;
  std::optional<double> amount;  // none: the value stands where the bar would begin
};
// Horizontal bars on one scale, one below the other from `top`.
struct BarChart {
  std::vector<Bar> bars;
  // The amount whose bar is as long as `width`; longer ones end in an arrow. 0: none has a length.
  double most = 1;
  double mark = 0;        // the amount at which a line crosses all of them; 0: none
  std::string mark_says;  // where a pointer rests on that line
  double top = 0, labels = 300, width = 460, row = 26, gap = 8;

  double height() const { return row * static_cast<double>(bars.size()); }
  std::string draw() const;
};

// A scale from `least` to `most`, with a line or a label at each tick.
struct Axis {
  double least = 0, most = 1;
  bool logarithmic = false;
  std::vector<std::pair<double, std::string>> ticks;  // an empty label: only its line
  // The part of the way from `least` to `most` at which a value lies. What has no place, as where
  // these are the same, lies at the beginning.
  double part(double value) const;
};

// A curve of a LineChart: its points, joined in their order.
struct Line {
  std::string name, style;
  std::vector<std::pair<double, double>> points;  // x, y
  // Of each point, which is then drawn as a dot; none: no dots, but where there is one point.
  std::vector<std::string> tips;
};

// Lines over two axes in a frame. Names are not drawn: legends differ.
struct LineChart {
  Axis x, y;
  std::vector<Line> lines;  // the last lies on top
  double left = 70, top = 26, width = 900, height = 240;
  bool upright_grid = false, labels_of_y = true;

  double x_of(double value) const { return left + x.part(value) * width; }
  double y_of(double value) const { return top + (1 - y.part(value)) * height; }
  std::string draw() const;
};

}  // namespace sennit
