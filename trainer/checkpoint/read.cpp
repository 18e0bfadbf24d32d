// read.cpp: the reading side of trainer/checkpoint/checkpoint.hpp. Files are mapped; a stored box
// is checked against its checksum the first time that load() touches it.
#include <algorithm>
#include <set>

#include <fmt/core.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "trainer/base/checksum.hpp"
#include "trainer/base/files.hpp"
#include "trainer/checkpoint/checkpoint.hpp"
#include "trainer/checkpoint/manifest.hpp"
#include "trainer/checkpoint/safetensors.hpp"
#include "trainer/checkpoint/tensor_box.hpp"

namespace sennit::trainer {

struct Checkpoint::State {
  std::string folder, checksum;
  Manifest manifest;
  std::vector<MappedFile> files;
  std::vector<Tensor> tensors;
  mutable std::set<const StoredBox*> checked;

  std::string file_name(size_t file) const { return folder + "/" + manifest.files[file].name; }

  // Maps a file and sees that its header tells of exactly the manifest's boxes.
  Status open_file(size_t index, MappedFile* mapped) const {
    const ManifestFile& file = manifest.files[index];
    Result<MappedFile> opened = MappedFile::open(file_name(index));
    if (!opened) return opened.status();
    if (opened->bytes() != file.bytes)
      return invalid(fmt::format("{}: {} bytes long; the manifest says {}: it is {}",
                                 file_name(index), opened->bytes(), file.bytes,
                                 opened->bytes() < file.bytes ? "cut short" : "another one"));
    const Result<SafetensorsHeader> header =
        parse_safetensors({opened->data(), opened->bytes()}, opened->bytes(), file_name(index));
    if (!header) return header.status();
    std::map<std::string, const StoredTensor*> there;
    for (const StoredTensor& tensor : header->tensors) there[tensor.name] = &tensor;
    for (const auto& [name, tensor] : manifest.tensors)
      for (const StoredBox& box : tensor.boxes) {
        if (box.file != index) continue;
        const auto found = there.find(stored_name(name, box.box, tensor.shape));
        if (found == there.end() || found->second->type != tensor.type ||
            found->second->shape != box.box.extent ||
            header->data_at + found->second->begin != box.at)
          return invalid(fmt::format("{}: its header and the manifest differ on '{}' {}",
                                     file_name(index), name, box_text(box.box)));
        there.erase(found);
      }
    if (!there.empty())
      return invalid(fmt::format("{}: holds '{}', of which the manifest does not know",
                                 file_name(index), there.begin()->first));
    *mapped = std::move(*opened);
    return {};
  }

  Status check(const std::string& name, const ManifestTensor& tensor, const StoredBox& box) const {
    const size_t bytes = static_cast<size_t>(box.box.elements()) * bytes_of(tensor.type);
    if (checksum_text(files[box.file].data() + box.at, bytes) == box.checksum) return {};
    return invalid(fmt::format("{}: tensor '{}' {} is damaged: its checksum is not the manifest's",
                               file_name(box.file), name, box_text(box.box)));
  }

  Status check_tokenizer() const {
    if (manifest.tokenizer_checksum.empty()) return {};
    const std::string file = folder + "/" + kCheckpointTokenizer;
    const Result<MappedFile> mapped = MappedFile::open(file);
    if (!mapped) return mapped.status();
    if (checksum_text(mapped->data(), mapped->bytes()) == manifest.tokenizer_checksum) return {};
    return invalid(fmt::format("{}: is damaged: its checksum is not the manifest's", file));
  }

  Status load(const TensorPiece& piece) const {
    if (const auto fault = piece_fault(piece))
      return invalid(fmt::format("{}: {}", folder, *fault));
    const auto found = manifest.tensors.find(piece.name);
    if (found == manifest.tensors.end())
      return {SENNIT_NOT_FOUND, fmt::format("{}: has no tensor '{}'", folder, piece.name)};
    const ManifestTensor& tensor = found->second;
    if (tensor.shape != piece.shape || tensor.type != piece.type)
      return invalid(fmt::format("{}: tensor '{}' is {} of {}; this run's is {} of {}", folder,
                                 piece.name, tensor.shape, safetensors_name(tensor.type),
                                 piece.shape, safetensors_name(piece.type)));
    const Placed to{{piece.offset, piece.extent},
                    piece.stride.empty() ? dense_strides(piece.extent) : piece.stride,
                    piece.data};
    for (const StoredBox& box : tensor.boxes) {
      const std::optional<Box> part = meet(to.box, box.box);
      if (!part) continue;
      if (!checked.contains(&box)) {
        SENNIT_RETURN_IF_ERROR(check(piece.name, tensor, box));
        checked.insert(&box);
      }
      auto* from = const_cast<uint8_t*>(files[box.file].data() + box.at);  // read only
      copy_part(*part, to, {box.box, dense_strides(box.box.extent), from}, bytes_of(tensor.type));
    }
    return {};
  }
};

Checkpoint::Checkpoint() : state_(std::make_unique<State>()) {}
Checkpoint::Checkpoint(Checkpoint&&) noexcept = default;
Checkpoint& Checkpoint::operator=(Checkpoint&&) noexcept = default;
Checkpoint::~Checkpoint() = default;

Result<Checkpoint> Checkpoint::open(const std::string& folder) {
  Checkpoint checkpoint;
  State& state = *checkpoint.state_;
  state.folder = folder;
  while (state.folder.size() > 1 && state.folder.back() == '/') state.folder.pop_back();
  const std::string file = state.folder + "/" + kManifestName;
  const Result<nlohmann::json> json = read_sealed(file, &state.checksum);
  if (!json) return json.status();
  Result<Manifest> manifest = parse_manifest(*json, file);
  if (!manifest) return manifest.status();
  SENNIT_RETURN_IF_ERROR(manifest->check_tiling().with_context(file));
  state.manifest = std::move(*manifest);
  state.files.resize(state.manifest.files.size());
  for (size_t i = 0; i < state.files.size(); i++)
    SENNIT_RETURN_IF_ERROR(state.open_file(i, &state.files[i]));
  SENNIT_RETURN_IF_ERROR(state.check_tokenizer());
  for (const auto& [name, tensor] : state.manifest.tensors)
    state.tensors.push_back({name, tensor.type, tensor.shape});
  return checkpoint;
}

int64_t Checkpoint::step() const { return state_->manifest.step; }
const std::string& Checkpoint::checksum() const { return state_->checksum; }
std::optional<double> Checkpoint::held_out_loss() const { return state_->manifest.held_out_loss; }
const nlohmann::json& Checkpoint::state() const { return state_->manifest.state; }
const std::string& Checkpoint::model() const { return state_->manifest.model; }
std::string Checkpoint::tokenizer_file() const {
  return state_->manifest.tokenizer_checksum.empty() ? ""
                                                     : state_->folder + "/" + kCheckpointTokenizer;
}
const std::vector<Checkpoint::Tensor>& Checkpoint::tensors() const { return state_->tensors; }

Status Checkpoint::load(std::span<const TensorPiece> pieces) const {
  for (const TensorPiece& piece : pieces) SENNIT_RETURN_IF_ERROR(state_->load(piece));
  return {};
}

int64_t Checkpoint::verify(const std::function<void(const std::string&)>& wrong) const {
  int64_t faults = 0;
  for (const auto& [name, tensor] : state_->manifest.tensors)
    for (const StoredBox& box : tensor.boxes)
      if (const Status status = state_->check(name, tensor, box); !status.ok()) {
        wrong(status.text());
        faults++;
      }
  return faults;
}

}  // namespace sennit::trainer
