// trainer_config_test.cpp: a model's shape from a Hugging Face config.json and back; what is off is named.
#include <gtest/gtest.h>

#include "llama_config.hpp"

namespace sennit::trainer {
namespace {

constexpr const char* kLlama3_8b = R"({"model_type": "llama", "hidden_act": "silu", "num_hidden_layers": 32,
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
  EXPECT_DOUBLE_EQ(config->flops_per_token(8192), 6.0 * (8'030'261'248 - 525'336'576) + 6'442'450'944.0);
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
