// llama_config.cpp: see trainer/base/llama_config.hpp. Keys that a trainer does not need (token
// ids of a tokenizer, how first weights are drawn) are ignored; what would make its numbers mean
// something else is refused, and so is what `transformers` would refuse to load.
#include "trainer/base/llama_config.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "base/text/json.hpp"
#include "trainer/base/llama_foreign.hpp"

namespace sennit::trainer {
namespace {

using Json = nlohmann::json;

// So that no product of two of them overflows; no product of all does below kMostParameters.
constexpr int64_t kMostHeads = 1 << 16, kMostWidth = 1 << 26;
constexpr double kMostParameters = 1e15;

class ConfigReader {
 public:
  ConfigReader(const Json& json, const std::string& file) : json_(json), file_(file) {}

  void size(const char* key, int64_t* value, bool required, int64_t most) {
    const Json* found = find(key, required);
    if (!found) return;
    const bool above = found->is_number_unsigned() && found->get<uint64_t>() > 0;
    if (!above)
      return fail(
          fmt::format("{} is {}; it must be a whole number above 0", key, json_to_text(*found)));
    if (found->get<uint64_t>() > static_cast<uint64_t>(most))
      return fail(fmt::format("{} is {}; it must be {} or less", key, json_to_text(*found), most));
    *value = found->get<int64_t>();
  }
  template <typename Number>
  void number(const char* key, Number* value, bool required = false) {
    const Json* found = find(key, required);
    if (!found) return;
    if (!found->is_number() || !(found->get<Number>() > 0) || !std::isfinite(found->get<Number>()))
      return fail(fmt::format("{} is {}; it must be a number above 0", key, json_to_text(*found)));
    *value = found->get<Number>();
  }
  void flag(const char* key, bool* value) {
    const Json* found = find(key, false);
    if (!found) return;
    if (!found->is_boolean())
      return fail(fmt::format("{} is {}; it must be true or false", key, json_to_text(*found)));
    *value = found->get<bool>();
  }
  void must_be(const char* key, const Json& value) {
    const Json* found = find(key, false);
    if (found && *found != value)
      fail(fmt::format("{} is {}; only {} is a Llama", key, json_to_text(*found),
                       json_to_text(value)));
  }
  void is_silu(const char* key) {
    const Json* found = find(key, false);
    if (found && *found != "silu" && *found != "swish")
      fail(fmt::format("{} is {}; only \"silu\" is a Llama", key, json_to_text(*found)));
  }
  void is_llama(const char* key) {
    const Json* found = find(key, false);
    constexpr const char* kHeads[] = {"LlamaForCausalLM", "LlamaModel",
                                      "LlamaForSequenceClassification",
                                      "LlamaForTokenClassification", "LlamaForQuestionAnswering"};
    for (const Json& one : found && found->is_array() ? *found : Json::array())
      if (std::find(std::begin(kHeads), std::end(kHeads), one) == std::end(kHeads))
        fail(
            fmt::format("{} has {}; only \"LlamaForCausalLM\" is a Llama", key, json_to_text(one)));
  }
  void plain(const Json& object) {
    if (const std::string foreign = foreign_key(object); !foreign.empty()) fail(foreign);
  }
  void fail(const std::string& text) {
    if (status_.ok()) status_ = invalid(fmt::format("{}: {}", file_, text));
  }
  void fail(const Status& status) {  // of another reader of the same file
    if (status_.ok()) status_ = status;
  }
  const Status& status() const { return status_; }

