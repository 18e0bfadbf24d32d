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

/* A sum over one rank, which is the input, as long as nobody looks at it: both are the same. */
__attribute__((visibility("default"))) ncclResult_t ncclCommInitAll(ncclComm_t* comms, int devices,
                                                                    const int* device_list);
ncclResult_t ncclCommInitAll(ncclComm_t* comms, int devices, const int* device_list) {
  (void)device_list;
  for (int i = 0; i < devices; i++) comms[i] = NULL;
  return ncclSuccess;
}
__attribute__((visibility("default"))) ncclResult_t ncclCommDestroy(ncclComm_t comm);
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  (void)comm;
  return ncclSuccess;
}
__attribute__((visibility("default"))) ncclResult_t ncclAllReduce(const void* input, void* output,
                                                                  size_t count, ncclDataType_t type,
                                                                  ncclRedOp_t op, ncclComm_t comm,
                                                                  void* stream);
ncclResult_t ncclAllReduce(const void* input, void* output, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, void* stream) {
  (void)count;
  (void)type;
  (void)op;
  (void)comm;
  (void)stream;
  return input == output ? ncclSuccess : ncclInternalError;
}
