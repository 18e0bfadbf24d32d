// c_api.hpp: what the C interface's files share: handles, the thread's last error, groups of calls.
// No exception leaves a function of that interface.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <new>

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
// Runs f, which returns a Status, and turns what escapes it into one.
template <typename F>
sennit_status_t guarded(F&& f) {
  try {
    return report(f());
  } catch (const std::bad_alloc&) {
    return report(Status(SENNIT_OUT_OF_RESOURCES, "out of memory"));
  } catch (const std::exception& e) {
    return report(Status(SENNIT_INTERNAL, e.what()));
  }
}

// The same for a call on a handle, which has to be this process's own.
template <typename Handle, typename F>
sennit_status_t guarded(Handle* handle, F&& f) {
  return guarded([&]() -> Status {
    if (handle && handle->origin.forked())
      return invalid(
          "this handle was made before fork(), in the parent: a forked child can only give it "
          "back");
    return f();
  });
}

// The communicator behind a handle (benchmarks and tests look inside).
inline Communicator& internal(sennit_comm_t comm) { return *comm->communicator; }

// Starts the call, or puts it into the thread's group. With `handle`, nonblocking: *handle receives
// the work.
sennit_status_t submit(sennit_comm_t comm, const Call& call, sennit_work_t* handle);
// Whether this thread is between sennit_group_start() and sennit_group_end().
bool in_group();
// Of a call that is off before it comes to submit(), which is returned: where a group is open, none
// of its calls is made.
Status noted_in_group(const Status& off);
inline sennit_status_t refuse(const Status& off) { return report(noted_in_group(off)); }

// Collective over the ranks of `bootstrap`: the communicator of all of them, in a context of its
// own or in one that they share already. `config` may be null.
Result<sennit_comm_t> start_job(BootstrapOptions bootstrap, const sennit_config_t* config);

}  // namespace sennit
