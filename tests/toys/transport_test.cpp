// transport_test.cpp: a transport that is one file (tests/toys/transport.cpp) carries a job. This
// program also runs the conformance suites (tests/transports/transport_test.cpp and
// tests/transports/transport_failure_test.cpp), which find the toy by themselves.
//
// ctest compiles: tests/toys/transport.cpp
// ctest compiles: tests/transports/transport_test.cpp tests/transports/transport_failure_test.cpp
// ctest links: random_parts
// ctest variable: GTEST_FILTER=*toy*:Toy*
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <thread>
#include <vector>

#include "sennit/sennit.h"
#include "tests/random/soak.hpp"
#include "tests/support/seed.hpp"

namespace sennit {
namespace {

// The first, while this process has no threads.
TEST(ToyTransport, IsFoundByRandomPrograms) {
  random_programs::SoakOptions options;
  EXPECT_EQ(std::ranges::count(options.transports, "toy"), 1);
  options.transports = {"toy"};
  options.seed = sennit_test::seed() % 1'000'000'000;
  options.programs = 5;
  options.most_ranks = 4;
  const random_programs::SoakResult result = random_programs::soak(options, nullptr);
  EXPECT_EQ(result.failed, 0) << result.text;
}

TEST(ToyTransport, CarriesAJob) {
  constexpr int kRanks = 4;
  constexpr size_t kCount = 100'000;
  setenv("SENNIT_TRANSPORTS", "toy", 1);
  sennit_unique_id_t id;
  ASSERT_EQ(sennit_get_unique_id(&id), SENNIT_OK);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < kRanks; rank++)
    ranks.emplace_back([&id, rank] {
      sennit_comm_t comm = nullptr;
      ASSERT_EQ(sennit_comm_init_rank(&comm, kRanks, &id, rank, nullptr), SENNIT_OK)
          << sennit_last_error();
      std::vector<int32_t> numbers(kCount, rank + 1);
      EXPECT_EQ(
          sennit_all_reduce(numbers.data(), numbers.data(), kCount, SENNIT_INT32, SENNIT_SUM, comm),
          SENNIT_OK)
          << sennit_last_error();
      EXPECT_EQ(numbers, std::vector<int32_t>(kCount, 1 + 2 + 3 + 4));
      EXPECT_EQ(sennit_comm_destroy(comm), SENNIT_OK);
    });
  for (std::thread& rank : ranks) rank.join();
  unsetenv("SENNIT_TRANSPORTS");
}

}  // namespace
}  // namespace sennit
