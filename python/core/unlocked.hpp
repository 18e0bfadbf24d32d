// unlocked.hpp: a scope without Python's lock, also in threads that outlive the interpreter.
#pragma once

#include <unistd.h>

#include <atomic>
#include <mutex>
#include <thread>

#include <pybind11/pybind11.h>

namespace sennit_python {

// The thread in which the interpreter ends; none before that.
inline std::atomic<std::thread::id> ending_thread{std::thread::id()};

// Whether this thread cannot have the interpreter's lock any more.
inline bool outlives_interpreter() {
#if PY_VERSION_HEX >= 0x030D0000
  const bool ends = Py_IsFinalizing() != 0;
#else
  const bool ends = _Py_IsFinalizing() != 0;
#endif
  return ends && ending_thread.load() != std::this_thread::get_id();
}

// Takes the interpreter's lock by `take`, and stays where that cannot be had any more, until the
// process has ended; `staying` is called before. Python before 3.14 ends a thread that asks for the
// lock, or waits for it, by unwinding its stack, and a destructor that is met there ends the
// process. An unwinding that is caught may not go on, and this does not let it.
template <typename Take, typename Staying>
void lock_or_stay(Take take, Staying staying) noexcept {
  try {
    if (!outlives_interpreter()) return take();
  } catch (...) {
    staying();
    for (;;) pause();
  }
  staying();
  for (;;) pause();
}

// Lets go of the lock until its own end. A daemon thread that comes back too late stays there.
class Unlocked {
 public:
  using Lock = std::unique_lock<std::timed_mutex>;
  // `needed`: what others may wait for, which a thread that stays lets go of.
  explicit Unlocked(Lock* needed = nullptr) : needed_(needed), state_(PyEval_SaveThread()) {}
  ~Unlocked() {
    lock_or_stay([this] { PyEval_RestoreThread(state_); },
                 [this] {
                   if (needed_ && needed_->owns_lock()) needed_->unlock();
                 });
  }
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;

 private:
  Lock* const needed_;
  PyThreadState* const state_;
};

}  // namespace sennit_python
