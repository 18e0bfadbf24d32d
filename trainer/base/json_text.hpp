// json_text.hpp: JSON that people write: settings and a model's config. Where it is off, the error
// has the line and the column; a key that stands twice in an object is one, because only the last
// would count.
#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "base/status.hpp"

namespace sennit::trainer {

// An object; comments as in C are skipped. of: what it is an object of, for the error.
Result<nlohmann::json> parse_json_object(std::string_view text, const std::string& file,
                                         const char* of);

}  // namespace sennit::trainer
