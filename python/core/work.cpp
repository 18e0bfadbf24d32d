// work.cpp: see core/work.hpp.
#include "core/work.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <exception>
#include <thread>
#include <utility>
#include <vector>

#include <pybind11/stl.h>

#include "core/errors.hpp"

namespace sennit_python {
namespace {

constexpr std::chrono::hours kLongest(1);  // of one wait where no signals are handled
constexpr int64_t kPatienceMs = 1000;      // of an interpreter that ends
constexpr int64_t kForEver = -1;

// The calls of each thread's open groups. Not destroyed with the thread, which has no GIL then.
thread_local std::vector<std::shared_ptr<PyWork>>* kept = nullptr;
thread_local int groups_open = 0;

// Of a group's calls: the communicator that has failed so. NULL: the group failed for another
// reason.
sennit_comm_t failed_so(sennit_status_t status, const std::vector<std::shared_ptr<PyWork>>& calls) {
  for (const std::shared_ptr<PyWork>& call : calls)
    if (sennit_comm_get_async_error(call->comm()) == status) return call->comm();
  return nullptr;
}

// `with sennit.group():`
class Group {
 public:
  void enter() {
    check(sennit_group_start());
    if (!kept) kept = new std::vector<std::shared_ptr<PyWork>>;
    groups_open++;
  }

  // Where the body threw, nothing of the group is made: ranks that made half of it would wait for
  // ever. sennit starts nothing of a group with a call that is off, so such a call is added.
  void exit(const py::object& type, const py::object&, const py::object&) {
    if (groups_open == 0)
      throw_error(SENNIT_INVALID_ARGUMENT,
                  "group: this thread has none open; end it in the thread that began it");
    if (!type.is_none()) sennit_send(nullptr, 1, SENNIT_UINT8, 0, nullptr);
    sennit_status_t status;
    {
      const Unlocked release;
      status = sennit_group_end();
    }
    if (--groups_open > 0) {
      if (type.is_none()) check(status);
      return;
    }
    // A blocking call's result is the group's; another's stays with its Work.
    const std::unique_ptr<std::vector<std::shared_ptr<PyWork>>> calls(std::exchange(kept, nullptr));
    if (!type.is_none() || status == SENNIT_OK) return;
    const std::string text = sennit_last_error();  // before other calls that may fail themselves
    throw_error(status, text, failed_so(status, *calls));
  }
};

}  // namespace

bool handles_signals() {
  try {
    const py::object main = py::module_::import("threading").attr("main_thread")();
    return main.attr("ident").cast<unsigned long>() == PyThread_get_thread_ident();
  } catch (const std::exception&) {
    return true;
  }
}

bool in_group() { return groups_open > 0; }
void keep_in_group(std::shared_ptr<PyWork> call) { kept->push_back(std::move(call)); }

void PyWork::start() {
  sennit_status_t status;
  {
    const Unlocked release;
    status = start_(&work_);
  }
  check(status, comm_->comm);
}

void PyWork::run() {
  sennit_status_t started, waited = SENNIT_OK;
  {
    const Unlocked release;
    started = start_(&work_);
    if (started == SENNIT_OK)
      waited = sennit_work_wait(work_, to_oneself_ ? kForEver : kSignalsEvery.count());
  }
  check(started, comm_->comm);
  if (!completed(waited)) wait(std::nullopt);
}

PyWork::~PyWork() {
  if (!work_) return;
  const Unlocked release;
  const bool ends = ending_thread.load() != std::thread::id();
  if (ends && sennit_work_wait(work_, kPatienceMs) == SENNIT_IN_PROGRESS)
    sennit_comm_abort(comm_->comm);
  sennit_work_free(work_);
}

void PyWork::end(sennit_status_t status) {
  sennit_comm_t const comm = comm_->comm;
  int source = 0;
  if (receives_ && status == SENNIT_OK && sennit_work_source(work_, &source) == SENNIT_OK)
    source_ = source;
  try {
    check(status, comm);
  } catch (py::error_already_set& error) {
    error_ = error.value();
  }
  sennit_work_free(std::exchange(work_, nullptr));
  arrays_ = {};
  start_ = nullptr;
}

bool PyWork::completed(sennit_status_t status) {
  if (status == SENNIT_IN_PROGRESS) return false;
  if (status == SENNIT_INVALID_ARGUMENT && in_group()) check(status);
  end(status);
  return ended();
}

bool PyWork::ended() const {
  if (!error_) return true;
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error_.ptr())), error_.ptr());
  throw py::error_already_set();
}

