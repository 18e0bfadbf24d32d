// model_test.cpp: the model against transformers' Llama on fixtures
// (tests/data/trainer/make_llama_fixture.py): logits, loss, every gradient, ten steps of AdamW;
// that one batch is learnt by heart; that text from a source of known entropy is learnt as far as
// that and no further; that a number that is not finite is traced.
//
// ctest not-under-tsan: others try its threads as well
#include <cmath>
#include <fstream>
#include <sstream>

#include <nlohmann/json.hpp>

#include "tests/trainer/ranks.hpp"

namespace sennit::trainer {
namespace {

struct Stored {
  std::vector<int64_t> shape;
  std::string bytes;
  template <typename T>
  std::vector<T> as() const {
    std::vector<T> values(bytes.size() / sizeof(T));
    std::copy_n(bytes.data(), bytes.size(), reinterpret_cast<char*>(values.data()));
    return values;
  }
};

std::string read_whole(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  EXPECT_TRUE(in.good()) << file;
  return text.str();
}

std::map<std::string, Stored> read_safetensors(const std::string& file) {
  const std::string text = read_whole(file);
  uint64_t header_bytes = 0;
  std::copy_n(text.data(), 8, reinterpret_cast<char*>(&header_bytes));
  const auto header = nlohmann::json::parse(text.substr(8, header_bytes));
  std::map<std::string, Stored> tensors;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    const auto begin = entry["data_offsets"][0].get<size_t>(),
               end = entry["data_offsets"][1].get<size_t>();
    tensors[name] = {entry["shape"].get<std::vector<int64_t>>(),
                     text.substr(8 + header_bytes + begin, end - begin)};
  }
  return tensors;
}

double apart(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  double largest = 1e-30, most = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); i++) {
    largest = std::max(largest, std::abs(static_cast<double>(a[i])));
    const double d = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    if (!(d <= most)) most = d;
  }
  return most / largest;
}

class Fixture : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    folder_ = std::string(SENNIT_SOURCE_DIR "/tests/data/trainer/") + GetParam();
    const Result<LlamaConfig> model =
        parse_llama_config(read_whole(folder_ + "/config.json"), "config.json");
    ASSERT_TRUE(model.ok()) << model.status().text();
    options_.model = *model;
    options_.batch = {.sequences = 2, .micro = 1, .length = 16};
    for (const auto& [name, stored] : read_safetensors(folder_ + "/weights.safetensors"))
      weights_[name] = stored.as<float>();
    tokens_ = read_safetensors(folder_ + "/batches.safetensors").at("tokens").as<int32_t>();
  }
  void start(Trainer& trainer) const {
    take_apart(weights_, trainer.parameters().pieces_to_load(State::master));
    trainer.parameters().publish();
  }
  std::span<const int32_t> batch(size_t number) const {
    return std::span(tokens_).subspan(number * 2 * 17, 2 * 17);
  }
  std::string folder_;
  TrainerOptions options_;
  Tensors weights_;
  std::vector<int32_t> tokens_;
};

TEST_P(Fixture, GivesTransformersLossLogitsAndGradients) {
  const std::map<std::string, Stored> expected =
      read_safetensors(folder_ + "/expected.safetensors");
  run_ranks(options_, [&](Trainer& trainer) {
    start(trainer);
    const Result<StepResult> result = trainer.gradients(batch(0));
    ASSERT_TRUE(result.ok()) << result.status().text();
    const double loss = static_cast<double>(expected.at("loss").as<float>()[0]);
    EXPECT_NEAR(result->loss, loss, 2e-6 * loss);
    Tensors gradients;
    put_together(trainer.parameters().pieces(State::gradient), &gradients);
    EXPECT_EQ(gradients.size(), weights_.size());
    for (const auto& [name, gradient] : gradients)
      EXPECT_LT(apart(expected.at("gradient." + name).as<float>(), gradient), 1e-5) << name;
    const std::vector<float> logits = expected.at("logits").as<float>();
    const auto vocabulary = static_cast<size_t>(options_.model.vocabulary);
    for (size_t sequence = 0; sequence < 2; sequence++)
      for (size_t i = 0; i < 16; i++) {
        const Result<std::vector<float>> next =
            trainer.next_logits(batch(0).subspan(sequence * 17, i + 1));
        ASSERT_TRUE(next.ok()) << next.status().text();
        const auto* const wanted = logits.data() + (sequence * 16 + i) * vocabulary;
        EXPECT_LT(apart({wanted, wanted + vocabulary}, *next), 1e-5) << sequence << ", " << i;
      }
  });
}

