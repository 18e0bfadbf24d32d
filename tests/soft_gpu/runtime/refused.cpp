// refused.cpp: functions of the runtime that PyTorch is linked to, and that the software GPU does
// not do: memory of peers and of other processes, pools, nodes of graphs, libraries of kernels.
#include "tests/soft_gpu/runtime/thread.hpp"

using soft_gpu::runtime::end;
using soft_gpu::runtime::kNotSupported;

// Who is refused is told so, whatever he passes: C's calling convention leaves that to him.
#define REFUSE(name) \
  int name() { return end(kNotSupported); }

extern "C" {

REFUSE(cudaDeviceEnablePeerAccess)
REFUSE(cudaIpcCloseMemHandle)
REFUSE(cudaIpcGetEventHandle)
REFUSE(cudaIpcGetMemHandle)
REFUSE(cudaIpcOpenEventHandle)
REFUSE(cudaIpcOpenMemHandle)

REFUSE(cudaDeviceGetDefaultMemPool)
REFUSE(cudaDeviceGetGraphMemAttribute)
REFUSE(cudaDeviceSetGraphMemAttribute)
REFUSE(cudaMemPoolGetAttribute)
REFUSE(cudaMemPoolSetAccess)
REFUSE(cudaMemPoolSetAttribute)
REFUSE(cudaMemPoolTrimTo)

REFUSE(cudaEventElapsedTime)
REFUSE(cudaStreamAddCallback)
REFUSE(cudaStreamBeginCaptureToGraph)
REFUSE(cudaStreamUpdateCaptureDependencies)
REFUSE(cudaGraphAddNode)
REFUSE(cudaGraphConditionalHandleCreate)
REFUSE(cudaGraphNodeGetDependencies)

REFUSE(cudaGetSymbolAddress)
REFUSE(cudaMemcpyToSymbol)
REFUSE(cudaKernelSetAttributeForDevice)
REFUSE(cudaLibraryGetGlobal)
REFUSE(cudaLibraryGetKernel)
REFUSE(cudaLibraryGetKernelCount)
REFUSE(cudaLibraryGetManaged)
REFUSE(cudaLibraryGetUnifiedFunction)
REFUSE(cudaLibraryLoadData)
REFUSE(cudaLibraryLoadFromFile)
REFUSE(cudaLibraryUnload)

}  // extern "C"
