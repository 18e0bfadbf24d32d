// calls.hpp: one collective or message of a program as a call of the library.
#pragma once

#include "sennit/sennit.h"
#include "tests/random/contents.hpp"

namespace random_programs {

// What a call is made with beside its event, as the library takes it.
struct Arguments {
  const void* send = nullptr;
  void* recv = nullptr;
  int root = 0;  // in the communicator; of a message the peer
  sennit_op_t op = SENNIT_SUM;
  sennit_comm_t comm = nullptr;
  sennit_work_t* work = nullptr;  // nonblocking
  int* source = nullptr;          // of a message that is received, where it is asked for
};

// What the library answers. `event` is as this rank calls it (as_called_by()); of `contents` only
// the counts of v-variants matter.
sennit_status_t call_collective(const Event& event, const Contents& contents,
                                const Arguments& with);
sennit_status_t call_message(const Event& event, bool sender, const Arguments& with);

}  // namespace random_programs
