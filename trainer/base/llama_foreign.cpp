// llama_foreign.cpp: see trainer/base/llama_foreign.hpp. A table of keys, each with what it asks
// for and the values with which it asks for nothing. A key counts where a word of the table is in
// its name, for families of models name the same thing differently (num_local_experts, num_experts,
// n_routed_experts).
#include "trainer/base/llama_foreign.hpp"

#include <algorithm>
#include <string_view>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "base/text/json.hpp"

namespace sennit::trainer {
namespace {

using Json = nlohmann::json;

// Beside null and false: nothing; also 0 and what is empty; also 0, what is empty, and 1; 1; true.
enum class Neutral : uint8_t { none, zero, zero_or_one, one, yes };

struct Foreign {
  const char* word;
  Neutral neutral;
  const char* what;
};

constexpr const char* kWindow = "attention that does not see all tokens before";
constexpr const char* kExperts = "a mixture of experts";
constexpr const char* kRotary = "rotary positions of another kind";
constexpr const char* kScale = "scaled activations, attention or logits";
constexpr const char* kCapped = "capped logits or activations";
constexpr const char* kNormed = "norms that a Llama has not";
constexpr const char* kDropout = "dropout";
constexpr const char* kLatent = "attention over compressed keys and values";
constexpr const char* kShared = "layers that share or leave out parts";
constexpr const char* kBias = "a bias";
constexpr const char* kModel = "a model of more than a decoder's layers";

constexpr Foreign kForeign[] = {
    {"bias", Neutral::zero, kBias},
    {"dropout", Neutral::zero, kDropout},
    {"pdrop", Neutral::zero, kDropout},
    {"layerdrop", Neutral::zero, kDropout},
    {"drop_path", Neutral::zero, kDropout},
    {"sliding_window", Neutral::none, kWindow},
    {"window_size", Neutral::none, kWindow},
    {"attention_chunk_size", Neutral::none, kWindow},
    {"dual_chunk_attention", Neutral::zero, kWindow},
    {"bidirectional", Neutral::none, kWindow},
    {"is_causal", Neutral::yes, kWindow},
    {"global_attn", Neutral::zero, kWindow},
    {"local_attention", Neutral::zero, kWindow},
    {"attention_window", Neutral::zero, kWindow},
    {"attn_window", Neutral::zero, kWindow},
    {"linear_attention", Neutral::zero, kWindow},
    {"full_attention_interval", Neutral::one, kWindow},
    {"prefix_lm", Neutral::zero, kWindow},
    {"sparse_attention", Neutral::zero, kWindow},
    {"index_topk", Neutral::none, kWindow},
    {"expert", Neutral::zero_or_one, kExperts},
    {"moe_", Neutral::zero, kExperts},
    {"enable_moe", Neutral::zero, kExperts},
    {"partial_rotary_factor", Neutral::one, kRotary},
    {"rotary_emb_base", Neutral::none, kRotary},
    {"rotary_base", Neutral::none, kRotary},
    {"rope_base", Neutral::none, kRotary},
    {"rope_ratio", Neutral::one, kRotary},
    {"rope_fraction", Neutral::one, kRotary},
    {"rope_pct", Neutral::one, kRotary},
    {"rope_percent", Neutral::one, kRotary},
    {"rotary_ndims", Neutral::none, kRotary},
    {"local_rope_theta", Neutral::none, kRotary},
    {"rope_theta_local", Neutral::none, kRotary},
    {"dynamic_ntk", Neutral::zero, kRotary},
    {"logn_att", Neutral::zero, kScale},
    {"rotary_pct", Neutral::one, kRotary},
    {"rotary_percentage", Neutral::one, kRotary},
    {"rotary_dim", Neutral::none, kRotary},
    {"rope_interleave", Neutral::zero, kRotary},
    {"rope_local_base_freq", Neutral::none, kRotary},
    {"mrope", Neutral::zero, kRotary},
    {"no_rope_layer", Neutral::zero, kRotary},
    {"nope_layer_interval", Neutral::zero, kRotary},
    {"use_rope", Neutral::yes, kRotary},
    {"alibi", Neutral::zero, kRotary},
    {"learned_pos", Neutral::zero, kRotary},
    {"relative_attention", Neutral::zero, kRotary},
    {"qk_norm", Neutral::zero, kNormed},
    {"layer_norm", Neutral::zero, kNormed},
    {"layernorm", Neutral::zero, kNormed},
    {"attn_norm", Neutral::zero, kNormed},
    {"attention_norm", Neutral::zero, kNormed},
    {"embedding_norm", Neutral::zero, kNormed},
    {"norm_offset", Neutral::zero, kNormed},
    {"qk_l2_norm", Neutral::zero, kNormed},
    {"post_norm", Neutral::zero, kNormed},
    {"sandwich_norm", Neutral::zero, kNormed},
    {"softcap", Neutral::zero, kCapped},
    {"logit_cap", Neutral::zero, kCapped},
    {"clip_qkv", Neutral::zero, kCapped},
    {"swiglu_limit", Neutral::none, kCapped},
    {"swiglu_alpha", Neutral::none, kCapped},
    {"mup_", Neutral::zero_or_one, kScale},
    {"emb_scale", Neutral::one, kScale},
    {"embed_scale", Neutral::one, kScale},
    {"scale_embed", Neutral::zero, kScale},
    {"residual_scale", Neutral::one, kScale},
    {"softmax_scale", Neutral::none, kScale},
    {"attention_scal", Neutral::none, kScale},
    {"lm_head_scale", Neutral::one, kScale},
    {"multiplier_scale", Neutral::one, kScale},
    {"logit_multiplier", Neutral::one, kScale},
    {"embedding_multiplier", Neutral::one, kScale},
    {"residual_multiplier", Neutral::one, kScale},
    {"lm_head_multiplier", Neutral::one, kScale},
    {"key_multiplier", Neutral::one, kScale},
    {"mlp_multipliers", Neutral::none, kScale},
    {"attention_multiplier", Neutral::none, kScale},
    {"logits_scaling", Neutral::one, kScale},
    {"logit_scale", Neutral::one, kScale},
    {"embedding_scale", Neutral::one, kScale},
    {"scale_emb", Neutral::one, kScale},
    {"scale_depth", Neutral::none, kScale},
    {"dim_model_base", Neutral::none, kScale},
    {"query_pre_attn_scalar", Neutral::none, kScale},
    {"attn_scale", Neutral::none, kScale},
    {"attn_temperature_tuning", Neutral::zero, kScale},
    {"llama_4_scaling", Neutral::zero, kScale},
    {"normalize_embedding", Neutral::zero, kScale},
    {"lora_rank", Neutral::zero, kLatent},
    {"qk_rope_head_dim", Neutral::none, kLatent},
    {"qk_nope_head_dim", Neutral::none, kLatent},
    {"v_head_dim", Neutral::none, kLatent},
    {"attention_gate", Neutral::zero, kScale},
    {"attn_output_gate", Neutral::zero, kScale},
    {"attention_output_gate", Neutral::zero, kScale},
    {"attention_sink", Neutral::zero, kScale},
    {"multi_query", Neutral::zero, kShared},
    {"kv_channels", Neutral::none, kShared},
    {"use_cla", Neutral::zero, kShared},
    {"parallel_attn", Neutral::zero, kShared},
    {"parallel_block", Neutral::zero, kShared},
    {"parallel_residual", Neutral::zero, kShared},
    {"kv_shared_layers", Neutral::zero, kShared},
    {"cross_layer", Neutral::zero, kShared},
    {"block_configs", Neutral::zero, kShared},
    {"per_layer", Neutral::zero, kShared},
    {"mamba", Neutral::zero, kModel},
    {"nextn_predict", Neutral::zero, kModel},
    {"mtp_layers", Neutral::zero, kModel},
    {"cross_attention", Neutral::zero, kModel},
    {"is_encoder_decoder", Neutral::zero, kModel},
    {"vision_config", Neutral::zero, kModel},
    {"audio_config", Neutral::zero, kModel},
    {"text_config", Neutral::zero, kModel},
    {"quantization_config", Neutral::zero, "weights of fewer bits"},
};

// Of each layer, where they may differ.
bool one_kind_of_layers(const Json& value) {
  return value.is_null() ||
         (value.is_array() && std::all_of(value.begin(), value.end(), [](const Json& kind) {
            return kind == "full_attention" || kind == "attention" || kind == "dense";
          }));
}

bool empty(const Json& value) {
  return ((value.is_array() || value.is_object()) && value.empty()) ||
         (value.is_number() && value == 0);
}

bool asks_for_nothing(const Json& value, Neutral neutral) {
  if (value.is_null()) return true;
  if (neutral == Neutral::yes) return value == true;
  if (value == false) return true;
  const bool one = value.is_number() && value == 1;
  switch (neutral) {
    case Neutral::none:
    case Neutral::yes:
      return false;
    case Neutral::zero:
      return empty(value);
    case Neutral::zero_or_one:
      return empty(value) || one;
    case Neutral::one:
      return one;
  }
  return false;
}

const Foreign* foreign_of(std::string_view key) {
  // Of another head than the one that is trained; transformers' own notes.
  if (key.find("classifier") != key.npos || key.find("summary") != key.npos || key.starts_with('_'))
    return nullptr;
  const auto* const found =
      std::find_if(std::begin(kForeign), std::end(kForeign),
                   [&](const Foreign& foreign) { return key.find(foreign.word) != key.npos; });
  return found == std::end(kForeign) ? nullptr : found;
}

}  // namespace

std::string foreign_key(const Json& config) {
  for (const auto& [key, value] : config.items()) {
    if ((key == "layer_types" || key == "mlp_layer_types") && !one_kind_of_layers(value))
      return fmt::format(
          "{} is {}; all layers of a Llama are of full attention and dense: leave it out", key,
          json_to_text(value));
    const Foreign* const foreign = foreign_of(key);
    if (!foreign || asks_for_nothing(value, foreign->neutral)) continue;
    return fmt::format(
        "{} is {}, which asks for {}; only a plain Llama is trained here: leave it out or make it "
        "{}",
        key, json_to_text(value), foreign->what,
        foreign->neutral == Neutral::one   ? "1"
        : foreign->neutral == Neutral::yes ? "true"
                                           : "null");
  }
  return {};
}

}  // namespace sennit::trainer
