// errors.cpp: see core/errors.hpp.
#include "core/errors.hpp"

#include <vector>

namespace sennit_python {
namespace {

struct Row {
  sennit_status_t status;
  const char* name;
  PyObject* also;  // the class of Python's that it is as well, or NULL
  const char* doc;
};

std::vector<Row> rows() {
  return {
      {SENNIT_INVALID_ARGUMENT, "InvalidArgument", PyExc_ValueError,
       "An argument is off. Nothing was started, the communicator is intact."},
      {SENNIT_MISMATCH, "Mismatch", nullptr,
       "Ranks called different collectives, counts, types, operations or roots."},
      {SENNIT_LINK_FAILED, "LinkFailed", PyExc_ConnectionError,
       "A connection broke while both its ranks live."},
      {SENNIT_PEER_FAILED, "PeerFailed", PyExc_ConnectionError,
       "One or more ranks died: failed_ranks names them."},
      {SENNIT_TIMED_OUT, "TimedOut", PyExc_TimeoutError,
       "A rank did not arrive, or did not answer in time."},
      {SENNIT_ABORTED, "Aborted", nullptr, "The communicator was aborted by this or another rank."},
      {SENNIT_OUT_OF_RESOURCES, "OutOfResources", PyExc_MemoryError,
       "No memory, shared memory, file descriptors or ports. The text has the remedy."},
      {SENNIT_NOT_FOUND, "NotFound", PyExc_LookupError,
       "A file, launcher, fabric or algorithm that was named is not there."},
      {SENNIT_UNSUPPORTED, "Unsupported", PyExc_NotImplementedError,
       "Not built in, or not possible on this machine."},
      {SENNIT_REFUSED, "Refused", PyExc_PermissionError, "Wrong or missing secret."},
      {SENNIT_INTERNAL, "Internal", nullptr, "A defect in sennit. Please report it."},
  };
}

PyObject* classes[SENNIT_INTERNAL + 1];  // by status; they live as long as the process

[[noreturn]] void throw_with(sennit_status_t status, const std::string& text,
                             const py::list& ranks) {
  const py::handle type = classes[status];
  const py::object error = type(text);
  error.attr("failed_ranks") = ranks;
  PyErr_SetObject(type.ptr(), error.ptr());
  throw py::error_already_set();
}

}  // namespace

void add_errors(py::module_& module) {
  PyObject* const base = PyErr_NewExceptionWithDoc(
      "sennit.Error",
      "What sennit could not do. str() says what, where and what to do.\n\n"
      "failed_ranks: the ranks of the communicator that are known dead, ascending.",
      PyExc_RuntimeError, nullptr);
  if (!base) throw py::error_already_set();
  py::handle(base).attr("failed_ranks") = py::list();
  module.attr("Error") = py::handle(base);
  for (PyObject*& each : classes) each = base;
  for (const Row& row : rows()) {
    py::tuple bases = py::make_tuple(py::handle(base));
    if (row.also) bases = py::make_tuple(py::handle(base), py::handle(row.also));
    PyObject* const made = PyErr_NewExceptionWithDoc((std::string("sennit.") + row.name).c_str(),
                                                     row.doc, bases.ptr(), nullptr);
    if (!made) throw py::error_already_set();
    classes[row.status] = made;
    module.attr(row.name) = py::handle(made);
  }
}

bool is_refusal(const py::error_already_set& error) {
  return error.matches(classes[SENNIT_INVALID_ARGUMENT]);
}

void throw_error(sennit_status_t status, sennit_comm_t comm) {
  throw_error(status, std::string(sennit_last_error()), comm);
}

void throw_error(sennit_status_t status, const std::string& text, sennit_comm_t comm) {
  py::list ranks;
  int count = 0;
  if (comm && sennit_comm_failed_ranks(comm, nullptr, 0, &count) == SENNIT_OK && count > 0) {
    std::vector<int> failed(static_cast<size_t>(count));
    if (sennit_comm_failed_ranks(comm, failed.data(), count, &count) == SENNIT_OK)
      for (size_t i = 0; i < failed.size() && i < static_cast<size_t>(count); i++)
        ranks.append(failed[i]);
  }
  throw_with(status, text, ranks);
}

}  // namespace sennit_python
