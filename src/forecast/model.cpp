// model.cpp: the presets, models out of JSON and YAML files, and what a token costs. See
// forecast/model.hpp.
#include "forecast/model.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include <fmt/core.h>

#include "topology/text/json_tree.hpp"
#include "topology/text/read_file.hpp"

#ifdef SENNIT_HAVE_YAML
#include <yaml-cpp/yaml.h>
#endif

namespace sennit::forecast {
namespace {

// "The Llama 3 Herd of Models" (arXiv 2407.21783), table 3.
const std::array<Model, 3>& presets() {
  static const std::array<Model, 3> kPresets = {
      {{"llama3-405b", 126, 16384, 53248, 128, 8, 128, 128256, false},
       {"llama3-70b", 80, 8192, 28672, 64, 8, 128, 128256, false},
       {"llama3-8b", 32, 4096, 14336, 32, 8, 128, 128256, false}}};
  return kPresets;
}

constexpr int kMostLayers = 10'000;

// The top level of a file: scalars by key.
using Scalars = std::vector<std::pair<std::string, std::string>>;

Result<Scalars> scalars_of_json(std::string_view text, const std::string& file) {
  const Result<JsonTree> tree = parse_json_tree(text, file);
  if (!tree) return tree.status();
  Scalars scalars;
  for (size_t i = 0; i < tree->keys.size(); i++) {
    const JsonTree& item = tree->items[i];
    if (item.kind != JsonKind::list && item.kind != JsonKind::map)
      scalars.emplace_back(tree->keys[i].first, item.kind == JsonKind::null ? "" : item.text);
  }
  return scalars;
}

Result<Scalars> scalars_of_yaml(std::string_view text, const std::string& file) {
#ifdef SENNIT_HAVE_YAML
  Scalars scalars;
  try {
    const YAML::Node document = YAML::Load(std::string(text));
    if (!document.IsMap())
      return invalid(file + ": expected a model's numbers, such as hidden_size: 4096");
    for (const auto& item : document)
      if (item.first.IsScalar() && (item.second.IsScalar() || item.second.IsNull()))
        scalars.emplace_back(item.first.Scalar(), item.second.IsNull() ? "" : item.second.Scalar());
  } catch (const YAML::Exception& error) {
    return invalid(
        fmt::format("{}:{}:{}: {}", file, error.mark.line + 1, error.mark.column + 1, error.msg));
  }
  return scalars;
#else
  (void)text;
  return Status(
      SENNIT_UNSUPPORTED,
      file + ": is no JSON, and this build has no yaml-cpp to read YAML with; write it as JSON");
#endif
}

class Reader {
 public:
  Reader(const Scalars& scalars, const std::string& file) : scalars_(scalars), file_(file) {}

  Result<Model> read() {
    for (const char* key : {"num_local_experts", "num_experts", "n_routed_experts"})
      if (const std::string* experts = find(key);
          experts && *experts != "0" && *experts != "1" && !experts->empty())
        return invalid(
            fmt::format("{}: {} {}: mixtures of experts are not modelled, only dense models", file_,
                        key, *experts));
    for (size_t i = 0; i < scalars_.size(); i++)
      for (size_t j = 0; j < i; j++)
        if (scalars_[i].first == scalars_[j].first)
          return invalid(fmt::format("{}: {} is there twice: {} and {}", file_, scalars_[i].first,
                                     scalars_[j].second, scalars_[i].second));
    Model model;
    const std::string* name = find("name");
    model.name = name && !name->empty() ? *name : file_.substr(file_.rfind('/') + 1);
    SENNIT_RETURN_IF_ERROR(number("num_hidden_layers", 0, &model.layers));
    if (model.layers > kMostLayers)
      return invalid(fmt::format("{}: num_hidden_layers: {}: expected a number from 1 to {}", file_,
                                 model.layers, kMostLayers));
    SENNIT_RETURN_IF_ERROR(number("hidden_size", 0, &model.width));
    SENNIT_RETURN_IF_ERROR(number("intermediate_size", 0, &model.ffn));
    SENNIT_RETURN_IF_ERROR(number("num_attention_heads", 0, &model.heads));
    SENNIT_RETURN_IF_ERROR(number("vocab_size", 0, &model.vocabulary));
    SENNIT_RETURN_IF_ERROR(number("num_key_value_heads", model.heads, &model.kv_heads));
    SENNIT_RETURN_IF_ERROR(
        number("head_dim", std::max(1, model.width / model.heads), &model.head_width));
    const std::string* head_dim = find("head_dim");
    if ((!head_dim || head_dim->empty()) && model.width % model.heads != 0)
      return invalid(fmt::format(
          "{}: num_attention_heads {} does not divide hidden_size {}: correct one, or say head_dim",
          file_, model.heads, model.width));
    if (model.heads % model.kv_heads != 0)
      return invalid(
          fmt::format("{}: num_key_value_heads {} does not divide num_attention_heads {}", file_,
                      model.kv_heads, model.heads));
    if (const std::string* tied = find("tie_word_embeddings")) {
      if (*tied != "true" && *tied != "false")
        return invalid(
            fmt::format("{}: tie_word_embeddings: {}: expected true or false", file_, *tied));
      model.tied = *tied == "true";
    }
    return model;
  }

 private:
  const std::string* find(std::string_view key) const {
    for (const auto& [known, value] : scalars_)
      if (known == key) return &value;
    return nullptr;
  }
  // `usual` stands in for a key that is not there; 0: it must be.
  Status number(const char* key, int usual, int* value) const {
    constexpr int kMost = 100'000'000;
    const std::string* text = find(key);
    if (!text || text->empty()) {
      if (usual == 0)
        return invalid(fmt::format(
            "{}: no {}: a model needs num_hidden_layers, hidden_size, intermediate_size, "
            "num_attention_heads and vocab_size, as in a Hugging Face config.json",
            file_, key));
      *value = usual;
      return {};
    }
    const auto [end, failed] = std::from_chars(text->data(), text->data() + text->size(), *value);
    if (failed != std::errc() || end != text->data() + text->size() || *value < 1 || *value > kMost)
      return invalid(
          fmt::format("{}: {}: {}: expected a number from 1 to {}", file_, key, *text, kMost));
    return {};
  }

  const Scalars& scalars_;
  const std::string& file_;
};

}  // namespace

double Model::layer_parameters() const {
  const double attention = 2 * query_width() * width + 2 * kv_width() * width;
  const double norms = 2.0 * width;
  return attention + 3.0 * width * ffn + norms;
}

double Model::parameters() const {
  return layers * layer_parameters() + (tied ? 1 : 2) * embedding_parameters() + width;
}

double Model::attention_flops_per_token(int sequence) const {
  return 6.0 * sequence * query_width() * layers;
}

Result<Model> parse_model(std::string_view text, const std::string& file) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  const bool json = first != text.npos && text[first] == '{';
  const Result<Scalars> scalars = json ? scalars_of_json(text, file) : scalars_of_yaml(text, file);
  if (!scalars) return scalars.status();
  return Reader(*scalars, file).read();
}

Result<Model> find_model(const std::string& name_or_file) {
  std::string known;
  for (const Model& preset : presets()) {
    if (preset.name == name_or_file) return preset;
    known += (known.empty() ? "" : ", ") + preset.name;
  }
  if (!file_exists(name_or_file))
    return invalid(
        fmt::format("there is no model '{}': it is none of {}, and no file", name_or_file, known));
  const Result<std::string> text = read_file(name_or_file);
  if (!text) return text.status();
  return parse_model(*text, name_or_file);
}

}  // namespace sennit::forecast
