// graph.hpp: what is put into a CUDA stream, captured once to be launched again and again.
#pragma once

#include <functional>
#include <memory>

#include "accelerator/cuda/driver.hpp"
#include "base/status.hpp"

namespace sennit::cuda {

// Used by one thread. What is out is done also where this ends before.
class CapturedGraph {
 public:
  // Captures what `calls` puts into the stream, which is none of the default ones. Other threads
  // may use the device meanwhile. The stream's context is current.
  static Result<std::unique_ptr<CapturedGraph>> of(void* stream,
                                                   const std::function<Status()>& calls);
  ~CapturedGraph();
  CapturedGraph(const CapturedGraph&) = delete;
  CapturedGraph& operator=(const CapturedGraph&) = delete;
  // Puts all of it into the stream that it was captured from.
  Status launch() const;

 private:
  CapturedGraph(const Driver& driver, Stream stream, GraphExec graph)
      : driver_(driver), stream_(stream), graph_(graph) {}

  const Driver& driver_;
  const Stream stream_;
  const GraphExec graph_;
};

}  // namespace sennit::cuda
