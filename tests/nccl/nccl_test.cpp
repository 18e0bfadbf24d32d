// nccl_test.cpp: NCCL's interface as a program that was linked to libnccl.so.2 meets it: every
// collective, type and operation has the bits of sennit's own interface; messages, groups, splits,
// calls that do not block, and what a program gets wrong. Ranks are threads on host memory.
// ctest links: nccl_forwarder
// ctest compiles: src/nccl/numbers.cpp
// ctest runs: sennit_nccl
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "nccl/exported.hpp"
#include "nccl/numbers.hpp"
#include "tests/nccl/nccl_ranks.hpp"
#include "tests/support/ranks.hpp"
#include "tests/support/seed.hpp"

using namespace std::chrono_literals;
using sennit_test::kConfig;
using sennit_test::NcclRanks;
using sennit_test::Ranks;
using sennit_test::settle;
using sennit_test::text;

namespace {

constexpr int kRanks = 4;

// ---- the same bits as sennit's own interface ----

// One collective through both interfaces; buffers hold kRanks blocks of kCount elements.
struct Both {
  const char* name;
  bool reduces;
  std::function<ncclResult_t(const void*, void*, ncclDataType_t, ncclRedOp_t, ncclComm_t)> nccl;
  std::function<sennit_status_t(const void*, void*, sennit_type_t, sennit_op_t, sennit_comm_t)> own;
};
constexpr size_t kCount = 1000;
constexpr int kRoot = 2;
constexpr size_t kMostBytes = 8;

const std::vector<Both>& collectives() {
  static const std::vector<Both> all = {
      {"all_reduce", true,
       [](auto s, auto r, auto t, auto o, auto c) {
         return ncclAllReduce(s, r, kCount, t, o, c, nullptr);
       },
       [](auto s, auto r, auto t, auto o, auto c) {
         return sennit_all_reduce(s, r, kCount, t, o, c);
       }},
      {"reduce", true,
       [](auto s, auto r, auto t, auto o, auto c) {
         return ncclReduce(s, r, kCount, t, o, kRoot, c, nullptr);
       },
       [](auto s, auto r, auto t, auto o, auto c) {
         return sennit_reduce(s, r, kCount, t, o, kRoot, c);
       }},
      {"reduce_scatter", true,
       [](auto s, auto r, auto t, auto o, auto c) {
         return ncclReduceScatter(s, r, kCount, t, o, c, nullptr);
       },
       [](auto s, auto r, auto t, auto o, auto c) {
         return sennit_reduce_scatter(s, r, kCount, t, o, c);
       }},
      {"broadcast", false,
       [](auto s, auto r, auto t, auto, auto c) {
         return ncclBroadcast(s, r, kCount, t, kRoot, c, nullptr);
       },
       [](auto s, auto r, auto t, auto, auto c) {
         return sennit_broadcast(s, r, kCount, t, kRoot, c);
       }},
      {"all_gather", false,
       [](auto s, auto r, auto t, auto, auto c) {
         return ncclAllGather(s, r, kCount, t, c, nullptr);
       },
       [](auto s, auto r, auto t, auto, auto c) { return sennit_all_gather(s, r, kCount, t, c); }},
      {"all_to_all", false,
       [](auto s, auto r, auto t, auto, auto c) {
         return ncclAlltoAll(s, r, kCount, t, c, nullptr);
       },
       [](auto s, auto r, auto t, auto, auto c) { return sennit_all_to_all(s, r, kCount, t, c); }},
      {"gather", false,
       [](auto s, auto r, auto t, auto, auto c) {
         return ncclGather(s, r, kCount, t, kRoot, c, nullptr);
       },
       [](auto s, auto r, auto t, auto, auto c) {
         return sennit_gather(s, r, kCount, t, kRoot, c);
       }},
      {"scatter", false,
       [](auto s, auto r, auto t, auto, auto c) {
         return ncclScatter(s, r, kCount, t, kRoot, c, nullptr);
       },
       [](auto s, auto r, auto t, auto, auto c) {
         return sennit_scatter(s, r, kCount, t, kRoot, c);
       }},
  };
  return all;
}

using Memory = std::vector<unsigned char>;

TEST(Nccl, EveryCollectiveTypeAndOperationHasTheBitsOfSennitsOwn) {
  std::vector<Memory> inputs(kRanks, Memory(kRanks * kCount * kMostBytes));
  std::mt19937_64 random(sennit_test::seed());
  for (Memory& input : inputs)
    for (unsigned char& byte : input) byte = static_cast<unsigned char>(random() % 64);
  Ranks own(kRanks);
  NcclRanks nccl(kRanks);
  for (const Both& collective : collectives())
    for (int type = 0; type < ncclNumTypes; type++)
      for (int op = 0; op < (collective.reduces ? ncclNumOps : 1); op++) {
        const auto its_type = static_cast<ncclDataType_t>(type);
        const auto its_op = static_cast<ncclRedOp_t>(op);
        std::vector<Memory> expected(kRanks, Memory(inputs[0].size())), got = expected;
        own.run([&](int rank, sennit_comm_t comm) {
          const auto r = static_cast<size_t>(rank);
          EXPECT_EQ(
              collective.own(inputs[r].data(), expected[r].data(), *sennit::nccl::type_of(its_type),
                             *sennit::nccl::op_of(its_op), comm),
              SENNIT_OK)
              << sennit_last_error();
        });
        nccl.run([&](int rank, ncclComm_t comm) {
          const auto r = static_cast<size_t>(rank);
          EXPECT_EQ(collective.nccl(inputs[r].data(), got[r].data(), its_type, its_op, comm),
                    ncclSuccess)
              << text();
        });
        EXPECT_EQ(got, expected) << collective.name << " type " << type << " op " << op;
      }
}

TEST(Nccl, NumbersMeanWhatNcclsHeaderSays) {
  NcclRanks ranks(2);
  ranks.run([](int rank, ncclComm_t comm) {
    const double mine = rank == 0 ? 3 : 5;
    const std::map<ncclRedOp_t, double> expected = {
        {ncclSum, 8}, {ncclProd, 15}, {ncclMax, 5}, {ncclMin, 3}, {ncclAvg, 4}};
    for (const auto& [op, result] : expected) {
      double x = mine, out = 0;
      EXPECT_EQ(ncclAllReduce(&x, &out, 1, ncclFloat64, op, comm, nullptr), ncclSuccess) << text();
      EXPECT_EQ(out, result) << op;
    }
    int64_t whole = rank + 1;
    EXPECT_EQ(ncclAllReduce(&whole, &whole, 1, ncclInt64, ncclSum, comm, nullptr), ncclSuccess);
    EXPECT_EQ(whole, 3);
  });
}

TEST(Nccl, SumsOfWhatWasMultipliedFirst) {
  NcclRanks ranks(2);
  ranks.run([](int rank, ncclComm_t comm) {
    float factor = rank == 0 ? 2 : 10;
    ncclRedOp_t op;
    ASSERT_EQ(ncclRedOpCreatePreMulSum(&op, &factor, ncclFloat32, ncclScalarHostImmediate, comm),
              ncclSuccess)
        << text();
    EXPECT_GE(op, ncclNumOps);
    float x = 1, out = 0;
    EXPECT_EQ(ncclAllReduce(&x, &out, 1, ncclFloat32, op, comm, nullptr), ncclSuccess) << text();
    EXPECT_EQ(out, 12);
    EXPECT_EQ(ncclRedOpDestroy(op, comm), ncclSuccess);
    EXPECT_EQ(ncclRedOpDestroy(op, comm), ncclInvalidArgument);
    EXPECT_EQ(ncclRedOpDestroy(ncclSum, comm), ncclInvalidArgument);
  });
}

TEST(Nccl, AnOpOfAnotherCommunicatorIsNone) {
  NcclRanks ranks(1);
  ranks.run([](int, ncclComm_t comm) {
    ncclComm_t other = nullptr;
    ASSERT_EQ(ncclCommSplit(comm, 0, 0, &other, nullptr), ncclSuccess) << text();
    float own_factor = 2, foreign_factor = 10;
    ncclRedOp_t own, foreign;
    ASSERT_EQ(
        ncclRedOpCreatePreMulSum(&own, &own_factor, ncclFloat32, ncclScalarHostImmediate, comm),
        ncclSuccess)
        << text();
    ASSERT_EQ(ncclRedOpCreatePreMulSum(&foreign, &foreign_factor, ncclFloat32,
                                       ncclScalarHostImmediate, other),
              ncclSuccess)
        << text();
    float x = 1, out = 0;
    EXPECT_EQ(ncclAllReduce(&x, &out, 1, ncclFloat32, foreign, comm, nullptr), ncclInvalidArgument);
    EXPECT_EQ(ncclRedOpDestroy(foreign, comm), ncclInvalidArgument);
    EXPECT_EQ(ncclRedOpDestroy(foreign, other), ncclSuccess);
    EXPECT_EQ(ncclRedOpDestroy(own, comm), ncclSuccess);
    EXPECT_EQ(ncclCommDestroy(other), ncclSuccess);
  });
}

// ---- groups ----

TEST(Nccl, AGroupOfMessagesAndCollectivesOnTwoCommunicators) {
  NcclRanks ranks(kRanks);
  ranks.run([](int rank, ncclComm_t comm) {
    ncclComm_t half = nullptr;
    ASSERT_EQ(ncclCommSplit(comm, rank % 2, -rank, &half, nullptr), ncclSuccess) << text();
    int size = 0, within = -1;
    EXPECT_EQ(ncclCommCount(half, &size), ncclSuccess);
    EXPECT_EQ(ncclCommUserRank(half, &within), ncclSuccess);
    EXPECT_EQ(size, kRanks / 2);
    EXPECT_EQ(within, 1 - rank / 2);  // by key, the highest rank first
    int from = rank, to = -1, sum = rank, half_sum = rank;
    EXPECT_EQ(ncclGroupStart(), ncclSuccess);
    EXPECT_EQ(ncclGroupStart(), ncclSuccess);
    EXPECT_EQ(ncclSend(&from, 1, ncclInt32, (rank + 1) % kRanks, comm, nullptr), ncclSuccess);
    EXPECT_EQ(ncclAllReduce(&half_sum, &half_sum, 1, ncclInt32, ncclSum, half, nullptr),
              ncclSuccess);
    EXPECT_EQ(ncclGroupEnd(), ncclSuccess);
    EXPECT_EQ(ncclRecv(&to, 1, ncclInt32, (rank + kRanks - 1) % kRanks, comm, nullptr),
              ncclSuccess);
    EXPECT_EQ(ncclAllReduce(&sum, &sum, 1, ncclInt32, ncclSum, comm, nullptr), ncclSuccess);
    EXPECT_EQ(ncclGroupEnd(), ncclSuccess) << text();
    EXPECT_EQ(to, (rank + kRanks - 1) % kRanks);
    EXPECT_EQ(sum, 6);
    EXPECT_EQ(half_sum, rank % 2 == 0 ? 2 : 4);
    EXPECT_EQ(ncclCommDestroy(half), ncclSuccess);
  });
}

// One thread starts all ranks of a process, as nccl-tests does.
TEST(Nccl, OneThreadMakesAndUsesAllCommunicatorsInGroups) {
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess) << text();
  std::vector<ncclComm_t> comms(kRanks), halves(kRanks);
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);
  for (int r = 0; r < kRanks; r++)
    EXPECT_EQ(ncclCommInitRank(&comms[static_cast<size_t>(r)], kRanks, id, r), ncclSuccess);
  ASSERT_EQ(ncclGroupEnd(), ncclSuccess) << text();
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);
  for (size_t r = 0; r < comms.size(); r++)
    EXPECT_EQ(ncclCommSplit(comms[r], r < 2 ? 0 : kNcclNoColor, 0, &halves[r], nullptr),
              ncclSuccess);
  ASSERT_EQ(ncclGroupEnd(), ncclSuccess) << text();
  for (size_t r = 0; r < comms.size(); r++) EXPECT_EQ(halves[r] != nullptr, r < 2) << r;
  std::vector<int> x(kRanks, 1);
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);
  for (size_t r = 0; r < comms.size(); r++)
    EXPECT_EQ(ncclAllReduce(&x[r], &x[r], 1, ncclInt32, ncclSum, comms[r], nullptr), ncclSuccess);
  ASSERT_EQ(ncclGroupEnd(), ncclSuccess) << text();
  EXPECT_EQ(x, std::vector<int>(kRanks, kRanks));
  for (const ncclComm_t half : halves) EXPECT_EQ(ncclCommDestroy(half), ncclSuccess);
  for (const ncclComm_t comm : comms) EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
}