bool PyWork::test() {
  if (!work_) return ended();
  const Lock lock(mutex_, std::try_to_lock);
  return lock && completed(sennit_work_test(work_));  // another thread waits for it: not yet
}

sennit_status_t PyWork::wait_unlocked(Lock* lock, Clock::time_point until, bool for_ever) {
  const Unlocked release(lock);
  if (!lock->try_lock_until(until) || !work_) return SENNIT_IN_PROGRESS;
  if (for_ever) return sennit_work_wait(work_, kForEver);
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now());
  return sennit_work_wait(work_, std::max<int64_t>(left.count(), 0));
}

bool PyWork::wait(std::optional<double> timeout) {
  if (timeout && !(*timeout >= 0))
    throw_error(SENNIT_INVALID_ARGUMENT, "wait: timeout is " + std::to_string(*timeout) +
                                             "; give seconds >= 0, or None to wait for ever");
  using Seconds = std::chrono::duration<double>;
  const Seconds most(timeout.value_or(HUGE_VAL));
  const Clock::time_point began = Clock::now();
  Seconds longest = kSignalsEvery;
  while (work_) {
    const Clock::time_point now = Clock::now();
    const Seconds left = std::clamp<Seconds>(most - (now - began), Seconds(0), longest);
    {
      Lock lock(mutex_, std::defer_lock);
      const sennit_status_t status = wait_unlocked(
          &lock, now + std::chrono::ceil<Clock::duration>(left), to_oneself_ && !timeout);
      if (!work_) break;  // another thread has ended it
      if (completed(status)) return true;
    }
    if (PyErr_CheckSignals() != 0) interrupted();
    if (Clock::now() - began >= most) return false;
    if (!handles_signals()) longest = kLongest;
  }
  return ended();
}

void PyWork::interrupted() {
  const py::error_already_set signal;
  {
    const Unlocked release;
    sennit_comm_abort(comm_->comm);
  }
  Lock lock(mutex_, std::defer_lock);
  sennit_status_t status = SENNIT_IN_PROGRESS;
  while (work_ && status == SENNIT_IN_PROGRESS) {
    if (lock) lock.unlock();
    status = wait_unlocked(&lock, Clock::now() + kSignalsEvery);
  }
  if (work_) end(status);
  throw signal;
}

void add_work(py::module_& module) {
  py::module_::import("atexit").attr("register")(py::cpp_function([] {
    ending_thread = std::this_thread::get_id();
    stop_telling_all();
  }));
  py::class_<PyWork, std::shared_ptr<PyWork>>(
      module, "Work", "A call that was started. Keeps its memory until it has completed.")
      .def("wait", &PyWork::wait, py::arg("timeout") = py::none(),
           "Waits until the call has completed: True. False where it has not after `timeout` "
           "seconds (None: for ever). Raises the call's error. Any thread.")
      .def("test", &PyWork::test, "Whether the call has completed. Raises its error. Any thread.")
      .def_property_readonly("source", &PyWork::source,
                             "Of a receive that has completed: the rank whose message came.")
      .def("__repr__", [](const PyWork& call) {
        return std::string("<sennit.Work, ") + (call.done() ? "completed>" : "in progress>");
      });
  py::class_<Group>(module, "_Group").def("__enter__", &Group::enter).def("__exit__", &Group::exit);
  module.def(
      "group", [] { return Group(); },
      "with sennit.group(): the calls of this thread in the body, on any communicators, are "
      "started "
      "together at its end, which waits for all of them. Where the body raises, none is made.");
}

}  // namespace sennit_python
