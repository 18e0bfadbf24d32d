// manifest.hpp: what a checkpoint says about itself: manifest.json of the whole, and the note that
// each rank leaves for rank 0 beside its file. Both carry their own checksum.
//
// A parsed manifest is consistent: boxes lie in their tensors and tile them, and their bytes lie in
// their files. What the files really hold is trainer/checkpoint/read.cpp's business.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/status.hpp"
#include "trainer/checkpoint/tensor_box.hpp"
#include "trainer/device/device.hpp"

namespace sennit::trainer {

inline constexpr const char* kManifestName = "manifest.json";
inline constexpr const char* kCheckpointTokenizer = "tokenizer.model";

struct StoredBox {
  Box box;
  uint32_t file = 0;  // of Manifest::files
  uint64_t at = 0;    // in the file
  std::string checksum;
};

struct ManifestTensor {
  Type type = Type::f32;
  Sizes shape;
  std::vector<StoredBox> boxes;
};

struct ManifestFile {
  std::string name;
  uint64_t bytes = 0;
};

struct Manifest {
  int64_t step = 0;
  std::optional<double> held_out_loss;
  nlohmann::json state;
  std::string model;
  std::string tokenizer_checksum;  // empty: there is none
  std::vector<ManifestFile> files;
  std::map<std::string, ManifestTensor> tensors;

  std::string to_text() const;  // sealed
  // Joins the tensors of one rank's note, whose file becomes the next one. Errors: another type or
  // shape.
  Status add(const Manifest& note);
  // The first tensor that its boxes do not tile.
  Status check_tiling() const;
};

// of: the file that was read, for errors.
Result<Manifest> parse_manifest(const nlohmann::json& json, const std::string& of);

std::string rank_file_name(int rank);  // "rank-00003.safetensors"
std::string stored_name(const std::string& tensor, const Box& box, const Sizes& shape);  // in it
std::string step_folder_name(int64_t step);  // "step-00000042"
std::optional<int64_t> step_of(const std::string& folder_name);

}  // namespace sennit::trainer
