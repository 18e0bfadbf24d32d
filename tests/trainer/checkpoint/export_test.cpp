// export_test.cpp: a checkpoint as a folder for `transformers`, and the commands' words and
// exit codes.
//
// ctest not-under-tsan: it runs a command, whose threads others try
// ctest runs: sennit_command sennit_trainer_command
#include <gtest/gtest.h>

#include <bit>
#include <fstream>

#include "tests/support/shell.hpp"
#include "tests/trainer/checkpoint/cases.hpp"
#include "trainer/base/llama_config.hpp"
#include "trainer/data/loader.hpp"
#include "trainer/data/tokenizer.hpp"

namespace sennit::trainer {
namespace {

namespace fs = std::filesystem;
using sennit_test::sh;

// A small tokenizer, in a file.
std::string write_tokenizer(const TestFolder& folder) {
  const auto tokenizer =
      Tokenizer::learn({"the cat sat on the mat and the dog sat on the cat and the mat"}, 275);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().text();
  std::ofstream(folder / "t.model", std::ios::binary) << (*tokenizer)->model();
  return folder / "t.model";
}

constexpr const char* kModel = R"({"model_type": "llama", "num_hidden_layers": 1, "hidden_size": 8,
  "intermediate_size": 16, "num_attention_heads": 2, "vocab_size": 275})";

// Master weights with moments, cut over two ranks, and a tokenizer.
void save(const TestFolder& folder, const std::vector<float>& values) {
  const auto n = static_cast<int64_t>(values.size());
  std::vector<float> moments(values.size(), 3);
  std::vector<std::vector<TensorPiece>> ranks(2);
  for (int rank = 0; rank < 2; rank++)
    for (const char* prefix : {"", kFirstMoment}) {
      const auto* from = (*prefix ? moments : values).data() + rank * n / 2;
      ranks[static_cast<size_t>(rank)].push_back({.name = std::string(prefix) + "model.norm.weight",
                                                  .shape = {n},
                                                  .offset = {rank * n / 2},
                                                  .extent = {n / 2},
                                                  .data = const_cast<float*>(from)});
    }
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; rank++)
    threads.emplace_back([&, rank] {
      auto writer = CheckpointWriter::open(
          {.folder = folder / "run", .rank = rank, .ranks = 2, .attempt = "a"});
      ASSERT_TRUE(writer.ok());
      ASSERT_TRUE((*writer)
                      ->save(4, 2.0, {}, kModel, *read_file(folder / "t.model"),
                             ranks[static_cast<size_t>(rank)])
                      .ok());
      const auto report = (*writer)->wait();
      ASSERT_TRUE(report.ok()) << report.status().text();
    });
  for (std::thread& thread : threads) thread.join();
}

TEST(TrainerExport, WritesWhatTransformersLoads) {
  const TestFolder folder;
  write_tokenizer(folder);
  // Halfway cases round to even; the largest goes to infinity; NaN stays one.
  const std::vector<float> values = {1.0f,
                                     -2.5f,
                                     std::bit_cast<float>(0x3f808000),
                                     std::bit_cast<float>(0x3f818000),
                                     std::bit_cast<float>(0x3f808001),
                                     std::bit_cast<float>(0x7f7fffff),
                                     std::bit_cast<float>(0x7f800001),
                                     -0.0f};
  save(folder, values);
  const auto checkpoint = Checkpoint::open(folder / "run/step-00000004");
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().text();
  for (const Type type : {Type::f32, Type::bf16}) {
    const std::string out = folder / safetensors_name(type);
    const Status status = export_checkpoint(*checkpoint, out, type);
    ASSERT_TRUE(status.ok()) << status.text();
    const auto file = MappedFile::open(out + "/model.safetensors");
    ASSERT_TRUE(file.ok());
    const auto header = parse_safetensors({file->data(), file->bytes()}, file->bytes(), "f");
    ASSERT_TRUE(header.ok()) << header.status().text();
    ASSERT_EQ(header->tensors.size(), 1u);  // no moments
    EXPECT_EQ(header->tensors[0].name, "model.norm.weight");
    EXPECT_EQ(header->metadata.at("format"), "pt");
    const uint16_t halves[] = {0x3f80, 0xc020, 0x3f80, 0x3f82, 0x3f81, 0x7f80, 0x7fc0, 0x8000};
    for (size_t i = 0; i < values.size(); i++) {
      const uint8_t* at = file->data() + header->data_at + i * bytes_of(type);
      if (type == Type::f32) {
        EXPECT_EQ(std::memcmp(at, &values[i], 4), 0);
      } else {
        EXPECT_EQ(at[0] | at[1] << 8, halves[i]) << i;
      }
    }
    const nlohmann::json config = nlohmann::json::parse(*read_file(out + "/config.json"));
    EXPECT_EQ(config["torch_dtype"], type == Type::f32 ? "float32" : "bfloat16");
    EXPECT_EQ(config["bos_token_id"], 1);
    EXPECT_TRUE(parse_llama_config(config.dump(), "config.json").ok());
    EXPECT_EQ(*read_file(out + "/tokenizer.model"), *read_file(folder / "t.model"));
    EXPECT_EQ(nlohmann::json::parse(*read_file(out + "/tokenizer_config.json"))["tokenizer_class"],
              "LlamaTokenizer");
  }
}

