/* functions.h: every C function of NCCL up to version 2.32.3, once, for whoever needs all of them:
 * the forwarder, the table in SYMBOLS.md, the tests.
 *
 * FUNCTION(state, result, name, parameters, arguments). The state is `works` (does what NCCL's
 * does, on host memory), `answered` (from a table, or with what is true of sennit) or `refused`
 * (ncclInvalidUsage, and ncclGetLastError says why). Pointers to structures that sennit never looks
 * into are void pointers here. */
#pragma once

#include "nccl/abi.h"

#define NCCL_FUNCTIONS(FUNCTION)                                                                   \
  /* The library */                                                                                \
  FUNCTION(works, ncclResult_t, ncclGetVersion, (int* version), (version))                         \
  FUNCTION(works, ncclText_t, ncclGetErrorString, (ncclResult_t result), (result))                 \
  FUNCTION(works, ncclText_t, ncclGetLastError, (ncclComm_t comm), (comm))                         \
  FUNCTION(works, ncclResult_t, ncclMemAlloc, (void** memory, size_t bytes), (memory, bytes))      \
  FUNCTION(works, ncclResult_t, ncclMemFree, (void* memory), (memory))                             \
  FUNCTION(refused, ncclResult_t, ncclSetEncryption, (const ncclEncryptionConfig_t* config),       \
           (config))                                                                               \
  FUNCTION(answered, void, ncclResetDebugInit, (void), ())                                         \
  FUNCTION(answered, void, ncclResetDebugInitInternal, (void), ())                                 \
  /* Communicators */                                                                              \
  FUNCTION(works, ncclResult_t, ncclGetUniqueId, (ncclUniqueId * id), (id))                        \
  FUNCTION(works, ncclResult_t, ncclCommInitRank,                                                  \
           (ncclComm_t * comm, int ranks, ncclUniqueId id, int rank), (comm, ranks, id, rank))     \
  FUNCTION(works, ncclResult_t, ncclCommInitRankConfig,                                            \
           (ncclComm_t * comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config),        \
           (comm, ranks, id, rank, config))                                                        \
  FUNCTION(works, ncclResult_t, ncclCommInitRankScalable,                                          \
           (ncclComm_t * comm, int ranks, int rank, int id_count, ncclUniqueId* ids,               \
            ncclConfig_t* config),                                                                 \
           (comm, ranks, rank, id_count, ids, config))                                             \
  FUNCTION(works, ncclResult_t, ncclCommInitAll,                                                   \
           (ncclComm_t * comms, int devices, const int* device_list),                              \
           (comms, devices, device_list))                                                          \
  FUNCTION(works, ncclResult_t, ncclCommSplit,                                                     \
           (ncclComm_t comm, int color, int key, ncclComm_t* result, ncclConfig_t* config),        \
           (comm, color, key, result, config))                                                     \
  FUNCTION(works, ncclResult_t, ncclCommShrink,                                                    \
           (ncclComm_t comm, int* excluded, int excluded_count, ncclComm_t* result,                \
            ncclConfig_t* config, int flags),                                                      \
           (comm, excluded, excluded_count, result, config, flags))                                \
  FUNCTION(refused, ncclResult_t, ncclCommGetUniqueId, (ncclComm_t comm, ncclUniqueId * id),       \
           (comm, id))                                                                             \
  FUNCTION(refused, ncclResult_t, ncclCommGrow,                                                    \
           (ncclComm_t comm, int ranks, const ncclUniqueId* id, int rank, ncclComm_t* result,      \
            ncclConfig_t* config),                                                                 \
           (comm, ranks, id, rank, result, config))                                                \
  FUNCTION(works, ncclResult_t, ncclCommFinalize, (ncclComm_t comm), (comm))                       \
  FUNCTION(works, ncclResult_t, ncclCommDestroy, (ncclComm_t comm), (comm))                        \
  FUNCTION(works, ncclResult_t, ncclCommAbort, (ncclComm_t comm), (comm))                          \
  FUNCTION(works, ncclResult_t, ncclCommRevoke, (ncclComm_t comm, int flags), (comm, flags))       \
  FUNCTION(refused, ncclResult_t, ncclCommSuspend, (ncclComm_t comm, int flags), (comm, flags))    \
  FUNCTION(refused, ncclResult_t, ncclCommResume, (ncclComm_t comm), (comm))                       \
  FUNCTION(works, ncclResult_t, ncclCommGetAsyncError, (ncclComm_t comm, ncclResult_t * error),    \
           (comm, error))                                                                          \
  FUNCTION(works, ncclResult_t, ncclCommCount, (ncclComm_t comm, int* count), (comm, count))       \
  FUNCTION(works, ncclResult_t, ncclCommUserRank, (ncclComm_t comm, int* rank), (comm, rank))      \
  FUNCTION(answered, ncclResult_t, ncclCommCuDevice, (ncclComm_t comm, int* device),               \
           (comm, device))                                                                         \
  FUNCTION(answered, ncclResult_t, ncclCommQueryProperties,                                        \
           (ncclComm_t comm, ncclCommProperties_t * properties), (comm, properties))               \
  FUNCTION(answered, ncclResult_t, ncclCommMemStats,                                               \
           (ncclComm_t comm, ncclCommMemStat_t statistic, uint64_t * value),                       \
           (comm, statistic, value))                                                               \
  /* Memory that a communicator knows */                                                           \
  FUNCTION(works, ncclResult_t, ncclCommRegister,                                                  \
           (ncclComm_t comm, void* memory, size_t bytes, void** handle),                           \
           (comm, memory, bytes, handle))                                                          \
  FUNCTION(works, ncclResult_t, ncclCommDeregister, (ncclComm_t comm, void* handle),               \
           (comm, handle))                                                                         \
  FUNCTION(works, ncclResult_t, ncclCommWindowRegister,                                            \
           (ncclComm_t comm, void* memory, size_t bytes, ncclWindow_t* window, int flags),         \
           (comm, memory, bytes, window, flags))                                                   \
  FUNCTION(works, ncclResult_t, ncclCommWindowDeregister, (ncclComm_t comm, ncclWindow_t window),  \
           (comm, window))                                                                         \
  FUNCTION(works, ncclResult_t, ncclWinGetUserPtr,                                                 \
           (ncclComm_t comm, ncclWindow_t window, void** memory), (comm, window, memory))          \
  /* Operations */                                                                                 \
  FUNCTION(works, ncclResult_t, ncclRedOpCreatePreMulSum,                                          \
           (ncclRedOp_t * op, void* scalar, ncclDataType_t type, ncclScalarResidence_t residence,  \
            ncclComm_t comm),                                                                      \
           (op, scalar, type, residence, comm))                                                    \
  FUNCTION(works, ncclResult_t, ncclRedOpDestroy, (ncclRedOp_t op, ncclComm_t comm), (op, comm))   \
  /* Collectives */                                                                                \
  FUNCTION(works, ncclResult_t, ncclAllReduce,                                                     \
           (const void* send, void* recv, size_t count, ncclDataType_t type, ncclRedOp_t op,       \
            ncclComm_t comm, cudaStream_t stream),                                                 \
           (send, recv, count, type, op, comm, stream))                                            \
  FUNCTION(works, ncclResult_t, ncclBroadcast,                                                     \
           (const void* send, void* recv, size_t count, ncclDataType_t type, int root,             \
            ncclComm_t comm, cudaStream_t stream),                                                 \
           (send, recv, count, type, root, comm, stream))                                          \
  FUNCTION(works, ncclResult_t, ncclReduce,                                                        \
           (const void* send, void* recv, size_t count, ncclDataType_t type, ncclRedOp_t op,       \
            int root, ncclComm_t comm, cudaStream_t stream),                                       \
           (send, recv, count, type, op, root, comm, stream))                                      \
  FUNCTION(works, ncclResult_t, ncclAllGather,                                                     \
           (const void* send, void* recv, size_t count, ncclDataType_t type, ncclComm_t comm,      \
            cudaStream_t stream),                                                                  \
           (send, recv, count, type, comm, stream))                                                \
  FUNCTION(works, ncclResult_t, ncclReduceScatter,                                                 \
           (const void* send, void* recv, size_t count, ncclDataType_t type, ncclRedOp_t op,       \
            ncclComm_t comm, cudaStream_t stream),                                                 \
           (send, recv, count, type, op, comm, stream))                                            \
  FUNCTION(works, ncclResult_t, ncclAlltoAll,                                                      \
           (const void* send, void* recv, size_t count, ncclDataType_t type, ncclComm_t comm,      \
            cudaStream_t stream),                                                                  \
           (send, recv, count, type, comm, stream))                                                \
  FUNCTION(works, ncclResult_t, ncclGather,                                                        \
           (const void* send, void* recv, size_t count, ncclDataType_t type, int root,             \
            ncclComm_t comm, cudaStream_t stream),                                                 \
           (send, recv, count, type, root, comm, stream))                                          \
  FUNCTION(works, ncclResult_t, ncclScatter,                                                       \
           (const void* send, void* recv, size_t count, ncclDataType_t type, int root,             \
            ncclComm_t comm, cudaStream_t stream),                                                 \
           (send, recv, count, type, root, comm, stream))                                          \
  FUNCTION(works, ncclResult_t, ncclBcast,                                                         \
           (void* memory, size_t count, ncclDataType_t type, int root, ncclComm_t comm,            \
            cudaStream_t stream),                                                                  \
           (memory, count, type, root, comm, stream))                                              \
  FUNCTION(works, ncclResult_t, ncclAllReduceConfig,                                               \
           (const void* send, void* recv, size_t count, ncclDataType_t type, ncclRedOp_t op,       \
            ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t* config),                 \
           (send, recv, count, type, op, comm, stream, config))                                    \
  FUNCTION(works, ncclResult_t, ncclBroadcastConfig,                                               \
           (const void* send, void* recv, size_t count, ncclDataType_t type, int root,             \
            ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t* config),                 \
           (send, recv, count, type, root, comm, stream, config))                                  \
  FUNCTION(works, ncclResult_t, ncclReduceConfig,                                                  \
           (const void* send, void* recv, size_t count, ncclDataType_t type, ncclRedOp_t op,       \
            int root, ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t* config),       \
           (send, recv, count, type, op, root, comm, stream, config))                              \
  FUNCTION(works, ncclResult_t, ncclAllGatherConfig,                                               \
           (const void* send, void* recv, size_t count, ncclDataType_t type, ncclComm_t comm,      \
            cudaStream_t stream, const ncclCollConfig_t* config),                                  \
           (send, recv, count, type, comm, stream, config))                                        \
  FUNCTION(works, ncclResult_t, ncclReduceScatterConfig,                                           \
           (const void* send, void* recv, size_t count, ncclDataType_t type, ncclRedOp_t op,       \
            ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t* config),                 \
           (send, recv, count, type, op, comm, stream, config))                                    \
  FUNCTION(works, ncclResult_t, ncclAlltoAllConfig,                                                \
           (const void* send, void* recv, size_t count, ncclDataType_t type, ncclComm_t comm,      \
            cudaStream_t stream, const ncclCollConfig_t* config),                                  \
           (send, recv, count, type, comm, stream, config))                                        \
  FUNCTION(works, ncclResult_t, ncclGatherConfig,                                                  \
           (const void* send, void* recv, size_t count, ncclDataType_t type, int root,             \
            ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t* config),                 \
           (send, recv, count, type, root, comm, stream, config))                                  \
  FUNCTION(works, ncclResult_t, ncclScatterConfig,                                                 \
           (const void* send, void* recv, size_t count, ncclDataType_t type, int root,             \
            ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t* config),                 \
           (send, recv, count, type, root, comm, stream, config))                                  \
  /* Messages */                                                                                   \
  FUNCTION(works, ncclResult_t, ncclSend,                                                          \
           (const void* send, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,        \
            cudaStream_t stream),                                                                  \
           (send, count, type, peer, comm, stream))                                                \
  FUNCTION(works, ncclResult_t, ncclRecv,                                                          \
           (void* recv, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,              \
            cudaStream_t stream),                                                                  \
           (recv, count, type, peer, comm, stream))                                                \
  /* Groups of calls */                                                                            \
  FUNCTION(works, ncclResult_t, ncclGroupStart, (void), ())                                        \
  FUNCTION(works, ncclResult_t, ncclGroupEnd, (void), ())                                          \
  FUNCTION(works, ncclResult_t, ncclGroupSimulateEnd, (ncclSimInfo_t * info), (info))              \
  /* One-sided calls */                                                                            \
  FUNCTION(refused, ncclResult_t, ncclPutSignal,                                                   \
           (const void* local, size_t count, ncclDataType_t type, int peer, ncclWindow_t window,   \
            size_t offset, int signal, int context, unsigned int flags, ncclComm_t comm,           \
            cudaStream_t stream),                                                                  \
           (local, count, type, peer, window, offset, signal, context, flags, comm, stream))       \
  FUNCTION(refused, ncclResult_t, ncclSignal,                                                      \
           (int peer, int signal, int context, unsigned int flags, ncclComm_t comm,                \
            cudaStream_t stream),                                                                  \
           (peer, signal, context, flags, comm, stream))                                           \
  FUNCTION(refused, ncclResult_t, ncclWaitSignal,                                                  \
           (int count, ncclWaitSignalDesc_t* signals, ncclComm_t comm, cudaStream_t stream),       \
           (count, signals, comm, stream))                                                         \
  /* The device interface: kernels that communicate by themselves */                               \
  FUNCTION(refused, ncclResult_t, ncclDevCommCreate,                                               \
           (ncclComm_t comm, const void* requirements, void* result),                              \
           (comm, requirements, result))                                                           \
  FUNCTION(refused, ncclResult_t, ncclDevCommDestroy, (ncclComm_t comm, const void* device_comm),  \
           (comm, device_comm))                                                                    \
  FUNCTION(refused, ncclResult_t, ncclGetLsaDevicePointer,                                         \
           (ncclWindow_t window, size_t offset, int rank, void** result),                          \
           (window, offset, rank, result))                                                         \
  FUNCTION(refused, ncclResult_t, ncclGetLsaMultimemDevicePointer,                                 \
           (ncclWindow_t window, size_t offset, void** result), (window, offset, result))          \
  FUNCTION(refused, ncclResult_t, ncclGetMultimemDevicePointer,                                    \
           (ncclWindow_t window, size_t offset, void* multimem, void** result),                    \
           (window, offset, multimem, result))                                                     \
  FUNCTION(refused, ncclResult_t, ncclGetPeerDevicePointer,                                        \
           (ncclWindow_t window, size_t offset, int peer, void** result),                          \
           (window, offset, peer, result))                                                         \
  FUNCTION(                                                                                        \
      refused, ncclResult_t, ncclGetCftDeviceLeInfo,                                               \
      (ncclWindow_t window, size_t offset, int peer, ncclTeam_t team, void* id, size_t* result),   \
      (window, offset, peer, team, id, result))                                                    \
  FUNCTION(refused, ncclResult_t, ncclGetMultimemDeviceLeInfo,                                     \
           (ncclWindow_t window, size_t offset, void* id, size_t* result),                         \
           (window, offset, id, result))                                                           \
  FUNCTION(refused, ncclResult_t, ncclGetPeerDeviceLeInfo,                                         \
           (ncclWindow_t window, size_t offset, int peer, void* id, size_t* result),               \
           (window, offset, peer, id, result))                                                     \
  FUNCTION(refused, ncclResult_t, ncclLsaBarrierCreateRequirement,                                 \
           (ncclTeam_t team, int barriers, void* handle, void* requirement),                       \
           (team, barriers, handle, requirement))                                                  \
  FUNCTION(refused, ncclResult_t, ncclGinBarrierCreateRequirement,                                 \
           (ncclComm_t comm, ncclTeam_t team, int barriers, void* handle, void* requirement),      \
           (comm, team, barriers, handle, requirement))                                            \
  FUNCTION(refused, ncclResult_t, ncclGinInboxA2ACreateRequirement,                                \
           (ncclTeam_t peers, int blocks, int size_log2, void* handle, void* requirement),         \
           (peers, blocks, size_log2, handle, requirement))                                        \
  FUNCTION(refused, ncclResult_t, ncclGinOutboxCreateRequirement,                                  \
           (int blocks, int size_log2, void* handle, void* requirement),                           \
           (blocks, size_log2, handle, requirement))                                               \
  FUNCTION(refused, ncclResult_t, ncclLLA2ACreateRequirement,                                      \
           (int blocks, int slots, void* handle, void* requirement),                               \
           (blocks, slots, handle, requirement))                                                   \
  FUNCTION(refused, int, ncclLLA2ACalcSlots, (int elements, int element_bytes),                    \
           (elements, element_bytes))                                                              \
  FUNCTION(answered, ncclTeam_t, ncclTeamWorld, (ncclComm_t comm), (comm))                         \
  FUNCTION(answered, ncclTeam_t, ncclTeamLsa, (ncclComm_t comm), (comm))                           \
  FUNCTION(answered, ncclTeam_t, ncclTeamRail, (ncclComm_t comm), (comm))                          \
  FUNCTION(answered, ncclTeam_t, ncclTeamCft, (ncclComm_t comm, int mode), (comm, mode))           \
  FUNCTION(answered, ncclTeam_t, ncclTeamCftMultimem, (ncclComm_t comm), (comm))                   \
  FUNCTION(answered, int, ncclTeamRankToWorld, (ncclComm_t comm, ncclTeam_t team, int rank),       \
           (comm, team, rank))                                                                     \
  FUNCTION(answered, int, ncclTeamRankToLsa, (ncclComm_t comm, ncclTeam_t team, int rank),         \
           (comm, team, rank))                                                                     \
  /* Parameters: the NCCL_* variables as the library reads them */                                 \
  FUNCTION(answered, ncclResult_t, ncclParamBind, (ncclParamHandle_t * handle, const char* key),   \
           (handle, key))                                                                          \
  FUNCTION(answered, ncclResult_t, ncclParamGetI8, (ncclParamHandle_t handle, int8_t * value),     \
           (handle, value))                                                                        \
  FUNCTION(answered, ncclResult_t, ncclParamGetI16, (ncclParamHandle_t handle, int16_t * value),   \
           (handle, value))                                                                        \
  FUNCTION(answered, ncclResult_t, ncclParamGetI32, (ncclParamHandle_t handle, int32_t * value),   \
           (handle, value))                                                                        \
  FUNCTION(answered, ncclResult_t, ncclParamGetI64, (ncclParamHandle_t handle, int64_t * value),   \
           (handle, value))                                                                        \
  FUNCTION(answered, ncclResult_t, ncclParamGetU8, (ncclParamHandle_t handle, uint8_t * value),    \
           (handle, value))                                                                        \
  FUNCTION(answered, ncclResult_t, ncclParamGetU16, (ncclParamHandle_t handle, uint16_t * value),  \
           (handle, value))                                                                        \
  FUNCTION(answered, ncclResult_t, ncclParamGetU32, (ncclParamHandle_t handle, uint32_t * value),  \
           (handle, value))                                                                        \
  FUNCTION(answered, ncclResult_t, ncclParamGetU64, (ncclParamHandle_t handle, uint64_t * value),  \
           (handle, value))                                                                        \
  FUNCTION(answered, ncclResult_t, ncclParamGetStr,                                                \
           (ncclParamHandle_t handle, const char** value), (handle, value))                        \
  FUNCTION(answered, ncclResult_t, ncclParamGet,                                                   \
           (ncclParamHandle_t handle, void* value, int most, int* length),                         \
           (handle, value, most, length))                                                          \
  FUNCTION(answered, ncclResult_t, ncclParamGetParameter,                                          \
           (const char* key, const char** value, int* length), (key, value, length))               \
  FUNCTION(answered, ncclResult_t, ncclParamGetAllParameterKeys, (const char*** keys, int* count), \
           (keys, count))                                                                          \
  FUNCTION(answered, void, ncclParamDumpAll, (void), ())
