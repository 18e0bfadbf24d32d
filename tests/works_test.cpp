// What surrounds a collective in the public interface, ranks as threads: works that overlap and complete by
// themselves, groups of sends and receives, splits and twins used at once, wrong arguments.
#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

#include "ranks.hpp"

using sennit_test::Ranks;

namespace {

TEST(Works, OverlapAndCompleteInAnyOrder) {
  Ranks ranks(4);
  ASSERT_TRUE(ranks.ok());
  ranks.run([&](int rank, sennit_comm_t comm) {
    constexpr int kWorks = 12;
    std::vector<std::vector<int>> x(kWorks, std::vector<int>(5000, rank));
    std::vector<sennit_work_t> works(kWorks);
    for (size_t i = 0; i < kWorks; i++) {
      ASSERT_EQ(sennit_all_reduce_start(x[i].data(), x[i].data(), x[i].size(), SENNIT_INT32, SENNIT_SUM, comm,
                                        &works[i]),
                SENNIT_OK)
          << sennit_last_error();
    }
    for (size_t i = kWorks; i-- > 0;) {
      ASSERT_EQ(sennit_work_wait(works[i], -1), SENNIT_OK) << sennit_last_error();
      EXPECT_EQ(x[i][0], 6);
      EXPECT_EQ(x[i][4999], 6);
      sennit_work_free(works[i]);
    }
  });
}

// Nobody calls into the library while the work runs: the helper thread must carry it.
TEST(Works, ProgressWithoutBeingWaitedFor) {
  Ranks ranks(3);
  ASSERT_TRUE(ranks.ok());
  ranks.run([&](int rank, sennit_comm_t comm) {
    std::vector<float> x(3'000'000, static_cast<float>(rank));
    sennit_work_t work;
    ASSERT_EQ(sennit_all_reduce_start(x.data(), x.data(), x.size(), SENNIT_FLOAT32, SENNIT_MAX, comm, &work),
              SENNIT_OK);
    // Each test moves a little at most; the helper has to move the rest between them.
    sennit_status_t status = SENNIT_IN_PROGRESS;
    for (int i = 0; i < 100 && status == SENNIT_IN_PROGRESS; i++) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      status = sennit_work_test(work);
    }
    EXPECT_EQ(status, SENNIT_OK);
    EXPECT_EQ(x.front(), 2.0f);
    sennit_work_free(work);
  });
}

TEST(PointToPoint, RingGroupAndSelf) {
  Ranks ranks(5);
  ASSERT_TRUE(ranks.ok());
  const int n = ranks.size();
  ranks.run([&](int rank, sennit_comm_t comm) {
    for (const size_t count : {size_t{0}, size_t{1}, size_t{100'000}}) {
      std::vector<int> out(count, rank), in(count, -1), self(count, -1);
      sennit_group_start();
      sennit_send(out.data(), count, SENNIT_INT32, (rank + 1) % n, comm);
      sennit_recv(in.data(), count, SENNIT_INT32, (rank + n - 1) % n, comm);
      sennit_send(out.data(), count, SENNIT_INT32, rank, comm);
      sennit_recv(self.data(), count, SENNIT_INT32, rank, comm);
      ASSERT_EQ(sennit_group_end(), SENNIT_OK) << sennit_last_error();
      EXPECT_EQ(in, std::vector<int>(count, (rank + n - 1) % n));
      EXPECT_EQ(self, out);
    }
  });
}

TEST(Split, ByColorAndKeyAndNoColor) {
  Ranks ranks(7);
  ASSERT_TRUE(ranks.ok());
  ranks.run([&](int rank, sennit_comm_t comm) {
    sennit_comm_t part = nullptr;
    const int color = rank == 6 ? SENNIT_NO_COLOR : rank % 2;
    ASSERT_EQ(sennit_comm_split(comm, color, -rank, &part), SENNIT_OK) << sennit_last_error();
    if (rank == 6) {
      EXPECT_EQ(part, nullptr);
    } else {
      int size = 0, new_rank = -1, sum = rank;
      sennit_comm_size(part, &size);
      sennit_comm_rank(part, &new_rank);
      EXPECT_EQ(size, 3);
      EXPECT_EQ(new_rank, 2 - rank / 2);  // the key reverses the order
      ASSERT_EQ(sennit_all_reduce(&sum, &sum, 1, SENNIT_INT32, SENNIT_SUM, part), SENNIT_OK)
          << sennit_last_error();
      EXPECT_EQ(sum, rank % 2 == 0 ? 0 + 2 + 4 : 1 + 3 + 5);
      ASSERT_EQ(sennit_comm_finalize(part), SENNIT_OK);
      sennit_comm_destroy(part);
    }
    sennit_comm_t twin = nullptr;
    ASSERT_EQ(sennit_comm_dup(comm, &twin), SENNIT_OK) << sennit_last_error();
    // Two communicators from two threads at once.
    std::thread other([&] {
      for (int i = 0; i < 50; i++) {
        int x = 1;
        ASSERT_EQ(sennit_all_reduce(&x, &x, 1, SENNIT_INT32, SENNIT_SUM, twin), SENNIT_OK);
        ASSERT_EQ(x, 7);
      }
    });
    for (int i = 0; i < 50; i++) {
      std::vector<int> x(1000, 2);
      ASSERT_EQ(sennit_all_reduce(x.data(), x.data(), x.size(), SENNIT_INT32, SENNIT_SUM, comm), SENNIT_OK);
      ASSERT_EQ(x[999], 14);
    }
    other.join();
    sennit_comm_finalize(twin);
    sennit_comm_destroy(twin);
  });
}

TEST(Arguments, AreCheckedAndLeaveTheCommunicatorIntact) {
  Ranks ranks(2);
  ASSERT_TRUE(ranks.ok());
  ranks.run([&](int, sennit_comm_t comm) {
    int x = 1;
    EXPECT_EQ(sennit_broadcast(&x, &x, 1, SENNIT_INT32, 2, comm), SENNIT_INVALID_ARGUMENT);
    EXPECT_STREQ(sennit_last_error(), "broadcast: root 2: expected 0 <= it < 2");
    EXPECT_EQ(sennit_all_reduce(&x, &x, 1, static_cast<sennit_type_t>(77), SENNIT_SUM, comm),
              SENNIT_INVALID_ARGUMENT);
    EXPECT_EQ(sennit_all_reduce(&x, &x, 1, SENNIT_INT32, static_cast<sennit_op_t>(9), comm),
              SENNIT_INVALID_ARGUMENT);
    EXPECT_EQ(sennit_all_reduce(nullptr, &x, 1, SENNIT_INT32, SENNIT_SUM, comm), SENNIT_INVALID_ARGUMENT);
    EXPECT_EQ(sennit_all_reduce(&x, &x, 1, SENNIT_INT32, SENNIT_SUM, nullptr), SENNIT_INVALID_ARGUMENT);
    ASSERT_EQ(sennit_all_reduce(&x, &x, 1, SENNIT_INT32, SENNIT_SUM, comm), SENNIT_OK);
    EXPECT_EQ(x, 2);
  });
}

}  // namespace
