// json_bytes.cpp: see base/json_bytes.hpp.
#include "base/json_bytes.hpp"

#include <cstdint>

namespace sennit {
namespace {

using Json = nlohmann::json;

Json discarded() { return Json(Json::value_t::discarded); }

// Sees to the depth, and to lengths that the bytes cannot hold, before anything is made of them.
class Depth : public nlohmann::json_sax<Json> {
 public:
  explicit Depth(size_t bytes) : bytes_(bytes) {}
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool key(string_t&) override { return true; }
  bool start_object(size_t members) override { return open(members); }
  bool start_array(size_t items) override { return open(items); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool parse_error(size_t, const std::string&, const Json::exception&) override { return false; }

 private:
  static constexpr size_t kUntold = ~size_t{0};
  bool open(size_t items) {
    return (items == kUntold || items <= bytes_) && ++depth_ <= kMostNested;
  }
  bool close() {
    depth_--;
    return true;
  }

  const size_t bytes_;
  size_t depth_ = 0;
};

}  // namespace

bool is_shallow(std::string_view json) {
  size_t depth = 0;
  for (size_t at = 0; at < json.size(); at++) {
    const char c = json[at];
    if (c == '"') {
      // To its end; where there is none, this is no JSON.
      for (at++; at < json.size() && json[at] != '"'; at++)
        if (json[at] == '\\') at++;
    } else if (c == '/' && at + 1 < json.size()) {
      // A comment, which some texts may have; elsewhere this is no JSON.
      const bool block = json[at + 1] == '*';
      at = json.find(block ? "*/" : "\n", at + 2);
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
  return is_shallow(text) ? Json::parse(text, nullptr, false) : discarded();
}

std::string json_to_text(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

std::string json_to_text(const nlohmann::ordered_json& json, int indent) {
  return json.dump(indent, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

std::vector<std::byte> pack(const Json& json) {
  const std::vector<uint8_t> cbor = Json::to_cbor(json);
  const auto* data = reinterpret_cast<const std::byte*>(cbor.data());
  return {data, data + cbor.size()};
}

Json unpack(const std::vector<std::byte>& bytes) {
  const auto* const begin = reinterpret_cast<const uint8_t*>(bytes.data());
  const auto* const end = begin + bytes.size();
  Depth depth(bytes.size());
  if (!Json::sax_parse(begin, end, &depth, Json::input_format_t::cbor)) return discarded();
  return Json::from_cbor(begin, end, true, false);
}

}  // namespace sennit
