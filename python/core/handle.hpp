// handle.hpp: a sennit_comm_t, destroyed when nobody needs it any more.
//
// The Communicator of Python's, its works, its memory and its operations each hold it.
#pragma once

#include <map>
#include <memory>

#include "core/array.hpp"
#include "sennit/sennit.h"

namespace sennit_python {

struct Handle {
  explicit Handle(sennit_comm_t made) : comm(made) {}
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() {
    if (told) stop_telling();
    for (const auto& [memory, array] : registered) sennit_mem_deregister(comm, memory);
    // The last one of a job says goodbye, which other ranks of this process may have to answer.
    const py::gil_scoped_release unlocked;
    sennit_comm_destroy(comm);
  }

  // Returns when `told` is not being called any more. Its thread needs the interpreter's lock for
  // that, which this lets go of.
  void stop_telling() {
    const py::gil_scoped_release unlocked;
    sennit_comm_on_verdict(comm, nullptr, nullptr);
  }

  const sennit_comm_t comm;
  std::multimap<void*, Array> registered;  // their owners stay until they are deregistered
  std::unique_ptr<py::function> told;      // of verdicts; null: nothing
};

}  // namespace sennit_python
