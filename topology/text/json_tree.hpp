// json_tree.hpp: a JSON text as a tree that knows where each value stood, for errors with line and
// column.
//
// nlohmann-json's parser without its document type, which forgets the places. Depth is at most 64;
// memory is proportional to the text. Pure.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.hpp"
#include "topology/text/scan.hpp"

namespace sennit {

// What a value is.
enum class JsonKind { null, boolean, number, string, list, map };

// A value, with where it stands.
struct JsonTree {
  JsonKind kind = JsonKind::null;
  std::string text;             // of a string, a number; "true" or "false"
  std::vector<JsonTree> items;  // of a list, a map
  // of a map, one an item; the token is the place
  std::vector<std::pair<std::string, Token>> keys = {};
  size_t line = 1;  // where it ends (a list or map: begins)
  size_t column = 1;

  // of a map; null where it is absent or this is no map
  const JsonTree* find(std::string_view key) const;
  Token place() const;  // for error_at
};

// Errors say file:line:column; `file` is for messages only.
Result<JsonTree> parse_json_tree(std::string_view text, const std::string& file);

}  // namespace sennit
