// read_file.hpp: a whole file as text, bounded.
#pragma once

#include <string>

#include "base/status.hpp"

namespace sennit {

// At most 64 MiB. The error says which file, and why.
Result<std::string> read_file(const std::string& path);
bool file_exists(const std::string& path);

}  // namespace sennit
