/* forwarder.c: libsennit_pmpi.so, which a program that was built for MPI is given before its MPI,
 * and compiled for the other list of functions libsennit_pmpi_large.so: FORWARDED, in FORWARDER.
 * Each function is looked for at its first call: in the library of sennit's that was built for the
 * MPI which the process has loaded, or with SENNIT_DISABLE=1, and where there is none, in that MPI
 * itself, by the name that MPI's profiling interface gives it (PMPI_).
 *
 * It has both names of each function: Fortran's functions call the profiling interface in Open MPI,
 * and some of them in MPICH. What sennit's library calls in its turn is MPI's own.
 *
 * It is preloaded into every process of a job, shells among them, so it needs nothing but libc and
 * does nothing until it is called. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pmpi/functions.h"

#define INDEX(name, count) index_##name,
enum { FORWARDED(INDEX) kFunctions };
#define NAME(name, count) #name,
static const char* const kNames[] = {FORWARDED(NAME)};

enum { kPath = 4096 };

/* An MPI by the name of its library: programs keep to the binary interface that it stands for. */
struct Mpi {
  const char* begins; /* of the library that the process has loaded */
  const char* sennits;
};
static const struct Mpi kMpis[] = {
    {"libmpi.so.40", SENNIT_PMPI_OPENMPI}, /* Open MPI 4 and 5 */
    {"libmpi.so.12", SENNIT_PMPI_MPICH},   /* MPICH's common one, also in 5 */
    {"libmpich.so.12", SENNIT_PMPI_MPICH}, /* the same as Debian calls it */
    {"libmpi_abi.so.", SENNIT_PMPI_ABI},   /* the standard's own, from MPI 5 on, by whomever */
};

static void* _Atomic addresses[kFunctions];
static void* _Atomic mpis_own[kFunctions];
static void* _Atomic mpi_library;
static void* _Atomic sennits_library;
/* Of that library: the frame of this thread that is within one of its functions, or 0. */
typedef uintptr_t* (*Within)(void);
static Within _Atomic within;
static atomic_int opened;

struct Search {
  char path[kPath];
  const struct Mpi* mpi;
};

static int visit(struct dl_phdr_info* info, size_t size, void* argument) {
  (void)size;
  struct Search* const search = argument;
  const char* const slash = strrchr(info->dlpi_name, '/');
  const char* const name = slash ? slash + 1 : info->dlpi_name;
  for (size_t i = 0; i < sizeof kMpis / sizeof *kMpis; i++)
    if (strncmp(name, kMpis[i].begins, strlen(kMpis[i].begins)) == 0) {
      snprintf(search->path, sizeof search->path, "%s", info->dlpi_name);
      search->mpi = &kMpis[i];
      return 1;
    }
  return 0;
}

static int disabled(void) {
  const char* value = getenv("SENNIT_DISABLE");
  return value && *value && strcmp(value, "0") != 0;
}

/* Two threads may both do it: the loader counts, and both get the same. */
static void open_libraries(void) {
  if (atomic_load(&opened)) return;
  struct Search search = {.path = "", .mpi = NULL};
  dl_iterate_phdr(visit, &search);
  if (!search.mpi) {
    atomic_store(&opened, 1);
    return;
  }
  /* Its names must be seen by sennit's library, also where Python loaded it for itself alone. */
  atomic_store(&mpi_library, dlopen(search.path, RTLD_NOLOAD | RTLD_NOW | RTLD_GLOBAL));
  if (!disabled()) {
    void* const library = dlopen(search.mpi->sennits, RTLD_NOW | RTLD_LOCAL);
    if (!library)
      fprintf(stderr, "sennit: " FORWARDER ": %s; %s does the collectives itself\n", dlerror(),
              search.path);
    if (library) atomic_store(&within, (Within)dlsym(library, "sennit_pmpi_within"));
    atomic_store(&sennits_library, library);
  }
  atomic_store(&opened, 1);
}

