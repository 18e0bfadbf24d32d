/* survive.c: a rank dies in the middle of a call; the others learn which, and go on without it.
 *
 * usage: survive FILE      FILE is a name that all ranks see; the survivors hand an id around in it
 *
 * The last rank ends without a word. All others get the same error and the same set of dead ranks,
 * within two seconds. The communicator has failed: destroy it. The survivors then make a new one by
 * a unique id, which the lowest of them creates and hands to the others by means of its own: here a
 * file. */
#include <sennit/sennit.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { kMostRanks = 64, kTries = 3000 };

static void check(sennit_status_t status, const char* what) {
  if (status == SENNIT_OK) return;
  fprintf(stderr, "%s: %s\n", what, sennit_last_error());
  exit(1);
}

/* Written beside and renamed, so that nobody reads half of it. */
static void publish(const sennit_unique_id_t* id, const char* path) {
  char beside[4096];
  snprintf(beside, sizeof beside, "%s.new", path);
  FILE* file = fopen(beside, "wb");
  if (!file || fwrite(id, sizeof *id, 1, file) != 1 || fclose(file) != 0 ||
      rename(beside, path) != 0) {
    perror(path);
    exit(1);
  }
}

static void await(sennit_unique_id_t* id, const char* path) {
  for (int i = 0; i < kTries; ++i) {
    FILE* file = fopen(path, "rb");
    if (file) {
      const size_t got = fread(id, sizeof *id, 1, file);
      fclose(file);
      if (got == 1) return;
    }
    usleep(10 * 1000);
  }
  fprintf(stderr, "%s did not come\n", path);
  exit(1);
}

int main(int argc, char** argv) {
  sennit_comm_t comm;
  int rank, size, dead_count, dead[kMostRanks];
  float x = 1;
  if (argc != 2) {
    fprintf(stderr, "usage: survive FILE\n");
    return 2;
  }

  check(sennit_comm_init_env(&comm, NULL), "start");
  check(sennit_comm_rank(comm, &rank), "rank");
  check(sennit_comm_size(comm, &size), "size");
  if (rank == 0) unlink(argv[1]); /* of a run before: gone, for all, after this call */
  check(sennit_all_reduce(&x, &x, 1, SENNIT_FLOAT32, SENNIT_SUM, comm), "all-reduce");

  if (rank == size - 1) _exit(0); /* as one ends that crashes: no goodbye */

  const sennit_status_t status = sennit_all_reduce(&x, &x, 1, SENNIT_FLOAT32, SENNIT_SUM, comm);
  if (status != SENNIT_PEER_FAILED) {
    fprintf(stderr, "status %s\n", sennit_status_name(status));
    return 1;
  }
  if (rank == 0) printf("%s\n", sennit_last_error());
  check(sennit_comm_failed_ranks(comm, dead, kMostRanks, &dead_count), "failed ranks");
  check(sennit_comm_destroy(comm), "destroy");

  /* New ranks: the old ones without the dead, in their order. The lowest survivor makes the id. */
  int new_rank = 0, lowest = 0;
  for (int i = 0; i < dead_count; ++i) {
    if (dead[i] < rank) ++new_rank;
    if (dead[i] == lowest) ++lowest; /* they are ascending */
  }
  new_rank = rank - new_rank;
  sennit_unique_id_t id;
  if (rank == lowest) {
    check(sennit_get_unique_id(&id), "unique id");
    publish(&id, argv[1]);
  } else {
    await(&id, argv[1]);
  }
  check(sennit_comm_init_rank(&comm, size - dead_count, &id, new_rank, NULL), "start again");
  x = 1;
  check(sennit_all_reduce(&x, &x, 1, SENNIT_FLOAT32, SENNIT_SUM, comm), "all-reduce");
  if (new_rank == 0) printf("%g ranks go on\n", x);
  check(sennit_comm_finalize(comm), "finalize");
  return sennit_comm_destroy(comm) != SENNIT_OK;
}
