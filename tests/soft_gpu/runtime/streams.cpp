// streams.cpp: the runtime's functions of streams, events and graphs.
#include <cstdint>

#include "tests/soft_gpu/runtime/thread.hpp"

using namespace soft_gpu::runtime;

extern "C" {

// ---- streams ----

int cudaStreamCreateWithFlags(CUstream* stream, unsigned flags) {
  return call([&] { return cuStreamCreate(stream, flags); });
}
int cudaStreamCreate(CUstream* stream) { return cudaStreamCreateWithFlags(stream, 0); }
int cudaStreamCreateWithPriority(CUstream* stream, unsigned flags, int) {
  return cudaStreamCreateWithFlags(stream, flags);
}
int cudaStreamDestroy(CUstream stream) {
  return call([&] { return cuStreamDestroy_v2(stream); });
}
int cudaStreamSynchronize(CUstream stream) {
  return call([&] { return cuStreamSynchronize(stream); });
}
int cudaStreamQuery(CUstream stream) {
  return call([&] { return cuStreamQuery(stream); });
}
int cudaStreamGetPriority(CUstream, int* priority) {
  *priority = 0;
  return 0;
}
int cudaStreamWaitEvent(CUstream stream, CUevent event, unsigned flags) {
  return call([&] { return cuStreamWaitEvent(stream, event, flags); });
}
int cudaLaunchHostFunc(CUstream stream, void (*function)(void*), void* data) {
  return call([&] { return cuLaunchHostFunc(stream, function, data); });
}

// ---- events, which have no times ----

int cudaEventCreateWithFlags(CUevent* event, unsigned flags) {
  return call([&] { return cuEventCreate(event, flags); });
}
int cudaEventCreate(CUevent* event) { return cudaEventCreateWithFlags(event, 0); }
int cudaEventDestroy(CUevent event) {
  return call([&] { return cuEventDestroy_v2(event); });
}
int cudaEventRecord(CUevent event, CUstream stream) {
  return call([&] { return cuEventRecord(event, stream); });
}
int cudaEventRecordWithFlags(CUevent event, CUstream stream, unsigned) {
  return cudaEventRecord(event, stream);
}
int cudaEventQuery(CUevent event) {
  return call([&] { return cuEventQuery(event); });
}
int cudaEventSynchronize(CUevent event) {
  return call([&] { return cuEventSynchronize(event); });
}

// ---- graphs ----

int cudaThreadExchangeStreamCaptureMode(int* mode) {
  return call([&] { return cuThreadExchangeStreamCaptureMode(mode); });
}
int cudaStreamBeginCapture(CUstream stream, int mode) {
  return call([&] { return cuStreamBeginCapture_v2(stream, mode); });
}
int cudaStreamEndCapture(CUstream stream, CUgraph* graph) {
  return call([&] { return cuStreamEndCapture(stream, graph); });
}
int cudaStreamIsCapturing(CUstream stream, int* capturing) {
  return call([&] { return cuStreamIsCapturing(stream, capturing); });
}
// The software GPU's graphs are one line of operations: there are no edges to say anything of.
int cudaStreamGetCaptureInfo(CUstream stream, int* capturing, unsigned long long* number,
                             CUgraph* graph, const void** dependencies, const void** edges,
                             size_t* count) {
  if (edges != nullptr) *edges = nullptr;
  return call([&] {
    return cuStreamGetCaptureInfo_v2(stream, capturing, number, graph, dependencies, count);
  });
}
int cudaGraphGetNodes(CUgraph graph, void** nodes, size_t* count) {
  return call([&] { return cuGraphGetNodes(graph, nodes, count); });
}
int cudaGraphInstantiateWithFlags(CUgraphExec* made, CUgraph graph, unsigned long long flags) {
  return call([&] { return cuGraphInstantiateWithFlags(made, graph, flags); });
}
int cudaGraphInstantiate(CUgraphExec* made, CUgraph graph, unsigned long long flags) {
  return cudaGraphInstantiateWithFlags(made, graph, flags);
}
int cudaGraphLaunch(CUgraphExec graph, CUstream stream) {
  return call([&] { return cuGraphLaunch(graph, stream); });
}
int cudaGraphExecDestroy(CUgraphExec graph) {
  return call([&] { return cuGraphExecDestroy(graph); });
}
int cudaGraphDestroy(CUgraph graph) {
  return call([&] { return cuGraphDestroy(graph); });
}
int cudaUserObjectCreate(CUuserObject* object, void* data, void (*destroy)(void*),
                         unsigned references, unsigned flags) {
  return call([&] { return cuUserObjectCreate(object, data, destroy, references, flags); });
}
int cudaUserObjectRelease(CUuserObject object, unsigned references) {
  return call([&] { return cuUserObjectRelease(object, references); });
}
int cudaGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned references,
                              unsigned flags) {
  return call([&] { return cuGraphRetainUserObject(graph, object, references, flags); });
}

}  // extern "C"
