/* forwarder.c: libnccl.so.2, which a program that was linked to NCCL finds or is given before
 * NVIDIA's. Each function is looked for at its first call, in libsennit_nccl, or with
 * SENNIT_DISABLE=1 in NVIDIA's library, and called there.
 *
 * It is preloaded into every process of a job, shells among them, so it needs nothing but libc and
 * does nothing until it is called. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "nccl/forwarder/vendor.h"
#include "nccl/functions.h"

#define INDEX(state, result, name, parameters, arguments) index_##name,
enum { NCCL_FUNCTIONS(INDEX) kFunctions };

#define NAME(state, result, name, parameters, arguments) #name,
static const char* const kNames[] = {NCCL_FUNCTIONS(NAME)};

static void* _Atomic addresses[kFunctions];
static void* _Atomic library;
static char trouble[1024]; /* why there is no library; written once, before `missing` is seen */
static atomic_int missing;

static int disabled(void) {
  const char* value = getenv("SENNIT_DISABLE");
  return value && *value && strcmp(value, "0") != 0;
}

/* Two threads may both open it: the loader counts, and both get the same. */
static void* open_library(void) {
  void* opened = atomic_load(&library);
  if (opened || atomic_load(&missing)) return opened;
  if (disabled()) {
    char path[kVendorPath];
    if (sennit_find_vendor_nccl(path, trouble, sizeof trouble)) {
      opened = dlopen(path, RTLD_NOW | RTLD_LOCAL);
      if (!opened) snprintf(trouble, sizeof trouble, "SENNIT_DISABLE is set, but %s", dlerror());
    }
  } else {
    opened = dlopen(SENNIT_NCCL_LIBRARY, RTLD_NOW | RTLD_LOCAL); /* by this library's RUNPATH */
    if (!opened) snprintf(trouble, sizeof trouble, "cannot load sennit: %s", dlerror());
  }
  if (opened)
    atomic_store(&library, opened);
  else if (!atomic_exchange(&missing, 1))
    fprintf(stderr, "sennit: libnccl.so.2: %s\n", trouble);
  return opened;
}

/* The function in the library behind this one; `otherwise` where there is none. */
static void* find(int index, void* otherwise) {
  void* const opened = open_library();
  void* address = opened ? dlsym(opened, kNames[index]) : NULL;
  if (opened && !address)
    fprintf(stderr, "sennit: libnccl.so.2: the library behind it, an older NCCL, has no %s\n",
            kNames[index]);
  if (!address) address = otherwise;
  atomic_store_explicit(&addresses[index], address, memory_order_release);
  return address;
}

/* What a function answers that is not there, by the type of its result. */
static ncclResult_t missing_ncclResult_t(void) { return ncclSystemError; }
static ncclText_t missing_ncclText_t(void) {
  return *trouble ? trouble : "the NCCL behind sennit's libnccl.so.2 is too old for this";
}
static ncclTeam_t missing_ncclTeam_t(void) { return (ncclTeam_t){0, 0, 0}; }
static int missing_int(void) { return 0; }
static void missing_void(void) {}

#define EXPORTED __attribute__((visibility("default")))
#define FORWARD(state, result, name, parameters, arguments)                               \
  EXPORTED result name parameters;                                                        \
  EXPORTED result name parameters {                                                       \
    void* address = atomic_load_explicit(&addresses[index_##name], memory_order_acquire); \
    if (!address) address = find(index_##name, (void*)missing_##result);                  \
    return ((result(*) parameters)address)arguments;                                      \
  }                                                                                       \
  EXPORTED __attribute__((alias(#name))) result p##name parameters;
NCCL_FUNCTIONS(FORWARD)
