// json.hpp: JSON to and from text, read only where it is not nested deeper than anything that
// sennit writes or asks for.
//
// Reading, copying and writing a value takes stack for each level, and whoever made the text chose
// how many.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace sennit {

inline constexpr size_t kMostNested = 64;

// Whether a JSON text, maybe with comments as in C, opens at most kMostNested lists and objects
// within one another. No more is checked; it is read once, and nothing is allocated.
bool is_shallow(std::string_view json);

// Discarded (is_discarded()) where the text is no JSON, or too deep.
nlohmann::json parse_json(std::string_view text);

// indent: spaces for each level, a line for each value; -1: all in one line. Bytes that are no
// UTF-8 are replaced. Defined here and not where it is called, because each use compiles for a
// second.
std::string json_to_text(const nlohmann::json& json, int indent = -1);
std::string json_to_text(const nlohmann::ordered_json& json, int indent = -1);

}  // namespace sennit
