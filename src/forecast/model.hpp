// model.hpp: a dense decoder (Llama's kind: grouped queries, gated feed-forward, RMS norms) as
// numbers, and what one token costs.
//
// Operations are those of matrix products alone, as MFU counts them: 6 for each parameter and token
// (2 forward, 4 backward), and for attention 6 * sequence * heads * head width for each layer and
// token: causal, half of the full square. Operations done again instead of being kept in memory do
// not count.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.hpp"

namespace sennit::forecast {

// A dense transformer by its sizes, as a Hugging Face config.json gives them.
struct Model {
  std::string name;
  int layers = 0, width = 0, ffn = 0, heads = 0, kv_heads = 0, head_width = 0, vocabulary = 0;
  bool tied = false;  // the output layer is the embedding

  double query_width() const { return static_cast<double>(heads) * head_width; }
  double kv_width() const {
    return static_cast<double>(kv_heads) * head_width;
  }  // of keys; of values as well
  double layer_parameters() const;
  double embedding_parameters() const { return static_cast<double>(vocabulary) * width; }
  double parameters() const;
  double parameter_flops_per_token() const { return 6 * parameters(); }
  double attention_flops_per_token(int sequence) const;  // causal
  double flops_per_token(int sequence) const {
    return parameter_flops_per_token() + attention_flops_per_token(sequence);
  }
};

// A preset's name, or a file: JSON or YAML with the keys of a Hugging Face config.json
// (hidden_size, num_hidden_layers, intermediate_size, num_attention_heads, vocab_size;
// num_key_value_heads, head_dim and tie_word_embeddings where they are not the usual). Errors list
// the presets, or say which key is missing.
Result<Model> find_model(const std::string& name_or_file);
Result<Model> parse_model(std::string_view text, const std::string& file);

}  // namespace sennit::forecast
