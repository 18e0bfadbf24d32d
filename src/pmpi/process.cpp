// process.cpp: the begin and the end of MPI in a process.
#include <mpi.h>

#include <cstdint>

#include "pmpi/communicators.hpp"
#include "pmpi/operation.hpp"
#include "pmpi/report.hpp"

using namespace sennit::pmpi;  // NOLINT: the functions below are the library's

namespace {

// All processes come here, so here theirs is made: every other communicator can then be made out of
// it by its members, in a tenth of the time and without connections of its own. Some programs never
// make a collective of all processes, and thousands of communicators (BLACS).
int begun(int result) {
  if (result == MPI_SUCCESS) held_of(MPI_COMM_WORLD, true);
  return result;
}

}  // namespace

extern "C" {

// For the forwarders: the frame of the calling thread that is within one of these functions, or 0.
// What it calls there is MPI's own.
uintptr_t* sennit_pmpi_within(void) {
  static thread_local uintptr_t within = 0;
  return &within;
}

int sennit_pmpi_Init(int* argc, char*** argv) { return begun(PMPI_Init(argc, argv)); }

int sennit_pmpi_Init_thread(int* argc, char*** argv, int required, int* provided) {
  return begun(PMPI_Init_thread(argc, argv, required, provided));
}

int sennit_pmpi_Finalize(void) {
  while (any_begun()) {  // a program should have waited for them
    poll();
    rest();
  }
  destroy_all();
  tell_counts();
  const int result = PMPI_Finalize();
  forget_all();
  return result;
}

}  // extern "C"
