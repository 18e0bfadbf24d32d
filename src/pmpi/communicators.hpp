// communicators.hpp: the communicator of sennit's that stands behind one of MPI's.
//
// That of all processes is made by MPI_Init, and any other by the first collective that blocks. It
// is kept as an attribute, and ends with MPI's own and the last operation on it: MPI lets a program
// free a communicator while calls are out. A call that does not block cannot make it: other ranks
// may come to it only after something that waits for this one. Since the ranks of a communicator
// make its collectives in the same order, all see the same state of it at the same call.
#pragma once

#include <mpi.h>

#include <atomic>
#include <memory>

#include "base/mutex.hpp"
#include "sennit/sennit.h"

namespace sennit::pmpi {

// What is kept with a communicator of MPI's.
struct Held {
  Held() = default;
  ~Held() { sennit_comm_destroy(comm); }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

  int rank = 0, size = 1;
  std::atomic<bool> freed{false};  // the program has freed MPI's
  Mutex mutex;                     // sennit wants one thread at a time
  // Null: MPI itself does this one's collectives. Set before others see it, and at MPI's end.
  sennit_comm_t comm SENNIT_POINTEE_GUARDED_BY(mutex) = nullptr;
};

// Null: the call is MPI's. `may_make`: it blocks, so that the communicator may be made.
std::shared_ptr<Held> held_of(MPI_Comm comm, bool may_make);

// At the begin of MPI_Finalize: all that are left.
void destroy_all();
// At its end: what was kept of them. A session may still begin, which has other attributes.
void forget_all();

}  // namespace sennit::pmpi
