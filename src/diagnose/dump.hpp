// dump.hpp: copies of a rank's recording for who reads them later, while the rank goes on and
// overwrites what it recorded.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.hpp"

namespace sennit::diagnose {

// Copies the recording at `path` into `folder`, under its own name, in place of an earlier copy;
// `sennit diagnose folder` reads it as of a rank that runs, at this moment. Where the recording
// itself is in that folder nothing is done. Errors: of either file; the text names it.
Status dump_recording(const std::string& path, const std::string& folder);

// Has SIGUSR2 counted from now on, in this process, if nothing handles it yet. A thread that looks
// at dumps_asked() now and then dumps when it has grown.
void count_dump_signals();
uint64_t dumps_asked();

}  // namespace sennit::diagnose
