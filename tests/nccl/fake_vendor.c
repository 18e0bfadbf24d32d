/* fake_vendor.c: stands for NVIDIA's libnccl.so.2, an old one that has few functions. */
#include "nccl/abi.h"

enum { kFakeVersion = 21799 };

__attribute__((visibility("default"))) ncclResult_t ncclGetVersion(int* version);
ncclResult_t ncclGetVersion(int* version) {
  *version = kFakeVersion;
  return ncclSuccess;
}

/* A structure that is given by value has to arrive as it was. */
__attribute__((visibility("default"))) ncclResult_t ncclCommInitRank(ncclComm_t* comm, int ranks,
                                                                     ncclUniqueId id, int rank);
ncclResult_t ncclCommInitRank(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank) {
  (void)comm;
  for (int i = 0; i < kNcclUniqueIdBytes; i++)
    if (id.internal[i] != (char)i) return ncclInternalError;
  return ranks == 7 && rank == 3 ? ncclInvalidUsage : ncclInternalError;
}
