// nccl_nonblocking_test.cpp: what belongs to the order of calls in NCCL's interface: ending several
// ranks from one thread, operations that are destroyed at once, aborting what is stuck, what one
// rank alone cannot do, groups of communicators of both kinds, and a system without threads.
// ctest links: nccl_forwarder
// ctest runs: sennit_nccl
#include <gtest/gtest.h>
#include <pthread.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "sennit/sennit.h"
#include "tests/nccl/nccl_ranks.hpp"
#include "tests/support/making_threads.hpp"

using namespace std::chrono_literals;
using sennit_test::Bounded;
using sennit_test::kConfig;
using sennit_test::kNonblocking;
using sennit_test::NcclRanks;
using sennit_test::settle;
using sennit_test::text;

namespace {

constexpr int kNever = 1 << 30;
std::atomic<int> g_threads_left{kNever};
std::atomic<int> g_threads_made{0};

// There are only so many threads left.
int before_thread() {
  if (g_threads_left.load() != kNever && g_threads_left.fetch_sub(1) <= 0) return EAGAIN;
  g_threads_made++;
  return 0;
}
[[maybe_unused]] const bool g_asks = (sennit_test::g_before_thread = before_thread, true);

}  // namespace

namespace {

// Two ranks as communicators that do not block, both of this thread.
std::vector<ncclComm_t> nonblocking_pair() {
  std::vector<ncclComm_t> comms(2);
  ncclUniqueId id;
  EXPECT_EQ(ncclGetUniqueId(&id), ncclSuccess) << text();
  ncclConfig_t config = kNonblocking;
  for (int r = 0; r < 2; r++)
    EXPECT_EQ(ncclCommInitRankConfig(&comms[static_cast<size_t>(r)], 2, id, r, &config),
              ncclInProgress)
        << text();
  for (const ncclComm_t comm : comms) EXPECT_EQ(settle(comm), ncclSuccess) << text();
  return comms;
}

void destroy(const std::vector<ncclComm_t>& comms) {
  for (const ncclComm_t comm : comms) EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess) << text();
}

// ---- finalize ----

TEST(NcclFinalize, OneThreadEndsSeveralRanksInTurn) {
  const Bounded bounded("finalize");
  for (const bool grouped : {false, true}) {
    std::vector<ncclComm_t> comms(3);
    ASSERT_EQ(ncclCommInitAll(comms.data(), 3, nullptr), ncclSuccess) << text();
    if (grouped) {
      EXPECT_EQ(ncclGroupStart(), ncclSuccess);
    }
    for (const ncclComm_t comm : comms) EXPECT_EQ(ncclCommFinalize(comm), ncclSuccess) << text();
    if (grouped) {
      EXPECT_EQ(ncclGroupEnd(), ncclSuccess) << text();
    }
    destroy(comms);
  }
}

TEST(NcclFinalize, SaysWhatBecameOfTheCommunicator) {
  const Bounded bounded("finalize of what failed");
  std::vector<ncclComm_t> comms(2);
  ASSERT_EQ(ncclCommInitAll(comms.data(), 2, nullptr), ncclSuccess) << text();
  EXPECT_EQ(ncclCommAbort(comms[0]), ncclSuccess);
  ncclResult_t error = ncclSuccess;
  while (error == ncclSuccess) EXPECT_EQ(ncclCommGetAsyncError(comms[1], &error), ncclSuccess);
  EXPECT_EQ(ncclCommFinalize(comms[1]), ncclRemoteError);
  EXPECT_EQ(ncclCommDestroy(comms[1]), ncclSuccess);
}

TEST(NcclFinalize, OfWhatDoesNotBlockIsOverWhenItsCallsAre) {
  const Bounded bounded("finalize of what does not block");
  const std::vector<ncclComm_t> comms = nonblocking_pair();
  int x[2] = {1, 2};
  EXPECT_EQ(ncclAllReduce(&x[0], &x[0], 1, ncclInt32, ncclSum, comms[0], nullptr), ncclInProgress);
  EXPECT_EQ(ncclCommFinalize(comms[0]), ncclInProgress);
  ncclResult_t result = ncclSuccess;
  EXPECT_EQ(ncclCommGetAsyncError(comms[0], &result), ncclSuccess);
  EXPECT_EQ(result, ncclInProgress) << "the other rank has not called yet";
  EXPECT_EQ(ncclAllReduce(&x[1], &x[1], 1, ncclInt32, ncclSum, comms[1], nullptr), ncclInProgress);
  EXPECT_EQ(settle(comms[0]), ncclSuccess);
  EXPECT_EQ(settle(comms[1]), ncclSuccess);
  EXPECT_EQ(x[0], 3);
  destroy(comms);
}

