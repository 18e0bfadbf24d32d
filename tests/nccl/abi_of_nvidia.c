/* abi_of_nvidia.c: the facts of abi_facts.h as NVIDIA's header has them, and its initialisers. */
#include <nccl.h>

#include "tests/nccl/abi_facts.h"

const struct AbiFact* abi_of_nvidia(void);
const struct AbiFact* abi_of_nvidia(void) {
  static const struct AbiFact facts[] = ALL_FACTS;
  return facts;
}

/* A config that the header's macro made, for sennit to read. */
const void* config_of_nvidia(void);
const void* config_of_nvidia(void) {
  static const ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  return &config;
}
