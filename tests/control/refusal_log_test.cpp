// refusal_log_test.cpp: refusals are counted all, and told without filling the log.
//
// ctest not-under-tsan: it has one thread
#include "control/refusal_log.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace sennit::control {
namespace {

constexpr int64_t kLogMs = 10'000;

std::string lines_of(const std::function<void()>& what) {
  ::testing::internal::CaptureStderr();
  what();
  return ::testing::internal::GetCapturedStderr();
}

ptrdiff_t count_lines(const std::string& text) { return std::ranges::count(text, '\n'); }

TEST(RefusalLog, TellsTheFirstOneByOneThenTheirNumber) {
  RefusalLog refusals;
  Channel channel;
  channel.other = *parse_address("10.0.0.7", 99);
  const std::string first = lines_of([&] {
    for (int i = 0; i < 20; i++) refusals.refused(channel, "no secret", 1000);
    refusals.tick(1000 + kLogMs - 1);
  });
  EXPECT_EQ(count_lines(first), 5) << first;
  EXPECT_NE(first.find("refused a connection from 10.0.0.7:99: no secret"), std::string::npos);
  const std::string later = lines_of([&] {
    refusals.tick(1000 + kLogMs);
    refusals.tick(1000 + 3 * kLogMs);
  });
  EXPECT_EQ(count_lines(later), 1) << later;
  EXPECT_NE(later.find("refused 15 more connections that are not of this job"), std::string::npos);
  EXPECT_EQ(refusals.count(), 20u);
}

TEST(RefusalLog, SaysWhoseConnectionItWas) {
  RefusalLog refusals;
  Channel channel;
  channel.other = *parse_address("10.0.0.7", 99);
  channel.outgoing = true;
  EXPECT_NE(lines_of([&] { refusals.refused(channel, "no secret", 0); }).find("connection to 10."),
            std::string::npos);
}

}  // namespace
}  // namespace sennit::control
