// limits_test.cpp: settings, models and texts at the edge of what can be: absurd numbers
// are refused and never wrapped around, and what is refused is said with its place and what would
// do.
//
// ctest not-under-tsan: others try its threads as well
#include <gtest/gtest.h>
#include <zlib.h>

#include <filesystem>
#include <fstream>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "tests/support/test_folder.hpp"
#include "trainer/base/files.hpp"
#include "trainer/data/corpus.hpp"
#include "trainer/data/man_text.hpp"
#include "trainer/data/tokenize.hpp"
#include "trainer/data/tokenizer.hpp"
#include "trainer/parallel/pipeline_schedule.hpp"
#include "trainer/run/config.hpp"
#include "trainer/run/memory.hpp"
#include "trainer/run/report/log.hpp"

namespace sennit::trainer {
namespace {

std::string error_of(const std::string& text, const std::string& file = "c.json") {
  TrainConfig config;
  const Status status = parse_train_config(text, file, &config);
  return status.ok() ? check_train_config(config).text() : status.text();
}
std::string error_with(const std::string& settings) {
  return error_of(R"({"model": {}, "data": "d", )" + settings + "}");
}

TEST(TrainerLimits, AFileThatIsOffIsShownWhere) {
  EXPECT_EQ(error_of("{\"steps\": 3,\n \"tp\": }").substr(0, 24), "c.json: line 2, column 8");
  EXPECT_EQ(error_of("").substr(0, 24), "c.json: line 1, column 1");
  EXPECT_NE(error_of(R"({"learning_rate": 1e999})").find("1e999"), std::string::npos);
  EXPECT_EQ(error_of(R"({"steps": 3, "tp": 1, "steps": 4})"),
            "c.json: \"steps\" stands twice in one object");
  EXPECT_EQ(error_of(R"({"model": {"hidden_size": 3, "hidden_size": 4}})"),
            "c.json: \"hidden_size\" stands twice in one object");
  EXPECT_EQ(error_of(R"({"model": {"a": {"b": 1}, "c": {"b": 1}}, "data": "d"})"), "");
  const TestFolder folder;
  std::ofstream(folder / "model.json") << "{\"hidden_size\": 8,,}";
  const std::string in_model = error_of(R"({"model": "model.json"})", folder / "c.json");
  EXPECT_NE(in_model.find("model.json: line 1, column 19"), std::string::npos) << in_model;
  TrainConfig config;
  EXPECT_EQ(read_train_config(folder.path(), &config).text(), folder.path() + ": is a folder");
  EXPECT_EQ(read_train_config(folder / "none", &config).text(),
            folder / "none" + ": cannot be read: No such file or directory");
}

TEST(TrainerLimits, NothingIsReadThatIsNestedWithoutEnd) {
  constexpr size_t kDeep = 1'000'000;
  const std::string lists = std::string(kDeep, '[') + std::string(kDeep, ']');
  EXPECT_NE(error_of("{\"model\": " + lists + "}").find("nested more than 64 deep"),
            std::string::npos);
  EXPECT_FALSE(
      StepRecord::from_json("{\"step\": 1, \"loss\": 1, \"x\": " + lists + "}").has_value());
  const TestFolder folder;
  std::ofstream(folder / "manifest.json") << "{\"checksum\": \"xxh3:0\", \"x\": " + lists + "}";
  const Result<nlohmann::json> sealed = read_sealed(folder / "manifest.json");
  ASSERT_FALSE(sealed.ok());
  EXPECT_NE(sealed.status().text().find("manifest.json: is no JSON object"), std::string::npos);
}

TEST(TrainerLimits, AValueIsToldAsItWasGiven) {
  EXPECT_EQ(error_with(R"("seed": 9223372036854775808)"),
            "c.json: seed is 9223372036854775808; it must be below 2^63");
  for (const char* const key : {"steps", "log_every", "sequence", "batch", "micro_batch", "tp",
                                "pp", "cp", "stage_chunks"}) {
    EXPECT_NE(error_with(fmt::format("\"{}\": -1", key)).find("-1: it must be 1 or more"),
              std::string::npos);
    EXPECT_NE(error_with(fmt::format("\"{}\": 0", key)).find(" 0: it must be 1 or more"),
              std::string::npos);
  }
  const auto given = [](const char* option, const char* text) {
    TrainConfig config;
    for (const Setting& setting : train_settings())
      if (setting.option() == option) return set_from_text(setting, text, &config).text();
    return std::string("no such option");
  };
  EXPECT_EQ(given("--steps", "many"), "--steps: steps is \"many\"; it must be a whole number");
  EXPECT_EQ(given("--recompute", "yes"),
            "--recompute: recompute is \"yes\"; it must be true or false");
  EXPECT_EQ(given("--clip", "nan"), "--clip: clip is \"nan\"; it must be a number");
}

// A wish that another setting makes empty would cost the work that it was to save.
TEST(TrainerLimits, WishesThatComeToNothingAreRefused) {
  EXPECT_EQ(error_with(R"("save_every": 5)"),
            "--save-every 5: there is no --checkpoint-dir to save into");
  EXPECT_EQ(error_with(R"("save_every": 5, "checkpoint_dir": "c")"), "");
  EXPECT_NE(error_with(R"("patience": 2)").find("--evaluate-every 0 measures none"),
            std::string::npos);
  EXPECT_EQ(error_with(R"("patience": 2, "evaluate_every": 1)"), "");
  EXPECT_EQ(error_with(R"("resume": "")"), "--resume: expected yes, no or a checkpoint's folder");
}

// 0 divided by 0 makes weights that are no numbers, and the last step's loss does not show it.
TEST(TrainerLimits, WhatTheOptimiserRoundsTo0Or1IsRefused) {
  EXPECT_EQ(error_with(R"("epsilon": 0)"), "--epsilon 0: it must be above 0, also rounded to f32");
  EXPECT_EQ(error_with(R"("epsilon": 1e-60)"),
            "--epsilon 1e-60: it must be above 0, also rounded to f32");
  EXPECT_EQ(error_with(R"("epsilon": 1e-30)"), "");
  for (const char* const betas : {R"("beta1": 1, "beta2": 0.9)", R"("beta1": 0.9, "beta2": 1)",
                                  R"("beta1": 0.9999999999)", R"("beta2": 0.9999999999)"}) {
    const std::string error = error_with(betas);
    EXPECT_NE(error.find(": both must be below 1, also rounded to f32"), std::string::npos)
        << betas << ": " << error;
  }
  EXPECT_EQ(error_with(R"("beta1": 0, "beta2": 0.9999999)"), "");
  EXPECT_EQ(error_with(R"("clip": 1e-60)"),
            "--clip 1e-60: rounded to f32 it is 0, which is no limit");
  EXPECT_EQ(error_with(R"("clip": 1e-30)"), "");
  EXPECT_EQ(error_with(R"("clip": 0)"), "");
}

TEST(TrainerLimits, WhatIsBeyondTheOptimisersNumbersIsRefused) {
  for (const char* const key : {"learning_rate", "least_learning_rate", "weight_decay", "epsilon"})
    for (const char* const value : {"1e39", "1e308"}) {
      const std::string error = error_with(fmt::format("\"{}\": {}", key, value));
      EXPECT_NE(error.find(": it must be 3.4e+38 or less, as f32 has it"), std::string::npos)
          << key << " " << value << ": " << error;
    }
  EXPECT_EQ(error_with(R"("learning_rate": 3e38)"), "");
}

std::string model_error(const std::string& changed) {
  std::string text = R"({"num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 128,
      "num_attention_heads": 4, "vocab_size": 512)";
  const size_t key_end = changed.find(':');
  const size_t old = text.find(changed.substr(0, key_end));
  if (old != text.npos) text.erase(old, std::min(text.find(',', old), text.size()) - old);
  if (old != text.npos && text.find(',', old) == old) text.erase(old, 1);
  while (text.back() == ',' || text.back() == ' ') text.pop_back();
  return parse_llama_config(text + ", " + changed + "}", "m").status().text();
}

TEST(TrainerLimits, ModelsThatNoMachineHoldsAreRefused) {
  EXPECT_EQ(model_error("\"rope_theta\": 10000.0"), "");
  for (const char* const key :
       {"num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads",
        "num_key_value_heads", "vocab_size", "head_dim", "max_position_embeddings"})
    for (const char* const number : {"4611686018427387904", "9223372036854775808"}) {
      const std::string error = model_error(fmt::format("\"{}\": {}", key, number));
      EXPECT_NE(error.find(fmt::format("{} is {}; it must be ", key, number)), std::string::npos)
          << error;
      EXPECT_NE(error.find(" or less"), std::string::npos) << error;
    }
  EXPECT_EQ(parse_llama_config(
                R"({"num_hidden_layers": 65536, "hidden_size": 65536, "intermediate_size": 67108864,
      "num_attention_heads": 65536, "head_dim": 65536, "vocab_size": 2147483647})",
                "m")
                .status()
                .text(),
            "m: a model of 7.5e+19 parameters; 1e+15 are the most");
}

