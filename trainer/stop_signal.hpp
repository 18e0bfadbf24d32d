// stop_signal.hpp: SIGINT and SIGTERM as a wish to stop soon: while a StopSignals lives, the first is noted,
// and one that comes a second or more after it ends the process at once. What comes within that second is the
// same wish told twice, by a launcher and by the terminal. A signal that was ignored before stays ignored.
#pragma once

#include <csignal>

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
};

}  // namespace sennit::trainer
