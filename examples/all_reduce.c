/* all_reduce.c: every rank gives a vector, every rank gets the sum. In C. */
#include <sennit/sennit.h>
#include <stdio.h>
#include <stdlib.h>

enum { kCount = 1 << 20 };

/* Every function returns a status; the text of the last error says what, who and what to do. */
static void check(sennit_status_t status, const char* what) {
  if (status == SENNIT_OK) return;
  fprintf(stderr, "%s: %s\n", what, sennit_last_error());
  exit(1);
}

int main(void) {
  sennit_comm_t comm;
  int rank, size;
  float* x;

  /* From the environment that mpirun, srun or torchrun sets. */
  check(sennit_comm_init_env(&comm, NULL), "start");
  check(sennit_comm_rank(comm, &rank), "rank");
  check(sennit_comm_size(comm, &size), "size");

  /* Any memory will do; this kind is read in place by the other ranks of the host. */
  check(sennit_mem_alloc(comm, kCount * sizeof *x, (void**)&x), "memory");
  for (int i = 0; i < kCount; ++i) x[i] = (float)(rank + 1);

  /* In place: input and output are the same. */
  check(sennit_all_reduce(x, x, kCount, SENNIT_FLOAT32, SENNIT_SUM, comm), "all-reduce");

  const float expected = (float)(size * (size + 1) / 2);
  for (int i = 0; i < kCount; ++i)
    if (x[i] != expected) {
      fprintf(stderr, "rank %d: element %d is %g, not %g\n", rank, i, x[i], expected);
      return 1;
    }
  if (rank == 0) printf("%d ranks: every element is %g\n", size, expected);

  check(sennit_mem_free(comm, x), "free");
  /* Waits for all ranks; without it the others see a death. */
  check(sennit_comm_finalize(comm), "finalize");
  return sennit_comm_destroy(comm) != SENNIT_OK;
}