// ---- operations ----

// As PyTorch does, which knows nothing of when the call runs.
TEST(NcclOperations, AreDestroyedBeforeTheirCallsAreMade) {
  const Bounded bounded("operations");
  NcclRanks ranks(2);
  ranks.run([](int rank, ncclComm_t comm) {
    float factor = rank == 0 ? 2 : 10, x = 1, out = 0;
    ncclRedOp_t op;
    EXPECT_EQ(ncclGroupStart(), ncclSuccess);
    EXPECT_EQ(ncclRedOpCreatePreMulSum(&op, &factor, ncclFloat32, ncclScalarHostImmediate, comm),
              ncclSuccess);
    EXPECT_EQ(ncclAllReduce(&x, &out, 1, ncclFloat32, op, comm, nullptr), ncclSuccess);
    EXPECT_EQ(ncclRedOpDestroy(op, comm), ncclSuccess);
    EXPECT_EQ(ncclGroupEnd(), ncclSuccess) << text();
    EXPECT_EQ(out, 12);
    EXPECT_EQ(ncclAllReduce(&x, &out, 1, ncclFloat32, op, comm, nullptr), ncclInvalidArgument);
    EXPECT_NE(text().find("op " + std::to_string(op) + " was not created on this communicator"),
              std::string::npos)
        << text();
  });
}

TEST(NcclOperations, OfAnotherTypeOrRankAreRefusedWhenTheCallIsMade) {
  const Bounded bounded("arguments that are off");
  const std::vector<ncclComm_t> comms = nonblocking_pair();
  float scalar = 2;
  double x = 1;
  ncclRedOp_t op = ncclSum;
  ASSERT_EQ(ncclRedOpCreatePreMulSum(&op, &scalar, ncclFloat32, ncclScalarHostImmediate, comms[0]),
            ncclSuccess);
  EXPECT_EQ(ncclAllReduce(&x, &x, 1, ncclFloat64, op, comms[0], nullptr), ncclInvalidArgument);
  EXPECT_NE(text().find("another datatype than 8"), std::string::npos) << text();
  EXPECT_EQ(ncclBroadcast(&x, &x, 1, ncclFloat64, 2, comms[0], nullptr), ncclInvalidArgument);
  EXPECT_NE(text().find("rank 2 of 2"), std::string::npos) << text();
  EXPECT_EQ(ncclRecv(&x, 1, ncclFloat64, SENNIT_ANY_SOURCE, comms[0], nullptr),
            ncclInvalidArgument);
  EXPECT_EQ(settle(comms[0]), ncclSuccess);
  destroy(comms);
}

TEST(NcclOperations, KeepTheOrderOfCallsThatDoNotBlock) {
  const Bounded bounded("operations of what does not block");
  const std::vector<ncclComm_t> comms = nonblocking_pair();
  constexpr int kCalls = 50;
  std::vector<float> out(2 * kCalls);
  float one = 1;
  for (size_t rank = 0; rank < 2; rank++)
    for (int i = 0; i < kCalls; i++) {
      ncclRedOp_t op;
      float factor = static_cast<float>(i + 1);
      ASSERT_EQ(
          ncclRedOpCreatePreMulSum(&op, &factor, ncclFloat32, ncclScalarHostImmediate, comms[rank]),
          ncclSuccess)
          << text();
      ASSERT_EQ(ncclAllReduce(&one, &out[rank * kCalls + static_cast<size_t>(i)], 1, ncclFloat32,
                              op, comms[rank], nullptr),
                ncclInProgress);
      ASSERT_EQ(ncclRedOpDestroy(op, comms[rank]), ncclSuccess);
    }
  for (const ncclComm_t comm : comms) EXPECT_EQ(settle(comm), ncclSuccess) << text();
  for (size_t i = 0; i < kCalls; i++) EXPECT_EQ(out[i], 2 * static_cast<float>(i + 1));
  destroy(comms);
}

// ---- what is stuck ----

