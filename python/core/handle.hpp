// handle.hpp: a sennit_comm_t, destroyed when nobody needs it any more.
//
// The Communicator of Python's, its works, its memory and its operations each hold it.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <utility>

#include "core/array.hpp"
#include "core/unlocked.hpp"
#include "sennit/sennit.h"

namespace sennit_python {

// Everything of it is with the interpreter's lock.
struct Handle {
  explicit Handle(sennit_comm_t made) : comm(made) {}
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() {
    if (told) stop_telling();
    for (const auto& [memory, array] : registered) sennit_mem_deregister(comm, memory);
    // The last one of a job says goodbye, which other ranks of this process may have to answer.
    const Unlocked unlocked;
    sennit_comm_destroy(comm);
  }

  // Returns when `told` is not being called any more. Its thread needs the interpreter's lock for
  // that, which this lets go of.
  void stop_telling() {
    {
      const Unlocked unlocked;
      sennit_comm_on_verdict(comm, nullptr, nullptr);
    }
    told = nullptr;
  }

  const sennit_comm_t comm;
  std::multimap<void*, Array> registered;  // their owners stay until they are deregistered
  std::unique_ptr<py::function> told;      // of verdicts; null: nothing
};

// Those with a `told`, and others that had one.
inline std::set<std::weak_ptr<Handle>, std::owner_less<>> told_handles;

// For stop_telling_all().
inline void keep_told(const std::shared_ptr<Handle>& handle) {
  std::erase_if(told_handles, [](const std::weak_ptr<Handle>& each) { return each.expired(); });
  told_handles.insert(handle);
}

// Before the interpreter ends. After that the library's thread cannot come back from a `told` that
// it is in, and whoever destroys the communicator would wait for it.
inline void stop_telling_all() {
  for (const std::weak_ptr<Handle>& each : std::exchange(told_handles, {}))
    if (const std::shared_ptr<Handle> handle = each.lock(); handle && handle->told)
      handle->stop_telling();
}

}  // namespace sennit_python