// Such as other makers' tokenizers do: without it the first token of every text were another one.
TEST(TrainerExport, SaysWhetherTheTokenizerPutsASpaceFirst) {
  const TestFolder folder;
  const std::string file = write_tokenizer(folder), plain = *read_file(file);
  // What stands behind a message of protobuf's is merged into it: normalizer_spec {
  // add_dummy_prefix: true }.
  const std::string prefixing = plain + "\x1a\x02\x18\x01";
  for (const std::string& model : {plain, prefixing}) {
    std::ofstream(file, std::ios::binary) << model;
    fs::remove_all(folder / "run");
    save(folder, std::vector<float>(8, 1));
    const auto checkpoint = Checkpoint::open(folder / "run/step-00000004");
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().text();
    ASSERT_TRUE(export_checkpoint(*checkpoint, folder / "hf", Type::f32).ok());
    const auto words = nlohmann::json::parse(*read_file(folder / "hf/tokenizer_config.json"));
    EXPECT_EQ(words["add_prefix_space"], model == prefixing);
  }
}

// What transformers would refuse to read is refused before anything is written.
TEST(TrainerExport, RefusesAModelThatTransformersRefuses) {
  const TestFolder folder;
  const std::vector<GlobalTensor> tensors = {{"a", Type::f32, {8}}};
  const auto owned = own_all(tensors, 1);
  const auto refusal = [&](const std::string& from, const std::string& to,
                           const std::string& tokenizer) {
    std::string model = kModel;
    if (!from.empty()) model.replace(model.find(from), from.size(), to);
    fs::remove_all(folder / "run");
    auto writer = CheckpointWriter::open({.folder = folder / "run", .attempt = "a"});
    EXPECT_TRUE(writer.ok() &&
                (*writer)->save(1, {}, {}, model, tokenizer, pieces_of(owned)).ok() &&
                (*writer)->wait().ok());
    const auto checkpoint = Checkpoint::open(folder / "run/step-00000001");
    EXPECT_TRUE(checkpoint.ok()) << checkpoint.status().text();
    const Status status = export_checkpoint(*checkpoint, folder / "hf", Type::f32);
    EXPECT_EQ(fs::exists(folder / "hf"), status.ok());
    fs::remove_all(folder / "hf");
    return status.text();
  };
  const std::string tokenizer = *read_file(write_tokenizer(folder));  // of 275 tokens
  EXPECT_EQ(refusal("", "", tokenizer), "");
  EXPECT_EQ(refusal("275", "274", ""), "");
  EXPECT_EQ(refusal("275", "274", tokenizer),
            "the checkpoint's model has 274 tokens, and its tokenizer 275: transformers would look "
            "for what is "
            "not there");
  EXPECT_NE(refusal("\"hidden_size\": 8", "\"head_dim\": 4, \"hidden_size\": 9", "")
                .find("the checkpoint's model: hidden_size (9) is no multiple of "
                      "num_attention_heads (2), which "
                      "transformers asks for"),
            std::string::npos);
  EXPECT_NE(refusal("\"hidden_size\": 8", "\"head_dim\": 5, \"hidden_size\": 8", "")
                .find("head_dim is 5"),
            std::string::npos);
}

