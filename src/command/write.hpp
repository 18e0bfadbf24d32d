// write.hpp: what a command was asked to write to a file.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

#include "base/status.hpp"

namespace sennit {

// Text to a file, or to standard output for "-". Who reads the file sees the old text or the new
// one, never a part; what lies in /dev is written in place. An invalid argument says why not; that
// standard output cannot be written CommandLine::run() says, and the exit status.
Status write_text(const std::string& file, const std::string& text);

// Options and the files that they name, "" where they are not given: an invalid argument where two
// name the same one, of which the later would take the earlier's place. Devices take all.
Status check_outputs(std::initializer_list<std::pair<std::string_view, std::string_view>> options);

}  // namespace sennit