TEST(NcclShrink, AbortsACallThatIsStuck) {
  const Bounded bounded("shrink of what is stuck");
  for (const bool grouped : {false, true}) {
    const std::vector<ncclComm_t> comms = nonblocking_pair();
    int x = 0;  // which nobody sends
    EXPECT_EQ(ncclRecv(&x, 1, ncclInt32, 1, comms[0], nullptr), ncclInProgress);
    int excluded[] = {1};
    ncclComm_t alone = nullptr;
    ncclConfig_t config = kConfig;
    if (grouped) {
      EXPECT_EQ(ncclGroupStart(), ncclSuccess);
    }
    EXPECT_EQ(ncclCommShrink(comms[0], excluded, 1, &alone, &config, kNcclShrinkAbort),
              grouped ? ncclSuccess : ncclInProgress)
        << text();
    if (grouped) {
      EXPECT_EQ(ncclGroupEnd(), ncclInProgress) << text();
    }
    ASSERT_NE(alone, nullptr);
    EXPECT_EQ(settle(comms[0]), ncclRemoteError);
    EXPECT_EQ(settle(alone), ncclSuccess) << text();
    int size = 0;
    EXPECT_EQ(ncclCommCount(alone, &size), ncclSuccess);
    EXPECT_EQ(size, 1);
    EXPECT_EQ(ncclCommDestroy(alone), ncclSuccess);
    destroy(comms);
  }
}

// ---- what was revoked ----

TEST(NcclRevoke, EndsWhatIsOutAndThenSplits) {
  const Bounded bounded("revoke and split");
  NcclRanks ranks(4);
  ranks.run([](int rank, ncclComm_t comm) {
    int x = 1, size = 0, place = -1;
    if (rank > 0) {  // rank 0 never comes
      EXPECT_EQ(ncclAllReduce(&x, &x, 1, ncclInt32, ncclSum, comm, nullptr), ncclRemoteError);
    }
    EXPECT_EQ(ncclCommRevoke(comm, 0), ncclSuccess) << text();
    EXPECT_EQ(settle(comm), ncclSuccess) << text();
    EXPECT_EQ(ncclCommFinalize(comm), ncclInvalidUsage);
    EXPECT_EQ(ncclAllReduce(&x, &x, 1, ncclInt32, ncclSum, comm, nullptr), ncclRemoteError);
    for (int times = 0; times < 2; times++) {
      ncclComm_t part = nullptr;
      ASSERT_EQ(ncclCommSplit(comm, rank == 1 ? kNcclNoColor : rank % 2, -rank, &part, nullptr),
                ncclSuccess)
          << text();
      ASSERT_EQ(part == nullptr, rank == 1);
      if (rank == 1) continue;
      EXPECT_EQ(ncclCommCount(part, &size), ncclSuccess);
      EXPECT_EQ(ncclCommUserRank(part, &place), ncclSuccess);
      EXPECT_EQ(size, rank == 3 ? 1 : 2);
      EXPECT_EQ(place, rank == 0 ? 1 : 0) << "by key, the highest rank first";
      x = 1;
      EXPECT_EQ(ncclAllReduce(&x, &x, 1, ncclInt32, ncclSum, part, nullptr), ncclSuccess);
      EXPECT_EQ(x, size);
      EXPECT_EQ(ncclCommDestroy(part), ncclSuccess);
    }
  });
}

TEST(NcclRevoke, OfWhatDoesNotBlock) {
  const Bounded bounded("revoke and split of what does not block");
  const std::vector<ncclComm_t> comms = nonblocking_pair();
  int x[2] = {1, 1};  // which only one of them sums
  EXPECT_EQ(ncclAllReduce(&x[0], &x[0], 1, ncclInt32, ncclSum, comms[0], nullptr), ncclInProgress);
  std::vector<ncclComm_t> parts(2);
  for (const ncclComm_t comm : comms) EXPECT_EQ(ncclCommRevoke(comm, 0), ncclSuccess);
  for (const ncclComm_t comm : comms) EXPECT_EQ(settle(comm), ncclSuccess) << text();
  EXPECT_EQ(ncclAllReduce(&x[0], &x[0], 1, ncclInt32, ncclSum, comms[0], nullptr), ncclRemoteError)
      << "its status would never say so";
  for (size_t r = 0; r < 2; r++)
    EXPECT_EQ(ncclCommSplit(comms[r], 0, 0, &parts[r], nullptr), ncclInProgress);
  for (size_t r = 0; r < 2; r++) {
    EXPECT_EQ(settle(parts[r]), ncclSuccess) << text();
    EXPECT_EQ(ncclAllReduce(&x[r], &x[r], 1, ncclInt32, ncclSum, parts[r], nullptr),
              ncclInProgress);
  }
  for (size_t r = 0; r < 2; r++) EXPECT_EQ(settle(parts[r]), ncclSuccess) << text();
  EXPECT_EQ(x[0] + x[1], 4);
  destroy(parts);
  destroy(comms);
}

