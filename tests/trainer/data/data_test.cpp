// data_test.cpp: from text to batches: shards, the loader's order, and what damaged files lead to.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <random>
#include <set>

#include <nlohmann/json.hpp>

#include "tests/support/test_folder.hpp"
#include "trainer/base/files.hpp"
#include "trainer/data/loader.hpp"
#include "trainer/data/shards.hpp"

namespace sennit::trainer {
namespace {

namespace fs = std::filesystem;

// Token i of a part is i plus the part's own beginning, so that a batch shows where it was read.
constexpr int64_t kVocabulary = 70'000;
void write_corpus(const std::string& folder, int64_t training, int64_t held_out,
                  int64_t vocabulary = kVocabulary) {
  auto writer = ShardWriter::open(folder, vocabulary, 1000);
  ASSERT_TRUE(writer.ok()) << writer.status().text();
  std::vector<int32_t> tokens(static_cast<size_t>(training));
  std::iota(tokens.begin(), tokens.end(), 0);
  ASSERT_TRUE((*writer)->add(Split::training, tokens, 3 * tokens.size()).ok());
  tokens.resize(static_cast<size_t>(held_out));
  std::iota(tokens.begin(), tokens.end(), 30'000);
  ASSERT_TRUE((*writer)->add(Split::held_out, tokens, tokens.size()).ok());
  const Status status = (*writer)->finish("", {{"source", "a test"}});
  ASSERT_TRUE(status.ok()) << status.text();
}

std::unique_ptr<Loader> open_loader(const std::string& folder, const LoaderOptions& options) {
  auto data = Dataset::open(folder);
  EXPECT_TRUE(data.ok()) << data.status().text();
  if (!data.ok()) return nullptr;
  auto loader = Loader::open(*data, options);
  EXPECT_TRUE(loader.ok()) << loader.status().text();
  return loader.ok() ? std::move(*loader) : nullptr;
}

// The samples that a batch holds, by number, with every token of them checked.
void collect(const Batch& batch, int64_t base, std::vector<int64_t>* samples) {
  for (int64_t i = 0; i < batch.present; i++) {
    const int32_t* row = batch.tokens.data() + i * batch.row;
    for (int64_t k = 0; k < batch.row; k++) ASSERT_EQ(row[k], row[0] + k);
    ASSERT_EQ((row[0] - base) % (batch.row - 1), 0);
    samples->push_back((row[0] - base) / (batch.row - 1));
  }
  for (size_t k = static_cast<size_t>(batch.present * batch.row); k < batch.tokens.size(); k++)
    ASSERT_EQ(batch.tokens[k], -1);
}

TEST(TrainerData, APermutationForEverySizeAndEpoch) {
  for (const uint64_t n : {1, 2, 3, 4, 5, 16, 17, 100, 1000, 4097}) {
    std::vector<std::vector<uint64_t>> epochs;
    for (uint64_t epoch = 0; epoch < 3; epoch++) {
      std::vector<uint64_t> order;
      for (uint64_t i = 0; i < n; i++) order.push_back(permuted(i, n, 7, epoch));
      epochs.push_back(order);
      std::sort(order.begin(), order.end());
      for (uint64_t i = 0; i < n; i++) ASSERT_EQ(order[i], i) << "n " << n << " epoch " << epoch;
    }
    if (n >= 100) {
      EXPECT_NE(epochs[0], epochs[1]);
      uint64_t fixed = 0;
      for (uint64_t i = 0; i < n; i++) fixed += epochs[0][i] == i;
      EXPECT_LT(fixed, 10u);  // a random permutation keeps 1 on average
    }
  }
}

TEST(TrainerData, TheOrderIsTheSameForAnyNumberOfRanks) {
  const TestFolder folder;
  write_corpus(folder.path(), 10'000, 500);
  LoaderOptions options{.seed = 3, .length = 16, .batch = 24};
  std::vector<int64_t> alone;
  const auto one = open_loader(folder.path(), options);
  for (int step = 0; step < 60; step++) collect(one->next(), 0, &alone);
  const std::set<int64_t> epoch(alone.begin(), alone.begin() + 624);  // (10'000 - 1) / 16 samples
  EXPECT_EQ(epoch.size(), 624u);
  EXPECT_EQ(*epoch.rbegin(), 623);
  for (const int ranks : {2, 3, 8, 24}) {
    std::vector<std::unique_ptr<Loader>> loaders;
    options.ranks = ranks;
    for (options.rank = 0; options.rank < ranks; options.rank++)
      loaders.push_back(open_loader(folder.path(), options));
    std::vector<int64_t> together;
    for (int step = 0; step < 60; step++)
      for (const auto& loader : loaders) collect(loader->next(), 0, &together);
    EXPECT_EQ(together, alone) << ranks << " ranks";
  }
}

TEST(TrainerData, ResumesAtTheExactSampleOnAnyNumberOfRanks) {
  const TestFolder folder;
  write_corpus(folder.path(), 5'000, 100);
  LoaderOptions options{.seed = 11, .length = 8, .batch = 12};
  std::vector<int64_t> whole, resumed;
  const auto one = open_loader(folder.path(), options);
  for (int step = 0; step < 130; step++) collect(one->next(), 0, &whole);  // over two epochs
  const auto begun = open_loader(folder.path(), options);
  for (int step = 0; step < 57; step++) collect(begun->next(), 0, &resumed);
  const nlohmann::json position = nlohmann::json::parse(begun->position().dump());
  options.batch = 6;
  options.ranks = 2;
  std::vector<std::unique_ptr<Loader>> loaders;
  for (options.rank = 0; options.rank < 2; options.rank++) {
    loaders.push_back(open_loader(folder.path(), options));
    static_cast<void>(loaders.back()->next());  // what was read before is forgotten
    const Status status = loaders.back()->restore(position);
    ASSERT_TRUE(status.ok()) << status.text();
  }
  for (int step = 0; step < 2 * (130 - 57); step++)
    for (const auto& loader : loaders) collect(loader->next(), 0, &resumed);
  EXPECT_EQ(resumed, whole);
  options = {.seed = 12, .length = 8, .batch = 12};
  const Status other = open_loader(folder.path(), options)->restore(position);
  EXPECT_NE(other.text().find("seed 11, and this run has 12"), std::string::npos) << other.text();
  EXPECT_FALSE(open_loader(folder.path(), options)->restore({{"sample", -1}}).ok());
}

TEST(TrainerData, TheHeldOutPartIsReadInOrderAndWhole) {
  const TestFolder folder;
  write_corpus(folder.path(), 1'000, 2'000);
  LoaderOptions options{.split = Split::held_out, .length = 16, .batch = 8, .ranks = 2};
  std::vector<std::unique_ptr<Loader>> loaders;
  for (options.rank = 0; options.rank < 2; options.rank++)
    loaders.push_back(open_loader(folder.path(), options));
  ASSERT_EQ(loaders[0]->batches_of_a_pass(), 16);  // 124 samples
  for (int pass = 0; pass < 2; pass++) {
    std::vector<int64_t> samples, expected(124);
    for (int64_t i = 0; i < 16; i++)
      for (const auto& loader : loaders) collect(loader->next(), 30'000, &samples);
    std::iota(expected.begin(), expected.end(), 0);
    EXPECT_EQ(samples, expected);
  }
}

TEST(TrainerData, SmallVocabulariesTakeTwoBytesAToken) {
  const TestFolder folder;
  write_corpus(folder.path(), 20'000, 0, 65'536);
  EXPECT_EQ(fs::file_size(folder / "training-00000.tokens"), 32u + 2 * 1000);
  const auto data = Dataset::open(folder.path());
  ASSERT_TRUE(data.ok()) << data.status().text();
  std::vector<int32_t> tokens(2500);
  (*data)->read(Split::training, 900, tokens);  // over three shards
  for (size_t i = 0; i < tokens.size(); i++) ASSERT_EQ(tokens[i], static_cast<int32_t>(900 + i));
  EXPECT_DOUBLE_EQ((*data)->bytes_per_token(Split::training), 3);
  const auto none = Loader::open(*data, {.split = Split::held_out, .length = 8, .batch = 1});
  EXPECT_NE(none.status().text().find("the held-out part has 0 tokens"), std::string::npos);
  const auto odd = Loader::open(*data, {.length = 8, .batch = 9, .rank = 0, .ranks = 2});
  EXPECT_NE(odd.status().text().find("9 sequences cannot be dealt to 2"), std::string::npos);
}

TEST(TrainerData, DamageIsFoundAndNamed) {
  const TestFolder folder;
  write_corpus(folder.path(), 3'000, 500);
  const std::string shard = folder / "training-00001.tokens", index = folder / "index.json";
  const std::string copy = folder.path() + "_copy";
  const auto error = [&](const std::function<void()>& damage) {
    fs::remove_all(copy);
    fs::copy(folder.path(), copy);
    damage();
    const auto data = Dataset::open(folder.path());
    std::string text = data.ok() ? (*data)->verify().text() : data.status().text();
    fs::remove_all(folder.path());
    fs::rename(copy, folder.path());
    return text;
  };
  EXPECT_EQ(error([] {}), "");
  EXPECT_EQ(error([&] { fs::remove(index); }), index +
                                                   ": cannot be read: No such file or directory. "
                                                   "sennit tokenize --output makes such a folder");
  EXPECT_EQ(error([&] { fs::remove(shard); }),
            shard + ": cannot be read: No such file or directory. Run sennit tokenize again");
  EXPECT_EQ(
      error([&] { fs::resize_file(shard, 4000); }),
      shard + ": 4000 bytes long; the index says 4032: it is cut short. Run sennit tokenize again");
  EXPECT_EQ(
      error([&] { fs::resize_file(shard, 5000); }),
      shard +
          ": 5000 bytes long; the index says 4032: it is another one. Run sennit tokenize again");
  EXPECT_EQ(error([&] { change_byte(shard, 2, 1); }),
            shard + ": does not begin like a shard of tokens. Run sennit tokenize again");
  EXPECT_EQ(error([&] { change_byte(shard, 13, 1); }),
            shard + ": its header is not of the corpus of index.json. Run sennit tokenize again");
  EXPECT_EQ(error([&] { change_byte(shard, 2000, 1); }),
            shard + ": is damaged: its checksum is not the index's. Run sennit tokenize again");
  EXPECT_EQ(error([&] { fs::resize_file(index, 300); }),
            index + ": is no JSON object; it is cut short or damaged. Run sennit tokenize again");
  EXPECT_EQ(error([&] { fs::resize_file(index, 0); }),
            index + ": is no JSON object; it is cut short or damaged. Run sennit tokenize again");
  // Every byte of the index, one at a time: never read as something else.
  const std::string whole = *read_file(index);
  for (size_t at = 0; at < whole.size(); at++) {
    const std::string found = error([&] { change_byte(index, static_cast<int64_t>(at), 1); });
    EXPECT_FALSE(found.empty() && whole[at] != ' ' && whole[at] != '\n') << "byte " << at;
  }
}

// A run's checkpoints get the tokenizer that its tokens are of, whatever lies in the folder by
// then.
TEST(TrainerData, ACorpusThatIsMadeAnewLeavesAnOpenOneItsTokenizer) {
  const TestFolder folder;
  const auto make = [&](const std::string& tokenizer) {
    auto writer = ShardWriter::open(folder.path(), kVocabulary, 1000);
    ASSERT_TRUE(writer.ok()) << writer.status().text();
    ASSERT_TRUE((*writer)->add(Split::training, std::vector<int32_t>(100, 3), 100).ok());
    ASSERT_TRUE((*writer)->finish(tokenizer, nlohmann::json::object()).ok());
  };
  make("the first");
  const auto data = Dataset::open(folder.path());
  ASSERT_TRUE(data.ok()) << data.status().text();
  make("the second");
  EXPECT_EQ((*data)->tokenizer_model(), "the first");
  EXPECT_EQ((*Dataset::open(folder.path()))->tokenizer_model(), "the second");
}

}  // namespace
}  // namespace sennit::trainer