TEST(Nccl, AGroupWithAnErrorInsideMakesNoneOfItsCalls) {
  NcclRanks ranks(2);
  ranks.run([](int rank, ncclComm_t comm) {
    int from = rank, to = -1;
    const int other = 1 - rank;
    ASSERT_EQ(ncclGroupStart(), ncclSuccess);
    EXPECT_EQ(ncclSend(&from, 1, ncclInt32, other, comm, nullptr), ncclSuccess);
    EXPECT_EQ(ncclRecv(&to, 1, static_cast<ncclDataType_t>(99), other, comm, nullptr),
              ncclInvalidArgument);
    EXPECT_EQ(ncclGroupEnd(), ncclInvalidArgument);
    EXPECT_NE(text().find("datatype 99"), std::string::npos) << text();
    // A peer that is none is found at the end.
    ASSERT_EQ(ncclGroupStart(), ncclSuccess);
    EXPECT_EQ(ncclSend(&from, 1, ncclInt32, other, comm, nullptr), ncclSuccess);
    ncclRecv(&to, 1, ncclInt32, 2, comm, nullptr);
    EXPECT_EQ(ncclGroupEnd(), ncclInvalidArgument);
    // The next is as if they had never been.
    ASSERT_EQ(ncclGroupStart(), ncclSuccess);
    EXPECT_EQ(ncclSend(&from, 1, ncclInt32, other, comm, nullptr), ncclSuccess);
    EXPECT_EQ(ncclRecv(&to, 1, ncclInt32, other, comm, nullptr), ncclSuccess);
    EXPECT_EQ(ncclGroupEnd(), ncclSuccess) << text();
    EXPECT_EQ(to, other);
    EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
  });
}

