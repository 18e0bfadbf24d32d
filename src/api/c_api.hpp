// c_api.hpp: what the C interface's files share: handles, the thread's last error, groups of calls.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "api/communicator.hpp"
#include "base/process/forked.hpp"

// What the handles of the C interface point at. A forked child follows none that its parent made.
struct sennit_comm {
  std::shared_ptr<sennit::Communicator> communicator;
  sennit::Origin origin{};
  uint64_t listener = 0;  // of its job's verdicts (watch::Watch::listen()); 0: there is none
};
struct sennit_work {
  std::shared_ptr<sennit::Work> work;
  sennit::Origin origin{};
};

namespace sennit {

// Remembers the text for sennit_last_error() and returns the kind.
sennit_status_t report(const Status& status);
// The communicator behind a handle (benchmarks and tests look inside).
inline Communicator& internal(sennit_comm_t comm) { return *comm->communicator; }

// Starts the call, or puts it into the thread's group. With `handle`, nonblocking: *handle receives
// the work.
sennit_status_t submit(sennit_comm_t comm, const Call& call, sennit_work_t* handle);
// Whether this thread is between sennit_group_start() and sennit_group_end().
bool in_group();
// report() for a call that is off before it comes to submit(): where a group is open, none of its
// calls is made.
sennit_status_t refuse(const Status& off);

// Collective over the ranks of `bootstrap`: the communicator of all of them, in a context of its
// own or in one that they share already. `config` may be null.
Result<sennit_comm_t> start_job(BootstrapOptions bootstrap, const sennit_config_t* config);

}  // namespace sennit
