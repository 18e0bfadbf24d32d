// Ranks that leave while others go on: quickly, in any order, and nobody takes them for dead.
//
// ctest quiet: it judges how soon ranks have left
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/eventually.hpp"
#include "tests/support/processes.hpp"
#include "tests/support/ranks.hpp"
#include "tests/support/seed.hpp"

using namespace std::chrono_literals;
using sennit_test::least_time;
using sennit_test::Processes;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

namespace {

// Less than the 1.5 s for which a rank stays that does not know that the others know.
constexpr auto kQuickly = 1400ms;

sennit_status_t reduce(sennit_comm_t comm, int* sum) {
  *sum = 1;
  return sennit_all_reduce(sum, sum, 1, SENNIT_INT32, SENNIT_SUM, comm);
}

// A rank that has the last word of the start needs nobody any more, and others may not have it yet.
TEST(Leaving, AtOnceIsNoHarmToWhoIsStillStarting) {
  for (int times = 0; times < 40; times++) {
    sennit_unique_id_t id;
    ASSERT_EQ(sennit_get_unique_id(&id), SENNIT_OK) << sennit_last_error();
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 3; rank++)
      threads.emplace_back([id, rank] {
        sennit_comm_t comm = nullptr;
        EXPECT_EQ(sennit_comm_init_rank(&comm, 3, &id, rank, nullptr), SENNIT_OK)
            << sennit_last_error();
        sennit_comm_destroy(comm);
      });
    for (std::thread& thread : threads) thread.join();
  }
}

// Two levels of the control tree; whoever leaves next is the coordinator, or has ranks below it, or
// neither.
// Returns how long it took a rank at most.
milliseconds leave_in_any_order(std::mt19937& random) {
  constexpr size_t kRanks = 20;
  std::vector<int> order(kRanks);
  std::iota(order.begin(), order.end(), 0);
  // the coordinator and its first successors lead
  std::shuffle(order.begin() + 4, order.end(), random);
  std::vector<int> pauses(kRanks);
  for (int& pause : pauses) pause = static_cast<int>(random() % 60);
  std::vector<sennit_comm_t> worlds(kRanks);
  EXPECT_EQ(sennit_comm_init_local(worlds.data(), kRanks, nullptr), SENNIT_OK)
      << sennit_last_error();
  if (!worlds[0]) return {};
  std::vector<milliseconds> took(kRanks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < static_cast<int>(kRanks); rank++)
    threads.emplace_back([&, rank] {
      const size_t turn =
          static_cast<size_t>(std::find(order.begin(), order.end(), rank) - order.begin());
      const sennit_comm_t world = worlds[static_cast<size_t>(rank)];
      // Of those whose turn is not before k; what fails[k] is for: its first aborts it when k - 1
      // leaves.
      std::vector<sennit_comm_t> stays(kRanks, nullptr), fails(kRanks, nullptr);
      for (size_t k = 0; k < kRanks; k++)
        for (std::vector<sennit_comm_t>* comms : {&stays, &fails})
          ASSERT_EQ(sennit_comm_split(world, turn < k ? SENNIT_NO_COLOR : 0, 0, &(*comms)[k]),
                    SENNIT_OK);
      for (size_t k = 0; k <= turn; k++) {
        int sum = 0;
        for (int i = 0; i < 3; i++) {
          ASSERT_EQ(reduce(stays[k], &sum), SENNIT_OK)
              << "rank " << rank << ": " << sennit_last_error();
          EXPECT_EQ(sum, static_cast<int>(kRanks - k));
        }
        if (k == 0) continue;
        if (turn == k) {
          EXPECT_EQ(sennit_comm_abort(fails[k]), SENNIT_OK);
        }
        sennit_status_t status = SENNIT_OK;
        while (status == SENNIT_OK) status = reduce(fails[k], &sum);
        EXPECT_EQ(status, SENNIT_ABORTED) << "rank " << rank << ": " << sennit_last_error();
        std::this_thread::sleep_for(std::chrono::milliseconds(pauses[k]));
      }
      for (size_t k = 0; k <= turn; k++) {
        sennit_comm_destroy(stays[k]);
        sennit_comm_destroy(fails[k]);
      }
      const auto begin = Clock::now();
      EXPECT_EQ(sennit_comm_destroy(world), SENNIT_OK);
      took[static_cast<size_t>(rank)] = std::chrono::ceil<milliseconds>(Clock::now() - begin);
    });
  for (std::thread& thread : threads) thread.join();
  return *std::ranges::max_element(took);
}

TEST(Leaving, InAnyOrderWhileTheOthersGoOn) {
  std::mt19937 random(sennit_test::seed());
  EXPECT_LT(least_time(kQuickly, [&] { return leave_in_any_order(random); }), kQuickly);
}

// Rank 0, whom all others hang below, goes at once; then the next. Returns how long it took a rank
// at most.
milliseconds leave_one_after_the_other(const char* transport) {
  Processes ranks(
      4,
      [](int rank) -> std::string {
        sennit_comm_t world = nullptr;
        if (sennit_comm_init_env(&world, nullptr) != SENNIT_OK) return sennit_last_error();
        std::vector<sennit_comm_t> stays(4, nullptr);
        for (int k = 0; k < 4; k++)
          if (sennit_comm_split(world, rank < k ? SENNIT_NO_COLOR : 0, rank,
                                &stays[static_cast<size_t>(k)]) != SENNIT_OK)
            return sennit_last_error();
        sennit_comm_destroy(world);
        for (int k = 0; k <= rank; k++) {
          const sennit_comm_t comm = stays[static_cast<size_t>(k)];
          for (const auto end = Clock::now() + 700ms;;) {
            int sum = 0;
            if (reduce(comm, &sum) != SENNIT_OK)
              return std::string("failed: ") + sennit_last_error();
            int over = Clock::now() > end;  // all end together
            if (sennit_all_reduce(&over, &over, 1, SENNIT_INT32, SENNIT_MAX, comm) != SENNIT_OK)
              return std::string("failed: ") + sennit_last_error();
            if (over) break;
          }
        }
        const auto begin = Clock::now();
        for (int k = 0; k <= rank; k++) sennit_comm_destroy(stays[static_cast<size_t>(k)]);
        return std::to_string(std::chrono::ceil<milliseconds>(Clock::now() - begin).count());
      },
      {{"SENNIT_TRANSPORTS", transport}});
  milliseconds longest{};
  for (const auto& report : ranks.reports(240s)) {
    const std::string text = report.value_or("hangs");
    EXPECT_EQ(text.find_first_not_of("0123456789"), text.npos) << text;
    longest = std::max(longest, milliseconds(std::atoi(text.c_str())));
  }
  return longest;
}

class Over : public testing::TestWithParam<const char*> {};

TEST_P(Over, OneAfterTheOther) {
  EXPECT_LT(least_time(kQuickly, [&] { return leave_one_after_the_other(GetParam()); }), kQuickly);
}

INSTANTIATE_TEST_SUITE_P(Transports, Over, testing::Values("shm", "tcp"),
                         [](const auto& named) { return std::string(named.param); });

}  // namespace