/* Its own function, and not the one that stands here in front of it. */
static void* find_mpis_own(int index) {
  open_libraries();
  char name[64];
  snprintf(name, sizeof name, "PMPI_%s", kNames[index]);
  void* const mpi = atomic_load(&mpi_library);
  void* const address = dlsym(mpi ? mpi : RTLD_NEXT, name);
  if (!address) {
    fprintf(stderr, "sennit: " FORWARDER ": the process calls MPI_%s, and has no MPI with it\n",
            kNames[index]);
    abort();
  }
  atomic_store_explicit(&mpis_own[index], address, memory_order_release);
  return address;
}

static void* find(int index) {
  void* address = find_mpis_own(index);
  void* const library = atomic_load(&sennits_library);
  if (library) {
    char name[64];
    snprintf(name, sizeof name, "sennit_pmpi_%s", kNames[index]);
    void* const sennits = dlsym(library, name);
    if (sennits)
      address = sennits;
    else
      fprintf(stderr, "sennit: " FORWARDER ": sennit's library behind it has no %s\n", name);
  }
  atomic_store_explicit(&addresses[index], address, memory_order_release);
  return address;
}

static void* load(void* _Atomic* from, int index, void* (*look)(int)) {
  void* const address = atomic_load_explicit(&from[index], memory_order_acquire);
  return address ? address : look(index);
}

typedef uintptr_t Word;
#define PARAMETERS_0 void
#define PARAMETERS_1 Word a
#define PARAMETERS_2 PARAMETERS_1, Word b
#define PARAMETERS_3 PARAMETERS_2, Word c
#define PARAMETERS_4 PARAMETERS_3, Word d
#define PARAMETERS_5 PARAMETERS_4, Word e
#define PARAMETERS_6 PARAMETERS_5, Word f
#define PARAMETERS_7 PARAMETERS_6, Word g
#define PARAMETERS_8 PARAMETERS_7, Word h
#define PARAMETERS_9 PARAMETERS_8, Word i
#define PARAMETERS_10 PARAMETERS_9, Word j
#define ARGUMENTS_0
#define ARGUMENTS_1 a
#define ARGUMENTS_2 ARGUMENTS_1, b
#define ARGUMENTS_3 ARGUMENTS_2, c
#define ARGUMENTS_4 ARGUMENTS_3, d
#define ARGUMENTS_5 ARGUMENTS_4, e
#define ARGUMENTS_6 ARGUMENTS_5, f
#define ARGUMENTS_7 ARGUMENTS_6, g
#define ARGUMENTS_8 ARGUMENTS_7, h
#define ARGUMENTS_9 ARGUMENTS_8, i
#define ARGUMENTS_10 ARGUMENTS_9, j

#define EXPORTED __attribute__((visibility("default")))
/* A frame that was left by longjmp() or an exception, as error handlers do, is no longer below this
 * one: stacks grow downwards. What MPI's own function calls back, such as an error handler, is the
 * program's again. */
#define FORWARD(name, count)                                                                \
  static int forward_##name(PARAMETERS_##count) {                                           \
    typedef int (*Function)(PARAMETERS_##count);                                            \
    void* const address = load(addresses, index_##name, find);                              \
    const Within ask = atomic_load_explicit(&within, memory_order_acquire);                 \
    uintptr_t* const frame = ask ? ask() : NULL;                                            \
    const uintptr_t here = (uintptr_t)__builtin_frame_address(0);                           \
    if (!frame) return ((Function)address)(ARGUMENTS_##count);                              \
    const uintptr_t outer = *frame > here ? *frame : 0;                                     \
    *frame = outer ? 0 : here;                                                              \
    void* const called = outer ? load(mpis_own, index_##name, find_mpis_own) : address;     \
    const int result = ((Function)called)(ARGUMENTS_##count);                               \
    *frame = outer;                                                                         \
    return result;                                                                          \
  }                                                                                         \
  EXPORTED int MPI_##name(PARAMETERS_##count);                                              \
  EXPORTED int MPI_##name(PARAMETERS_##count) { return forward_##name(ARGUMENTS_##count); } \
  EXPORTED int PMPI_##name(PARAMETERS_##count);                                             \
  EXPORTED int PMPI_##name(PARAMETERS_##count) { return forward_##name(ARGUMENTS_##count); }
FORWARDED(FORWARD)