TEST_P(Fixture, TakesTransformersSteps) {
  for (const char* const kind : {"free", "clipped"}) {
    const std::map<std::string, Stored> expected =
        read_safetensors(folder_ + "/" + kind + ".safetensors");
    const std::vector<float> losses = expected.at("losses").as<float>(),
                             norms = expected.at("norms").as<float>();
    run_ranks(options_, [&](Trainer& trainer) {
      start(trainer);
      Update update;
      update.adamw.learning_rate = 0.01f;
      update.adamw.weight_decay = 0.1f;
      update.clip = std::string(kind) == "clipped" ? 0.5f : 0;
      for (size_t step = 0; step < 10; step++) {
        update.adamw.step = static_cast<int64_t>(step) + 1;
        const Result<StepResult> result = trainer.step(batch(step), update);
        ASSERT_TRUE(result.ok()) << result.status().text();
        EXPECT_NEAR(result->loss, losses[step], 1e-4) << kind << " step " << step;
        EXPECT_NEAR(result->gradient_norm, norms[step], 1e-3 * norms[step])
            << kind << " step " << step;
      }
      Tensors after;
      put_together(trainer.parameters().pieces(State::master), &after);
      for (const auto& [name, weight] : after)
        EXPECT_LT(apart(expected.at(name).as<float>(), weight), 2e-3) << kind << " " << name;
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Fixture, testing::Values("grouped", "scaled"),
                         [](const auto& tested) { return std::string(tested.param); });

TrainerOptions small(Type type) {
  TrainerOptions options;
  LlamaConfig& model = options.model;
  model.layers = 2;
  model.hidden = 64;
  model.ffn = 128;
  model.heads = 4;
  model.kv_heads = 2;
  model.head_size = 16;
  model.vocabulary = 64;
  options.type = type;
  options.batch = {.sequences = 8, .micro = 4, .length = 32};
  return options;
}

TEST(TrainerModel, LearnsOneBatchByHeart) {
  for (const Type type : {Type::f32, Type::bf16}) {
    const TrainerOptions options = small(type);
    const std::vector<int32_t> batch = random_batch(options, 11);
    run_ranks(options, [&](Trainer& trainer) {
      Update update;
      update.adamw.learning_rate = 5e-3f;
      update.clip = 1;
      double loss = 0;
      for (int64_t step = 1; step <= 150 && (step == 1 || loss > 0.02); step++) {
        update.adamw.step = step;
        const Result<StepResult> result = trainer.step(batch, update);
        ASSERT_TRUE(result.ok()) << result.status().text();
        loss = result->loss;
      }
      EXPECT_LT(loss, 0.02) << (type == Type::f32 ? "f32" : "bf16");
    });
  }
}

// Each token depends on the one before: with probability 0.7 it is a fixed successor, else any
// token. Its entropy rate is the least loss there is.
TEST(TrainerModel, LearnsASourceToItsEntropyAndNoFurther) {
  TrainerOptions options = small(Type::f32);
  const int64_t vocabulary = options.model.vocabulary = 32;
  const double likely = 0.7 + 0.3 / 32, other = 0.3 / 32;
  const double entropy = -likely * std::log(likely) - 31 * other * std::log(other);
  std::mt19937_64 random(5);
  const auto draw = [&] {
    std::vector<int32_t> batch;
    for (int64_t s = 0; s < options.batch.sequences; s++) {
      int64_t token = static_cast<int64_t>(random() % 32);
      for (int64_t i = 0; i <= options.batch.length; i++) {
        batch.push_back(static_cast<int32_t>(token));
        token = random() % 1000 < 700 ? (token * 5 + 3) % vocabulary
                                      : static_cast<int64_t>(random() % 32);
      }
    }
    return batch;
  };
  run_ranks(options, [&](Trainer& trainer) {
    Update update;
    update.clip = 1;
    for (int64_t step = 1; step <= 200; step++) {
      update.adamw.step = step;
      update.adamw.learning_rate = 4e-3f * static_cast<float>(201 - step) / 200;
      const Result<StepResult> result = trainer.step(draw(), update);
      ASSERT_TRUE(result.ok()) << result.status().text();
    }
    Evaluation sum;
    for (int i = 0; i < 40; i++) {
      const Result<Evaluation> one = trainer.evaluate(draw(), options.batch.sequences);
      ASSERT_TRUE(one.ok()) << one.status().text();
      sum.loss += one->loss;
      sum.targets += one->targets;
    }
    // 10,240 tokens: the mean of -log p is within 0.04 of the entropy with probability 0.99.
    EXPECT_GT(sum.loss / sum.targets, entropy - 0.04);
    EXPECT_LT(sum.loss / sum.targets, entropy + 0.08);
  });
}

TEST(TrainerModel, NamesTheFirstTensorThatIsNotFinite) {
  TrainerOptions options = small(Type::f32);
  options.mesh.pipeline = 2;
  run_ranks(options, [&](Trainer& trainer) {
    for (const TensorPiece& piece : trainer.parameters().pieces_to_load(State::master))
      if (piece.name == "model.layers.1.mlp.up_proj.weight")
        *static_cast<float*>(piece.data) = INFINITY;
    trainer.parameters().publish();
    const Result<StepResult> result = trainer.gradients(random_batch(options, 3));
    ASSERT_FALSE(result.ok());
    const std::string& text = result.status().text();
    EXPECT_NE(text.find("step 1: the loss is"), text.npos) << text;
    EXPECT_NE(text.find("the weight model.layers.1.mlp.up_proj.weight"), text.npos) << text;
  });
}

}  // namespace
}  // namespace sennit::trainer
