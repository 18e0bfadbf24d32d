// work.hpp: a call that was started, and Python's handle on it.
#pragma once

#include <array>
#include <functional>
#include <memory>
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
  ~PyWork();  // waits where it has not completed
  PyWork(const PyWork&) = delete;
  PyWork& operator=(const PyWork&) = delete;

  // One of the two, once. run() waits as well, and lets go of the GIL once for both.
  void start();
  void run();
  // Whether it has completed by then; an error is thrown, and so is what a signal's handler
  // throws: then the communicator is aborted first, because the call holds the caller's memory
  // and cannot be taken back. timeout in seconds; none: for ever.
  bool wait(std::optional<double> timeout);
  bool test();
  bool done() const { return !work_; }
  void keep_source() { receives_ = true; }  // before its end: it is a receive
  // Of a receive that has completed: the rank whose message came.
  std::optional<int> source() const { return source_; }

 private:
  bool wait_on(sennit_status_t status, double left_ms);  // status: of a wait that has just ended
  void end(sennit_status_t status);                      // frees and lets go
  void let_go();                                         // of the caller's memory
  bool ended() const;  // true; throws the error that it ended with

  std::shared_ptr<Handle> comm_;
  Arrays arrays_;
  Start start_;  // which holds lists of counts
  sennit_work_t work_ = nullptr;
  py::object error_;  // that it ended with
  bool receives_ = false;
  std::optional<int> source_;
};

// The calls of this thread's open group stay until the group has ended.
bool in_group();
void keep_in_group(std::shared_ptr<PyWork> call);

// Gives the module the class Work, and group().
void add_work(py::module_& module);

}  // namespace sennit_python
