// chrome_trace.hpp: recordings as Chrome's JSON, which Perfetto (ui.perfetto.dev) and
// chrome://tracing show.
//
// One process is a rank. Its rows are its calls, what it sends to each rank, what it receives from
// each, and its reductions and copies. Calls and sends that overlap are on rows of their own. A
// receive begins where it could, or where the one before it ended. An arrow goes from the send of a
// message to its receive. Times are those of the first rank's clock, moved by what messages say of
// how clocks are apart (diagnose/recorded/messages.hpp).
#pragma once

#include <string>

#include "diagnose/job.hpp"
#include "diagnose/plans.hpp"

namespace sennit::diagnose {

// The whole file.
std::string chrome_trace(const JobRecording& job, Plans& plans);

}  // namespace sennit::diagnose