// What would make other numbers than the ones that are computed here.
TEST(TrainerLimits, ModelsOfAnotherKindAreRefused) {
  EXPECT_EQ(model_error("\"attention_bias\": true"),
            "m: attention_bias is true; only false is a Llama");
  EXPECT_EQ(model_error("\"mlp_bias\": true"), "m: mlp_bias is true; only false is a Llama");
  EXPECT_EQ(model_error("\"attention_bias\": false"), "");
  EXPECT_EQ(model_error("\"rope_scaling\": \"llama3\""),
            "m: rope_scaling is \"llama3\"; it must be an object");
  EXPECT_EQ(model_error("\"rope_scaling\": null"), "");
  EXPECT_NE(
      model_error(R"("rope_scaling": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 4,
                                      "high_freq_factor": 4, "original_max_position_embeddings": 8192})")
          .find("low_freq_factor (4) must be below high_freq_factor (4)"),
      std::string::npos);
  EXPECT_NE(model_error("\"rms_norm_eps\": 1e300").find("rms_norm_eps"), std::string::npos);
  EXPECT_EQ(
      model_error("\"hidden_size\": 65"),
      "m: hidden_size (65) is no multiple of num_attention_heads (4), and head_dim is missing");
}

TrainerOptions small() {
  TrainerOptions options;
  options.model.layers = 4;
  options.model.hidden = 64;
  options.model.ffn = 128;
  options.model.heads = options.model.kv_heads = 4;
  options.model.head_size = 16;
  options.model.vocabulary = 512;
  options.batch = {.sequences = 8, .micro = 1, .length = 64};
  return options;
}

