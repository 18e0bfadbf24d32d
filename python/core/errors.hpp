// errors.hpp: a sennit_status_t as a Python exception.
//
// sennit.Error is the base of all. Each status has a class of its own, which is also one of
// Python's where there is a like: sennit.InvalidArgument is a ValueError, sennit.TimedOut a
// TimeoutError.
#pragma once

#include <string>

#include <pybind11/pybind11.h>

#include "sennit/sennit.h"

namespace sennit_python {

namespace py = pybind11;

// Gives the module the exceptions. Once, before anything may throw one of them.
void add_errors(py::module_& module);

// Throws the exception of a status, with the calling thread's last error as its text. Needs the
// GIL. comm: whose failed ranks it tells, or NULL.
[[noreturn]] void throw_error(sennit_status_t status, sennit_comm_t comm);
// The same with a text of the caller's.
[[noreturn]] void throw_error(sennit_status_t status, const std::string& text,
                              sennit_comm_t comm = nullptr);

// Whether it is a sennit.InvalidArgument.
bool is_refusal(const py::error_already_set& error);

// Nothing where the status is SENNIT_OK.
inline void check(sennit_status_t status, sennit_comm_t comm = nullptr) {
  if (status != SENNIT_OK) throw_error(status, comm);
}

}  // namespace sennit_python
