// options.hpp: one table of options: {key, type, default, unit, help}. From it come the SENNIT_*
// environment names and the table of OPTIONS.md; a test freezes the list. Values are read once, at
// first use, and do not change.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/status.hpp"

namespace sennit {

enum class OptionType : uint8_t { text, integer, bytes, flag, milliseconds };

// A row of the table: one environment variable, and what OPTIONS.md says of it.
struct Option {
  std::string_view name;  // "SENNIT_CHUNK_BYTES"
  OptionType type;
  std::string_view default_value;  // as text; "" is unset
  std::string_view help;
};
// The whole table, sorted by name. It lives as long as the program.
std::span<const Option> options();

// Values by name; a name that is not in the table is a programmer error. Malformed values are
// reported by check_options() at communicator creation, and read as the default here.
std::string option_text(std::string_view name);
// also bytes ("64K", powers of two) and milliseconds
int64_t option_integer(std::string_view name);
bool option_flag(std::string_view name);
bool option_is_set(std::string_view name);  // in the environment, not empty
// Every set SENNIT_* variable is known and well-formed; else what is wrong, with the nearest known
// name.
Status check_options();

// "64K", "1.5G", "4096" -> bytes (K, M, G are powers of two).
Result<uint64_t> parse_bytes(std::string_view text);
std::string format_bytes(uint64_t bytes);

}  // namespace sennit
