/* functions.h: the functions of MPI that sennit stands in front of, once, for whoever needs all of
 * them: the forwarders and what they open.
 *
 * MPI_FUNCTIONS are those that every MPI has. MPI_LARGE_FUNCTIONS, MPI 4's with large counts, not
 * every MPI has, and so they are a library's of their own: a program that refers to a function
 * weakly, as mpi4py does to MPI_Allreduce_c, takes one that is defined for there.
 *
 * FUNCTION(name, number of arguments). Every argument is an integer or a pointer, or a handle,
 * which is one of the two by the MPI; all have a register or eight bytes of stack of their own in
 * the calling conventions of x86-64 and of aarch64's Linux. So the forwarders pass them on as words
 * and need not know which MPI it is. */
#pragma once

/* Collectives with counts. The suffix says how large these may be. */
#define MPI_COUNTING_FUNCTIONS(FUNCTION, suffix) \
  FUNCTION(Allreduce##suffix, 6)                 \
  FUNCTION(Reduce##suffix, 7)                    \
  FUNCTION(Bcast##suffix, 5)                     \
  FUNCTION(Allgather##suffix, 7)                 \
  FUNCTION(Allgatherv##suffix, 8)                \
  FUNCTION(Reduce_scatter##suffix, 6)            \
  FUNCTION(Reduce_scatter_block##suffix, 6)      \
  FUNCTION(Alltoall##suffix, 7)                  \
  FUNCTION(Alltoallv##suffix, 9)                 \
  FUNCTION(Iallreduce##suffix, 7)                \
  FUNCTION(Ireduce##suffix, 8)                   \
  FUNCTION(Ibcast##suffix, 6)                    \
  FUNCTION(Iallgather##suffix, 8)                \
  FUNCTION(Iallgatherv##suffix, 9)               \
  FUNCTION(Ireduce_scatter##suffix, 7)           \
  FUNCTION(Ireduce_scatter_block##suffix, 7)     \
  FUNCTION(Ialltoall##suffix, 8)                 \
  FUNCTION(Ialltoallv##suffix, 10)

#define MPI_LARGE_FUNCTIONS(FUNCTION) MPI_COUNTING_FUNCTIONS(FUNCTION, _c)

#define MPI_FUNCTIONS(FUNCTION)                \
  MPI_COUNTING_FUNCTIONS(FUNCTION, )           \
  FUNCTION(Barrier, 1)                         \
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
