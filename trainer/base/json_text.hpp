// json_text.hpp: JSON that people write: settings and a model's config. Where it is off, the error
// has the line and the column; a key that stands twice in an object is one, because only the last
// would count.
#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "base/status.hpp"

namespace sennit::trainer {

// An object; comments as in C are skipped. of: what it is an object of, for the error.
Result<nlohmann::json> parse_json_object(std::string_view text, const std::string& file,
                                         const char* of);

// Of a program's file. Discarded (is_discarded()) where the text is no JSON, or nested deeper.
// *twice: a key that stands twice in an object, of which the last counts.
nlohmann::json parse_json_with_keys(std::string_view text, size_t most_nested, std::string* twice);

}  // namespace sennit::trainer