 private:
  const Json* find(const char* key, bool required) {
    const auto found = json_.find(key);
    if (found != json_.end() && !found->is_null()) return &*found;
    if (required) fail(fmt::format("{} is missing", key));
    return nullptr;
  }
  const Json& json_;
  const std::string& file_;
  Status status_;
};

std::string multiples_beside(int64_t number, int64_t of) {
  const int64_t below = number / of * of;
  return below > 0 ? fmt::format("{} and {}", below, below + of) : fmt::format("{}", below + of);
}

// Of an object of rotary parameters. Errors go to `reader`.
void read_scaling(const Json& rope, const Json* original_positions, ConfigReader& reader,
                  LlamaConfig* config) {
  reader.plain(rope);
  for (const auto& [key, value] : rope.items())
    if (value.is_object()) reader.fail(fmt::format("{} has rotary parameters of its own", key));
  reader.number("rope_theta", &config->rope_base);
  const char* const type = rope.contains("rope_type") ? "rope_type" : "type";
  if (!rope.contains(type) || rope[type] == "default") return;
  if (rope[type] != "llama3")
    return reader.fail(
        fmt::format("{} is {}; only \"llama3\" is a Llama", type, json_to_text(rope[type])));
  RopeScaling stretched;
  reader.number("factor", &stretched.factor, true);
  reader.number("low_freq_factor", &stretched.low_frequency_factor, true);
  reader.number("high_freq_factor", &stretched.high_frequency_factor, true);
  reader.size("original_max_position_embeddings", &stretched.original_positions,
              !original_positions, INT32_MAX);
  if (!(stretched.low_frequency_factor < stretched.high_frequency_factor))
    reader.fail(fmt::format("low_freq_factor ({}) must be below high_freq_factor ({})",
                            stretched.low_frequency_factor, stretched.high_frequency_factor));
  config->rope_scaling = stretched;
}

// transformers 5 has all of it in "rope_parameters", the base too.
void read_rope(const Json& json, const std::string& file, ConfigReader& reader,
               LlamaConfig* config) {
  const auto of = [&](const char* key) {
    const auto found = json.find(key);
    return found == json.end() || found->is_null() ? nullptr : &*found;
  };
  const Json *scaling = of("rope_scaling"), *parameters = of("rope_parameters");
  const Json* original_positions = of("original_max_position_embeddings");
  if (scaling && parameters && *scaling != *parameters)
    reader.fail("rope_scaling and rope_parameters say different things; leave one of them out");
  if (scaling && scaling->is_object() && !scaling->contains("rope_type") &&
      !scaling->contains("type"))
    reader.fail("rope_scaling names no rope_type; \"llama3\" and \"default\" are known");
  for (const auto& [key, rope] :
       {std::pair("rope_scaling", scaling), {"rope_parameters", parameters}}) {
    if (!rope) continue;
    if (!rope->is_object())
      return reader.fail(fmt::format("{} is {}; it must be an object", key, json_to_text(*rope)));
    ConfigReader inner(*rope, file);
    read_scaling(*rope, original_positions, inner, config);
    if (!inner.status().ok()) return reader.fail(inner.status());
  }
  // Where it stands outside it goes before.
  if (config->rope_scaling)
    reader.size("original_max_position_embeddings", &config->rope_scaling->original_positions,
                false, INT32_MAX);
}

}  // namespace

int64_t LlamaConfig::parameters() const {
  const int64_t layer =
      hidden * head_size * (2 * heads + 2 * kv_heads) + 3 * hidden * ffn + 2 * hidden;
  return layers * layer + hidden + vocabulary * hidden * (tied ? 1 : 2);
}

double LlamaConfig::flops_per_token(int64_t sequence) const {
  const double multiplied = static_cast<double>(parameters() - (tied ? 0 : vocabulary * hidden));
  return 6 * multiplied + 6.0 * static_cast<double>(layers * sequence * heads * head_size);
}

std::string LlamaConfig::to_json() const {
  nlohmann::ordered_json json = {{"architectures", {"LlamaForCausalLM"}},
                                 {"model_type", "llama"},
                                 {"hidden_act", "silu"},
                                 {"num_hidden_layers", layers},
                                 {"hidden_size", hidden},
                                 {"intermediate_size", ffn},
                                 {"num_attention_heads", heads},
                                 {"num_key_value_heads", kv_heads},
                                 {"head_dim", head_size},
                                 {"vocab_size", vocabulary},
                                 {"max_position_embeddings", positions},
                                 {"rope_theta", rope_base},
                                 {"rms_norm_eps", norm_epsilon},
                                 {"attention_bias", false},
                                 {"mlp_bias", false},
                                 {"tie_word_embeddings", tied}};
  if (rope_scaling)
    json["rope_scaling"] = {{"rope_type", "llama3"},
                            {"factor", rope_scaling->factor},
                            {"low_freq_factor", rope_scaling->low_frequency_factor},
                            {"high_freq_factor", rope_scaling->high_frequency_factor},
                            {"original_max_position_embeddings", rope_scaling->original_positions}};
  return json_to_text(json, 2);
}

Result<LlamaConfig> parse_llama_config(std::string_view text, const std::string& file) {
  const Json json = parse_json(text);
  if (!json.is_object())
    return invalid(fmt::format("{}: not a JSON object of a model's config", file));
  LlamaConfig config;
  ConfigReader reader(json, file);
  reader.must_be("model_type", "llama");
  reader.is_llama("architectures");
  for (const char* const key : {"hidden_act", "hidden_activation", "activation_function",
                                "activation_fn", "activation", "mlp_hidden_act"})
    reader.is_silu(key);
  reader.must_be("attention_bias", false);
  reader.must_be("mlp_bias", false);
  reader.plain(json);
  reader.size("num_hidden_layers", &config.layers, true, kMostHeads);
  reader.size("hidden_size", &config.hidden, true, kMostWidth);
  reader.size("intermediate_size", &config.ffn, true, kMostWidth);
  reader.size("num_attention_heads", &config.heads, true, kMostHeads);
  config.kv_heads = config.heads;
  reader.size("num_key_value_heads", &config.kv_heads, false, kMostHeads);
  reader.size("vocab_size", &config.vocabulary, true, INT32_MAX);
  reader.size("max_position_embeddings", &config.positions, false, INT32_MAX);
  reader.number("rope_theta", &config.rope_base);
  reader.number("rms_norm_eps", &config.norm_epsilon);
  reader.flag("tie_word_embeddings", &config.tied);
  if (reader.status().ok()) {
    if (config.hidden % config.heads == 0) config.head_size = config.hidden / config.heads;
    reader.size("head_dim", &config.head_size, false, kMostHeads);
    if (config.head_size == 0)
      reader.fail(fmt::format(
          "hidden_size ({}) is no multiple of num_attention_heads ({}), and head_dim is "
          "missing",
          config.hidden, config.heads));
    else if (config.hidden % config.heads != 0)
      reader.fail(fmt::format(
          "hidden_size ({}) is no multiple of num_attention_heads ({}), which transformers asks "
          "for whatever head_dim is; the nearest multiples: {}",
          config.hidden, config.heads, multiples_beside(config.hidden, config.heads)));
    if (config.heads % config.kv_heads != 0)
      reader.fail(fmt::format("num_attention_heads ({}) is no multiple of num_key_value_heads ({})",
                              config.heads, config.kv_heads));
    if (config.head_size % 2 != 0)
      reader.fail(
          fmt::format("head_dim is {}; rotary positions need an even one", config.head_size));
  }
  if (reader.status().ok()) read_rope(json, file, reader, &config);
  if (!reader.status().ok()) return reader.status();
  // As parameters(), which could overflow.
  const auto hidden = static_cast<double>(config.hidden);
  const double layer =
      static_cast<double>(2 * (config.heads + config.kv_heads) * config.head_size + 3 * config.ffn);
  const double parameters = hidden * (static_cast<double>(config.layers) * layer +
                                      static_cast<double>(config.vocabulary));
  if (parameters > kMostParameters)
    return invalid(fmt::format("{}: a model of {:.2g} parameters; {:.0g} are the most", file,
                               parameters, kMostParameters));
  return config;
}

}  // namespace sennit::trainer
