// curve_test.cpp: the terminal's picture of a loss that falls is read back: where its dots
// are, what its axes say, and that numbers which are none leave no dot; and the steps along the
// axis of the page.
//
// ctest not-under-tsan: it has one thread
#include "trainer/run/report/curve.hpp"

#include <cmath>
#include <limits>
#include <sstream>

#include <gtest/gtest.h>

namespace sennit::trainer {
namespace {

std::vector<StepRecord> falling(int64_t steps) {
  std::vector<StepRecord> records;
  for (int64_t step = 1; step <= steps; step++) {
    StepRecord record;
    record.step = step;
    record.loss = 8.0 - 6.0 * static_cast<double>(step - 1) / static_cast<double>(steps - 1);
    records.push_back(record);
  }
  return records;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// Of the picture alone, cells before the first that has dots; -1: none has.
int first_cell(const std::string& line) {
  const size_t axis = std::min(line.find("┤"), line.find("│"));  // npos: the other one
  EXPECT_NE(axis, std::string::npos) << line;
  const size_t begin = axis + std::string("│").size();
  const size_t at = line.find_first_not_of(' ', begin);
  return at == std::string::npos ? -1 : static_cast<int>(at - begin);
}

TEST(LossCurve, FallsFromTheUpperLeftToTheLowerRight) {
  const std::vector<std::string> lines = lines_of(loss_curve(falling(1000), 60, 12));
  ASSERT_EQ(lines.size(), 1u + 12 + 2);
  EXPECT_EQ(lines[0], "loss");
  for (int row = 0; row < 12; row++)
    EXPECT_NEAR(first_cell(lines[static_cast<size_t>(1 + row)]), row * 5, 1) << row;
  EXPECT_EQ(lines[1].substr(0, 7), "  8.000");
  EXPECT_EQ(lines[12].substr(0, 7), "  2.000");
  EXPECT_NE(lines[14].find("         1 "), std::string::npos) << lines[14];
  EXPECT_TRUE(lines[14].ends_with("step 1000")) << lines[14];
}

TEST(LossCurve, MarksWhatWasHeldOut) {
  std::vector<StepRecord> records = falling(101);
  records[50].held_out = 6.5;  // in the middle, a quarter of the way down
  const std::vector<std::string> lines = lines_of(loss_curve(records, 60, 12));
  EXPECT_EQ(lines[0], "loss, and held out: o");
  int marks = 0;
  for (size_t row = 1; row <= 12; row++)
    if (lines[row].find('o') != std::string::npos) {
      marks++;
      EXPECT_EQ(row, 3u + 1) << "11.75 of 47 rows of dots";
    }
  EXPECT_EQ(marks, 1);
}

TEST(LossCurve, ShowsWhatIsANumberAndNothingWhereThatIsTooLittle) {
  EXPECT_EQ(loss_curve({}), "");
  EXPECT_EQ(loss_curve(std::vector<StepRecord>(1)), "");
  std::vector<StepRecord> records = falling(20);
  const std::string whole = loss_curve(records);
  StepRecord bad;
  bad.step = 20;
  for (const double loss : {std::nan(""), std::numeric_limits<double>::infinity()}) {
    bad.loss = loss;
    records.push_back(bad);
  }
  EXPECT_EQ(loss_curve(records), whole);
  for (StepRecord& record : records) record.loss = 3;
  EXPECT_EQ(first_cell(lines_of(loss_curve(records, 20, 4))[4]), 0)
      << "a flat line is at the bottom";
}

TEST(TrainerCurve, TheAxisOfAFewStepsHasAllOfThem) {
  const auto labels = [](int64_t first, int64_t last) {
    std::vector<StepRecord> records(2);
    records[0].step = first;
    records[1].step = last;
    const std::string page = train_page(records, {}, "");
    const std::string chart = page.substr(0, page.find("</svg>"));
    std::vector<int> steps;
    for (size_t at = 0; (at = chart.find("text-anchor=\"middle\">", at + 1)) != chart.npos;)
      steps.push_back(std::atoi(chart.c_str() + at + 21));
    return steps;
  };
  EXPECT_EQ(labels(1, 6), (std::vector{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(labels(1, 100), (std::vector{20, 40, 60, 80, 100}));
}

}  // namespace
}  // namespace sennit::trainer
