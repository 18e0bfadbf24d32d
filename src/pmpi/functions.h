/* functions.h: the functions of MPI that sennit stands in front of, once, for whoever needs all of
 * them: the forwarder and what it opens.
 *
 * Only what every MPI has: the forwarder defines them in processes of any, and a program that
 * refers to a function weakly, as mpi4py does to MPI_Allreduce_c, takes it for there.
 *
 * FUNCTION(name, number of arguments). Every argument is an int or a pointer, or a handle, which is
 * one of the two by the MPI; all have a register or eight bytes of stack of their own in the
 * calling conventions of x86-64 and of aarch64's Linux. So the forwarder passes them on as words
 * and need not know which MPI it is. */
#pragma once

#define MPI_FUNCTIONS(FUNCTION)                \
  /* collectives */                            \
  FUNCTION(Allreduce, 6)                       \
  FUNCTION(Reduce, 7)                          \
  FUNCTION(Bcast, 5)                           \
  FUNCTION(Allgather, 7)                       \
  FUNCTION(Allgatherv, 8)                      \
  FUNCTION(Reduce_scatter, 6)                  \
  FUNCTION(Reduce_scatter_block, 6)            \
  FUNCTION(Alltoall, 7)                        \
  FUNCTION(Alltoallv, 9)                       \
  FUNCTION(Barrier, 1)                         \
  FUNCTION(Iallreduce, 7)                      \
  FUNCTION(Ireduce, 8)                         \
  FUNCTION(Ibcast, 6)                          \
  FUNCTION(Iallgather, 8)                      \
  FUNCTION(Iallgatherv, 9)                     \
  FUNCTION(Ireduce_scatter, 7)                 \
  FUNCTION(Ireduce_scatter_block, 7)           \
  FUNCTION(Ialltoall, 8)                       \
  FUNCTION(Ialltoallv, 10)                     \
  FUNCTION(Ibarrier, 2)                        \
  /* what waits for those that do not block */ \
  FUNCTION(Wait, 2)                            \
  FUNCTION(Test, 3)                            \
  FUNCTION(Waitall, 3)                         \
  FUNCTION(Testall, 4)                         \
  FUNCTION(Waitany, 4)                         \
  FUNCTION(Testany, 5)                         \
  FUNCTION(Waitsome, 5)                        \
  FUNCTION(Testsome, 5)                        \
  FUNCTION(Request_get_status, 3)              \
  /* the begin and the end */                  \
  FUNCTION(Init, 2)                            \
  FUNCTION(Init_thread, 4)                     \
  FUNCTION(Finalize, 0)
