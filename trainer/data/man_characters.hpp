// man_characters.hpp: the characters that roff has names for, as UTF-8.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace sennit::trainer {

void append_utf8(std::string* out, uint32_t code);
// "bu" of \(bu and \[bu], "u00E9" of \[u00E9]; empty for a name that is not known.
std::string man_character(std::string_view name);

}  // namespace sennit::trainer
