// generic.cpp: the reduction kernels in the instructions that every machine of this architecture
// has.
#define SENNIT_VECTOR_BYTES 16
#include "reduce/kernels.hpp"

namespace sennit {
const ReduceTable kReduceGeneric = SENNIT_REDUCE_TABLE;
}
