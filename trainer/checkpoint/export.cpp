// export.cpp: a checkpoint's parameters as a folder that Hugging Face's `transformers` loads:
// config.json, model.safetensors (or several, with an index), and the tokenizer. Moments stay
// behind.
//
// A model that `transformers` would refuse is refused first. One tensor is in memory at a time.
// Rounding to bf16 is to the nearest, ties to even.
#include <fcntl.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <string_view>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "base/text/json.hpp"
#include "trainer/base/files.hpp"
#include "trainer/base/llama_config.hpp"
#include "trainer/checkpoint/checkpoint.hpp"
#include "trainer/checkpoint/manifest.hpp"
#include "trainer/checkpoint/safetensors.hpp"
#include "trainer/checkpoint/tensor_box.hpp"
#include "trainer/data/tokenizer.hpp"

namespace sennit::trainer {
namespace {

using OrderedJson = nlohmann::ordered_json;

bool is_parameter(const std::string& name) { return name.rfind("optimizer.", 0) != 0; }

// A NaN stays one, by its quiet bit; all else is rounded to the nearest, ties to the even one.
uint16_t to_bf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) return static_cast<uint16_t>(bits >> 16 | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// The bytes of a tensor in another type. f32 from bf16 is exact.
std::vector<char> converted(const std::vector<char>& from, Type have, Type want) {
  if (have == want) return from;
  const size_t n = from.size() / bytes_of(have);
  std::vector<char> to(n * bytes_of(want));
  for (size_t i = 0; i < n; i++) {
    if (want == Type::bf16) {
      float value = 0;
      std::memcpy(&value, from.data() + 4 * i, 4);
      const uint16_t rounded = to_bf16(value);
      std::memcpy(to.data() + 2 * i, &rounded, 2);
    } else {
      std::memcpy(to.data() + 4 * i + 2, from.data() + 2 * i, 2);
    }
  }
  return to;
}

Status append(int descriptor, const std::string& file, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return file_error(file, "written");
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return {};
}

using Tensors = std::vector<Checkpoint::Tensor>;

// Files under FILE.part until all of them are whole: then they get their names, or none does.
class Parts {
 public:
  ~Parts() {
    for (const std::string& file : files_) ::unlink((file + ".part").c_str());
  }
  std::string add(const std::string& file) { return files_.emplace_back(file) + ".part"; }
  Status finish() {
    std::vector<std::string> named;
    for (; !files_.empty(); files_.pop_back()) {
      const std::string& file = files_.back();
      if (::rename((file + ".part").c_str(), file.c_str()) != 0) {
        const Status status = file_error(file, "renamed into place");
        for (const std::string& one : named) ::unlink(one.c_str());
        return status;
      }
      named.push_back(file);
    }
    return {};
  }

 private:
  std::vector<std::string> files_;
};

Status write_tensors(const Checkpoint& checkpoint, const Tensors& tensors, const std::string& part,
                     Type type) {
  std::vector<StoredTensor> stored;
  std::vector<Type> types;
  for (const Checkpoint::Tensor& tensor : tensors) {
    stored.push_back({.name = tensor.name, .type = type, .shape = tensor.shape});
    types.push_back(tensor.type);
  }
  // which transformers asks for
  const std::string header = safetensors_header(&stored, {{"format", "pt"}}, 8);
  const int descriptor = ::open(part.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (descriptor < 0) return file_error(part, "made");
  Status status = append(descriptor, part, header);
  for (size_t i = 0; i < stored.size() && status.ok(); i++) {
    std::vector<char> bytes(static_cast<size_t>(elements_of(stored[i].shape)) * bytes_of(types[i]));
    const TensorPiece whole{.name = stored[i].name,
                            .type = types[i],
                            .shape = stored[i].shape,
                            .offset = Sizes(stored[i].shape.size(), 0),
                            .extent = stored[i].shape,
                            .stride = {},
                            .data = bytes.data()};
    status = checkpoint.load({&whole, 1});
    if (!status.ok()) break;
    bytes = converted(bytes, types[i], type);
    status = append(descriptor, part, {bytes.data(), bytes.size()});
  }
  if (status.ok() && ::fsync(descriptor) != 0) status = file_error(part, "made durable");
  ::close(descriptor);
  return status;
}

// A file, or as many as it takes that each holds shard_bytes or one tensor. Files of an export
// before that `transformers` would rather load go. At no time does it find tensors of both, since
// it takes model.safetensors where that is there, else what an index names.
Status write_model(const Checkpoint& checkpoint, const std::string& folder, Type type,
                   uint64_t shard_bytes) {
  std::vector<Tensors> shards;
  uint64_t filled = 0, total = 0;
  for (const Checkpoint::Tensor& tensor : checkpoint.tensors()) {
    if (!is_parameter(tensor.name)) continue;
    const uint64_t bytes = static_cast<uint64_t>(elements_of(tensor.shape)) * bytes_of(type);
    if (shards.empty() || filled + bytes > shard_bytes) {
      shards.emplace_back();
      filled = 0;
    }
    shards.back().push_back(tensor);
    filled += bytes;
    total += bytes;
  }
  if (shards.empty()) return invalid("the checkpoint has no parameters");
  const std::string whole = folder + "/model.safetensors", index_file = whole + ".index.json";
  Parts parts;
  if (shards.size() == 1) {
    SENNIT_RETURN_IF_ERROR(write_tensors(checkpoint, shards[0], parts.add(whole), type));
    SENNIT_RETURN_IF_ERROR(parts.finish());
    SENNIT_RETURN_IF_ERROR(sync_folder(folder));
    ::unlink(index_file.c_str());
    return {};
  }
  OrderedJson index = {{"metadata", {{"total_size", total}}},
                       {"weight_map", OrderedJson::object()}};
  for (size_t i = 0; i < shards.size(); i++) {
    const std::string name =
        fmt::format("model-{:05d}-of-{:05d}.safetensors", i + 1, shards.size());
    SENNIT_RETURN_IF_ERROR(
        write_tensors(checkpoint, shards[i], parts.add(fmt::format("{}/{}", folder, name)), type));
    for (const Checkpoint::Tensor& tensor : shards[i]) index["weight_map"][tensor.name] = name;
  }
  // The files that it names may have the same names as these.
  if (::unlink(index_file.c_str()) == 0) SENNIT_RETURN_IF_ERROR(sync_folder(folder));
  SENNIT_RETURN_IF_ERROR(parts.finish());
  SENNIT_RETURN_IF_ERROR(sync_folder(folder));
  SENNIT_RETURN_IF_ERROR(write_file_durably(index_file, json_to_text(index, 2) + "\n"));
  ::unlink(whole.c_str());
  return {};
}

// Whether it puts a space before a text, as transformers then must, too.
bool adds_prefix_space(const Tokenizer& tokenizer) {
  std::vector<int32_t> tokens;
  Tokenizer::Memory memory;
  tokenizer.encode("x", &tokens, &memory);
  return tokenizer.decode(tokens).starts_with(' ');
}

}  // namespace

Status export_checkpoint(const Checkpoint& checkpoint, const std::string& folder, Type type,
                         uint64_t shard_bytes) {
  const Result<LlamaConfig> model =
      parse_llama_config(checkpoint.model(), "the checkpoint's model");
  if (!model) return model.status();
  OrderedJson config = OrderedJson::parse(checkpoint.model(), nullptr, false);
  config["torch_dtype"] = type == Type::f32 ? "float32" : "bfloat16";
  std::shared_ptr<const Tokenizer> tokenizer;
  if (!checkpoint.tokenizer_file().empty()) {
    const auto loaded = Tokenizer::load(checkpoint.tokenizer_file());
    if (!loaded.ok()) return loaded.status();
    tokenizer = *loaded;
    if (tokenizer->vocabulary() > model->vocabulary)
      return invalid(fmt::format(
          "the checkpoint's model has {} tokens, and its tokenizer {}: transformers would look for "
          "what is not there",
          model->vocabulary, tokenizer->vocabulary()));
    config["bos_token_id"] = tokenizer->beginning();
    config["eos_token_id"] = tokenizer->end();
  }
  SENNIT_RETURN_IF_ERROR(make_folders(folder));
  // First what may be damaged or too large: where it fails, there is nothing of this export.
  SENNIT_RETURN_IF_ERROR(write_model(checkpoint, folder, type, shard_bytes));
  if (tokenizer) {
    SENNIT_RETURN_IF_ERROR(
        write_file_durably(folder + "/" + kCheckpointTokenizer, tokenizer->model()));
    const OrderedJson words = {{"tokenizer_class", "LlamaTokenizer"},
                               {"bos_token", tokenizer->piece(tokenizer->beginning())},
                               {"eos_token", tokenizer->piece(tokenizer->end())},
                               {"unk_token", tokenizer->piece(tokenizer->unknown())},
                               {"add_bos_token", true},
                               {"add_eos_token", false},
                               {"add_prefix_space", adds_prefix_space(*tokenizer)},
                               {"legacy", false},
                               {"clean_up_tokenization_spaces", false}};
    SENNIT_RETURN_IF_ERROR(
        write_file_durably(folder + "/tokenizer_config.json", json_to_text(words, 2) + "\n"));
  }
  return write_file_durably(folder + "/config.json", json_to_text(config, 2) + "\n");
}

}  // namespace sennit::trainer
