/* abi_of_sennit.c: the facts of abi_facts.h as sennit declares them. */
#define NCCL_UNIQUE_ID_BYTES kNcclUniqueIdBytes
#define NCCL_CONFIG_UNDEF_INT kNcclUndefinedInt
#define NCCL_SPLIT_NOCOLOR kNcclNoColor
#define NCCL_SHRINK_DEFAULT kNcclShrinkDefault
#define NCCL_SHRINK_ABORT kNcclShrinkAbort
#include "nccl/abi.h"
#include "tests/nccl/abi_facts.h"

const struct AbiFact* abi_of_sennit(void);
const struct AbiFact* abi_of_sennit(void) {
  static const struct AbiFact facts[] = ALL_FACTS;
  return facts;
}
