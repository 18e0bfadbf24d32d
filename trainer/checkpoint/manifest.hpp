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

// Where a box's elements lie, dense and row-major, and the checksum of their bytes, as
// checksum_text() gives it.
struct StoredBox {
  Box box;
  uint32_t file = 0;  // of Manifest::files
  uint64_t at = 0;    // in the file
  std::string checksum;
};

// A global tensor and all boxes of it that are stored. In a rank's note these are its own, and may
// be none.
struct ManifestTensor {
  Type type = Type::f32;
  Sizes shape;
  std::vector<StoredBox> boxes;
};

// A rank's safetensors file, in the checkpoint's folder, and how long all of it is.
struct ManifestFile {
  std::string name;
  uint64_t bytes = 0;
};

// Of a whole checkpoint; or a rank's note, which has one file and, beside step and tensors,
// nothing else.
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

// Names in a run's folder. A box is stored in its rank's file under the tensor's name where it is
// all of the tensor, else with box_text() behind it. step_of() gives nothing for what is not
// "step-" and 1 to 18 digits.
std::string rank_file_name(int rank);  // "rank-00003.safetensors"
std::string stored_name(const std::string& tensor, const Box& box, const Sizes& shape);
std::string step_folder_name(int64_t step);  // "step-00000042"
std::optional<int64_t> step_of(const std::string& folder_name);

}  // namespace sennit::trainer