// The tokens of a batch are memory, too; and the estimate takes none itself, however many
// micro-batches.
TEST(TrainerLimits, ABatchThatNoMemoryHoldsIsCounted) {
  TrainerOptions options = small();
  const uint64_t before = memory_of(options).total();
  options.batch.sequences = int64_t{1} << 31;
  const MemoryParts memory = memory_of(options);
  EXPECT_GT(memory.total(), before + (uint64_t{4 * 65} << 31));
  EXPECT_EQ(memory.parts.back().first, "batches read ahead");
  EXPECT_FALSE(check_memory(options, uint64_t{1} << 40).ok());
  options.model.ffn = int64_t{1} << 26;
  options.model.layers = 65536;
  options.batch = {.sequences = 1 << 20, .micro = 1 << 20, .length = 1 << 20};
  // nothing wraps around
  EXPECT_GT(memory_of(options).total(), uint64_t{1'000'000'000'000'000'000});
}

TEST(TrainerLimits, ACheckpointsCopyIsCounted) {
  TrainerOptions options = small();
  options.mesh.data = 2;
  for (const int zero : {0, 1, 3}) {
    options.zero = zero;
    options.saves = false;
    const uint64_t without = memory_of(options).total();
    options.saves = true;
    // Master and two moments in f32, a half by each rank; units are rounded up.
    EXPECT_NEAR(static_cast<double>(memory_of(options).total() - without),
                static_cast<double>(options.model.parameters()) * 12 / 2,
                0.01 * static_cast<double>(options.model.parameters()));
  }
}

TEST(TrainerLimits, CountsInFlightAsTheScheduleHasThem) {
  for (const auto& [pipeline, chunks, micro] : {std::tuple{1, 1, 3},
                                                {2, 1, 1},
                                                {4, 1, 8},
                                                {4, 1, 2},
                                                {2, 2, 4},
                                                {2, 2, 2},
                                                {4, 3, 8},
                                                {8, 2, 16}})
    for (int rank = 0; rank < pipeline; rank++) {
      MeshShape mesh;
      mesh.pipeline = pipeline;
      mesh.stage_chunks = chunks;
      int64_t now = 0, most = 0;
      for (const Action& action : pipeline_schedule(mesh, rank, micro))
        most = std::max(most, now += action.forward ? 1 : -1);
      EXPECT_EQ(most_in_flight(mesh, rank, micro), most) << mesh.text() << ", rank " << rank;
    }
}

// Scripts without spaces: sentencepiece drops lines that it finds too long.
TEST(TrainerLimits, ATextWithoutSpacesIsLearnedFrom) {
  std::string text;
  for (int i = 0; i < 6000; i++) text += i % 3 == 0 ? "言語" : i % 3 == 1 ? "模型" : "訓練";
  const auto tokenizer = Tokenizer::learn({text}, 300);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().text();
  std::vector<int32_t> tokens;
  Tokenizer::Memory memory;
  (*tokenizer)->encode(text, &tokens, &memory);
  EXPECT_LT(tokens.size(), text.size() / 3);  // not byte by byte
  EXPECT_EQ((*tokenizer)->decode(tokens), text);
}

