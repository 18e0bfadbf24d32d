// Random programs against a model of what they must do (tests/random): 300 of them, over all
// transports. What fails is made smaller and printed; `random_programs` runs more of them, and this
// one again.
//
// ctest links: random_parts
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "tests/random/soak.hpp"
#include "tests/support/seed.hpp"

namespace {

TEST(RandomPrograms, DoWhatTheModelSays) {
  random_programs::SoakOptions options;
  options.seed = sennit_test::seed() % 1'000'000'000;
  options.programs = 270;
  options.kills = 30;
  options.run.at_once = 2 * static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  // Beside other tests some programs, of hundreds of thousands of sealed messages, take a minute.
  options.run.limit *= 4;
  const random_programs::SoakResult result = random_programs::soak(options, nullptr);
  EXPECT_EQ(result.failed, 0) << result.text;
  EXPECT_EQ(result.programs, result.failed == 0 ? 300 : result.programs);
}

}  // namespace
