// stop_signal.hpp: SIGINT and SIGTERM as a wish to stop soon: while a StopSignals lives, the first
// is noted, and one that comes a second or more after it ends the process at once. What comes
// within that second is the same wish told twice, by a launcher and by the terminal. A signal that
// was ignored before stays ignored.
//
// Made by the thread that calculates, while no other thread that does takes signals: within
// oneDNN's kernels the stack pointer may point into their data, so the handler needs a stack of its
// own.
#pragma once

#include <csignal>
#include <cstddef>
#include <memory>

namespace sennit::trainer {

class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  static int first();  // its number, or 0

 private:
  struct sigaction before_[2] = {};
  std::unique_ptr<std::byte[]> stack_;  // of the handler, on the thread that made this
};

}  // namespace sennit::trainer
