// calls_graph.cpp: the driver's functions of graphs.
#include <map>
#include <utility>

#include "tests/soft_gpu/cuda_functions.hpp"
#include "tests/soft_gpu/current.hpp"
#include "tests/soft_gpu/graph.hpp"

namespace soft_gpu {
namespace {

// By handle, and never destroyed: graphs, what was made of them to be launched, and user objects.
struct Handles {
  std::mutex mutex;
  uintptr_t made = 0;
  std::map<CUgraph, std::shared_ptr<Graph>> graphs;
  std::map<CUgraphExec, std::shared_ptr<const Graph>> launchable;
  std::map<CUuserObject, UserObject> objects;
};
Handles& handles() {
  static Handles& it = *new Handles;
  return it;
}

template <typename Handle, typename Value>
Handle add(std::map<Handle, Value>& all, Value value) {
  const auto handle = reinterpret_cast<Handle>(++handles().made);
  all[handle] = std::move(value);
  return handle;
}

// Takes away what the handle means. It is destroyed once the mutex is free, which what a user
// object calls may need.
template <typename Handle, typename Value>
int remove(std::map<Handle, Value>& all, Handle handle) {
  Value last;
  if (const int error = enter()) return error;
  const std::lock_guard lock(handles().mutex);
  const auto found = all.find(handle);
  if (found == all.end()) return kInvalidValue;
  last = std::move(found->second);
  all.erase(found);
  return 0;
}

// The handle of what is being captured. With the mutex.
CUgraph handle_of(Capture& capture) {
  if (capture.handle == 0)
    capture.handle = reinterpret_cast<uintptr_t>(add(handles().graphs, capture.graph));
  return reinterpret_cast<CUgraph>(capture.handle);
}

// The capture that the stream is part of, or null. To ask it of the default stream while that is
// out of use is an error, and leaves what is captured valid.
std::shared_ptr<Capture> capture_of(CUstream handle, int* error) {
  std::shared_ptr<StreamThread> stream;
  Gpu* gpu = nullptr;
  *error = enter(&gpu);
  if (*error == 0) *error = find_stream(handle, &stream);
  if (*error == 0 && is_legacy(handle) && stream->gpu->captures_blocking())
    *error = kCaptureImplicit;
  if (*error != 0) return nullptr;
  return stream->gpu->capture_of(*stream);
}

// Whether what the stream would do next comes after all that is captured: every stream that the
// capture has spread to has come back to it.
bool comes_after_all(const StreamThread& stream, Capture& capture) {
  const std::lock_guard lock(captures_mutex());
  return capture.before[&stream].size() == capture.graph->operations.size();
}

// CUstreamCaptureStatus.
int status_of(const std::shared_ptr<Capture>& capture) {
  if (capture == nullptr) return 0;
  const std::lock_guard lock(captures_mutex());
  return capture->invalid ? 2 : 1;
}

}  // namespace
}  // namespace soft_gpu

using namespace soft_gpu;

int cuThreadExchangeStreamCaptureMode(int* mode) {
  if (const int error = enter()) return error;
  if (*mode < kGlobal || *mode > kRelaxed) return kInvalidValue;
  std::swap(*mode, mode_of_this_thread());
  return 0;
}

int cuStreamBeginCapture_v2(CUstream handle, int mode) {
  Gpu* gpu = nullptr;
  std::shared_ptr<StreamThread> stream;
  if (const int error = enter(&gpu)) return error;
  if (const int error = find_stream(handle, &stream)) return error;
  if (mode < kGlobal || mode > kRelaxed) return kInvalidValue;
  if (is_legacy(handle)) return kCaptureUnsupported;
  const std::lock_guard lock(stream->gpu->mutex);
  if (stream->capture != nullptr) return kCaptureInvalid;
  stream->capture = begin_capture(mode);
  return 0;
}

int cuStreamEndCapture(CUstream handle, CUgraph* graph) {
  Gpu* gpu = nullptr;
  std::shared_ptr<StreamThread> stream;
  if (const int error = enter(&gpu)) return error;
  if (const int error = find_stream(handle, &stream)) return error;
  const std::shared_ptr<Capture> capture = stream->gpu->capture_of(*stream);
  if (capture == nullptr) return kInvalidValue;
  stream->gpu->end_capture(*capture);
  end_capture(*capture);
  *graph = nullptr;
  const bool is_joined = comes_after_all(*stream, *capture);
  const std::lock_guard lock(handles().mutex);
  *graph = handle_of(*capture);
  const bool is_valid = status_of(capture) == 1;
  if (is_valid && is_joined) return 0;
  handles().graphs.erase(std::exchange(*graph, nullptr));
  return is_valid ? kCaptureUnjoined : kCaptureInvalid;
}

