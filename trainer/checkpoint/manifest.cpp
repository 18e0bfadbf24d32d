// manifest.cpp: see trainer/checkpoint/manifest.hpp.
#include "trainer/checkpoint/manifest.hpp"

#include <cmath>

#include <fmt/core.h>

#include "trainer/base/files.hpp"
#include "trainer/checkpoint/safetensors.hpp"

namespace sennit::trainer {
namespace {

using Json = nlohmann::json;

constexpr const char* kFormat = "sennit-checkpoint-1";
constexpr uint64_t kMost = uint64_t{1} << 62;

class ManifestReader {
 public:
  explicit ManifestReader(const std::string& of) : of_(of) {}
  Status fail(const std::string& what) const { return invalid(fmt::format("{}: {}", of_, what)); }

  static const Json* member(const Json& object, const char* key) {
    const auto found = object.is_object() ? object.find(key) : object.end();
    return found != object.end() ? &*found : nullptr;
  }
  static bool whole(const Json& object, const char* key, uint64_t* value) {
    const Json* found = member(object, key);
    if (!found || !found->is_number_unsigned() || found->get<uint64_t>() > kMost) return false;
    *value = found->get<uint64_t>();
    return true;
  }
  static bool text(const Json& object, const char* key, std::string* value) {
    const Json* found = member(object, key);
    if (!found || !found->is_string()) return false;
    *value = found->get<std::string>();
    return true;
  }
  static bool sizes(const Json& object, const char* key, Sizes* value) {
    const Json* found = member(object, key);
    if (!found || !found->is_array()) return false;
    for (const Json& size : *found) {
      if (!size.is_number_unsigned() || size.get<uint64_t>() > kMost) return false;
      value->push_back(size.get<int64_t>());
    }
    return true;
  }

  Status tensor(const std::string& name, const Json& json, const std::vector<ManifestFile>& files,
                ManifestTensor* tensor) const {
    std::string type;
    const Json* boxes = member(json, "boxes");
    if (!text(json, "type", &type) || (type != "F32" && type != "BF16") ||
        !sizes(json, "shape", &tensor->shape) || elements_of(tensor->shape) < 0 || !boxes ||
        !boxes->is_array())
      return fail(fmt::format("tensor '{}' is not of a type, a shape and boxes", name));
    tensor->type = type == "F32" ? Type::f32 : Type::bf16;
    for (const Json& entry : *boxes) {
      StoredBox box;
      uint64_t file = 0;
      if (!whole(entry, "file", &file) || file >= files.size() || !whole(entry, "at", &box.at) ||
          !text(entry, "checksum", &box.checksum) || !sizes(entry, "offset", &box.box.offset) ||
          !sizes(entry, "extent", &box.box.extent))
        return fail(fmt::format("tensor '{}' has a box that is none", name));
      box.file = static_cast<uint32_t>(file);
      if (const auto fault = piece_fault({.name = name,
                                          .shape = tensor->shape,
                                          .offset = box.box.offset,
                                          .extent = box.box.extent,
                                          .stride = {}}))
        return fail(*fault);
      const uint64_t bytes = static_cast<uint64_t>(box.box.elements()) * bytes_of(tensor->type);
      if (box.at > files[file].bytes || bytes > files[file].bytes - box.at)
        return fail(fmt::format("tensor '{}' {} lies outside of {}", name, box_text(box.box),
                                files[file].name));
      tensor->boxes.push_back(std::move(box));
    }
    return {};
  }

