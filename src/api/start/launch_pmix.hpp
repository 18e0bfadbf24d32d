// launch_pmix.hpp: the job's unique id by way of PMIx, the launcher's own key-value service: rank 0
// makes the id and puts it there, the others get it. So the secret travels neither in the
// environment nor on a command line.
//
// libpmix is opened at run time, where the process was started under PMIx; nothing is linked to it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/process/interruption.hpp"
#include "base/status.hpp"

namespace sennit {

// What PMIx told of this process; -1 where it said nothing.
struct PmixJob {
  int rank = -1, size = -1, local_rank = -1, local_size = -1;
  std::vector<std::byte> unique_id;
};
// SENNIT_UNSUPPORTED: not built with PMIx, no libpmix here, or no PMIx server to talk to.
// `size` < 0: asked of the server. One call at a time (start_mutex()).
Result<PmixJob> launch_by_pmix(int size, int64_t timeout_ms, const Interruption& interruption);

}  // namespace sennit