// ---- calls that do not block ----

TEST(Nccl, WhatDoesNotBlockIsPolledFor) {
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  std::vector<std::thread> threads;
  for (int r = 0; r < 2; r++)
    threads.emplace_back([&, r] {
      ncclConfig_t config = kConfig;
      config.blocking = 0;
      ncclComm_t comm = nullptr, twin = nullptr;
      EXPECT_EQ(ncclCommInitRankConfig(&comm, 2, id, r, &config), ncclInProgress) << text();
      ASSERT_NE(comm, nullptr);
      EXPECT_EQ(settle(comm), ncclSuccess) << text();
      // Calls keep their order, although nobody waits between them.
      int x = 1;
      for (int i = 0; i < 10; i++)
        EXPECT_EQ(ncclAllReduce(&x, &x, 1, ncclInt32, ncclSum, comm, nullptr), ncclInProgress);
      EXPECT_EQ(ncclCommSplit(comm, 0, r, &twin, nullptr), ncclInProgress);
      EXPECT_EQ(settle(comm), ncclSuccess) << text();
      EXPECT_EQ(x, 1024);
      EXPECT_EQ(settle(twin), ncclSuccess) << text();
      EXPECT_EQ(ncclAllReduce(&x, &x, 1, ncclInt32, ncclMax, twin, nullptr), ncclInProgress);
      EXPECT_EQ(ncclCommFinalize(twin), ncclInProgress);
      EXPECT_EQ(settle(twin), ncclSuccess);
      EXPECT_EQ(ncclCommDestroy(twin), ncclSuccess);
      EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
    });
  for (std::thread& thread : threads) thread.join();
}

