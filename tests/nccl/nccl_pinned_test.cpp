// nccl_pinned_test.cpp: pinned memory in NCCL's interface, where there is nothing for the device:
// it is the host's as well. The software GPU is one that sennit cannot use.
// ctest links: nccl_forwarder soft_gpu
// ctest runs: sennit_nccl
// ctest variable: SOFT_GPU_OLD=1
#include <gtest/gtest.h>

#include "tests/nccl/nccl_ranks.hpp"
#include "tests/soft_gpu/cuda_functions.hpp"

using sennit_test::text;

namespace {

TEST(NcclPinned, WithoutADeviceToUseItIsTheHosts) {
  CUcontext context = nullptr;
  ASSERT_EQ(cuInit(0), 0);
  ASSERT_EQ(cuDevicePrimaryCtxRetain(&context, 0), 0);
  sennit_test::NcclRanks ranks(2);
  ranks.run([&](int rank, ncclComm_t comm) {
    ASSERT_EQ(cuCtxSetCurrent(context), 0);
    void* pinned = nullptr;
    ASSERT_EQ(cuMemHostAlloc(&pinned, 2 * sizeof(int), 0), 0);
    int* const memory = static_cast<int*>(pinned);
    CUstream own = nullptr;
    ASSERT_EQ(cuStreamCreate(&own, 1), 0);
    auto* const stream = reinterpret_cast<cudaStream_t>(own);
    memory[0] = rank + 1;
    EXPECT_EQ(ncclAllReduce(memory, memory, 1, ncclInt32, ncclSum, comm, stream), ncclSuccess)
        << text();
    EXPECT_EQ(memory[0], 3);
    // Messages come in groups.
    memory[0] = rank;
    EXPECT_EQ(ncclGroupStart(), ncclSuccess);
    EXPECT_EQ(ncclSend(&memory[0], 1, ncclInt32, 1 - rank, comm, stream), ncclSuccess);
    EXPECT_EQ(ncclRecv(&memory[1], 1, ncclInt32, 1 - rank, comm, stream), ncclSuccess);
    EXPECT_EQ(ncclGroupEnd(), ncclSuccess) << text();
    EXPECT_EQ(memory[1], 1 - rank);
  });
}

}  // namespace
