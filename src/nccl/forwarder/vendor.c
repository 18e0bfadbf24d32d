/* vendor.c: looks for another libnccl.so.2 than this one. Needs libc only, like all of this. */
#define _GNU_SOURCE
#include "nccl/forwarder/vendor.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char kSoname[] = "libnccl.so.2";

struct Search {
  char* path;
  struct stat self;
};

/* Whether it is sennit's, of another installation: that would look for this one in turn. It is told
 * by a text that it has; NVIDIA's is larger by far. */
static int is_sennits(const char* candidate, size_t bytes) {
  enum { kMostBytes = 4 << 20 };
  static const char kText[] = "sennit: libnccl.so.2: ";
  if (bytes > kMostBytes) return 0;
  FILE* const file = fopen(candidate, "re");
  char* const content = malloc(bytes);
  const int found = file && content && fread(content, 1, bytes, file) == bytes &&
                    memmem(content, bytes, kText, sizeof kText - 1);
  free(content);
  if (file) fclose(file);
  return found;
}

/* Whether a file is there that is not sennit's own; then `path` holds it. */
static int is_other(struct Search* search, const char* candidate) {
  struct stat file;
  if (stat(candidate, &file) != 0 || !S_ISREG(file.st_mode)) return 0;
  if (file.st_dev == search->self.st_dev && file.st_ino == search->self.st_ino) return 0;
  if (is_sennits(candidate, (size_t)file.st_size)) return 0;
  return snprintf(search->path, kVendorPath, "%s", candidate) < kVendorPath;
}

static int in_folder(struct Search* search, const char* folder, size_t length, const char* below) {
  char candidate[kVendorPath];
  if (length == 0) return 0;
  if (snprintf(candidate, sizeof candidate, "%.*s%s/%s", (int)length, folder, below, kSoname) >=
      kVendorPath)
    return 0;
  return is_other(search, candidate);
}

static int visit_mapped(struct dl_phdr_info* info, size_t size, void* argument) {
  (void)size;
  struct Search* const search = argument;
  const char* const slash = strrchr(info->dlpi_name, '/');
  if (!slash) return 0;
  if (strncmp(slash + 1, "libnccl.so", 10) == 0) return is_other(search, info->dlpi_name);
  if (strncmp(slash + 1, "libtorch", 8) != 0) return 0;
  /* site-packages/torch/lib/libtorch.so: site-packages/nvidia/nccl/lib */
  return in_folder(search, info->dlpi_name, (size_t)(slash - info->dlpi_name),
                   "/../../nvidia/nccl/lib");
}

static int in_list(struct Search* search, const char* folders) {
  while (folders && *folders) {
    const size_t length = strcspn(folders, ":");
    if (in_folder(search, folders, length, "")) return 1;
    folders += length + (folders[length] == ':');
  }
  return 0;
}

int sennit_find_vendor_nccl(char path[kVendorPath], char* trouble, size_t trouble_bytes) {
  struct Search search = {.path = path};
  Dl_info self;
  if (dladdr((void*)sennit_find_vendor_nccl, &self)) stat(self.dli_fname, &search.self);
  const char* const named = getenv("SENNIT_NCCL_LIBRARY");
  if (named && *named) {
    if (is_other(&search, named)) return 1;
    snprintf(trouble, trouble_bytes,
             "SENNIT_DISABLE is set, but SENNIT_NCCL_LIBRARY=%s is no other libnccl.so.2", named);
    return 0;
  }
  if (dl_iterate_phdr(visit_mapped, &search)) return 1;
  if (in_list(&search, getenv("LD_LIBRARY_PATH"))) return 1;
  if (in_list(&search,
              "/usr/lib/x86_64-linux-gnu:/usr/lib/aarch64-linux-gnu:/usr/lib64:/usr/lib:"
              "/usr/local/lib:/usr/local/cuda/lib64"))
    return 1;
  snprintf(trouble, trouble_bytes,
           "SENNIT_DISABLE is set, but NVIDIA's libnccl.so.2 is neither mapped, nor beside torch, "
           "nor in LD_LIBRARY_PATH or the system's folders; name it with SENNIT_NCCL_LIBRARY");
  return 0;
}