// The other rank has not come: to give up takes no time. It comes then, and what was given up ends.
TEST(Nccl, AStartThatNobodyJoinsCanBeAborted) {
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  ncclConfig_t config = kConfig;
  config.blocking = 0;
  ncclComm_t comm = nullptr;
  EXPECT_EQ(ncclCommInitRankConfig(&comm, 2, id, 0, &config), ncclInProgress);
  ncclResult_t result = ncclSuccess;
  EXPECT_EQ(ncclCommGetAsyncError(comm, &result), ncclSuccess);
  EXPECT_EQ(result, ncclInProgress);
  const auto began = std::chrono::steady_clock::now();
  EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
  EXPECT_LT(std::chrono::steady_clock::now() - began, 2s);
  ncclComm_t late = nullptr;
  if (ncclCommInitRank(&late, 2, id, 1) == ncclSuccess) {
    int x = 0;
    EXPECT_EQ(ncclRecv(&x, 1, ncclInt32, 0, late, nullptr), ncclRemoteError);
    EXPECT_EQ(ncclCommDestroy(late), ncclSuccess);
  }
}

TEST(Nccl, AbortFromAnotherThreadEndsACallThatWaits) {
  NcclRanks ranks(2);
  ranks.run([](int rank, ncclComm_t comm) {
    ncclComm_t twin = nullptr;
    ASSERT_EQ(ncclCommSplit(comm, 0, rank, &twin, nullptr), ncclSuccess);
    if (rank == 0) {
      int x = 0;  // nobody sends it
      EXPECT_EQ(ncclRecv(&x, 1, ncclInt32, 1, twin, nullptr), ncclRemoteError);
      ncclResult_t error = ncclSuccess;
      EXPECT_EQ(ncclCommGetAsyncError(twin, &error), ncclSuccess);
      EXPECT_EQ(error, ncclRemoteError);
      EXPECT_EQ(ncclCommDestroy(twin), ncclSuccess);
    } else {
      EXPECT_EQ(ncclCommAbort(twin), ncclSuccess);
    }
  });
}