// The other rank, which has not revoked it yet, makes the group's other call.
TEST(NcclRevoke, InAGroupTheCallsOnOthersAreMade) {
  const Bounded bounded("a group with what was revoked");
  const std::vector<ncclComm_t> revoked = nonblocking_pair(), others = nonblocking_pair();
  EXPECT_EQ(ncclCommRevoke(revoked[0], 0), ncclSuccess);
  int lost[2] = {1, 1}, x[2] = {1, 1};
  for (size_t r = 0; r < 2; r++) {
    EXPECT_EQ(ncclGroupStart(), ncclSuccess);
    EXPECT_EQ(ncclAllReduce(&lost[r], &lost[r], 1, ncclInt32, ncclSum, revoked[r], nullptr),
              ncclSuccess)
        << text();
    EXPECT_EQ(ncclAllReduce(&x[r], &x[r], 1, ncclInt32, ncclSum, others[r], nullptr), ncclSuccess);
    EXPECT_EQ(ncclGroupEnd(), r == 0 ? ncclRemoteError : ncclInProgress) << text();
  }
  for (const ncclComm_t comm : others)
    EXPECT_EQ(settle(comm), ncclRemoteError) << "what the group came to";
  EXPECT_EQ(x[0] + x[1], 4);
  destroy(others);
  destroy(revoked);
}

TEST(NcclRevoke, WhereItCannotBeFinalizedTheGroupsCallsOnOthersAreMade) {
  const Bounded bounded("a group that finalizes what was revoked");
  NcclRanks ranks(2);
  ranks.run([](int rank, ncclComm_t comm) {
    ncclComm_t part = nullptr;
    ASSERT_EQ(ncclCommSplit(comm, 0, 0, &part, nullptr), ncclSuccess) << text();
    if (rank == 0) {
      EXPECT_EQ(ncclCommRevoke(part, 0), ncclSuccess) << text();
    }
    int x = 1;
    EXPECT_EQ(ncclGroupStart(), ncclSuccess);
    const ncclResult_t finalized = ncclCommFinalize(part);
    EXPECT_EQ(finalized, rank == 0 ? ncclInvalidUsage : ncclSuccess);
    EXPECT_EQ(ncclAllReduce(&x, &x, 1, ncclInt32, ncclSum, comm, nullptr), ncclSuccess);
    EXPECT_EQ(ncclGroupEnd(), finalized) << text();
    EXPECT_EQ(x, 2);
    EXPECT_EQ(ncclCommDestroy(part), ncclSuccess);
  });
}

// ---- one rank that fails alone ----

// Ranks that go on only when all have come to the same place.
class Meeting {
 public:
  explicit Meeting(int ranks) : ranks_(ranks) {}
  void wait() {
    came_++;
    while (came_.load() < ranks_) std::this_thread::sleep_for(1ms);
  }

 private:
  const int ranks_;
  std::atomic<int> came_{0};
};

// What this rank was to do with the others is lost, and these do not wait for it.
TEST(NcclGroups, OfARankWhoseSplitIsOffAreErrorsOnTheOthers) {
  const Bounded bounded("a split that one rank alone cannot make");
  NcclRanks ranks(3);
  Meeting ready(3), told(3);
  ranks.run([&](int rank, ncclComm_t comm) {
    ncclComm_t parent = nullptr, child = nullptr;
    EXPECT_EQ(ncclCommSplit(comm, 0, rank, &parent, nullptr), ncclSuccess) << text();
    ready.wait();
    int x = 1;
    EXPECT_EQ(ncclGroupStart(), ncclSuccess);
    EXPECT_EQ(ncclAllReduce(&x, &x, 1, ncclInt32, ncclSum, comm, nullptr), ncclSuccess);
    EXPECT_EQ(ncclCommSplit(parent, rank == 0 ? -7 : 0, 0, &child, nullptr),
              rank == 0 ? ncclInvalidArgument : ncclSuccess);
    EXPECT_EQ(ncclGroupEnd(), rank == 0 ? ncclInvalidArgument : ncclRemoteError);
    EXPECT_EQ(child, nullptr);
    EXPECT_NE(text().find(rank == 0 ? "color -7" : "rank 0"), std::string::npos) << text();
    for (const ncclComm_t each : {comm, parent})
      EXPECT_EQ(settle(each), rank == 0 ? ncclInvalidArgument : ncclRemoteError) << text();
    told.wait();
    EXPECT_EQ(ncclCommDestroy(parent), ncclSuccess);
  });
}

