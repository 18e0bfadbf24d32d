/* client.c: a program that was built for NCCL: makes a communicator of one, sums a number over it,
 * and prints NCCL's version and the sum. `client open FILE` takes the functions from a file that it
 * opens by name, as some programs do; `client idle` calls none of them. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "nccl/abi.h"

ncclResult_t ncclGetVersion(int* version);
ncclResult_t ncclCommInitAll(ncclComm_t* comms, int devices, const int* device_list);
ncclResult_t ncclAllReduce(const void* input, void* output, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, void* stream);
ncclResult_t ncclCommDestroy(ncclComm_t comm);

static int use_them(void) {
  int version = 0;
  ncclComm_t comm = NULL;
  float number = 1;
  if (ncclGetVersion(&version) != ncclSuccess || ncclCommInitAll(&comm, 1, NULL) != ncclSuccess ||
      ncclAllReduce(&number, &number, 1, ncclFloat32, ncclSum, comm, NULL) != ncclSuccess ||
      ncclCommDestroy(comm) != ncclSuccess)
    return 1;
  printf("version %d, sum %g\n", version, (double)number);
  return 0;
}

int main(int count, char** words) {
  if (count == 1) return use_them();
  if (strcmp(words[1], "idle") == 0) return 0;
  void* const library = dlopen(words[2], RTLD_NOW | RTLD_LOCAL);
  if (!library) return 2;
  return dlsym(library, "ncclAllReduce") ? 0 : 3;
}