// ---- what a program gets wrong ----

TEST(Nccl, WhatIsOffIsNamed) {
  ncclComm_t comm = nullptr;
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  ncclConfig_t config = kConfig;
  config.magic = 0;
  EXPECT_EQ(ncclCommInitRankConfig(&comm, 1, id, 0, &config), ncclInvalidArgument);
  EXPECT_NE(text().find("NCCL_CONFIG_INITIALIZER"), std::string::npos) << text();
  EXPECT_EQ(ncclCommInitRank(&comm, 2, id, 2), ncclInvalidArgument);
  EXPECT_NE(text().find("rank 2 of 2"), std::string::npos) << text();
  id.internal[5] ^= 1;
  EXPECT_EQ(ncclCommInitRank(&comm, 1, id, 0), ncclInvalidArgument);
  EXPECT_NE(text().find("damaged"), std::string::npos) << text();
  EXPECT_EQ(comm, nullptr);
  int x = 0;
  EXPECT_EQ(ncclAllReduce(&x, &x, 1, ncclInt32, ncclSum, nullptr, nullptr), ncclInvalidArgument);
  ASSERT_EQ(ncclCommInitAll(&comm, 1, nullptr), ncclSuccess) << text();
  EXPECT_EQ(ncclAllReduce(&x, &x, 1, ncclInt32, static_cast<ncclRedOp_t>(-1), comm, nullptr),
            ncclInvalidArgument);
  EXPECT_EQ(ncclBcast(&x, 1, ncclInt32, 1, comm, nullptr), ncclInvalidArgument);
  EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
}

// An old program's config ends behind `blocking`; what lies behind it is not read.
TEST(Nccl, AConfigOfAnOldHeaderIsRead) {
  ncclConfig_t config = kConfig;
  config.size = offsetof(ncclConfig_t, blocking) + sizeof config.blocking;
  config.blocking = 1;
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  ncclComm_t comm = nullptr;
  EXPECT_EQ(ncclCommInitRankConfig(&comm, 1, id, 0, &config), ncclSuccess) << text();
  EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
}