// Whatever else was off before it.
TEST(NcclGroups, OfARankWhoseSplitIsOffBehindAnotherCallAreErrorsOnTheOthers) {
  const Bounded bounded("a call and a split that one rank alone cannot make");
  NcclRanks ranks(2);
  ranks.run([&](int rank, ncclComm_t comm) {
    ncclComm_t child = nullptr;
    int x = 1;
    EXPECT_EQ(ncclGroupStart(), ncclSuccess);
    EXPECT_EQ(ncclBroadcast(&x, &x, 1, ncclInt32, rank == 0 ? 2 : 0, comm, nullptr),
              rank == 0 ? ncclInvalidArgument : ncclSuccess);
    EXPECT_EQ(ncclCommSplit(comm, rank == 0 ? -7 : 0, 0, &child, nullptr),
              rank == 0 ? ncclInvalidArgument : ncclSuccess);
    EXPECT_EQ(ncclGroupEnd(), rank == 0 ? ncclInvalidArgument : ncclRemoteError);
    EXPECT_NE(text().find(rank == 0 ? "rank 2 of 2" : "rank 0"), std::string::npos) << text();
    EXPECT_EQ(child, nullptr);
  });
}

// Also outside of groups: each on a communicator of its own, all at once.
TEST(NcclRefused, AreErrorsOnThoseWhoWait) {
  const Bounded bounded("what one rank alone cannot make");
  static const ncclConfig_t kNone{};
  using CallOfRank = ncclResult_t (*)(int, ncclComm_t, ncclComm_t*);
  const std::vector<std::pair<CallOfRank, const char*>> cases = {
      {[](int rank, ncclComm_t comm, ncclComm_t* made) {
         return ncclCommSplit(comm, rank == 1 ? -7 : 0, 0, made, nullptr);
       },
       "color -7"},
      {[](int rank, ncclComm_t comm, ncclComm_t* made) {
         ncclConfig_t config = rank == 1 ? kNone : kConfig;
         return ncclCommSplit(comm, 0, 0, made, &config);
       },
       "NCCL_CONFIG_INITIALIZER"},
      {[](int rank, ncclComm_t comm, ncclComm_t* made) {
         int excluded = 2;
         return rank == 2 ? ncclSuccess
                          : ncclCommShrink(comm, &excluded, rank == 1 ? 0 : 1, made, nullptr, 0);
       },
       "excludeRanksList: expected one rank or more"},
      {[](int rank, ncclComm_t comm, ncclComm_t*) {
         int x = 1;
         const auto type = static_cast<ncclDataType_t>(rank == 1 ? 99 : ncclInt32);
         return ncclAllReduce(&x, &x, 1, type, ncclSum, comm, nullptr);
       },
       "datatype 99"},
  };
  std::vector<std::thread> jobs;
  for (const auto& one : cases)
    jobs.emplace_back([&one] {
      NcclRanks ranks(3);
      ranks.run([&one](int rank, ncclComm_t comm) {
        ncclComm_t made = nullptr;
        const ncclResult_t result = one.first(rank, comm, &made);
        EXPECT_EQ(made, nullptr);
        if (rank == 1) {
          EXPECT_EQ(result, ncclInvalidArgument) << text();
        } else if (result != ncclSuccess) {  // who is to be left out of a shrink has nothing to do
          EXPECT_EQ(result, ncclInvalidUsage) << text();
          EXPECT_NE(text().find("rank 1 was refused it"), std::string::npos) << text();
          EXPECT_NE(text().find(one.second), std::string::npos) << text();
        }
        EXPECT_TRUE(rank != 0 || result != ncclSuccess);
      });
    });
  for (std::thread& job : jobs) job.join();
}

// The call that ends with the communicator was not off, so who comes late to the shrink is waited
// for.
TEST(NcclRefused, AreNotThoseWhoseCallWasRevoked) {
  const Bounded bounded("a shrink that a rank comes late to");
  NcclRanks ranks(3);
  ranks.run([](int rank, ncclComm_t comm) {
    int x = 1, excluded = 2;
    if (rank == 0) {
      EXPECT_EQ(ncclCommRevoke(comm, 0), ncclSuccess) << text();
    } else {
      EXPECT_EQ(ncclAllReduce(&x, &x, 1, ncclInt32, ncclSum, comm, nullptr), ncclRemoteError);
    }
    if (rank == 2) return;
    if (rank == 1) std::this_thread::sleep_for(std::chrono::seconds(8));
    ncclComm_t made = nullptr;
    EXPECT_EQ(ncclCommShrink(comm, &excluded, 1, &made, nullptr, 0), ncclSuccess) << text();
    if (made) ncclCommDestroy(made);
  });
}

