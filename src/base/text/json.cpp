// json.cpp: see base/text/json.hpp.
#include "base/text/json.hpp"

namespace sennit {

using Json = nlohmann::json;

bool is_shallow(std::string_view json) {
  size_t depth = 0;
  for (size_t at = 0; at < json.size(); at++) {
    const char c = json[at];
    if (c == '"') {
      // To its end; where there is none, this is no JSON.
      for (at++; at < json.size() && json[at] != '"'; at++)
        if (json[at] == '\\') at++;
    } else if (c == '/' && at + 1 < json.size()) {
      // A comment, which some texts may have; elsewhere this is no JSON. The parser ends one of a
      // line at any of these.
      constexpr std::string_view kLineEnds("\n\r\0", 3);
      const bool block = json[at + 1] == '*';
      at = block ? json.find("*/", at + 2) : json.find_first_of(kLineEnds, at + 2);
      if (at == std::string_view::npos) break;
      at += block;
    } else if (c == '[' || c == '{') {
      if (++depth > kMostNested) return false;
    } else if ((c == ']' || c == '}') && depth > 0) {
      depth--;
    }
  }
  return true;
}

Json parse_json(std::string_view text) {
  return is_shallow(text) ? Json::parse(text, nullptr, false) : Json(Json::value_t::discarded);
}

std::string json_to_text(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

std::string json_to_text(const nlohmann::ordered_json& json, int indent) {
  return json.dump(indent, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace sennit
