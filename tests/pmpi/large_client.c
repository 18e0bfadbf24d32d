/* large_client.c: a program that takes MPI's function with large counts where there is one, and
 * else the other, as mpi4py does: by a weak reference. */
#include <stdint.h>

int MPI_Allreduce(const void* send, void* recv, int count, void* type, void* op, void* comm);
__attribute__((weak)) int MPI_Allreduce_c(const void* send, void* recv, int64_t count, void* type,
                                          void* op, void* comm);

int main(void) {
  const int64_t beyond_an_int = INT64_C(5000000000);
  if (MPI_Allreduce_c) return MPI_Allreduce_c(0, 0, beyond_an_int, 0, 0, 0);
  return MPI_Allreduce(0, 0, 5, 0, 0, 0);
}
