/* fake_mpi.c: stands for an MPI of one process, with functions of large counts (LARGE) or without.
 * Each function says how it was called. */
#include <stdint.h>
#include <stdio.h>

#define EXPORTED __attribute__((visibility("default")))
#define ALLREDUCE(name, Count)                                                                     \
  EXPORTED int name(const void* send, void* recv, Count count, void* type, void* op, void* comm);  \
  EXPORTED int name(const void* send, void* recv, Count count, void* type, void* op, void* comm) { \
    (void)send, (void)recv, (void)type, (void)op, (void)comm;                                      \
    printf("%s of %lld\n", #name, (long long)count);                                               \
    return 0;                                                                                      \
  }

ALLREDUCE(MPI_Allreduce, int)
ALLREDUCE(PMPI_Allreduce, int)
#ifdef LARGE
ALLREDUCE(MPI_Allreduce_c, int64_t)
ALLREDUCE(PMPI_Allreduce_c, int64_t)
#endif
