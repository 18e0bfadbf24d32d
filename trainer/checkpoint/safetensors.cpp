// safetensors.cpp: see trainer/checkpoint/safetensors.hpp.
#include "trainer/checkpoint/safetensors.hpp"

#include <algorithm>
#include <cstring>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "base/text/json.hpp"
#include "trainer/base/json_text.hpp"

namespace sennit::trainer {
namespace {

using Json = nlohmann::json;

constexpr uint64_t kLongestHeader = 100'000'000;  // the format's own limit
constexpr int64_t kMostElements = int64_t{1} << 62;

// The format knows three levels.
constexpr size_t kMostLevels = 4;

// The header's JSON. Names that stand twice are refused: the JSON library would keep the last.
Result<Json> parse_header(std::string_view text, const std::string& file) {
  std::string twice;
  const Json json = parse_json_with_keys(text, kMostLevels, &twice);
  if (!json.is_object())
    return invalid(fmt::format("{}: its header is no JSON object of tensors", file));
  if (!twice.empty())
    return invalid(fmt::format("{}: its header has the name '{}' twice", file, twice));
  return json;
}

bool whole(const Json& value, uint64_t most) {
  return value.is_number_unsigned() && value.get<uint64_t>() <= most;
}

Result<StoredTensor> parse_tensor(const std::string& name, const Json& entry, uint64_t data_bytes) {
  StoredTensor tensor;
  tensor.name = name;
  if (!entry.is_object() || entry.size() != 3 || !entry.contains("dtype") ||
      !entry.contains("shape") || !entry.contains("data_offsets"))
    return invalid("is not of a dtype, a shape and data_offsets");
  const Json &dtype = entry["dtype"], &shape = entry["shape"], &offsets = entry["data_offsets"];
  if (dtype == "F32") {
    tensor.type = Type::f32;
  } else if (dtype == "BF16") {
    tensor.type = Type::bf16;
  } else {
    return invalid(fmt::format("has the type {}; F32 and BF16 are read here", json_to_text(dtype)));
  }
  if (!shape.is_array()) return invalid("has no list as its shape");
  for (const Json& extent : shape) {
    if (!whole(extent, static_cast<uint64_t>(kMostElements)))
      return invalid("has a shape that is none");
    tensor.shape.push_back(extent.get<int64_t>());
  }
  const int64_t elements = elements_of(tensor.shape);
  if (elements < 0) return invalid("is larger than any memory");
  if (!offsets.is_array() || offsets.size() != 2 || !whole(offsets[0], data_bytes) ||
      !whole(offsets[1], data_bytes))
    return invalid(fmt::format("lies outside of the file's {} bytes of data", data_bytes));
  tensor.begin = offsets[0];
  tensor.end = offsets[1];
  const uint64_t bytes = static_cast<uint64_t>(elements) * bytes_of(tensor.type);
  if (tensor.end < tensor.begin || tensor.end - tensor.begin != bytes)
    return invalid(fmt::format("has {} bytes by its shape, and not those of its offsets", bytes));
  return tensor;
}

}  // namespace

const char* safetensors_name(Type type) { return type == Type::f32 ? "F32" : "BF16"; }

int64_t elements_of(const std::vector<int64_t>& shape) {
  int64_t product = 1;
  bool empty = false;
  for (const int64_t extent : shape) {
    if (extent < 0) return -1;
    empty = empty || extent == 0;
    if (extent > 0 && product > kMostElements / extent) return -1;
    product *= std::max<int64_t>(extent, 1);
  }
  return empty ? 0 : product;
}

std::string safetensors_header(std::vector<StoredTensor>* tensors,
                               const std::map<std::string, std::string>& metadata,
                               size_t alignment) {
  // Written by hand, because the order of the tensors is that of their data.
  std::string text;
  const auto add = [&](const std::string& key, const std::string& value) {
    text += fmt::format("{}{}:{}", text.empty() ? "{" : ",", json_to_text(Json(key)), value);
  };
  if (!metadata.empty()) add("__metadata__", json_to_text(Json(metadata)));
  uint64_t at = 0;
  for (StoredTensor& tensor : *tensors) {
    const int64_t elements = elements_of(tensor.shape);
    SENNIT_CHECK(elements >= 0);
    tensor.begin = at;
    tensor.end = at += static_cast<uint64_t>(elements) * bytes_of(tensor.type);
    add(tensor.name, fmt::format(R"({{"dtype":"{}","shape":{},"data_offsets":[{},{}]}})",
                                 safetensors_name(tensor.type), json_to_text(Json(tensor.shape)),
                                 tensor.begin, tensor.end));
  }
  text += text.empty() ? "{}" : "}";
  text.append((alignment - (8 + text.size()) % alignment) % alignment, ' ');
  const uint64_t length = text.size();
  std::string header(8, '\0');
  std::memcpy(header.data(), &length, 8);  // little-endian
  return header + text;
}

Result<SafetensorsHeader> parse_safetensors(std::span<const uint8_t> file, uint64_t file_bytes,
                                            const std::string& name) {
  uint64_t length = 0;
  if (file.size() < 8 || file_bytes < 8)
    return invalid(fmt::format("{}: is too short for a safetensors file", name));
  std::memcpy(&length, file.data(), 8);
  if (length > kLongestHeader || length > file_bytes - 8 || length > file.size() - 8)
    return invalid(
        fmt::format("{}: its header claims {} bytes, and the file has {}: it is cut short, or no "
                    "safetensors file",
                    name, length, file_bytes));
  const std::string_view text(reinterpret_cast<const char*>(file.data()) + 8,
                              static_cast<size_t>(length));
  if (text.empty() || text[0] != '{')
    return invalid(fmt::format("{}: its header does not begin with '{{'", name));
  const Result<Json> json = parse_header(text, name);
  if (!json) return json.status();
  SafetensorsHeader header;
  header.data_at = 8 + length;
  const uint64_t data_bytes = file_bytes - header.data_at;
  for (const auto& [key, entry] : json->items()) {
    if (key == "__metadata__") {
      if (!entry.is_object())
        return invalid(fmt::format("{}: its __metadata__ is no object", name));
      for (const auto& [word, text_of] : entry.items()) {
        if (!text_of.is_string())
          return invalid(fmt::format("{}: its __metadata__ '{}' is no text", name, word));
        header.metadata[word] = text_of.get<std::string>();
      }
      continue;
    }
    Result<StoredTensor> tensor = parse_tensor(key, entry, data_bytes);
    if (!tensor)
      return invalid(fmt::format("{}: tensor '{}' {}", name, key, tensor.status().text()));
    header.tensors.push_back(std::move(*tensor));
  }
  std::stable_sort(header.tensors.begin(), header.tensors.end(),
                   [](const StoredTensor& a, const StoredTensor& b) {
                     return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
                   });
  uint64_t at = 0;
  for (const StoredTensor& tensor : header.tensors) {
    if (tensor.begin != at)
      return invalid(
          fmt::format("{}: tensor '{}' {}", name, tensor.name,
                      tensor.begin < at ? "overlaps the one before it" : "has a hole before it"));
    at = tensor.end;
  }
  if (at != data_bytes)
    return invalid(
        fmt::format("{}: {} bytes of data, and its header tells of {}", name, data_bytes, at));
  return header;
}

}  // namespace sennit::trainer
