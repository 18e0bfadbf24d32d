// json_text.cpp: see trainer/base/json_text.hpp.
#include "trainer/base/json_text.hpp"

#include <set>
#include <vector>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "base/text/json.hpp"

namespace sennit::trainer {
namespace {
using Json = nlohmann::json;

// Sees every key, and remembers one that stands twice in its object.
class Keys {
 public:
  explicit Keys(std::string* twice) : twice_(twice) {}
  void see(int depth, Json::parse_event_t event, const Json& value) {
    const auto level = static_cast<size_t>(depth);
    if (event == Json::parse_event_t::object_start) {
      keys_.resize(level + 1);
      keys_[level].clear();
    }
    if (event == Json::parse_event_t::key && twice_->empty() &&
        !keys_[level - 1].insert(value.get<std::string>()).second)
      *twice_ = value.get<std::string>();
  }

 private:
  std::vector<std::set<std::string>> keys_;  // of the objects that are open, by depth
  std::string* twice_;
};

}  // namespace

Json parse_json_with_keys(std::string_view text, size_t most_nested, std::string* twice) {
  Keys keys(twice);
  bool deep = false;
  const Json::parser_callback_t look = [&](int depth, Json::parse_event_t event, Json& value) {
    deep = deep || static_cast<size_t>(depth) >= most_nested;
    if (!deep) keys.see(depth, event, value);
    return !deep;
  };
  Json json = Json::parse(text, look, false);
  return deep ? Json(Json::value_t::discarded) : json;
}

Result<Json> parse_json_object(std::string_view text, const std::string& file, const char* of) {
  if (!is_shallow(text))
    return invalid(
        fmt::format("{}: lists and objects are nested more than {} deep", file, kMostNested));
  std::string twice;
  Keys keys(&twice);
  const Json::parser_callback_t look = [&](int depth, Json::parse_event_t event, Json& value) {
    keys.see(depth, event, value);
    return true;
  };
  Json json;
  try {
    json = Json::parse(text, look, true, true);
  } catch (const Json::exception& fault) {
    // "[json.exception.parse_error.101] parse error at line 3, column 5: syntax error ..."
    const std::string_view words = fault.what();
    const size_t place = words.find("line ");
    return invalid(fmt::format("{}: {}", file, place == words.npos ? words : words.substr(place)));
  }
  if (!json.is_object()) return invalid(fmt::format("{}: not a JSON object of {}", file, of));
  if (!twice.empty())
    return invalid(fmt::format("{}: \"{}\" stands twice in one object", file, twice));
  return json;
}

}  // namespace sennit::trainer