// The parent was revoked on all ranks but the last, which makes the group's other call.
TEST(NcclGroups, WithASplitOfWhatHasFailedMakeTheirCallsOnOthers) {
  const Bounded bounded("a split of what has failed");
  NcclRanks ranks(3);
  ranks.run([&](int rank, ncclComm_t comm) {
    ncclComm_t parent = nullptr, child = nullptr;
    ASSERT_EQ(ncclCommSplit(comm, rank == 2 ? kNcclNoColor : 0, 0, &parent, nullptr), ncclSuccess);
    int x = 1;
    if (rank == 0) {  // it fails, and nobody revokes it
      EXPECT_EQ(ncclCommShrink(parent, std::array{1}.data(), 1, &child, nullptr, kNcclShrinkAbort),
                ncclSuccess)
          << text();
      EXPECT_EQ(ncclCommDestroy(child), ncclSuccess);
    }
    EXPECT_EQ(ncclGroupStart(), ncclSuccess);
    if (rank != 2) {
      EXPECT_EQ(ncclCommSplit(parent, 0, 0, &child, nullptr), ncclSuccess) << text();
    }
    EXPECT_EQ(ncclAllReduce(&x, &x, 1, ncclInt32, ncclSum, comm, nullptr), ncclSuccess);
    EXPECT_EQ(ncclGroupEnd(), rank == 2 ? ncclSuccess : ncclRemoteError) << text();
    EXPECT_EQ(x, 3);
    EXPECT_EQ(ncclCommDestroy(parent), ncclSuccess);
  });
}

// Its status would say so for ever, so it cannot be put right.
TEST(NcclGroups, ACallThatIsOffOnWhatDoesNotBlockIsAnErrorOnAllRanks) {
  const Bounded bounded("a call that one rank alone cannot make");
  const std::vector<ncclComm_t> comms = nonblocking_pair();
  int x = 1;
  EXPECT_EQ(ncclAllReduce(nullptr, nullptr, 1, ncclInt32, ncclSum, comms[0], nullptr),
            ncclInProgress);
  EXPECT_EQ(ncclAllReduce(&x, &x, 1, ncclInt32, ncclSum, comms[1], nullptr), ncclInProgress);
  EXPECT_EQ(settle(comms[0]), ncclInvalidArgument);
  EXPECT_NE(text().find("NULL"), std::string::npos) << text();
  EXPECT_EQ(settle(comms[1]), ncclRemoteError);
  EXPECT_NE(text().find("rank 0"), std::string::npos) << text();
  destroy(comms);
}

// The children of one parent are told apart by their order alone.
TEST(NcclGroups, MakeSeveralChildrenOfOneParentInOrder) {
  const Bounded bounded("several children of one parent");
  NcclRanks ranks(4);
  ranks.run([&](int rank, ncclComm_t comm) {
    for (int times = 0; times < 20; times++) {
      const bool shrinks = times % 2 == 1;
      std::array<ncclComm_t, 2> children = {};
      EXPECT_EQ(ncclGroupStart(), ncclSuccess);
      for (int i = 0; i < 2; i++) {
        int left_out = 3 - i;
        ncclComm_t* const child = &children[static_cast<size_t>(i)];
        if (!shrinks) {
          EXPECT_EQ(ncclCommSplit(comm, i == 0 ? rank / 2 : rank % 2, 0, child, nullptr),
                    ncclSuccess);
        } else if (rank != left_out) {
          EXPECT_EQ(ncclCommShrink(comm, &left_out, 1, child, nullptr, 0), ncclSuccess);
        }
      }
      ASSERT_EQ(ncclGroupEnd(), ncclSuccess) << text();
      for (int i = 0; i < 2; i++) {
        const ncclComm_t child = children[static_cast<size_t>(i)];
        if (!child) continue;
        int sum = 1 << (4 * rank);
        EXPECT_EQ(ncclAllReduce(&sum, &sum, 1, ncclInt32, ncclSum, child, nullptr), ncclSuccess);
        const int all = 0x1111, left_out = 1 << (4 * (3 - i));
        const int split = i == 0 ? 0x11 << (8 * (rank / 2)) : 0x101 << (4 * (rank % 2));
        EXPECT_EQ(sum, shrinks ? all - left_out : split);
        EXPECT_EQ(ncclCommDestroy(child), ncclSuccess);
      }
    }
  });
}

// ---- both kinds ----

