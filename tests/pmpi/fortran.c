/* fortran.c: a program of MPI's that calls it by the names that a Fortran compiler makes, or in C:
 * a job may have ranks of both kinds.
 *
 *   fortran f     by Fortran's names
 *   fortran c     in C
 *
 * Exits with 1 where a result is wrong, and with 77 where there is no Fortran of Open MPI's. */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

#ifndef WITH_FORTRAN
int main(void) { return 77; }
#else

enum { kStatusWords = 64 };

void mpi_init_(int* error);
void mpi_finalize_(int* error);
void mpi_bcast_(void* memory, int* count, int* type, int* root, int* comm, int* error);
void mpi_barrier_(int* comm, int* error);
void mpi_allreduce_(void* send, void* recv, int* count, int* type, int* op, int* comm, int* error);
void mpi_iallreduce_(void* send, void* recv, int* count, int* type, int* op, int* comm,
                     int* request, int* error);
void mpi_wait_(int* request, int* status, int* error);

static int expect(int right, const char* what) {
  if (!right) fprintf(stderr, "%s is wrong\n", what);
  return right ? 0 : 1;
}

static int in_fortran(void) {
  int error = 0, wrong = 0, one = 1, root = 0, rank = 0, size = 0;
  int request = 0, status[kStatusWords];
  mpi_init_(&error);
  int world = MPI_Comm_c2f(MPI_COMM_WORLD), integer = MPI_Type_c2f(MPI_INT);
  int sum = MPI_Op_c2f(MPI_SUM);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  int mine = rank + 1, all = 0, word = rank == 0 ? 42 : 0;
  mpi_allreduce_(&mine, &all, &one, &integer, &sum, &world, &error);
  wrong |= expect(all == size * (size + 1) / 2, "mpi_allreduce_");
  mpi_bcast_(&word, &one, &integer, &root, &world, &error);
  wrong |= expect(word == 42, "mpi_bcast_");
  all = 0;
  mpi_iallreduce_(&mine, &all, &one, &integer, &sum, &world, &request, &error);
  mpi_wait_(&request, status, &error);
  wrong |= expect(all == size * (size + 1) / 2, "mpi_iallreduce_");
  /* Begun in C, and waited for in Fortran. */
  MPI_Request begun;
  all = 0;
  MPI_Iallreduce(&mine, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &begun);
  request = MPI_Request_c2f(begun);
  mpi_wait_(&request, status, &error);
  wrong |= expect(all == size * (size + 1) / 2, "MPI_Iallreduce that mpi_wait_ waits for");
  mpi_barrier_(&world, &error);
  mpi_finalize_(&error);
  return wrong;
}

static int in_c(int* argc, char*** argv) {
  int rank = 0, size = 0, wrong = 0;
  MPI_Init(argc, argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  int mine = rank + 1, all = 0, word = rank == 0 ? 42 : 0;
  MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  wrong |= expect(all == size * (size + 1) / 2, "MPI_Allreduce");
  MPI_Bcast(&word, 1, MPI_INT, 0, MPI_COMM_WORLD);
  wrong |= expect(word == 42, "MPI_Bcast");
  for (int i = 0; i < 2; i++) {
    MPI_Request request;
    all = 0;
    MPI_Iallreduce(&mine, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    wrong |= expect(all == size * (size + 1) / 2, "MPI_Iallreduce");
  }
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Finalize();
  return wrong;
}

int main(int argc, char** argv) {
  return argc > 1 && strcmp(argv[1], "f") == 0 ? in_fortran() : in_c(&argc, &argv);
}
#endif
