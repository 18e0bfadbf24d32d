// driver.hpp: the functions of CUDA's driver that Sennit calls, by declarations of its own.
//
// Nothing of CUDA is needed to build or to link: the driver is opened when it is first asked for.
// Names, types and numbers are those of NVIDIA's "CUDA Driver API" reference, which never change.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/status.hpp"

namespace sennit::cuda {

using Device = int;
using Context = struct ContextTag*;
using Module = struct ModuleTag*;
using Function = struct FunctionTag*;
using Stream = struct StreamTag*;
using Graph = struct GraphTag*;
using GraphExec = struct GraphExecTag*;
using UserObject = struct UserObjectTag*;
using Address = unsigned long long;
// CUipcMemHandle: what another process maps memory by.
struct MemoryHandle {
  char bytes[64];
};

inline constexpr int kSuccess = 0, kNotInitialized = 3, kNoBinary = 209;  // CUresult
inline constexpr int kUnsupportedPtx = 222, kInvalidHandle = 400, kNotReady = 600;
inline constexpr int kPeerAccessAlreadyEnabled = 704, kContextDestroyed = 709;
inline constexpr int kCaptureImplicit = 906;
inline constexpr int kMultiprocessors = 16;    // CUdevice_attribute
inline constexpr int kCacheBytes = 38;         // of the level next to its memory
inline constexpr int kHostPointersServe = 91;  // of registered memory, on the device too
inline constexpr int kMemoryType = 2, kIsManaged = 8, kDeviceOrdinal = 9;  // CUpointer_attribute
inline constexpr int kCapturing = 1, kCaptureInvalid = 2;                  // CUstreamCaptureStatus
inline constexpr int kThreadLocalCapture = 1, kRelaxedCapture = 2;         // CUstreamCaptureMode
inline constexpr unsigned kDestroyedAtAnyTime = 1;                         // CUuserObject_flags
inline constexpr unsigned kGivenAway = 1;                  // CUuserObjectRetain_flags
inline constexpr unsigned kTypeHost = 1, kTypeDevice = 2;  // CUmemorytype
inline constexpr unsigned kRegisterPortable = 1, kRegisterDeviceMap = 2;
inline constexpr unsigned kNonBlocking = 1;  // of a stream
inline constexpr unsigned kReachPeer = 1;    // CUipcMem_flags

// By their names in libcuda.so.1. All return an error, or kSuccess. cuStreamGetFlags and those of
// CapturedGraph, which come last, may be null.
struct Driver {
  int (*cuInit)(unsigned flags);
  int (*cuGetErrorName)(int error, const char** name);
  int (*cuDeviceGetCount)(int* count);
  int (*cuDeviceGetAttribute)(int* value, int attribute, Device device);
  int (*cuDevicePrimaryCtxRetain)(Context* context, Device device);
  int (*cuDevicePrimaryCtxRelease_v2)(Device device);
  int (*cuDevicePrimaryCtxGetState)(Device device, unsigned* flags, int* active);
  int (*cuCtxGetCurrent)(Context* context);
  int (*cuCtxSetCurrent)(Context context);
  int (*cuCtxGetDevice)(Device* device);
  int (*cuCtxEnablePeerAccess)(Context peer, unsigned flags);
  int (*cuCtxPushCurrent_v2)(Context context);
  int (*cuCtxPopCurrent_v2)(Context* context);
  int (*cuPointerGetAttributes)(unsigned count, const int* attributes, void** data, Address memory);
  int (*cuMemAlloc_v2)(Address* memory, size_t bytes);
  int (*cuMemcpyAsync)(Address to, Address from, size_t bytes, Stream stream);
  int (*cuMemsetD8Async)(Address memory, unsigned char value, size_t bytes, Stream stream);
  int (*cuMemHostRegister_v2)(void* memory, size_t bytes, unsigned flags);
  int (*cuIpcGetMemHandle)(MemoryHandle* handle, Address memory);
  int (*cuIpcOpenMemHandle_v2)(Address* memory, MemoryHandle handle, unsigned flags);
  int (*cuIpcCloseMemHandle)(Address memory);
  int (*cuModuleLoadData)(Module* module, const void* image);
  int (*cuModuleUnload)(Module module);
  int (*cuModuleGetFunction)(Function* function, Module module, const char* name);
  int (*cuLaunchKernel)(Function function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                        unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                        Stream stream, void** parameters, void** extra);
  int (*cuStreamCreate)(Stream* stream, unsigned flags);
  int (*cuStreamGetCtx)(Stream stream, Context* context);
  int (*cuStreamGetFlags)(Stream stream, unsigned* flags);
  int (*cuStreamSynchronize)(Stream stream);
  int (*cuStreamQuery)(Stream stream);
  int (*cuStreamIsCapturing)(Stream stream, int* capturing);
  int (*cuStreamGetCaptureInfo_v2)(Stream stream, int* capturing, unsigned long long* number,
                                   Graph* graph, const void** dependencies, size_t* count);
  int (*cuThreadExchangeStreamCaptureMode)(int* mode);
  int (*cuUserObjectCreate)(UserObject* object, void* data, void (*destroy)(void*),
                            unsigned references, unsigned flags);
  int (*cuUserObjectRelease)(UserObject object, unsigned references);
  int (*cuGraphRetainUserObject)(Graph graph, UserObject object, unsigned references,
                                 unsigned flags);
  int (*cuStreamBeginCapture_v2)(Stream stream, int mode);
  int (*cuStreamEndCapture)(Stream stream, Graph* graph);
  int (*cuGraphInstantiateWithFlags)(GraphExec* made, Graph graph, unsigned long long flags);
  int (*cuGraphLaunch)(GraphExec graph, Stream stream);
  int (*cuGraphExecDestroy)(GraphExec graph);
  int (*cuGraphDestroy)(Graph graph);
};

// Opens the driver the first time, any thread. An error says what is missing.
Result<const Driver*> driver();
// "CUDA_ERROR_INVALID_VALUE (1)".
std::string error_text(const Driver& driver, int error);

// A context is current in this thread, which may have another, or none, before and after. No call
// that is made meanwhile makes a graph invalid that the program captures at the same time: none of
// ours waits for what is captured.
class CurrentContext {
 public:
  CurrentContext(const Driver& driver, Context context)
      : driver_(driver), error_(driver.cuCtxPushCurrent_v2(context)) {
    if (error_ == kSuccess) driver_.cuThreadExchangeStreamCaptureMode(&capture_mode_);
  }
  ~CurrentContext() {
    if (error_ != kSuccess) return;
    driver_.cuThreadExchangeStreamCaptureMode(&capture_mode_);
    Context popped = nullptr;
    driver_.cuCtxPopCurrent_v2(&popped);
  }
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;
  int error() const { return error_; }

 private:
  const Driver& driver_;
  const int error_;
  int capture_mode_ = kRelaxedCapture;
};

inline constexpr size_t kPageBytes = 4096;
// Memory of the host's that devices reach at the same address, aligned to a page. It is never
// freed: to unregister it waits for every kernel of the device. A forked child has none of it: what
// the parent writes to pages that both have may go to copies, which no device knows. A context is
// current.
Result<std::byte*> pinned_memory(const Driver& driver, size_t bytes);

}  // namespace sennit::cuda