TEST(NcclGroups, OfBothKindsOfCommunicatorsAreRefused) {
  const Bounded bounded("groups of both kinds");
  const std::vector<ncclComm_t> behind = nonblocking_pair();
  ncclComm_t waits = nullptr;
  ASSERT_EQ(ncclCommInitAll(&waits, 1, nullptr), ncclSuccess);
  int x = 1, y = 1;
  for (const bool waits_first : {false, true}) {
    EXPECT_EQ(ncclGroupStart(), ncclSuccess);
    EXPECT_EQ(
        ncclAllReduce(&x, &x, 1, ncclInt32, ncclSum, waits_first ? waits : behind[0], nullptr),
        ncclSuccess);
    EXPECT_EQ(
        ncclAllReduce(&y, &y, 1, ncclInt32, ncclSum, waits_first ? behind[0] : waits, nullptr),
        ncclInvalidArgument);
    EXPECT_EQ(ncclGroupEnd(), ncclInvalidArgument);
    EXPECT_NE(text().find("are in one group"), std::string::npos) << text();
  }
  EXPECT_EQ(settle(behind[0]), ncclSuccess) << "it is as if the group had never been";
  EXPECT_EQ(ncclAllReduce(&x, &x, 1, ncclInt32, ncclSum, waits, nullptr), ncclSuccess) << text();
  EXPECT_EQ(ncclCommDestroy(waits), ncclSuccess);
  destroy(behind);
}

// The call returns before there is a child: nothing may be written to `child` afterwards.
TEST(NcclGroups, AChildThatBlocksOfAParentThatDoesNot) {
  const Bounded bounded("a child that blocks");
  const std::vector<ncclComm_t> parents = nonblocking_pair();
  std::vector<ncclComm_t> children;
  for (const ncclComm_t parent : parents) {
    auto child = std::make_unique<ncclComm_t>(nullptr);
    ncclConfig_t config = kConfig;
    config.blocking = 1;
    EXPECT_EQ(ncclCommSplit(parent, 0, 0, child.get(), &config), ncclInProgress) << text();
    ASSERT_NE(*child, nullptr);
    children.push_back(*child);
  }
  std::vector<std::thread> threads;
  for (size_t r = 0; r < children.size(); r++)
    threads.emplace_back([child = children[r], r] {
      int size = 0, x = 1, excluded[] = {1 - static_cast<int>(r)};
      ncclComm_t alone = nullptr;  // out of what may still be under way
      EXPECT_EQ(ncclCommShrink(child, excluded, 1, &alone, nullptr, 0), ncclSuccess) << text();
      EXPECT_EQ(ncclCommDestroy(alone), ncclSuccess);
      EXPECT_EQ(ncclCommCount(child, &size), ncclSuccess) << text();
      EXPECT_EQ(size, 2);
      EXPECT_EQ(ncclAllReduce(&x, &x, 1, ncclInt32, ncclSum, child, nullptr), ncclSuccess)
          << text();
      EXPECT_EQ(x, 2);
    });
  for (std::thread& thread : threads) thread.join();
  destroy(children);
  destroy(parents);
}

TEST(NcclGroups, AChildThatDoesNotBlockOfAParentThatDoes) {
  const Bounded bounded("a child that does not block");
  NcclRanks ranks(2);
  ranks.run([](int, ncclComm_t parent) {
    ncclComm_t child = nullptr;
    ncclConfig_t config = kNonblocking;
    EXPECT_EQ(ncclCommSplit(parent, 0, 0, &child, &config), ncclSuccess) << text();
    int x = 1;
    EXPECT_EQ(ncclAllReduce(&x, &x, 1, ncclInt32, ncclSum, child, nullptr), ncclInProgress);
    EXPECT_EQ(settle(child), ncclSuccess) << text();
    EXPECT_EQ(x, 2);
    EXPECT_EQ(ncclCommDestroy(child), ncclSuccess);
  });
}

TEST(NcclGroups, WhatAFailedGroupWasToMakeSaysTheError) {
  const Bounded bounded("a failed group");
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  ncclComm_t comm = nullptr;
  ncclConfig_t config = kNonblocking;
  EXPECT_EQ(ncclGroupStart(), ncclSuccess);
  EXPECT_EQ(ncclCommInitRankConfig(&comm, 1, id, 0, &config), ncclSuccess);
  EXPECT_EQ(ncclSend(nullptr, 1, ncclInt32, 0, nullptr, nullptr), ncclInvalidArgument);
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidArgument);
  ASSERT_NE(comm, nullptr);
  EXPECT_EQ(settle(comm), ncclInvalidArgument);
  EXPECT_NE(text().find("the communicator is NULL"), std::string::npos) << text();
  EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
}

