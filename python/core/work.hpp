// work.hpp: a call that was started, and Python's handle on it.
#pragma once

#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>

#include "core/array.hpp"
#include "core/handle.hpp"

namespace sennit_python {

// A call that was started, with all that must stay until it has completed: its memory and its
// communicator. Python sees it as Work.
class PyWork {
 public:
  using Arrays = std::array<Array, 2>;
  using Start = std::function<sennit_status_t(sennit_work_t*)>;

  PyWork(std::shared_ptr<Handle> comm, Arrays arrays, Start start)
      : comm_(std::move(comm)), arrays_(std::move(arrays)), start_(std::move(start)) {}
  // Waits where it has not completed; when the interpreter ends for a second at most, and then it
  // aborts the communicator.
  ~PyWork();
  PyWork(const PyWork&) = delete;
  PyWork& operator=(const PyWork&) = delete;

  // One of the two, once. run() waits as well, and lets go of the GIL once for both.
  void start();
  void run();

  // Any thread, with the GIL as everything. Whether it has completed by then; an error is thrown,
  // and so is what a signal's handler throws: then the communicator is aborted first, because the
  // call holds the caller's memory and cannot be taken back. timeout in seconds; none: for ever.
  bool wait(std::optional<double> timeout);
  bool test();
  bool done() const { return !work_; }
  sennit_comm_t comm() const { return comm_->comm; }
  void keep_source() { receives_ = true; }  // before its end: it is a receive
  // Before its end: its peer is this rank. Nobody else would come while it waits for ever, so the
  // library says that the other half was not started.
  void is_to_oneself() { to_oneself_ = true; }
  // Of a receive that has completed: the rank whose message came.
  std::optional<int> source() const { return source_; }

 private:
  using Lock = std::unique_lock<std::timed_mutex>;
  using Clock = std::chrono::steady_clock;
  // Without the GIL. Has the lock afterwards, but where another thread had it all the time.
  sennit_status_t wait_unlocked(Lock* lock, Clock::time_point until, bool for_ever = false);
  [[noreturn]] void interrupted();  // by a signal, whose handler has thrown
  // With its lock, or before anybody else knows it. end: frees, and lets go of the memory.
  bool completed(sennit_status_t status);
  void end(sennit_status_t status);
  bool ended() const;  // true; throws the error that it ended with

  std::shared_ptr<Handle> comm_;
  Arrays arrays_;
  Start start_;  // which holds lists of counts
  // Held by the thread that is in the library with this work. Whoever has the GIL may look whether
  // it is free, but waits for it without the GIL alone.
  std::timed_mutex mutex_;
  sennit_work_t work_ = nullptr;  // written with both
  py::object error_;              // that it ended with
  bool receives_ = false;
  bool to_oneself_ = false;
  std::optional<int> source_;
};

// Python's own rule: handlers of signals run in the main thread alone. In an interpreter that ends,
// where modules are gone, no other thread asks.
bool handles_signals();
inline constexpr std::chrono::milliseconds kSignalsEvery(100);  // a wait looks for them

// The calls of this thread's open group stay until the group has ended.
bool in_group();
void keep_in_group(std::shared_ptr<PyWork> call);

// Gives the module the class Work, and group().
void add_work(py::module_& module);

}  // namespace sennit_python