// Files of at most so many bytes, or one tensor, and what transformers finds them by.
TEST(TrainerExport, ALargeModelGoesIntoSeveralFiles) {
  const TestFolder folder;
  const std::vector<GlobalTensor> tensors = {{"a", Type::f32, {100}},
                                             {"b", Type::f32, {10, 10}},
                                             {"c", Type::f32, {500}},
                                             {"optimizer.first_moment.c", Type::f32, {500}},
                                             {"z", Type::f32, {100}}};
  const auto owned = own_all(tensors, 1);
  auto writer = CheckpointWriter::open({.folder = folder / "run", .attempt = "a"});
  ASSERT_TRUE(writer.ok());
  ASSERT_TRUE((*writer)->save(1, {}, {}, kModel, "", pieces_of(owned)).ok());
  ASSERT_TRUE((*writer)->wait().ok());
  const auto checkpoint = Checkpoint::open(folder / "run/step-00000001");
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().text();
  const std::string out = folder / "hf";
  ASSERT_TRUE(export_checkpoint(*checkpoint, out, Type::f32).ok());
  EXPECT_TRUE(fs::exists(out + "/model.safetensors"));
  ASSERT_TRUE(export_checkpoint(*checkpoint, out, Type::f32, 800).ok());
  EXPECT_FALSE(fs::exists(out + "/model.safetensors"));  // it would be loaded first
  const auto index = nlohmann::json::parse(*read_file(out + "/model.safetensors.index.json"));
  EXPECT_EQ(index["metadata"]["total_size"], 3200);
  const auto name = [](int i) { return fmt::format("model-0000{}-of-00003.safetensors", i); };
  EXPECT_EQ(index["weight_map"],
            nlohmann::json({{"a", name(1)}, {"b", name(1)}, {"c", name(2)}, {"z", name(3)}}));
  for (const GlobalTensor& tensor : tensors) {
    if (!index["weight_map"].contains(tensor.name)) continue;
    const auto file =
        MappedFile::open(out + "/" + index["weight_map"][tensor.name].get<std::string>());
    ASSERT_TRUE(file.ok());
    const auto header = parse_safetensors({file->data(), file->bytes()}, file->bytes(), "f");
    ASSERT_TRUE(header.ok()) << header.status().text();
    bool found = false;
    for (const StoredTensor& stored : header->tensors) {
      if (stored.name != tensor.name) continue;
      found = true;
      const uint32_t bits = bits_of(tensor, 7, 1);
      EXPECT_EQ(std::memcmp(file->data() + header->data_at + stored.begin + 28, &bits, 4), 0)
          << tensor.name;
    }
    EXPECT_TRUE(found) << tensor.name;
  }
  ASSERT_TRUE(export_checkpoint(*checkpoint, out, Type::f32).ok());
  EXPECT_FALSE(fs::exists(out + "/model.safetensors.index.json"));
}

// A name that cannot be given, when others of the same index have theirs already.
TEST(TrainerExport, ARenameThatFailsLeavesNoMixOfTwoModels) {
  const TestFolder folder;
  const std::vector<GlobalTensor> tensors = {
      {"a", Type::f32, {100}}, {"b", Type::f32, {100}}, {"c", Type::f32, {100}}};
  const auto owned = own_all(tensors, 1);
  auto writer = CheckpointWriter::open({.folder = folder / "run", .attempt = "a"});
  ASSERT_TRUE(writer.ok());
  ASSERT_TRUE((*writer)->save(1, {}, {}, kModel, "", pieces_of(owned)).ok());
  ASSERT_TRUE((*writer)->wait().ok());
  const auto checkpoint = Checkpoint::open(folder / "run/step-00000001");
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().text();
  const std::string out = folder / "hf", first = "model-00001-of-00003.safetensors",
                    index = out + "/model.safetensors.index.json";
  constexpr uint64_t kOneTensor = 400;
  ASSERT_TRUE(export_checkpoint(*checkpoint, out, Type::f32, kOneTensor).ok());
  ASSERT_TRUE(fs::exists(index));
  fs::remove(out + "/" + first);
  fs::create_directories(out + "/" + first + "/in the way");
  const Status failed = export_checkpoint(*checkpoint, out, Type::f32, kOneTensor);
  EXPECT_NE(failed.text().find(first + ": cannot be renamed into place"), std::string::npos)
      << failed.text();
  EXPECT_EQ(names_in(out), (std::vector<std::string>{"config.json", first}));
  fs::remove_all(out + "/" + first);
  ASSERT_TRUE(export_checkpoint(*checkpoint, out, Type::f32, kOneTensor).ok());
  EXPECT_TRUE(fs::exists(index));
}

