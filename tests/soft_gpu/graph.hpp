// graph.hpp: graphs of the software GPU: what streams do while they are captured, to be done again
// and again.
//
// A graph is launched as one line of operations, in the order in which they were captured: one of
// the orders that CUDA allows.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "tests/soft_gpu/process.hpp"

namespace soft_gpu {

class StreamThread;

// A reference to something of the program's; what it was made with is called when the last is gone.
using UserObject = std::shared_ptr<void>;

// What a graph does, and what it keeps as long as it or a launch of it exists.
struct Graph {
  std::vector<std::function<void()>> operations;
  std::vector<UserObject> objects;
};

// What goes on from cuStreamBeginCapture to cuStreamEndCapture, in all streams that it has spread
// to. Guarded by captures_mutex().
struct Capture {
  std::shared_ptr<Graph> graph = std::make_shared<Graph>();
  // Of each stream, the operations that whatever it does next comes after, by number.
  std::map<const StreamThread*, std::set<size_t>> before;
  uint64_t number = 0;
  int mode = 0;         // CUstreamCaptureMode
  uint64_t thread = 0;  // that began it
  bool invalid = false;
  uintptr_t handle = 0;  // of the graph, once the program has asked for it
};
std::mutex& captures_mutex();

// Numbers of CUstreamCaptureMode, from the strictest.
inline constexpr int kGlobal = 0, kThreadLocal = 1, kRelaxed = 2;
int& mode_of_this_thread();

// A new capture, which goes on until it is taken away by end_capture().
std::shared_ptr<Capture> begin_capture(int mode);
void end_capture(const Capture& capture);
// Of a call that might wait for what is being captured: kCaptureUnsupported, and what is captured
// is invalid, unless this thread has a mode that allows it; else 0.
int forbidden_while_capturing();

}  // namespace soft_gpu
