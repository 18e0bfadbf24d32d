/* vendor.h: where NVIDIA's libnccl is, although sennit's stands before it. */
#pragma once

#include <stddef.h>

enum { kVendorPath = 4096 };

/* 1: `path` holds it. 0: `trouble` says where it was looked for.
 *
 * First come, first served: the file SENNIT_NCCL_LIBRARY names; a libnccl that this process has
 * mapped; site-packages beside a mapped libtorch; the folders of LD_LIBRARY_PATH and the system's.
 * The loader cannot be asked: by its soname it would find sennit's. What another installation of
 * sennit has there is passed by. */
int sennit_find_vendor_nccl(char path[kVendorPath], char* trouble, size_t trouble_bytes);
