// nccl_abort_test.cpp: a communicator that is aborted while it is being made: the start ends, and
// leaves nothing.
// ctest links: nccl_forwarder
// ctest runs: sennit_nccl
// ctest not-under-tsan: its threads are counted, and the sanitizer has its own
#include <gtest/gtest.h>

#include <vector>

#include "tests/nccl/nccl_ranks.hpp"
#include "tests/support/eventually.hpp"
#include "tests/support/process_counts.hpp"

using sennit_test::Bounded;
using sennit_test::descriptors;
using sennit_test::eventually;
using sennit_test::kNonblocking;
using sennit_test::settle;
using sennit_test::text;
using sennit_test::threads;

namespace {

// That of the test, and that of Bounded. It is not counted at a test's beginning, when a thread of
// the test before that was joined may be seen for a moment longer.
constexpr int kThreads = 2;

// What this process has when nothing is under way.
struct Counts {
  int threads = kThreads;
  int descriptors = sennit_test::descriptors();
  bool again() const {
    return eventually([this] { return is_now(); });
  }
  bool is_now() const {
    return sennit_test::threads() == threads && sennit_test::descriptors() == descriptors;
  }
};

// The library is loaded, and has done once what it does but once.
Counts counted() {
  ncclComm_t comm = nullptr;
  EXPECT_EQ(ncclCommInitAll(&comm, 1, nullptr), ncclSuccess) << text();
  EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
  EXPECT_TRUE(eventually([] { return threads() == kThreads; })) << threads();
  return {};
}

ncclComm_t begin(const ncclUniqueId& id, int rank, int size) {
  ncclComm_t comm = nullptr;
  ncclConfig_t config = kNonblocking;
  EXPECT_EQ(ncclCommInitRankConfig(&comm, size, id, rank, &config), ncclInProgress) << text();
  return comm;
}

// Rank 1 waits at the maker of the id, and rank 0 itself for the others.
TEST(NcclAbort, AStartWhoseOtherRankNeverComesLeavesNothing) {
  const Bounded bounded("the abort of a start");
  const Counts before = counted();
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess) << text();
  for (const int rank : {1, 0}) {
    const int waiting = threads();  // the maker of the id has one as well
    const ncclComm_t comm = begin(id, rank, 2);
    ASSERT_NE(comm, nullptr);
    // The communicator's own thread, and its control thread.
    EXPECT_TRUE(eventually([&] { return threads() >= waiting + (rank == 0 ? 1 : 2); }));
    ncclResult_t result = ncclSuccess;
    EXPECT_EQ(ncclCommGetAsyncError(comm, &result), ncclSuccess);
    EXPECT_EQ(result, ncclInProgress);
    EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
    EXPECT_EQ(ncclCommGetAsyncError(comm, &result), ncclInvalidArgument);
    if (rank == 1) {
      EXPECT_TRUE(eventually([&] { return threads() == waiting; }));
    }
  }
  EXPECT_TRUE(before.again()) << threads() << " threads of " << before.threads << ", "
                              << descriptors() << " descriptors of " << before.descriptors;
}

TEST(NcclAbort, EndsTheStartOfThoseThatHaveCome) {
  const Bounded bounded("the abort of a start of which others wait");
  const Counts before = counted();
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess) << text();
  const ncclComm_t first = begin(id, 0, 3), second = begin(id, 1, 3);
  EXPECT_EQ(ncclCommAbort(first), ncclSuccess);
  EXPECT_EQ(settle(second), ncclRemoteError);
  EXPECT_EQ(ncclCommDestroy(second), ncclSuccess);
  EXPECT_TRUE(before.again()) << threads() << " threads of " << before.threads << ", "
                              << descriptors() << " descriptors of " << before.descriptors;
}

// Two communicators of one group, of which one is aborted.
TEST(NcclAbort, OfOneInAGroupLeavesTheOther) {
  const Bounded bounded("the abort of a start in a group");
  const Counts before = counted();
  ncclUniqueId ids[2];
  std::vector<ncclComm_t> comms(2);
  for (ncclUniqueId& id : ids) ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess) << text();
  ncclConfig_t config = kNonblocking;
  EXPECT_EQ(ncclGroupStart(), ncclSuccess);
  EXPECT_EQ(ncclCommInitRankConfig(&comms[0], 2, ids[0], 0, &config), ncclSuccess);
  EXPECT_EQ(ncclCommInitRankConfig(&comms[1], 1, ids[1], 0, &config), ncclSuccess);
  EXPECT_EQ(ncclGroupEnd(), ncclInProgress) << text();
  EXPECT_EQ(ncclCommAbort(comms[0]), ncclSuccess);
  EXPECT_EQ(settle(comms[1]), ncclRemoteError) << "what the group came to";
  int size = 0;
  EXPECT_EQ(ncclCommCount(comms[1], &size), ncclSuccess);
  EXPECT_EQ(size, 1);
  EXPECT_EQ(ncclCommDestroy(comms[1]), ncclSuccess);
  EXPECT_TRUE(before.again()) << threads() << " threads of " << before.threads << ", "
                              << descriptors() << " descriptors of " << before.descriptors;
}

}  // namespace