TEST(Nccl, WhatSennitHasNotSaysSo) {
  EXPECT_EQ(ncclSignal(0, 0, 0, 0, nullptr, nullptr), ncclInvalidUsage);
  EXPECT_NE(text().find("ncclSignal: sennit has no one-sided calls"), std::string::npos) << text();
  EXPECT_EQ(ncclCommGrow(nullptr, 2, nullptr, 0, nullptr, nullptr), ncclInvalidUsage);
  EXPECT_EQ(ncclDevCommCreate(nullptr, nullptr, nullptr), ncclInvalidUsage);
}

// ---- memory, and the library itself ----

TEST(Nccl, ShrinkingIsForThoseWhoStay) {
  for (const bool abort : {false, true}) {
    NcclRanks ranks(kRanks);
    ranks.run([&](int rank, ncclComm_t comm) {
      int excluded[] = {1};
      if (rank == 1) {
        EXPECT_EQ(ncclCommShrink(comm, excluded, 1, &comm, nullptr, 0), ncclInvalidArgument);
        EXPECT_NE(text().find("rank 1 calls ncclCommShrink itself"), std::string::npos) << text();
        return;
      }
      ncclComm_t smaller = nullptr;
      ASSERT_EQ(ncclCommShrink(comm, excluded, 1, &smaller, nullptr,
                               abort ? kNcclShrinkAbort : kNcclShrinkDefault),
                ncclSuccess)
          << text();
      int size = 0, number = 0, sum = 0;
      EXPECT_EQ(ncclCommCount(smaller, &size), ncclSuccess);
      EXPECT_EQ(ncclCommUserRank(smaller, &number), ncclSuccess);
      EXPECT_EQ(size, kRanks - 1);
      EXPECT_EQ(number, rank == 0 ? 0 : rank - 1);
      EXPECT_EQ(ncclAllReduce(&rank, &sum, 1, ncclInt32, ncclSum, smaller, nullptr), ncclSuccess);
      EXPECT_EQ(sum, 0 + 2 + 3);
      EXPECT_EQ(ncclCommDestroy(smaller), ncclSuccess);
    });
  }
}

TEST(Nccl, WhatIsRevokedEndsAndCanBeShrunk) {
  NcclRanks ranks(kRanks);
  ranks.run([](int rank, ncclComm_t comm) {
    int number = rank;
    if (rank == 0) {
      std::this_thread::sleep_for(20ms);
      EXPECT_EQ(ncclCommRevoke(comm, 1), ncclInvalidArgument);
      EXPECT_EQ(ncclCommRevoke(comm, 0), ncclSuccess);
    } else {  // waits for rank 0, which never comes
      EXPECT_NE(ncclAllReduce(&number, &number, 1, ncclInt32, ncclSum, comm, nullptr), ncclSuccess);
    }
    ncclComm_t smaller = nullptr;
    int excluded[] = {3}, sum = 0;
    if (rank == 3) return;
    ASSERT_EQ(ncclCommShrink(comm, excluded, 1, &smaller, nullptr, 0), ncclSuccess) << text();
    EXPECT_EQ(ncclAllReduce(&rank, &sum, 1, ncclInt32, ncclSum, smaller, nullptr), ncclSuccess);
    EXPECT_EQ(sum, 3);
    EXPECT_EQ(ncclCommDestroy(smaller), ncclSuccess);
  });
}

