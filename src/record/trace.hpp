// trace.hpp: a rank's recording, with the clock that its events are timed by. Cost: one clock read
// and one 64-byte store per event (perf/components measures it).
//
// One writer, under the engine's lock; others read the recording's file.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "base/clock.hpp"
#include "record/recording.hpp"

namespace sennit {

class Trace {
 public:
  explicit Trace(std::unique_ptr<Recording> recording) : recording_(std::move(recording)) {}
  void record(const TraceEvent& event) { recording_->record(event); }
  uint64_t now() { return clock_.now(); }
  Recording& recording() { return *recording_; }

 private:
  std::unique_ptr<Recording> recording_;
  FastClock clock_;
};

}  // namespace sennit
