/* abi_facts.h: what a program that was built with a header of NCCL relies on: sizes, offsets and
 * numbers. Compiled twice, with NVIDIA's nccl.h and with src/nccl/abi.h; nccl_abi_test.cpp compares
 * the two. NCCL_VERSION_CODE is that of NVIDIA's header in both, which has nothing newer. */
#include <stddef.h>

struct AbiFact {
  const char* name;
  long long value;
};

#define FACT(expression) \
  { #expression, (long long)(expression) }
#define FIELD(type, field) \
  { #type "." #field, (long long)offsetof(type, field) }
#define FACTS                                                                                   \
  FACT(sizeof(ncclUniqueId)), FACT(sizeof(ncclResult_t)), FACT(sizeof(ncclRedOp_t)),            \
      FACT(sizeof(ncclDataType_t)), FACT(sizeof(ncclComm_t)), FACT(sizeof(ncclWindow_t)),       \
      FACT(sizeof(ncclScalarResidence_t)), FACT(NCCL_UNIQUE_ID_BYTES), FACT(ncclSuccess),       \
      FACT(ncclUnhandledCudaError), FACT(ncclSystemError), FACT(ncclInternalError),             \
      FACT(ncclInvalidArgument), FACT(ncclInvalidUsage), FACT(ncclRemoteError),                 \
      FACT(ncclInProgress), FACT(ncclSum), FACT(ncclProd), FACT(ncclMax), FACT(ncclMin),        \
      FACT(ncclAvg), FACT(ncclNumOps), FACT(ncclMaxRedOp), FACT(ncclInt8), FACT(ncclUint8),     \
      FACT(ncclInt32), FACT(ncclUint32), FACT(ncclInt64), FACT(ncclUint64), FACT(ncclFloat16),  \
      FACT(ncclFloat32), FACT(ncclFloat64), FACT(ncclBfloat16), FACT(ncclScalarDevice),         \
      FACT(ncclScalarHostImmediate), FACT(NCCL_CONFIG_UNDEF_INT), FACT(NCCL_SPLIT_NOCOLOR),     \
      FIELD(ncclConfig_t, size), FIELD(ncclConfig_t, magic), FIELD(ncclConfig_t, version),      \
      FIELD(ncclConfig_t, blocking), FIELD(ncclConfig_t, cgaClusterSize),                       \
      FIELD(ncclConfig_t, minCTAs), FIELD(ncclConfig_t, maxCTAs), FIELD(ncclConfig_t, netName), \
      FIELD(ncclConfig_t, splitShare)

#if NCCL_VERSION_CODE >= 22200
#define FACTS_OF_2_22                                                                     \
  , FACT(sizeof(ncclSimInfo_t)), FIELD(ncclSimInfo_t, size), FIELD(ncclSimInfo_t, magic), \
      FIELD(ncclSimInfo_t, version), FIELD(ncclSimInfo_t, estimatedTime)
#else
#define FACTS_OF_2_22
#endif
#if NCCL_VERSION_CODE >= 22400
#define FACTS_OF_2_24 , FACT(ncclFloat8e4m3), FACT(ncclFloat8e5m2), FACT(ncclNumTypes)
#else
#define FACTS_OF_2_24
#endif
#if NCCL_VERSION_CODE >= 22800
#define FACTS_OF_2_28                                                                      \
  , FACT(NCCL_SHRINK_DEFAULT), FACT(NCCL_SHRINK_ABORT), FIELD(ncclConfig_t, trafficClass), \
      FIELD(ncclConfig_t, commName), FIELD(ncclConfig_t, collnetEnable),                   \
      FIELD(ncclConfig_t, CTAPolicy), FIELD(ncclConfig_t, shrinkShare),                    \
      FIELD(ncclConfig_t, nvlsCTAs), FIELD(ncclConfig_t, nChannelsPerNetPeer),             \
      FIELD(ncclConfig_t, nvlinkCentricSched)
#else
#define FACTS_OF_2_28
#endif

#define ALL_FACTS                                                          \
  {                                                                        \
    FACTS FACTS_OF_2_22 FACTS_OF_2_24 FACTS_OF_2_28, { (const char*)0, 0 } \
  }