// What is made would wait for the rank that is not for ever.
TEST(NcclGroups, ACommunicatorThatCannotBeMadeFailsItsGroup) {
  const Bounded bounded("a group that cannot make all its communicators");
  ncclComm_t comm = nullptr, made = nullptr, other = nullptr;
  ASSERT_EQ(ncclCommInitAll(&comm, 1, nullptr), ncclSuccess);
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  int excluded[] = {1};
  const std::vector<std::function<ncclResult_t()>> all_off = {
      [&] { return ncclCommInitRank(&other, 2, id, 2); },
      [&] { return ncclCommInitRankScalable(&other, 2, 1, 0, &id, nullptr); },
      [&] { return ncclCommSplit(comm, -7, 0, &other, nullptr); },
      [&] { return ncclCommShrink(comm, excluded, 1, &other, nullptr, 0); },
      [&] { return ncclCommFinalize(nullptr); }};
  for (const auto& off : all_off) {
    EXPECT_EQ(ncclGroupStart(), ncclSuccess);
    EXPECT_EQ(ncclCommSplit(comm, 0, 0, &made, nullptr), ncclSuccess) << text();
    EXPECT_EQ(off(), ncclInvalidArgument);
    EXPECT_EQ(ncclGroupEnd(), ncclInvalidArgument);
    EXPECT_EQ(made, nullptr);
  }
  EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
}

TEST(NcclGroups, AnInnerSimulationOnlyEndsItsGroup) {
  ncclComm_t comm = nullptr;
  ASSERT_EQ(ncclCommInitAll(&comm, 1, nullptr), ncclSuccess);
  int x = 1;
  EXPECT_EQ(ncclGroupStart(), ncclSuccess);
  EXPECT_EQ(ncclGroupStart(), ncclSuccess);
  EXPECT_EQ(ncclAllReduce(&x, &x, 1, ncclInt32, ncclSum, comm, nullptr), ncclSuccess);
  EXPECT_EQ(ncclGroupSimulateEnd(nullptr), ncclSuccess) << text();
  EXPECT_EQ(ncclGroupEnd(), ncclSuccess) << text();
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
  EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
}

// ---- threads ----

TEST(NcclThreads, OneACommunicatorAndNotOneACall) {
  const Bounded bounded("one thread a communicator");
  const std::vector<ncclComm_t> comms = nonblocking_pair();
  const int before = g_threads_made.load();
  int x[2] = {1, 1};
  for (int i = 0; i < 20; i++)
    for (size_t r = 0; r < 2; r++)
      EXPECT_EQ(ncclAllReduce(&x[r], &x[r], 1, ncclInt32, ncclMax, comms[r], nullptr),
                ncclInProgress);
  for (const ncclComm_t comm : comms) EXPECT_EQ(settle(comm), ncclSuccess);
  EXPECT_EQ(g_threads_made.load(), before);
  destroy(comms);
}

TEST(NcclThreads, WithoutThemAnErrorAndNoHang) {
  const Bounded bounded("no threads");
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  ncclComm_t comms[2] = {nullptr, nullptr};
  ncclConfig_t config = kNonblocking;
  g_threads_left = 0;
  const ncclResult_t behind = ncclCommInitRankConfig(&comms[0], 1, id, 0, &config);
  g_threads_left = kNever;
  EXPECT_EQ(behind, ncclSystemError);
  EXPECT_NE(text().find("thread"), std::string::npos) << text();
  ASSERT_NE(comms[0], nullptr);
  EXPECT_EQ(settle(comms[0]), ncclSystemError);
  EXPECT_EQ(ncclCommDestroy(comms[0]), ncclSuccess);

  g_threads_left = 1;  // and the second is one too many
  EXPECT_EQ(ncclGroupStart(), ncclSuccess);
  for (int r = 0; r < 2; r++) EXPECT_EQ(ncclCommInitRank(&comms[r], 2, id, r), ncclSuccess);
  const ncclResult_t grouped = ncclGroupEnd();
  g_threads_left = kNever;
  EXPECT_EQ(grouped, ncclSystemError);
  EXPECT_NE(text().find("thread"), std::string::npos) << text();
  EXPECT_EQ(comms[1], nullptr);

  ncclComm_t all[3] = {nullptr, nullptr, nullptr};
  g_threads_left = 2;
  const ncclResult_t together = ncclCommInitAll(all, 3, nullptr);
  g_threads_left = kNever;
  EXPECT_EQ(together, ncclSystemError);
  EXPECT_NE(text().find("thread"), std::string::npos) << text();
}

}  // namespace