int cuStreamIsCapturing(CUstream handle, int* capturing) {
  int error = 0;
  const std::shared_ptr<Capture> capture = capture_of(handle, &error);
  if (error != 0) return error;
  *capturing = status_of(capture);
  return 0;
}

int cuStreamGetCaptureInfo_v2(CUstream handle, int* capturing, unsigned long long* number,
                              CUgraph* graph, const void** dependencies, size_t* count) {
  int error = 0;
  const std::shared_ptr<Capture> capture = capture_of(handle, &error);
  if (error != 0) return error;
  if (dependencies != nullptr) *dependencies = nullptr;
  if (count != nullptr) *count = 0;
  *capturing = status_of(capture);
  if (*capturing != 1) return 0;
  if (number != nullptr) *number = capture->number;
  if (graph == nullptr) return 0;
  const std::lock_guard lock(handles().mutex);
  *graph = handle_of(*capture);
  return 0;
}

int cuUserObjectCreate(CUuserObject* object, void* data, void (*destroy)(void*),
                       unsigned references, unsigned flags) {
  if (const int error = enter()) return error;
  if (references != 1 || flags != 1) return kInvalidValue;
  const std::lock_guard lock(handles().mutex);
  *object = add(handles().objects, UserObject(data, [destroy](void* its) {
                  const HostFunction here;
                  destroy(its);
                }));
  return 0;
}

int cuUserObjectRelease(CUuserObject object, unsigned references) {
  return references == 1 ? remove(handles().objects, object) : kInvalidValue;
}

int cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned references,
                            unsigned flags) {
  constexpr unsigned kMove = 1;
  if (const int error = enter()) return error;
  const std::lock_guard lock(handles().mutex);
  const auto of = handles().graphs.find(graph);
  const auto found = handles().objects.find(object);
  if (of == handles().graphs.end() || found == handles().objects.end() || references != 1)
    return kInvalidValue;
  of->second->objects.push_back(found->second);
  if (flags == kMove) handles().objects.erase(found);
  return 0;
}

// How many there are: the nodes themselves nobody gets.
int cuGraphGetNodes(CUgraph graph, void** nodes, size_t* count) {
  if (const int error = enter()) return error;
  const std::lock_guard lock(handles().mutex);
  const auto found = handles().graphs.find(graph);
  if (found == handles().graphs.end() || nodes != nullptr) return kInvalidValue;
  *count = found->second->operations.size();
  return 0;
}

int cuGraphInstantiateWithFlags(CUgraphExec* made, CUgraph graph, unsigned long long) {
  if (const int error = enter()) return error;
  const std::lock_guard lock(handles().mutex);
  const auto of = handles().graphs.find(graph);
  if (of == handles().graphs.end()) return kInvalidValue;
  *made =
      add(handles().launchable, std::shared_ptr<const Graph>(std::make_shared<Graph>(*of->second)));
  return 0;
}

int cuGraphLaunch(CUgraphExec handle, CUstream in) {
  Gpu* gpu = nullptr;
  std::shared_ptr<StreamThread> stream;
  std::shared_ptr<const Graph> graph;
  if (const int error = enter(&gpu)) return error;
  if (const int error = find_stream_to_use(in, &stream)) return error;
  {
    const std::lock_guard lock(handles().mutex);
    const auto found = handles().launchable.find(handle);
    if (found == handles().launchable.end()) return kInvalidValue;
    graph = found->second;
  }
  const std::lock_guard lock(stream->gpu->lock);
  for (size_t i = 0; i < graph->operations.size(); i++)
    stream->gpu->push(*stream, [graph, i] { graph->operations[i](); });
  return 0;
}

int cuGraphExecDestroy(CUgraphExec handle) { return remove(handles().launchable, handle); }
int cuGraphDestroy(CUgraph handle) { return remove(handles().graphs, handle); }
