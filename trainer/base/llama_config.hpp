// llama_config.hpp: the shape of a Llama-3-architecture model, read from and written as a Hugging
// Face config.json, so that what was trained here is what `transformers` loads.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.hpp"

namespace sennit::trainer {

// Llama 3.1's stretching of the rotary wavelengths for longer sequences (rope_scaling of type
// "llama3").
struct RopeScaling {
  double factor = 8, low_frequency_factor = 1, high_frequency_factor = 4;
  int64_t original_positions = 8192;
};

// The sizes of the whole model, whatever a rank holds of it. Those that parse_llama_config() gives
// are above 0; `hidden` is a multiple of `heads`, `heads` of `kv_heads`, head_size is even, and
// parameters() does not overflow. Two models are the same where to_json() is.
struct LlamaConfig {
  int64_t layers = 0, hidden = 0, ffn = 0, heads = 0, kv_heads = 0, head_size = 0, vocabulary = 0;
  int64_t positions = 8192;  // max_position_embeddings
  double rope_base = 500'000;
  std::optional<RopeScaling> rope_scaling;
  float norm_epsilon = 1e-5f;
  bool tied = false;  // the output layer is the embedding

  int64_t parameters() const;  // all of them, a tied table once
  // 6 a parameter and token, the embedding's look-up left out (a tied table is counted, as the
  // output layer), and causal attention: 6 * sequence * heads * head_size a layer and token (half
  // the full square).
  double flops_per_token(int64_t sequence) const;
  std::string to_json() const;
};

// Errors: which key is missing, of the wrong kind, or does not fit another (heads and kv_heads).
Result<LlamaConfig> parse_llama_config(std::string_view json, const std::string& file);

}  // namespace sennit::trainer
