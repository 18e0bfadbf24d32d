// safetensors_test.cpp: safetensors headers as Hugging Face writes them, and everything
// that they may not be.
//
// ctest not-under-tsan: it has one thread
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "trainer/base/files.hpp"
#include "trainer/checkpoint/safetensors.hpp"

namespace sennit::trainer {
namespace {

std::string file_of(const std::string& json, size_t data_bytes) {
  std::string file(8, '\0');
  const uint64_t length = json.size();
  std::memcpy(file.data(), &length, 8);
  return file + json + std::string(data_bytes, '\1');
}

Result<SafetensorsHeader> parse(const std::string& file) {
  return parse_safetensors({reinterpret_cast<const uint8_t*>(file.data()), file.size()},
                           file.size(), "f");
}

std::string error(const std::string& json, size_t data_bytes) {
  return parse(file_of(json, data_bytes)).status().text();
}

TEST(TrainerSafetensors, ReadsWhatItWrites) {
  std::vector<StoredTensor> tensors = {{.name = "a \"b\"\n", .type = Type::f32, .shape = {2, 3}},
                                       {.name = "scalar", .type = Type::f32, .shape = {}},
                                       {.name = "empty", .type = Type::bf16, .shape = {0, 7}},
                                       {.name = "half", .type = Type::bf16, .shape = {5}}};
  for (const size_t alignment : {8, 64, 4096}) {
    const std::string header = safetensors_header(&tensors, {{"format", "pt"}}, alignment);
    EXPECT_EQ(header.size() % alignment, 0u);
    const auto read = parse(header + std::string(24 + 4 + 0 + 10, '\0'));
    ASSERT_TRUE(read.ok()) << read.status().text();
    EXPECT_EQ(read->data_at, header.size());
    EXPECT_EQ(read->metadata.at("format"), "pt");
    ASSERT_EQ(read->tensors.size(), 4u);
    for (size_t i = 0; i < 4; i++)
      for (const StoredTensor& tensor : read->tensors)
        if (tensor.name == tensors[i].name) {
          EXPECT_EQ(tensor.shape, tensors[i].shape);
          EXPECT_EQ(tensor.type, tensors[i].type);
          EXPECT_EQ(tensor.begin, tensors[i].begin);
          EXPECT_EQ(tensor.end, tensors[i].end);
        }
  }
}

TEST(TrainerSafetensors, ReadsWhatHuggingFacesLibraryWrote) {
  const auto file =
      MappedFile::open(SENNIT_SOURCE_DIR "/tests/data/trainer/safetensors/library.safetensors");
  ASSERT_TRUE(file.ok()) << file.status().text();
  const auto header = parse_safetensors({file->data(), file->bytes()}, file->bytes(), "library");
  ASSERT_TRUE(header.ok()) << header.status().text();
  EXPECT_EQ(header->metadata.at("format"), "pt");
  ASSERT_EQ(header->tensors.size(), 3u);
  for (const StoredTensor& tensor : header->tensors) {
    const uint8_t* data = file->data() + header->data_at + tensor.begin;
    if (tensor.name == "half") {
      EXPECT_EQ(tensor.shape, (std::vector<int64_t>{2, 2}));
      for (int i = 0; i < 4; i++) EXPECT_EQ(data[2 * i] | data[2 * i + 1] << 8, 0x3f80);
    } else {
      float values[3] = {};
      std::memcpy(values, data, tensor.end - tensor.begin);
      EXPECT_EQ(tensor.name, tensor.shape.empty() ? "scalar" : "model.norm.weight");
      EXPECT_EQ(values[0], tensor.shape.empty() ? 1.5f : 0.f);
      EXPECT_EQ(values[2], tensor.shape.empty() ? 0.f : 2.f);
    }
  }
}

TEST(TrainerSafetensors, RefusesWhatTheFormatDoes) {
  const auto tensor = [](const char* name, const char* shape, int begin, int end) {
    return "\"" + std::string(name) + "\": {\"dtype\": \"F32\", \"shape\": " + shape +
           ", \"data_offsets\": [" + std::to_string(begin) + ", " + std::to_string(end) + "]}";
  };
  EXPECT_EQ(error("{" + tensor("a", "[2]", 0, 8) + "}   ", 8), "");
  EXPECT_EQ(error("{}", 0), "");
  EXPECT_EQ(parse("1234567").status().text(), "f: is too short for a safetensors file");
  EXPECT_EQ(error("{" + tensor("a", "[2]", 0, 8) + "}", 7),
            "f: tensor 'a' lies outside of the file's 7 bytes of data");
  EXPECT_EQ(error("{" + tensor("a", "[2]", 0, 8) + "}", 9),
            "f: 9 bytes of data, and its header tells of 8");
  EXPECT_EQ(error("{" + tensor("a", "[2]", 0, 8) + "," + tensor("b", "[1]", 4, 8) + "}", 8),
            "f: tensor 'b' overlaps the one before it");
  EXPECT_EQ(error("{" + tensor("a", "[1]", 0, 4) + "," + tensor("b", "[1]", 8, 12) + "}", 12),
            "f: tensor 'b' has a hole before it");
  EXPECT_EQ(error("{" + tensor("a", "[1]", 0, 4) + "," + tensor("a", "[1]", 4, 8) + "}", 8),
            "f: its header has the name 'a' twice");
  EXPECT_EQ(error("{" + tensor("a", "[3]", 0, 8) + "}", 8),
            "f: tensor 'a' has 12 bytes by its shape, and not those of its offsets");
  EXPECT_EQ(error("{" + tensor("a", "[2]", 8, 0) + "}", 8),
            "f: tensor 'a' has 8 bytes by its shape, and not those of its offsets");
  EXPECT_EQ(error("{" + tensor("a", "[4611686018427387904, 4]", 0, 0) + "}", 0),
            "f: tensor 'a' is larger than any memory");
  EXPECT_EQ(error("{" + tensor("a", "[-1]", 0, 4) + "}", 4),
            "f: tensor 'a' has a shape that is none");
  EXPECT_EQ(error("{" + tensor("a", "[1.5]", 0, 4) + "}", 4),
            "f: tensor 'a' has a shape that is none");
  EXPECT_EQ(error(R"({"a": {"dtype": "F8", "shape": [1], "data_offsets": [0, 1]}})", 1),
            "f: tensor 'a' has the type \"F8\"; F32 and BF16 are read here");
  EXPECT_EQ(error(R"({"a": {"dtype": "F32", "shape": [1]}})", 4),
            "f: tensor 'a' is not of a dtype, a shape and data_offsets");
  EXPECT_EQ(error(R"({"__metadata__": {"a": 1}})", 0), "f: its __metadata__ 'a' is no text");
  EXPECT_EQ(error(" {}", 0), "f: its header does not begin with '{'");
  EXPECT_EQ(error("[]", 0), "f: its header does not begin with '{'");
  EXPECT_EQ(error("{\"a\"", 0), "f: its header is no JSON object of tensors");
  EXPECT_EQ(error("{\"a\": {\"b\": {\"c\": {\"d\": {\"e\": 1}}}}}", 0),
            "f: its header is no JSON object of tensors");
  EXPECT_EQ(error("{\"a\": " + std::string(100'000, '['), 0),
            "f: its header is no JSON object of tensors");
  std::string huge = file_of("{}", 0);
  huge[6] = 1;
  EXPECT_NE(parse(huge).status().text().find("f: its header claims"), std::string::npos);
}

TEST(TrainerSafetensors, DamagedHeadersAreReadWithinBounds) {
  std::vector<StoredTensor> tensors = {{.name = "a", .type = Type::f32, .shape = {2, 3}},
                                       {.name = "b", .type = Type::bf16, .shape = {4}}};
  const std::string good = safetensors_header(&tensors, {{"k", "v"}}, 8) + std::string(32, '\7');
  std::mt19937 random(4);
  int read = 0;
  for (int round = 0; round < 20'000; round++) {
    std::string file = good;
    for (unsigned i = random() % 4; i < 4; i++)
      file[random() % file.size()] = "0123456789[]{},:\"\0\xff"[random() % 19];
    if (random() % 4 == 0) file.resize(random() % file.size());
    const auto header = parse(file);
    read += header.ok();
    if (!header.ok()) continue;
    for (const StoredTensor& tensor : header->tensors) {  // whatever it says, it is within the file
      ASSERT_LE(tensor.begin, tensor.end);
      ASSERT_LE(header->data_at + tensor.end, file.size());
      ASSERT_EQ(static_cast<uint64_t>(elements_of(tensor.shape)) * bytes_of(tensor.type),
                tensor.end - tensor.begin);
    }
  }
  EXPECT_GT(read, 0);
}

}  // namespace
}  // namespace sennit::trainer