TEST(TrainerExport, CommandsSayWhatIsWrongAndExitSo) {
  const TestFolder folder;
  write_tokenizer(folder);
  save(folder, std::vector<float>(64, 1.5f));
  const std::string sennit = SENNIT_BINARY_DIR "/bin/sennit";
  const std::string run = folder / "run", step = run + "/step-00000004";
  const std::string check = sennit + " checkpoint verify " + run;
  const auto good = sh(check);
  EXPECT_EQ(good.status, 0) << good.output;
  EXPECT_NE(
      good.output.find("newest: " + step + "\nstep 4, 2 tensors, 0.0 MB: every checksum is right"),
      std::string::npos)
      << good.output;
  const auto exported = sh(sennit + " checkpoint export " + run + " " + folder.path() + "/hf");
  EXPECT_EQ(exported.status, 0) << exported.output;
  EXPECT_TRUE(fs::exists(folder / "hf/model.safetensors"));
  std::string bytes = *read_file(step + "/rank-00001.safetensors");
  bytes[bytes.size() - 256] = static_cast<char>(bytes[bytes.size() - 256] ^ 1);  // of 2 * 32 floats
  std::ofstream(step + "/rank-00001.safetensors", std::ios::binary) << bytes;
  const auto off = sh(check);
  EXPECT_EQ(off.status, 1);
  EXPECT_NE(
      off.output.find("rank-00001.safetensors: tensor 'model.norm.weight' [32:64] is damaged"),
      std::string::npos)
      << off.output;
  EXPECT_NE(off.output.find("1 checksum is off"), std::string::npos);
  // Of an export that fails nothing is left, and what stood there stays.
  EXPECT_EQ(sh(sennit + " checkpoint export " + run + " " + folder.path() + "/new").status, 1);
  EXPECT_FALSE(fs::exists(folder / "new"));
  const std::vector<std::string> before = names_in(folder / "hf");
  EXPECT_EQ(sh(sennit + " checkpoint export " + run + " " + folder.path() + "/hf").status, 1);
  EXPECT_EQ(names_in(folder / "hf"), before);
  EXPECT_EQ(sh(sennit + " checkpoint export " + run + " " + folder / "t.model/hf").status, 2);
  fs::resize_file(step + "/rank-00001.safetensors", 20);
  const auto cut = sh(sennit + " checkpoint verify " + step);
  EXPECT_EQ(cut.status, 1);
  EXPECT_NE(cut.output.find("it is cut short"), std::string::npos) << cut.output;
  fs::remove(step + "/rank-00001.safetensors");
  const auto missing = sh(sennit + " checkpoint verify " + step);
  EXPECT_EQ(missing.status, 1);
  EXPECT_NE(missing.output.find("rank-00001.safetensors"), std::string::npos) << missing.output;
  fs::remove(step + "/manifest.json");
  EXPECT_EQ(sh(sennit + " checkpoint verify " + step + "/").status, 1);
  const auto none = sh(check);
  EXPECT_EQ(none.status, 1);
  EXPECT_NE(none.output.find("none of its 1 checkpoints opens; of the newest: " + step),
            std::string::npos)
      << none.output;
  EXPECT_EQ(sh(sennit + " checkpoint verify " + folder.path() + "/none").status, 2);
}

