/* bindings.c: asks the loader, and says of each process to which file the calls of a function go.
 *
 * A library for LD_AUDIT (rtld-audit(7)): the loader calls it for every file that it maps and for
 * every name that it binds. The maps of a process would not tell: PyTorch maps NVIDIA's NCCL also
 * where another one is bound. It needs libc only, since it is in every process of a job. */
#define _GNU_SOURCE
#include "command/exec/bindings.h"

#include <fcntl.h>
#include <link.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "command/exec/has_function.h"

enum { kMostFiles = 64, kPath = 4096 };

/* A file that calls the function, found when it was mapped. */
struct Caller {
  uintptr_t* cookie;
  const char* path;
  atomic_int bound;
};

static char function[128];  /* ncclAllReduce */
static char sennits[kPath]; /* the file of sennit's that should have it */
static struct Caller callers[kMostFiles];
static atomic_int caller_count;

/* One line, in one write, so that processes do not mix theirs. */
__attribute__((format(printf, 1, 2))) static void say(const char* format, ...) {
  char name[64] = "?";
  const int comm = open("/proc/self/comm", O_RDONLY | O_CLOEXEC);
  if (comm >= 0) {
    const ssize_t bytes = read(comm, name, sizeof name - 1);
    if (bytes > 0) name[bytes - 1] = 0; /* in place of the line's end */
    close(comm);
  }
  char text[3 * kPath];
  va_list values;
  va_start(values, format);
  vsnprintf(text, sizeof text, format, values);
  va_end(values);
  dprintf(STDERR_FILENO, "sennit exec: %s[%d]: %s\n", name, (int)getpid(), text);
}

static int same_file(const char* a, const char* b) {
  struct stat one, other;
  return stat(a, &one) == 0 && stat(b, &other) == 0 && one.st_dev == other.st_dev &&
         one.st_ino == other.st_ino;
}

static const char* base_name(const char* path) {
  const char* const slash = strrchr(path, '/');
  return slash ? slash + 1 : path;
}

static int begins(const char* text, const char* with) {
  return strncmp(text, with, strlen(with)) == 0;
}

/* ---- what the loader calls ---- */

unsigned int la_version(unsigned int version) {
  const char* const wanted = getenv(SENNIT_BINDINGS_VARIABLE);
  const char* const colon = wanted ? strchr(wanted, ':') : NULL;
  if (!colon || (size_t)(colon - wanted) >= sizeof function) return 0; /* it is not asked */
  memcpy(function, wanted, (size_t)(colon - wanted));
  snprintf(sennits, sizeof sennits, "%s", colon + 1);
  return version < LAV_CURRENT ? version : LAV_CURRENT;
}

unsigned int la_objopen(struct link_map* map, Lmid_t space, uintptr_t* cookie) {
  (void)space;
  char itself[kPath];
  const char* path = map->l_name;
  if (!*path) {
    const ssize_t bytes = readlink("/proc/self/exe", itself, sizeof itself - 1);
    itself[bytes > 0 ? bytes : 0] = 0;
    path = itself;
  }
  *cookie = (uintptr_t)(path == itself ? strdup(itself) : path);
  const char* const name = base_name(path);
  const int has_it_by_right =
      begins(name, "libnccl") || begins(name, "libmpi") || begins(name, "libsennit");
  const int how = has_it_by_right ? SENNIT_LACKS : sennit_has_function(path, function);
  if (how == SENNIT_HIDES || how == SENNIT_EXPORTS)
    say("%s is linked statically into %s, out of sennit's reach", function, path);
  const int at = how == SENNIT_CALLS ? atomic_fetch_add(&caller_count, 1) : kMostFiles;
  if (at < kMostFiles) {
    callers[at].path = (const char*)*cookie;
    callers[at].cookie = cookie;
  }
  return LA_FLG_BINDTO | LA_FLG_BINDFROM;
}

uintptr_t la_symbind64(Elf64_Sym* symbol, unsigned int index, uintptr_t* caller, uintptr_t* target,
                       unsigned int* flags, const char* name) {
  (void)index;
  (void)flags;
  const char* const from = (const char*)*caller;
  const char* const to = (const char*)*target;
  if (strcmp(name, function) != 0) return symbol->st_value;
  /* What is preloaded passes calls on to the rest of sennit. */
  if (!same_file(from, sennits) || !begins(base_name(to), "libsennit"))
    say("%s of %s is bound to %s, %s", function, from, to,
        same_file(to, sennits) ? "which is sennit's" : "which is not sennit's");
  for (int i = 0; i < atomic_load(&caller_count) && i < kMostFiles; i++)
    if (callers[i].cookie == caller) atomic_store(&callers[i].bound, 1);
  return symbol->st_value;
}

unsigned int la_objclose(uintptr_t* cookie) {
  for (int i = 0; i < atomic_load(&caller_count) && i < kMostFiles; i++)
    if (callers[i].cookie == cookie && !atomic_exchange(&callers[i].bound, 1))
      say("%s of %s was not called, so it is bound to no file", function, callers[i].path);
  return 0;
}