TEST(TrainerLimits, TextsThatTeachNothingAreNamed) {
  EXPECT_NE(Tokenizer::learn({std::string(1000, '\0'), "\n\n"}, 300)
                .status()
                .text()
                .find("no characters"),
            std::string::npos);
  std::string alphabet;
  for (int i = 0; i < 400; i++)
    alphabet += {static_cast<char>(0xc4 + i / 64), static_cast<char>(0x80 + i % 64)};
  const std::string small = Tokenizer::learn({alphabet}, 300).status().text();
  EXPECT_EQ(small.substr(0, 40), "a vocabulary of 300 is too small: this t") << small;
  EXPECT_EQ(small.find("character_coverage"), std::string::npos) << small;  // no setting of ours
  const TestFolder folder;
  std::ofstream(folder / "a.txt") << "one document of its own\n";
  TokenizeOptions options;
  options.inputs = {folder / "a.txt"};
  options.folder = folder / "out";
  options.clean.min_bytes = 1000;
  EXPECT_NE(tokenize(options, [](const std::string&) {})
                .status()
                .text()
                .find("of 1 in 1 files 0 are held out"),
            std::string::npos);
}

TEST(TrainerLimits, BlankLinesBetweenJsonLinesAreNone) {
  const TestFolder folder;
  std::ofstream(folder / "a.jsonl") << "{\"text\":\"one\"}\r\n\r\n  \t\n{\"text\":\"two\"}\n";
  std::vector<std::string> documents;
  const Status read = read_documents(folder / "a.jsonl", &documents);
  EXPECT_TRUE(read.ok()) << read.text();
  EXPECT_EQ(documents, (std::vector<std::string>{"one", "two"}));
}

// A line of a hundred thousand conditions neither overflows the stack nor takes for ever.
TEST(TrainerLimits, ConditionsOnAManualPageEnd) {
  std::string page = ".TH x\n.if n .if n shown\n";
  for (int i = 0; i < 100'000; i++) page += ".if n ";
  const Result<std::string> text = man_text(page + "deep\nafter\n");
  ASSERT_TRUE(text.ok()) << text.status().text();
  EXPECT_NE(text->find("shown"), std::string::npos) << *text;
  EXPECT_NE(text->find("after"), std::string::npos) << *text;
}

// In parts or at once: the same documents, of plain text, gzip and JSON lines.
TEST(TrainerLimits, LargeFilesAreReadInParts) {
  const TestFolder folder;
  std::string text, lines;
  for (int i = 0; text.size() < 1'500'000; i++)
    text += std::string(static_cast<size_t>(i * i % 997), static_cast<char>('a' + i % 26)) +
            (i % 300 ? "\n" : "");
  for (int i = 0; i < 3000; i++)
    lines += fmt::format("{{\"text\": \"{}\"}}\n", std::string(i % 700u, 'x'));
  std::ofstream(folder / "a.txt") << text;
  std::ofstream(folder / "a.jsonl") << lines;
  gzFile packed = gzopen((folder / "a.txt.gz").c_str(), "wb");
  gzwrite(packed, text.data(), static_cast<unsigned>(text.size()));
  gzclose(packed);
  for (const char* const name : {"a.txt", "a.jsonl", "a.txt.gz"}) {
    SCOPED_TRACE(name);
    std::vector<std::string> at_once, parts;
    ASSERT_TRUE(read_documents(folder / name, &at_once).ok());
    Result<DocumentReader> reader = DocumentReader::open(folder / name);
    ASSERT_TRUE(reader.ok()) << reader.status().text();
    int calls = 1;
    for (Result<bool> more = true; (more = reader->next(100'000, &parts)) && *more;) calls++;
    EXPECT_EQ(parts, at_once);
    EXPECT_GT(calls, 5);
    if (std::string_view(name) == "a.jsonl") continue;
    std::string whole;
    for (const std::string& document : parts) {
      EXPECT_LE(document.size(), kLongestDocument);
      whole += document;
    }
    EXPECT_TRUE(whole == text);
  }
}

TEST(TrainerLimits, AVocabularyThatTpDoesNotDivideMayBeLarger) {
  TrainerOptions options = small();
  options.mesh.tensor = 4;
  options.model.vocabulary = 3239;
  const std::string error = check_mesh(options.mesh, options.batch, options.model, 4).text();
  EXPECT_NE(error.find("vocab_size may be larger than the data's: 3240"), std::string::npos)
      << error;
  options.model.vocabulary = 3240;
  EXPECT_TRUE(check_mesh(options.mesh, options.batch, options.model, 4).ok());
}

}  // namespace
}  // namespace sennit::trainer