// The system refuses: nothing is known of what is stored.
TEST(TrainerExport, AFolderThatCannotBeListedIsNoFaultInIt) {
  const TestFolder folder;
  const std::string loop = folder / "loop";
  fs::create_symlink("loop", loop);
  for (const std::string& command : {"verify " + loop, "export " + loop + " " + folder / "hf"}) {
    const auto refused = sh(SENNIT_BINARY_DIR "/bin/sennit checkpoint " + command);
    EXPECT_EQ(refused.status, 3) << refused.output;
    EXPECT_NE(refused.output.find(loop + ": cannot be listed"), std::string::npos)
        << refused.output;
  }
}

TEST(TrainerExport, TokenizeAsACommand) {
  const TestFolder folder;
  const std::string sennit = SENNIT_BINARY_DIR "/bin/sennit";
  for (int i = 0; i < 30; i++) {
    std::ofstream text(folder / (std::to_string(i) + ".txt"));
    for (int k = 0; k < 200; k++) text << "word" << i * k % 97 << (k % 9 ? " " : "\n");
  }
  const std::string output = folder / "out";
  const auto made =
      sh(sennit + " tokenize --output " + output +
         " --vocabulary 300 --dedup near --validation 0.2 '" + folder.path() + "/*.txt'");
  EXPECT_EQ(made.status, 0) << made.output;
  EXPECT_NE(made.output.find("read: 30 files"), std::string::npos) << made.output;
  EXPECT_NE(made.output.find("MB/s to tokenize"), std::string::npos);
  const auto checked = sh(sennit + " tokenize --check --output " + output);
  EXPECT_EQ(checked.status, 0) << checked.output;
  std::string bytes = *read_file(output + "/training-00000.tokens");
  bytes[40] = static_cast<char>(bytes[40] ^ 1);
  std::ofstream(output + "/training-00000.tokens", std::ios::binary) << bytes;
  const auto off = sh(sennit + " tokenize --check --output " + output);
  EXPECT_EQ(off.status, 1);
  EXPECT_NE(off.output.find("training-00000.tokens: is damaged"), std::string::npos) << off.output;
  fs::remove(output + "/training-00000.tokens");
  const auto missing = sh(sennit + " tokenize --check --output " + output);
  EXPECT_EQ(missing.status, 1);
  EXPECT_NE(missing.output.find("Run sennit tokenize again"), std::string::npos) << missing.output;
  EXPECT_EQ(sh(sennit + " tokenize --check --output " + folder / "none").status, 2);
  EXPECT_EQ(sh(sennit + " tokenize --output " + output + " " + folder.path() + "/none").status, 2);
  EXPECT_EQ(
      sh(sennit + " tokenize --output " + output + " --vocabulary 100 " + folder.path()).status, 2);
}

// A file that the system will not let grow: exit status 3, and nothing half-done is left.
TEST(TrainerExport, WhatTheSystemRefusesLeavesNothing) {
  const TestFolder folder;
  write_tokenizer(folder);
  save(folder, std::vector<float>(1 << 16, 1.5f));
  for (int i = 0; i < 30; i++) {
    std::ofstream text(folder / (std::to_string(i) + ".txt"));
    for (int k = 0; k < 800; k++) text << "word" << i * k % 97 << (k % 9 ? " " : "\n");
  }
  const std::string limited = "trap '' XFSZ; ulimit -f 32; " SENNIT_BINARY_DIR "/bin/sennit ";
  const auto tokenized = sh("(" + limited + "tokenize --vocabulary 300 --output " + folder / "out" +
                            " '" + folder / "*.txt') 2>&1");
  EXPECT_EQ(tokenized.status, 3) << tokenized.output;
  EXPECT_EQ(names_in(folder / "out"), std::vector<std::string>{}) << tokenized.output;
  const auto exported =
      sh("(" + limited + "checkpoint export " + folder / "run" + " " + folder / "hf" + ") 2>&1");
  EXPECT_EQ(exported.status, 3) << exported.output;
  EXPECT_FALSE(fs::exists(folder / "hf")) << exported.output;
}

}  // namespace
}  // namespace sennit::trainer
