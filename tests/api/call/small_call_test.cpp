// Small blocking calls over shared memory, which take the short way from their second time on:
// mixed with others, with late ranks, with calls that do not match, with an abort, and from two
// threads.
#include <cstdlib>
#include <numeric>
#include <random>

#include "tests/support/ranks.hpp"
#include "tests/support/seed.hpp"

using sennit_test::Ranks;

namespace {

class SmallCalls : public testing::TestWithParam<int> {
 protected:
  static void SetUpTestSuite() { setenv("SENNIT_TRANSPORTS", "shm", 1); }
};

// What rank r puts into element i of call `turn`.
int64_t value(int turn, int rank, size_t i) {
  return turn * 1000 + rank * 17 + static_cast<int64_t>(i % 13);
}

// A nonblocking all-reduce, and another one into `out` before it is waited for.
void sum_twice(sennit_comm_t comm, const int64_t* in, int64_t* out, size_t count) {
  sennit_work_t work = nullptr;
  std::vector<int64_t> late(count);
  ASSERT_EQ(sennit_all_reduce_start(in, late.data(), count, SENNIT_INT64, SENNIT_SUM, comm, &work),
            SENNIT_OK);
  ASSERT_EQ(sennit_all_reduce(in, out, count, SENNIT_INT64, SENNIT_SUM, comm), SENNIT_OK);
  ASSERT_EQ(sennit_work_wait(work, -1), SENNIT_OK);
  sennit_work_free(work);
  ASSERT_EQ(out[0], late.front());
  ASSERT_EQ(out[count - 1], late.back());
}

// One call with fresh data, and whether every element is right.
void call_once(sennit_comm_t comm, int rank, int n, int turn, unsigned kind, size_t count) {
  const auto ranks = static_cast<size_t>(n);
  const auto mine = static_cast<size_t>(rank);
  std::vector<int64_t> in(count * ranks), out(count * ranks, -1);
  for (size_t i = 0; i < in.size(); i++) in[i] = value(turn, rank, i);
  const auto sum = [&](size_t i) {
    int64_t total = 0;
    for (int r = 0; r < n; r++) total += value(turn, r, i);
    return total;
  };
  switch (kind) {
    case 0:
      ASSERT_EQ(sennit_all_reduce(in.data(), out.data(), count, SENNIT_INT64, SENNIT_SUM, comm),
                SENNIT_OK);
      for (size_t i = 0; i < count; i++) ASSERT_EQ(out[i], sum(i));
      break;
    case 1:
      ASSERT_EQ(sennit_all_reduce(in.data(), in.data(), count, SENNIT_INT64, SENNIT_MAX, comm),
                SENNIT_OK);
      for (size_t i = 0; i < count; i++) ASSERT_EQ(in[i], value(turn, n - 1, i));
      break;
    case 2:
      ASSERT_EQ(sennit_all_gather(in.data(), out.data(), count, SENNIT_INT64, comm), SENNIT_OK);
      for (size_t i = 0; i < out.size(); i++)
        ASSERT_EQ(out[i], value(turn, static_cast<int>(i / count), i % count));
      break;
    case 3:
      ASSERT_EQ(sennit_reduce_scatter(in.data(), out.data(), count, SENNIT_INT64, SENNIT_SUM, comm),
                SENNIT_OK);
      for (size_t i = 0; i < count; i++) ASSERT_EQ(out[i], sum(mine * count + i));
      break;
    case 4: {
      const int root = turn % n;
      ASSERT_EQ(sennit_broadcast(in.data(), out.data(), count, SENNIT_INT64, root, comm),
                SENNIT_OK);
      for (size_t i = 0; i < count; i++) ASSERT_EQ(out[i], value(turn, root, i));
      break;
    }
    case 5:
      ASSERT_EQ(sennit_barrier(comm), SENNIT_OK);
      break;
    case 6:
      ASSERT_EQ(sennit_all_to_all(in.data(), out.data(), count, SENNIT_INT64, comm), SENNIT_OK);
      for (size_t i = 0; i < out.size(); i++)
        ASSERT_EQ(out[i], value(turn, static_cast<int>(i / count), mine * count + i % count));
      break;
    default:
      sum_twice(comm, in.data(), out.data(), count);
      for (size_t i = 0; i < count; i++) ASSERT_EQ(out[i], sum(i));
      break;
  }
}

TEST_P(SmallCalls, MixedWithOthersAndWithLateRanks) {
  const int n = GetParam();
  Ranks ranks(n);
  ASSERT_TRUE(ranks.ok());
  const uint64_t seed = sennit_test::seed();
  ranks.run([&](int rank, sennit_comm_t comm) {
    std::mt19937_64 random(seed);  // the same on all ranks
    const size_t counts[] = {1, 3, 3, 40, 700, 20'000};
    for (int turn = 0; turn < 400; turn++) {
      const unsigned kind = static_cast<unsigned>(random() % 8);
      const size_t count = counts[random() % std::size(counts)];
      if (random() % 16 == 0 && static_cast<int>(random() % static_cast<uint64_t>(n)) == rank)
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
      call_once(comm, rank, n, turn, kind, count);
      if (testing::Test::HasFatalFailure()) return;
    }
  });
}

TEST_P(SmallCalls, ThatDifferAreAnErrorOnAllRanks) {
  const int n = GetParam();
  Ranks ranks(n);
  ASSERT_TRUE(ranks.ok());
  ranks.run([&](int rank, sennit_comm_t comm) {
    std::vector<int32_t> in(4, 1), out(4);
    const auto call = [&](size_t count) {
      return sennit_all_reduce(in.data(), out.data(), count, SENNIT_INT32, SENNIT_SUM, comm);
    };
    sennit_status_t status = SENNIT_OK;
    // A rank may still be in the last of these when the others' next call fails the communicator.
    for (int i = 0; i < 40; i++) {
      ASSERT_EQ(status, SENNIT_OK) << "call " << i;
      status = call(1 + static_cast<size_t>(i % 2));
    }
    if (status == SENNIT_OK) status = call(rank == n - 1 ? 2 : 1);
    // one may have been through before it was noticed
    for (int i = 0; i < 3 && status == SENNIT_OK; i++) status = call(1);
    EXPECT_EQ(status, SENNIT_MISMATCH) << sennit_last_error();
  });
}

TEST_P(SmallCalls, EndWhenARankAborts) {
  const int n = GetParam();
  Ranks ranks(n);
  ASSERT_TRUE(ranks.ok());
  ranks.run([&](int rank, sennit_comm_t comm) {
    int32_t in = 1, out = 0;
    for (int i = 0; i < 20; i++)
      ASSERT_EQ(sennit_all_reduce(&in, &out, 1, SENNIT_INT32, SENNIT_SUM, comm), SENNIT_OK);
    if (rank == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      ASSERT_EQ(sennit_comm_abort(comm), SENNIT_OK);
    } else {
      EXPECT_NE(sennit_all_reduce(&in, &out, 1, SENNIT_INT32, SENNIT_SUM, comm), SENNIT_OK);
    }
    EXPECT_NE(sennit_all_reduce(&in, &out, 1, SENNIT_INT32, SENNIT_SUM, comm), SENNIT_OK);
  });
}

TEST_P(SmallCalls, FromTwoThreadsOnTwoCommunicators) {
  const int n = GetParam();
  Ranks ranks(n);
  ASSERT_TRUE(ranks.ok());
  ranks.run([&](int rank, sennit_comm_t comm) {
    sennit_comm_t twin = nullptr;
    ASSERT_EQ(sennit_comm_dup(comm, &twin), SENNIT_OK) << sennit_last_error();
    const auto loop = [&](sennit_comm_t on, int from) {
      for (int turn = from; turn < from + 150; turn++) call_once(on, rank, n, turn, 0, 3);
    };
    std::thread other([&] { loop(twin, 1000); });
    loop(comm, 1);
    other.join();
    ASSERT_EQ(sennit_comm_finalize(twin), SENNIT_OK);
    sennit_comm_destroy(twin);
  });
}

// A thread that waits looks after the calls of all threads: one in the short way has only just
// begun.
TEST_P(SmallCalls, AreNotStalledWhenAnotherThreadLooks) {
  const int n = GetParam();
  Ranks ranks(n);
  ASSERT_TRUE(ranks.ok());
  ranks.run([&](int rank, sennit_comm_t comm) {
    sennit_comm_t twin = nullptr;
    ASSERT_EQ(sennit_comm_dup(comm, &twin), SENNIT_OK) << sennit_last_error();
    for (int turn = 0; turn < 12; turn++) {
      // Long enough for the next to look at once; rank 0's two threads then wait for the others.
      std::this_thread::sleep_for(std::chrono::milliseconds(rank == 0 ? 70 : 90));
      std::thread other([&] { call_once(twin, rank, n, turn, 0, 3); });
      call_once(comm, rank, n, turn, 0, 3);
      other.join();
      ASSERT_EQ(sennit_barrier(comm), SENNIT_OK) << sennit_last_error();
    }
    ASSERT_EQ(sennit_comm_finalize(twin), SENNIT_OK);
    sennit_comm_destroy(twin);
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, SmallCalls, testing::Values(2, 5));

}  // namespace
