/* abi.h: the binary interface of NCCL, as programs that were built with its header see it: types,
 * numbers and layouts up to version 2.32.3. Declared here anew, because sennit is built without
 * NCCL; tests/nccl/nccl_abi_test.cpp compares them with the real header where there is one.
 *
 * The numbers of types and operations are NCCL's, not sennit's. */
#pragma once

#include <limits.h>
#include <stdint.h>
#ifdef __cplusplus
#include <cstddef>
extern "C" {
#else
#include <stdbool.h>
#include <stddef.h>
#endif

/* What ncclGetVersion answers: the newest version whose functions are all here. */
enum { kNcclVersion = 23203 };

enum {
  kNcclUniqueIdBytes = 128,
  kNcclUndefinedInt = INT_MIN, /* a field of a config that the caller left alone */
  kNcclNoColor = -1,
  kNcclShrinkDefault = 0,
  kNcclShrinkAbort = 1,
};
#define NCCL_CONFIG_MAGIC 0xcafebeefu
#define NCCL_SIMULATION_MAGIC 0x74685283u

typedef const char* ncclText_t; /* one word for it, for functions.h */
typedef struct ncclComm* ncclComm_t;
typedef struct ncclWindow_vidmem* ncclWindow_t;
typedef struct ncclParamHandle* ncclParamHandle_t;
typedef struct CUstream_st* cudaStream_t;
typedef struct CUevent_st* cudaEvent_t;

typedef struct ncclUniqueId {
  char internal[kNcclUniqueIdBytes];
} ncclUniqueId;

typedef enum {
  ncclSuccess = 0,
  ncclUnhandledCudaError = 1,
  ncclSystemError = 2,
  ncclInternalError = 3,
  ncclInvalidArgument = 4,
  ncclInvalidUsage = 5,
  ncclRemoteError = 6,
  ncclInProgress = 7,
  ncclTimeout = 8,
} ncclResult_t;

typedef enum {
  ncclSum = 0,
  ncclProd = 1,
  ncclMax = 2,
  ncclMin = 3,
  ncclAvg = 4,
  ncclNumOps = 5, /* the first that ncclRedOpCreatePreMulSum may return */
  ncclMaxRedOp = 0x7fffffff,
} ncclRedOp_t;

typedef enum {
  ncclInt8 = 0,
  ncclUint8 = 1,
  ncclInt32 = 2,
  ncclUint32 = 3,
  ncclInt64 = 4,
  ncclUint64 = 5,
  ncclFloat16 = 6,
  ncclFloat32 = 7,
  ncclFloat64 = 8,
  ncclBfloat16 = 9,
  ncclFloat8e4m3 = 10,
  ncclFloat8e5m2 = 11,
  ncclNumTypes = 12,
} ncclDataType_t;

typedef enum {
  ncclScalarDevice = 0,
  ncclScalarHostImmediate = 1,
} ncclScalarResidence_t;

typedef enum {
  ncclStatGpuMemSuspend = 0,
  ncclStatGpuMemSuspended = 1,
  ncclStatGpuMemPersist = 2,
  ncclStatGpuMemTotal = 3,
} ncclCommMemStat_t;

/* Grows with NCCL's versions: `size` says how much of it the caller's header has. 2.14 ends behind
 * `blocking`. */
typedef struct ncclConfig_t {
  size_t size;
  unsigned int magic;
  unsigned int version;
  int blocking;
  int cgaClusterSize;
  int minCTAs;
  int maxCTAs;
  const char* netName;
  int splitShare;
  int trafficClass;
  const char* commName;
  int collnetEnable;
  int CTAPolicy;
  int shrinkShare;
  int nvlsCTAs;
  int nChannelsPerNetPeer;
  int nvlinkCentricSched;
  int graphUsageMode;
  int numRmaCtx;
  int maxP2pPeers;
  int graphStreamOrdering;
  int launchOrderImplicit;
  int numRmaSig;
  int rmaEagerInit;
  int hostCftMode;
  int nvlsHostMode;
} ncclConfig_t;

typedef struct ncclConfigExt_t {
  struct ncclConfigExt_t* next;
  struct {
    int vendorId;
    int optionId;
  } key;
  union {
    int i;
    const char* s;
    void* raw;
  } val;
} ncclConfigExt_t;

/* Of one call, since 2.32. */
typedef struct ncclCollConfig_t {
  size_t size;
  unsigned int magic;
  unsigned int version;
  ncclConfigExt_t* ext;
  int minCTAs;
  int maxCTAs;
  int nvlsCTAs;
  int cgaClusterSize;
  const char* algSelection;
  int forceAlgSelection;
  int CTAPolicy;
  uint64_t userProfilerTag;
  cudaEvent_t launchCompletionEvent;
} ncclCollConfig_t;

typedef struct ncclSimInfo_t {
  size_t size;
  unsigned int magic;
  unsigned int version;
  float estimatedTime; /* of the whole group, in microseconds */
} ncclSimInfo_t;

typedef struct ncclEncryptionConfig_t {
  size_t size;
  unsigned int magic;
  unsigned int version;
  int mode; /* 0: plain text, 1: `psk` is set */
  const char* psk;
} ncclEncryptionConfig_t;

typedef struct ncclWaitSignalDesc_t {
  int opCnt;
  int peer;
  int sigIdx;
  int ctx;
} ncclWaitSignalDesc_t;

typedef struct ncclTeam_t {
  int nRanks;
  int rank;
  int stride;
} ncclTeam_t;

/* `ginType` and what follows are enumerations of the device interface, which sennit has not. */
typedef struct ncclCommProperties_t {
  size_t size;
  unsigned int magic;
  unsigned int version;
  int rank;
  int nRanks;
  int cudaDev;
  int nvmlDev;
  bool deviceApiSupport;
  bool multimemSupport;
  int ginType;
  int nLsaTeams;
  bool hostRmaSupport;
} ncclCommProperties_t;

#ifdef __cplusplus
}
#endif
