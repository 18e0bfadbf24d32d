// handle.hpp: a sennit_comm_t, destroyed when nobody needs it any more.
//
// The Communicator of Python's, its works, its memory and its operations each hold it.
#pragma once

#include <map>

#include "core/array.hpp"
#include "sennit/sennit.h"

namespace sennit_python {

struct Handle {
  explicit Handle(sennit_comm_t made) : comm(made) {}
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() {
    for (const auto& [memory, array] : registered) sennit_mem_deregister(comm, memory);
    sennit_comm_destroy(comm);
  }

  const sennit_comm_t comm;
  std::multimap<void*, Array> registered;  // their owners stay until they are deregistered
};

}  // namespace sennit_python
