// job_test.cpp: the start, its end before it is complete, the small collectives and leaving, with
// ranks as objects of this process.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>

#include "tests/control/fixture.hpp"
#include "tests/support/eventually.hpp"

namespace sennit {
namespace {

using test::clock_ms;
using test::LocalJob;

std::vector<std::byte> blob_of(int rank) {
  return std::vector<std::byte>(static_cast<size_t>(rank * 3 % 50), static_cast<std::byte>(rank));
}

constexpr std::chrono::milliseconds kGivesUp{5000};  // as Control::leave does

// All at once.
std::chrono::milliseconds time_to_leave(LocalJob& job) {
  const int64_t before = clock_ms();
  job.leave();
  return std::chrono::milliseconds(clock_ms() - before);
}

class Start : public ::testing::TestWithParam<int> {};

TEST_P(Start, GathersBroadcastsAndLeaves) {
  const int size = GetParam();
  LocalJob job(size);
  ASSERT_TRUE(job.start()) << job.statuses[0].text();
  for (int round = 0; round < 3; round++)
    test::in_threads(size, [&](int r) {
      const auto all = job[r].all_gather(blob_of(r + round));
      ASSERT_TRUE(all.ok()) << all.status().text();
      ASSERT_EQ(all->size(), static_cast<size_t>(size));
      for (int peer = 0; peer < size; peer++)
        EXPECT_EQ((*all)[static_cast<size_t>(peer)], blob_of(peer + round));
      const auto text = job[r].broadcast(r == 0 ? blob_of(17 + round) : std::vector<std::byte>{});
      ASSERT_TRUE(text.ok()) << text.status().text();
      EXPECT_EQ(*text, blob_of(17 + round));
    });
  for (int r = 0; r < size; r++) {
    EXPECT_EQ(job[r].rank(), r);
    EXPECT_EQ(job[r].size(), size);
    EXPECT_EQ(job[r].job(), job[0].job());
    EXPECT_EQ(job[r].interface_address(), "127.0.0.1");
  }
  for (int r = 0; r < size; r++) job[r].tell(1, blob_of(r + 5), Control::MayWait::yes);
  EXPECT_TRUE(job.recorder(0).wait(
      60'000, [&] { return job.recorder(0).told.size() == static_cast<size_t>(size); }));
  for (int n = 0; n < 3; n++) job[0].announce(1, 0, blob_of(n + 1));
  const std::vector<std::vector<std::byte>> announced = {blob_of(1), blob_of(2), blob_of(3)};
  for (int r = 0; r < size; r++)
    EXPECT_TRUE(
        job.recorder(r).wait(60'000, [&] { return job.recorder(r).announced == announced; }));
  auto took = time_to_leave(job);
  for (int r = 0; r < size; r++)
    EXPECT_EQ(job.recorder(r).decisions, 0) << job.recorder(r).peers.text();
  if (size > 30)
    std::printf("rank 0: %s\nrank 1: %s\n", job[0].statistics().c_str(),
                job[1].statistics().c_str());
  // Where this machine let some of them wait, others of its kind show what they need.
  if (took >= kGivesUp)
    took = sennit_test::least_time(kGivesUp, [&] {
      LocalJob other(size);
      EXPECT_TRUE(other.start()) << other.statuses[0].text();
      return time_to_leave(other);
    });
  EXPECT_LT(took, kGivesUp) << "somebody was waited for in vain";
}

// Rank 2 never comes, and rank 1 is aborted when it was asked so often whether it shall wait on;
// rank 0 some time after that, if it does not hear of it. What rank 0 came to.
Status aborted_after(int asks) {
  LocalJob job(3);
  std::atomic<bool> over{false};
  int asked = 0, waited = 0;
  constexpr int kLong = 20;
  job.options[1].interruption = Interruption([&] { return ++asked == asks; });
  job.options[0].interruption = Interruption([&] { return over && ++waited == kLong; });
  test::in_threads(2, [&](int r) {
    const auto i = static_cast<size_t>(r);
    job.statuses[i] = Control::start(job.options[i], job.recorders[i].callbacks()).status();
    if (r == 1) over = true;
  });
  EXPECT_EQ(job.statuses[1].kind(), SENNIT_ABORTED) << job.statuses[1].text();
  return job.statuses[0];
}

TEST(Aborted, AStartEndsForAllThatKnowOfTheRank) {
  Status seen;
  for (int asks = 1; asks < 100 && seen.text().find("rank 1 (") != 0; asks *= 2)
    seen = aborted_after(asks);
  EXPECT_EQ(seen.kind(), SENNIT_ABORTED);
  EXPECT_NE(seen.text().find("): the start was aborted on this rank"), std::string::npos)
      << seen.text();
}

// Rank 1 has come to it, and does not wait for the others any longer.
TEST(Aborted, AStartEndsWhenOneLeavesThatHasWaited) {
  LocalJob job(3);
  std::atomic<bool> aborted{false};
  job.options[1].interruption = Interruption([&] { return aborted.load(); });
  ASSERT_TRUE(job.start()) << job.statuses[1].text();
  aborted = true;
  const Result<std::vector<std::vector<std::byte>>> own = job[1].all_gather(blob_of(1));
  EXPECT_EQ(own.status().kind(), SENNIT_ABORTED);
  job[1].leave();
  for (const int r : {0, 2}) {
    const Status status = job[r].all_gather(blob_of(r)).status();
    EXPECT_EQ(status.kind(), SENNIT_ABORTED) << status.text();
    EXPECT_NE(status.text().find(") has left during the start"), std::string::npos)
        << status.text();
  }
}

TEST(Aborted, AStartEndsWhenRank0Leaves) {
  LocalJob job(3);
  ASSERT_TRUE(job.start());
  job[0].leave();
  for (int r = 1; r < 3; r++) {
    const Status status = job[r].broadcast({}).status();
    EXPECT_EQ(status.kind(), SENNIT_ABORTED) << status.text();
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, Start, ::testing::Values(1, 2, 3, 8, 17, 18, 40));

}  // namespace
}  // namespace sennit
