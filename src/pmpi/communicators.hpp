// communicators.hpp: the communicator of sennit's that stands behind one of MPI's.
//
// It is made by the first collective that blocks, kept as an attribute, and ends with MPI's own. A
// call that does not block cannot make it: other ranks may come to it only after something that
// waits for this one. Since the ranks of a communicator make its collectives in the same order, all
// see the same state of it at the same call.
#pragma once

#include <mpi.h>

#include "base/mutex.hpp"
#include "sennit/sennit.h"

namespace sennit::pmpi {

// What is kept with a communicator of MPI's, until that is freed.
struct Held {
  sennit_comm_t comm = nullptr;  // null: MPI itself does this one's collectives
  int rank = 0, size = 1;
  Mutex mutex;  // sennit wants one thread at a time
};

// Null: the call is MPI's. `may_make`: it blocks, so that the communicator may be made.
Held* held_of(MPI_Comm comm, bool may_make);

// At the end of MPI: all that are left.
void destroy_all();

}  // namespace sennit::pmpi
