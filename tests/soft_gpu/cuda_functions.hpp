// cuda_functions.hpp: the functions of CUDA's driver that the software GPU exports, declared as
// NVIDIA's header does. That one need not be here, and errors and attributes are plain numbers.
#pragma once

#include <cstddef>

using CUdevice = int;
using CUdeviceptr = unsigned long long;
using CUcontext = struct CUctx_st*;
using CUstream = struct CUstream_st*;
using CUevent = struct CUevent_st*;
using CUmodule = struct CUmod_st*;
using CUfunction = struct CUfunc_st*;
using CUgraph = struct CUgraph_st*;
using CUgraphExec = struct CUgraphExec_st*;
using CUuserObject = struct CUuserObject_st*;
// What another process maps memory by.
struct CUipcMemHandle {
  char reserved[64];
};

#pragma GCC visibility push(default)
extern "C" {

// The process, its devices and contexts.
int cuInit(unsigned flags);
int cuDriverGetVersion(int* version);
int cuGetErrorName(int error, const char** name);
int cuGetErrorString(int error, const char** text);
int cuDeviceGet(CUdevice* device, int ordinal);
int cuDeviceGetCount(int* count);
int cuDeviceGetName(char* name, int bytes, CUdevice device);
int cuDeviceGetAttribute(int* value, int attribute, CUdevice device);
int cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device);
int cuDevicePrimaryCtxRelease_v2(CUdevice device);
int cuDevicePrimaryCtxGetState(CUdevice device, unsigned* flags, int* active);
int cuCtxGetCurrent(CUcontext* context);
int cuCtxSetCurrent(CUcontext context);
int cuCtxPushCurrent_v2(CUcontext context);
int cuCtxPopCurrent_v2(CUcontext* context);
int cuCtxGetDevice(CUdevice* device);
int cuCtxEnablePeerAccess(CUcontext peer, unsigned flags);
int cuCtxSynchronize();

// Memory.
int cuMemAlloc_v2(CUdeviceptr* memory, size_t bytes);
int cuMemAllocManaged(CUdeviceptr* memory, size_t bytes, unsigned flags);
int cuMemAllocAsync(CUdeviceptr* memory, size_t bytes, CUstream stream);
int cuMemFree_v2(CUdeviceptr memory);
int cuMemFreeAsync(CUdeviceptr memory, CUstream stream);
int cuMemHostAlloc(void** memory, size_t bytes, unsigned flags);
int cuMemFreeHost(void* memory);
int cuMemHostRegister_v2(void* memory, size_t bytes, unsigned flags);
int cuMemHostUnregister(void* memory);
int cuMemHostGetDevicePointer_v2(CUdeviceptr* address, void* memory, unsigned flags);
int cuIpcGetMemHandle(CUipcMemHandle* handle, CUdeviceptr memory);
int cuIpcOpenMemHandle_v2(CUdeviceptr* memory, CUipcMemHandle handle, unsigned flags);
int cuIpcCloseMemHandle(CUdeviceptr memory);
int cuPointerGetAttribute(void* data, int attribute, CUdeviceptr memory);
int cuPointerGetAttributes(unsigned count, const int* attributes, void** data, CUdeviceptr memory);
int cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes);
int cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream);
int cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, size_t bytes);
int cuMemcpyDtoH_v2(void* to, CUdeviceptr from, size_t bytes);
int cuMemsetD8_v2(CUdeviceptr memory, unsigned char value, size_t bytes);
int cuMemsetD8Async(CUdeviceptr memory, unsigned char value, size_t bytes, CUstream stream);

// Streams, events and kernels.
int cuStreamCreate(CUstream* stream, unsigned flags);
int cuStreamDestroy_v2(CUstream stream);
int cuStreamSynchronize(CUstream stream);
int cuStreamQuery(CUstream stream);
int cuStreamGetCtx(CUstream stream, CUcontext* context);
int cuStreamGetFlags(CUstream stream, unsigned* flags);
int cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags);
int cuEventCreate(CUevent* event, unsigned flags);
int cuEventDestroy_v2(CUevent event);
int cuEventRecord(CUevent event, CUstream stream);
int cuEventQuery(CUevent event);
int cuEventSynchronize(CUevent event);
int cuLaunchHostFunc(CUstream stream, void (*function)(void*), void* data);
int cuModuleLoadData(CUmodule* module, const void* image);
int cuModuleUnload(CUmodule module);
int cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name);
int cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                   unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                   CUstream stream, void** parameters, void** extra);

// Graphs.
int cuThreadExchangeStreamCaptureMode(int* mode);
int cuStreamBeginCapture_v2(CUstream stream, int mode);
int cuStreamEndCapture(CUstream stream, CUgraph* graph);
int cuStreamIsCapturing(CUstream stream, int* capturing);
int cuStreamGetCaptureInfo_v2(CUstream stream, int* capturing, unsigned long long* number,
                              CUgraph* graph, const void** dependencies, size_t* count);
int cuUserObjectCreate(CUuserObject* object, void* data, void (*destroy)(void*),
                       unsigned references, unsigned flags);
int cuUserObjectRelease(CUuserObject object, unsigned references);
int cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned references,
                            unsigned flags);
int cuGraphGetNodes(CUgraph graph, void** nodes, size_t* count);
int cuGraphInstantiateWithFlags(CUgraphExec* made, CUgraph graph, unsigned long long flags);
int cuGraphLaunch(CUgraphExec graph, CUstream stream);
int cuGraphExecDestroy(CUgraphExec graph);
int cuGraphDestroy(CUgraph graph);

}  // extern "C"
#pragma GCC visibility pop
