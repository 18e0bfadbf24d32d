// write.hpp: what a command was asked to write to a file.
#pragma once

#include <string>

#include "base/status.hpp"

namespace sennit {

// Text to a file, or to standard output for "-". Who reads the file sees the old text or the new
// one, never a part; what lies in /dev is written in place. An invalid argument says why not.
Status write_text(const std::string& file, const std::string& text);

}  // namespace sennit
