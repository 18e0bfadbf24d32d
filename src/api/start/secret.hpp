// secret.hpp: what proves that a process belongs to the job, out of SENNIT_SECRET.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/status.hpp"

namespace sennit {

// SENNIT_SECRET: any text, file:PATH with any text in it, or key: and digits in either place. Empty
// where it is not set. The same on all ranks that know rank 0 by the same name and port. `warns`:
// says so where the text is short. Errors: a file that cannot be read or is empty, bad digits, no
// memory to hash it.
Result<std::vector<std::byte>> job_secret(const std::string& root_host, uint16_t root_port,
                                          bool warns);

}  // namespace sennit