 private:
  const std::string& of_;
};

}  // namespace

std::string Manifest::to_text() const {
  Json json = {{"format", kFormat},
               {"step", step},
               {"held_out_loss", held_out_loss ? Json(*held_out_loss) : Json()},
               {"state", state},
               {"model", model},
               {"tokenizer", tokenizer_checksum},
               {"files", Json::array()},
               {"tensors", Json::object()}};
  for (const ManifestFile& file : files)
    json["files"].push_back({{"name", file.name}, {"bytes", file.bytes}});
  for (const auto& [name, tensor] : tensors) {
    Json boxes = Json::array();
    for (const StoredBox& box : tensor.boxes)
      boxes.push_back({{"file", box.file},
                       {"at", box.at},
                       {"offset", box.box.offset},
                       {"extent", box.box.extent},
                       {"checksum", box.checksum}});
    json["tensors"][name] = {
        {"type", safetensors_name(tensor.type)}, {"shape", tensor.shape}, {"boxes", boxes}};
  }
  return sealed_text(json);
}

Result<Manifest> parse_manifest(const Json& json, const std::string& of) {
  const ManifestReader reader(of);
  Manifest manifest;
  std::string format;
  uint64_t step = 0;
  const Json *files = ManifestReader::member(json, "files"),
             *tensors = ManifestReader::member(json, "tensors"),
             *state = ManifestReader::member(json, "state"),
             *loss = ManifestReader::member(json, "held_out_loss");
  if (!ManifestReader::text(json, "format", &format) || format != kFormat)
    return reader.fail("is no checkpoint's manifest that this version reads");
  if (!ManifestReader::whole(json, "step", &step) ||
      !ManifestReader::text(json, "model", &manifest.model) ||
      !ManifestReader::text(json, "tokenizer", &manifest.tokenizer_checksum) || !files ||
      !files->is_array() || !tensors || !tensors->is_object() || !state || !loss)
    return reader.fail("lacks a step, a state, a model, files or tensors");
  manifest.step = static_cast<int64_t>(step);
  manifest.state = *state;
  if (loss->is_number()) manifest.held_out_loss = loss->get<double>();
  for (const Json& entry : *files) {
    ManifestFile file;
    if (!ManifestReader::text(entry, "name", &file.name) || file.name.empty() ||
        file.name.find('/') != std::string::npos ||
        !ManifestReader::whole(entry, "bytes", &file.bytes))
      return reader.fail("names a file that is none");
    manifest.files.push_back(std::move(file));
  }
  for (const auto& [name, entry] : tensors->items()) {
    ManifestTensor tensor;
    SENNIT_RETURN_IF_ERROR(reader.tensor(name, entry, manifest.files, &tensor));
    manifest.tensors.emplace(name, std::move(tensor));
  }
  return manifest;
}

Status Manifest::add(const Manifest& note) {
  const auto base = static_cast<uint32_t>(files.size());
  files.insert(files.end(), note.files.begin(), note.files.end());
  for (const auto& [name, tensor] : note.tensors) {
    ManifestTensor& joined =
        tensors.try_emplace(name, ManifestTensor{tensor.type, tensor.shape, {}}).first->second;
    if (joined.type != tensor.type || joined.shape != tensor.shape)
      return invalid(fmt::format("ranks differ in the type or shape of '{}'", name));
    for (StoredBox box : tensor.boxes) {
      box.file += base;
      joined.boxes.push_back(std::move(box));
    }
  }
  return {};
}

Status Manifest::check_tiling() const {
  for (const auto& [name, tensor] : tensors) {
    std::vector<Box> boxes;
    for (const StoredBox& box : tensor.boxes) boxes.push_back(box.box);
    if (const auto fault = tiling_fault(tensor.shape, std::move(boxes)))
      return invalid(
          fmt::format("tensor '{}': the ranks' boxes do not make it up: {}", name, *fault));
  }
  return {};
}

std::string rank_file_name(int rank) { return fmt::format("rank-{:05d}.safetensors", rank); }

std::string stored_name(const std::string& tensor, const Box& box, const Sizes& shape) {
  return box.extent == shape ? tensor : tensor + box_text(box);
}

std::string step_folder_name(int64_t step) { return fmt::format("step-{:08d}", step); }

std::optional<int64_t> step_of(const std::string& name) {
  if (name.rfind("step-", 0) != 0 || name.size() < 6 || name.size() > 23) return std::nullopt;
  int64_t step = 0;
  for (const char digit : name.substr(5)) {
    if (digit < '0' || digit > '9') return std::nullopt;
    step = 10 * step + (digit - '0');
  }
  return step;
}

}  // namespace sennit::trainer