// Nobody else need take part: nothing is sent.
TEST(Nccl, AGroupCanBeSimulated) {
  NcclRanks ranks(kRanks);
  ranks.run([](int rank, ncclComm_t comm) {
    if (rank != 2) return;
    std::vector<float> data(1 << 20, 1.0f);
    const auto microseconds = [&](size_t count, int times) {
      ncclSimInfo_t info{};
      info.size = sizeof info;
      info.magic = NCCL_SIMULATION_MAGIC;
      info.version = kNcclVersion;
      ncclGroupStart();
      for (int i = 0; i < times; i++)
        EXPECT_EQ(
            ncclAllReduce(data.data(), data.data(), count, ncclFloat32, ncclSum, comm, nullptr),
            ncclSuccess);
      EXPECT_EQ(ncclGroupSimulateEnd(&info), ncclSuccess) << text();
      return info.estimatedTime;
    };
    const float small = microseconds(1, 1), large = microseconds(data.size(), 1);
    EXPECT_GT(small, 0);
    EXPECT_GT(large, 10 * small);
    EXPECT_FLOAT_EQ(microseconds(data.size(), 3), 3 * large);
    EXPECT_EQ(data, std::vector<float>(data.size(), 1.0f)) << "nothing is made";
    ncclGroupStart();
    ncclSend(data.data(), data.size(), ncclFloat32, 0, comm, nullptr);
    ncclSimInfo_t other{};
    EXPECT_EQ(ncclGroupSimulateEnd(&other), ncclInvalidArgument) << "it has no magic";
    EXPECT_EQ(ncclGroupSimulateEnd(nullptr), ncclInvalidUsage) << "no group is open";
  });
}

TEST(Nccl, MemoryIsAllocatedRegisteredAndShownThroughWindows) {
  NcclRanks ranks(2);
  ranks.run([](int, ncclComm_t comm) {
    void* memory = nullptr;
    ASSERT_EQ(ncclMemAlloc(&memory, 100'000), ncclSuccess);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % 4096, 0u);
    void* handle = nullptr;
    ASSERT_EQ(ncclCommRegister(comm, memory, 100'000, &handle), ncclSuccess) << text();
    auto* x = static_cast<int32_t*>(memory);
    for (int i = 0; i < 25'000; i++) x[i] = i;
    EXPECT_EQ(ncclAllReduce(x, x, 25'000, ncclInt32, ncclSum, comm, nullptr), ncclSuccess);
    EXPECT_EQ(x[24'999], 2 * 24'999);
    EXPECT_EQ(ncclCommDeregister(comm, handle), ncclSuccess);
    ncclWindow_t window = nullptr;
    ASSERT_EQ(ncclCommWindowRegister(comm, memory, 4096, &window, 0), ncclSuccess);
    void* behind = nullptr;
    EXPECT_EQ(ncclWinGetUserPtr(comm, window, &behind), ncclSuccess);
    EXPECT_EQ(behind, memory);
    EXPECT_EQ(ncclCommWindowDeregister(comm, window), ncclSuccess);
    EXPECT_EQ(ncclMemFree(memory), ncclSuccess);
    EXPECT_EQ(ncclMemFree(memory), ncclInvalidArgument);
  });
}

TEST(Nccl, TheLibraryTellsItsVersionErrorsAndParameters) {
  int version = 0;
  EXPECT_EQ(ncclGetVersion(&version), ncclSuccess);
  EXPECT_EQ(version, kNcclVersion);
  EXPECT_EQ(pncclGetVersion(nullptr), ncclInvalidArgument);
  EXPECT_STREQ(ncclGetErrorString(ncclInvalidUsage), "invalid usage");
  setenv("NCCL_OF_A_TEST", "42", 1);
  ncclParamHandle_t handle = nullptr;
  ASSERT_EQ(ncclParamBind(&handle, "OF_A_TEST"), ncclSuccess);
  int8_t small = 0;
  EXPECT_EQ(ncclParamGetI8(handle, &small), ncclSuccess) << text();
  EXPECT_EQ(small, 42);
  setenv("NCCL_OF_A_TEST", "300", 1);
  EXPECT_EQ(ncclParamGetI8(handle, &small), ncclInvalidArgument);
  const char* value = nullptr;
  int length = 0;
  EXPECT_EQ(ncclParamGetParameter("NCCL_OF_A_TEST", &value, &length), ncclSuccess);
  EXPECT_STREQ(value, "300");
  EXPECT_EQ(length, 3);
}

}  // namespace
