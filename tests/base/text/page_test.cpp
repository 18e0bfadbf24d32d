// page_test.cpp: charts of odd figures have a place for everything, and texts are no markup.
//
// ctest not-under-tsan: it has one thread
#include "base/text/page.hpp"

#include <gtest/gtest.h>

namespace sennit {
namespace {

bool has_places(const std::string& svg) {
  return svg.find("nan") == std::string::npos && svg.find("inf") == std::string::npos;
}

TEST(Charts, BarsOfNothingHaveAPlace) {
  BarChart chart;
  chart.bars = {{"a", "has none", "", "", std::nullopt}, {"b", "0", "", "", 0.0}};
  chart.most = 0;
  chart.mark = 5;
  EXPECT_TRUE(has_places(chart.draw())) << chart.draw();
}

TEST(Charts, ABarOfLessThanNothingHasNoLength) {
  BarChart chart;
  chart.bars = {{"a", "", "", "", -3.0}};
  chart.most = 2;
  EXPECT_NE(chart.draw().find("x=\"300\" y=\"4.0\" width=\"1.0\""), std::string::npos)
      << chart.draw();
  EXPECT_NE(chart.draw().find("<text x=\"308.0\""), std::string::npos) << chart.draw();
}

TEST(Charts, AnAxisOfOneValueIsDrawn) {
  for (const bool logarithmic : {false, true}) {
    LineChart chart;
    chart.x = chart.y = {7, 7, logarithmic, {{7, "7"}}};
    chart.lines = {{"one", "blue", {{7, 7}}, {"tip"}}};
    EXPECT_TRUE(has_places(chart.draw())) << chart.draw();
    EXPECT_EQ(chart.x_of(7), chart.left);
  }
}

TEST(Charts, ALineOfOnePointIsSeen) {
  LineChart chart;
  chart.x = chart.y = {0, 1, false, {}};
  chart.lines = {{"one", "blue", {{0, 1}}, {}}};
  EXPECT_NE(chart.draw().find("<circle class=\"dot blue\""), std::string::npos) << chart.draw();
}

TEST(Charts, WhatHasNoLogarithmHasAPlace) {
  LineChart chart;
  chart.x = chart.y = {1, 100, true, {}};
  chart.lines = {{"one", "blue", {{0, 0}, {-1, -1}, {10, 10}}, {}}};
  EXPECT_TRUE(has_places(chart.draw())) << chart.draw();
  EXPECT_DOUBLE_EQ(chart.x_of(10), chart.left + chart.width / 2);
}

TEST(Pages, TextIsNoMarkup) {
  EXPECT_EQ(escape("<b a='\"'>&\x01\n"), "&lt;b a=&#39;&quot;&#39;&gt;&amp;\n");
  EXPECT_EQ(escape("n\xc3\xa4he a\xff"), "n\xc3\xa4he a\xef\xbf\xbd") << "XML has UTF-8 alone";
  EXPECT_NE(html_table({"<h>"}, {{"<c>"}}).find("<th>&lt;h&gt;</th>"), std::string::npos);
}

}  // namespace
}  // namespace sennit
