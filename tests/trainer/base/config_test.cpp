// config_test.cpp: a model's shape from a Hugging Face config.json and back; what is off is
// named.
//
// ctest not-under-tsan: it has one thread
#include <gtest/gtest.h>

#include "trainer/base/llama_config.hpp"

namespace sennit::trainer {
namespace {

constexpr const char* kLlama3_8b =
    R"({"model_type": "llama", "hidden_act": "silu", "num_hidden_layers": 32,
  "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32, "num_key_value_heads": 8,
  "vocab_size": 128256, "rope_theta": 500000.0, "rms_norm_eps": 1e-05, "tie_word_embeddings": false,
  "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                   "original_max_position_embeddings": 8192}})";

TEST(TrainerConfig, Llama3CountsItsParameters) {
  const Result<LlamaConfig> config = parse_llama_config(kLlama3_8b, "config.json");
  ASSERT_TRUE(config.ok()) << config.status().text();
  EXPECT_EQ(config->parameters(), 8'030'261'248);  // the published model's
  EXPECT_EQ(config->head_size, 128);
  EXPECT_EQ(config->rope_scaling->factor, 8);
  // All but the look-up of the embedding are multiplied; attention adds 6 * 32 * 8192 * 4096.
  EXPECT_DOUBLE_EQ(config->flops_per_token(8192),
                   6.0 * (8'030'261'248 - 525'336'576) + 6'442'450'944.0);
}

// The same model's config as transformers 5 writes it, and one without scaling.
TEST(TrainerConfig, ReadsRopeParameters) {
  std::string text = kLlama3_8b;
  const auto swap = [&](const std::string& from, const std::string& to) {
    text.replace(text.find(from), from.size(), to);
  };
  swap("\"rope_theta\": 500000.0, ", "");
  swap("\"rope_scaling\": {", "\"rope_parameters\": {\"rope_theta\": 500000.0, ");
  const Result<LlamaConfig> config = parse_llama_config(text, "config.json");
  ASSERT_TRUE(config.ok()) << config.status().text();
  EXPECT_EQ(config->to_json(), parse_llama_config(kLlama3_8b, "config.json")->to_json());
  swap("\"rope_type\": \"llama3\"", "\"rope_type\": \"default\"");
  const Result<LlamaConfig> plain = parse_llama_config(text, "config.json");
  ASSERT_TRUE(plain.ok()) << plain.status().text();
  EXPECT_EQ(plain->rope_base, 500000.0);
  EXPECT_FALSE(plain->rope_scaling);
  swap("\"default\"", "\"yarn\"");
  EXPECT_EQ(parse_llama_config(text, "c.json").status().text(),
            "c.json: rope_type is \"yarn\"; only \"llama3\" is a Llama");
}

TEST(TrainerConfig, ReadsWhatItWrote) {
  const LlamaConfig config = *parse_llama_config(kLlama3_8b, "config.json");
  const Result<LlamaConfig> again = parse_llama_config(config.to_json(), "again.json");
  ASSERT_TRUE(again.ok()) << again.status().text();
  EXPECT_EQ(again->to_json(), config.to_json());
}

// A small model's config with one more key, or several.
std::string error_with(const std::string& more) {
  const std::string text = R"({"num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 128,
      "num_attention_heads": 4, "vocab_size": 512, )" +
                           more + "}";
  return parse_llama_config(text, "c.json").status().text();
}

// What asks for another model than the one that would be trained. Each of these was trained as if
// it were not there, or is of the same kind.
constexpr const char* kNotComputed[] = {
    R"("sliding_window": 4096)",
    R"("sliding_window": 0)",
    R"("use_sliding_window": true)",
    R"("attention_chunk_size": 8192)",
    R"("layer_types": ["sliding_attention", "full_attention"])",
    R"("mlp_layer_types": ["sparse", "dense"])",
    R"("num_local_experts": 8)",
    R"("num_experts": 64)",
    R"("n_routed_experts": 2)",
    R"("num_experts_per_tok": 2)",
    R"("moe_intermediate_size": 1408)",
    R"("partial_rotary_factor": 0.5)",
    R"("rotary_pct": 0.25)",
    R"("rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5})",
    R"("rope_parameters": {"full_attention": {"rope_type": "default"}})",
    R"("rope_parameters": {"rope_type": "default", "mrope_section": [2, 3, 3]})",
    R"("rope_scaling": {"rope_type": "linear", "factor": 2.0})",
    R"("rope_scaling": {"type": "dynamic", "factor": 2.0})",
    R"("rope_scaling": {"rope_type": "longrope"})",
    R"("rope_scaling": {"rope_type": null, "factor": 8.0})",
    R"("rope_scaling": {"rope_type": "default"}, "rope_parameters": {"rope_type": "llama3"})",
    R"("no_rope_layers": [1, 0])",
    R"("attention_bias": true)",
    R"("mlp_bias": true)",
    R"("qkv_bias": true)",
    R"("attention_dropout": 0.1)",
    R"("resid_pdrop": 0.1)",
    R"("hidden_act": "gelu")",
    R"("hidden_activation": "gelu_pytorch_tanh")",
    R"("attn_logit_softcapping": 50.0)",
    R"("final_logit_softcapping": 30.0)",
    R"("query_pre_attn_scalar": 256)",
    R"("use_qk_norm": true)",
    R"("qk_layernorm": true)",
    R"("embedding_multiplier": 12.0)",
    R"("residual_multiplier": 0.22)",
    R"("attention_multiplier": 0.0078125)",
    R"("logits_scaling": 8.0)",
    R"("scale_emb": 12)",
    R"("clip_qkv": 8)",
    R"("kv_lora_rank": 512)",
    R"("num_kv_shared_layers": 1)",
    R"("num_nextn_predict_layers": 1)",
    R"("per_layer_config": {"0": {"hidden_size": 32}})",
    R"("layer_norm_eps": 1e-5)",
    R"("layernorm_epsilon": 1e-5)",
    R"("use_post_attention_norm": true)",
    R"("rotary_emb_base": 10000)",
    R"("rope_pct": 0.25)",
    R"("use_dynamic_ntk": true)",
    R"("use_logn_attn": true)",
    R"("emb_scale": 8.0)",
    R"("mup_width_multiplier": 4)",
    R"("attention_scaling": 0.125)",
    R"("multi_query": true)",
    R"("kv_channels": 128)",
    R"("parallel_block": true)",
    R"("attention_window": 256)",
    R"("activation_fn": "relu")",
    R"("quantization_config": {"quant_method": "fp8"})",
    R"("model_type": "mistral")",
    R"("architectures": ["MixtralForCausalLM"])",
};

TEST(TrainerConfig, RefusesWhatItDoesNotCompute) {
  for (const char* const key : kNotComputed) EXPECT_NE(error_with(key), "") << key;
  EXPECT_EQ(error_with(R"("sliding_window": 4096)"),
            "c.json: sliding_window is 4096, which asks for attention that does not see all tokens "
            "before; "
            "only a plain Llama is trained here: leave it out or make it null");
  EXPECT_EQ(error_with(R"("partial_rotary_factor": 0.5)"),
            "c.json: partial_rotary_factor is 0.5, which asks for rotary positions of another "
            "kind; only a "
            "plain Llama is trained here: leave it out or make it 1");
}

// What published configs of plain Llamas have beside their shape.
TEST(TrainerConfig, PassesWhatAsksForNothing) {
  EXPECT_EQ(
      error_with(
          R"("architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
      "attention_bias": false, "mlp_bias": false, "attention_dropout": 0.0, "bos_token_id": 1,
      "eos_token_id": [2, 3], "pad_token_id": null, "initializer_range": 0.02, "pretraining_tp": 1,
      "use_cache": true, "torch_dtype": "bfloat16", "dtype": "bfloat16", "transformers_version": "5.0.0",
      "_name_or_path": "a/b", "_attn_implementation": "sdpa", "unsloth_fixed": true, "classifier_dropout": 0.1,
      "output_router_logits": false, "router_aux_loss_coef": 0.001, "max_window_layers": 28)"),
      "");
  EXPECT_EQ(
      error_with(R"("sliding_window": null, "use_sliding_window": false, "num_local_experts": null,
      "num_experts": 0, "num_experts_per_tok": 1, "partial_rotary_factor": 1.0, "rope_scaling": null,
      "layer_types": ["full_attention", "full_attention"], "embedding_multiplier": 1.0, "logits_scaling": 1,
      "final_logit_softcapping": null, "use_qk_norm": false, "quantization_config": null, "no_rope_layers": [],
      "is_encoder_decoder": false, "add_cross_attention": false, "something_new": 7)"),
      "");
}

// Configs that transformers 5.23 refuses to read, or a model of them to make.
TEST(TrainerConfig, RefusesWhatTransformersRefuses) {
  const auto refused = [](const char* changed, const char* words) {
    EXPECT_NE(error_with(changed).find(words), std::string::npos)
        << changed << ": " << error_with(changed);
  };
  // A later key of the same name wins.
  refused(R"("hidden_size": 66, "head_dim": 16)",
          "hidden_size (66) is no multiple of num_attention_heads (4), which transformers asks for "
          "whatever "
          "head_dim is; the nearest multiples: 64 and 68");
  refused(R"("head_dim": 7)", "head_dim is 7; rotary positions need an even one");
  refused(R"("hidden_size": 64.5)", "hidden_size is 64.5");
  refused(R"("num_key_value_heads": 3)", "no multiple of num_key_value_heads");
  refused(R"("hidden_act": "swiglu")", "hidden_act");
  refused(R"("rope_scaling": {"rope_type": "llama3", "low_freq_factor": 1, "high_freq_factor": 4})",
          "factor is missing");
  refused(R"("rope_scaling": {"rope_type": "llama3", "factor": 8, "high_freq_factor": 4})",
          "low_freq_factor is missing");
  refused(R"("rope_scaling": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 1})",
          "high_freq_factor is missing");
  refused(R"("rope_scaling": {"rope_type": "nonsense"})", "rope_type");
  refused(R"("rope_scaling": 8)", "it must be an object");
  refused(R"("rms_norm_eps": "small")", "rms_norm_eps");
  refused(R"("tie_word_embeddings": 1)", "tie_word_embeddings");
  refused(R"("max_position_embeddings": "long")", "max_position_embeddings");
}

TEST(TrainerConfig, RefusesWhatIsNestedWithoutEnd) {
  const std::string lists = std::string(500'000, '[') + std::string(500'000, ']');
  EXPECT_NE(error_with(("\"sliding_window\": " + lists).c_str()), "");
  EXPECT_NE(error_with(("\"hidden_size\": " + lists).c_str()), "");
}

TEST(TrainerConfig, SaysWhatIsOff) {
  const auto error = [](std::string text, const char* from, const char* to) {
    text.replace(text.find(from), std::string(from).size(), to);
    return parse_llama_config(text, "c.json").status().text();
  };
  EXPECT_EQ(parse_llama_config("[]", "c.json").status().text(),
            "c.json: not a JSON object of a model's config");
  EXPECT_EQ(error(kLlama3_8b, "\"hidden_size\": 4096, ", ""), "c.json: hidden_size is missing");
  EXPECT_EQ(error(kLlama3_8b, "\"hidden_size\": 4096", "\"hidden_size\": -1"),
            "c.json: hidden_size is -1; it must be a whole number above 0");
  EXPECT_EQ(error(kLlama3_8b, "\"model_type\": \"llama\"", "\"model_type\": \"gpt2\""),
            "c.json: model_type is \"gpt2\"; only \"llama\" is a Llama");
  EXPECT_EQ(error(kLlama3_8b, "key_value_heads\": 8", "key_value_heads\": 5"),
            "c.json: num_attention_heads (32) is no multiple of num_key_value_heads (5)");
}

}  // namespace
}  // namespace sennit::trainer
