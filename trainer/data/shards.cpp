// shards.cpp: see trainer/data/shards.hpp. Tokens of a split are gathered to one shard's worth in
// memory, then written.
#include "trainer/data/shards.hpp"

#include <cstring>
#include <vector>

#include <fmt/core.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include "trainer/base/checksum.hpp"
#include "trainer/base/files.hpp"

namespace sennit::trainer {
namespace {

using Json = nlohmann::json;

constexpr const char* kSplitNames[2] = {"training", "held_out"};
constexpr int64_t kIdsOfTwoBytes = 65'536;  // a larger vocabulary takes four

struct SplitState {
  std::string bytes;  // of the shard that is being filled
  int64_t in_shard = 0, tokens = 0, documents = 0;
  uint64_t text_bytes = 0;
  Json shards = Json::array();
};

}  // namespace

struct ShardWriter::State {
  std::string folder;
  int64_t vocabulary = 0, shard_tokens = 0;
  uint32_t token_bytes = 2;
  SplitState splits[2];
  std::vector<std::string> unfinished;  // shards that no index names yet

  Status close_shard(int split) {
    SplitState& state = splits[split];
    if (state.in_shard == 0) return {};
    ShardHeader header{};
    std::memcpy(header.magic, kShardMagic, sizeof(header.magic));
    header.token_bytes = token_bytes;
    header.vocabulary = static_cast<uint32_t>(vocabulary);
    header.tokens = static_cast<uint64_t>(state.in_shard);
    state.bytes.insert(0, reinterpret_cast<const char*>(&header), sizeof(header));
    const std::string name =
        fmt::format("{}-{:05d}.tokens", kSplitNames[split], state.shards.size());
    SENNIT_RETURN_IF_ERROR(write_file_durably(folder + "/" + name, state.bytes));
    unfinished.push_back(folder + "/" + name);
    state.shards.push_back({{"file", name},
                            {"tokens", state.in_shard},
                            {"checksum", checksum_text(state.bytes.data(), state.bytes.size())}});
    state.bytes.clear();
    state.in_shard = 0;
    return {};
  }
};

ShardWriter::ShardWriter() : state_(std::make_unique<State>()) {}
ShardWriter::~ShardWriter() {
  for (const std::string& file : state_->unfinished) ::unlink(file.c_str());
}

Result<std::unique_ptr<ShardWriter>> ShardWriter::open(const std::string& folder,
                                                       int64_t vocabulary, int64_t tokens_a_shard) {
  if (vocabulary <= 0 || vocabulary > INT32_MAX)
    return invalid(
        fmt::format("a vocabulary of {} tokens: it must be from 1 to {}", vocabulary, INT32_MAX));
  if (tokens_a_shard <= 0) return invalid("a shard must hold at least one token");
  SENNIT_RETURN_IF_ERROR(make_folders(folder));
  const std::string index = folder + "/" + kIndexName;
  if (::unlink(index.c_str()) != 0 && errno != ENOENT) return file_error(index, "removed");
  std::unique_ptr<ShardWriter> writer(new ShardWriter);
  writer->state_->folder = folder;
  writer->state_->vocabulary = vocabulary;
  writer->state_->shard_tokens = tokens_a_shard;
  writer->state_->token_bytes = vocabulary <= kIdsOfTwoBytes ? 2 : 4;
  return writer;
}

Status ShardWriter::add(Split split, std::span<const int32_t> tokens, uint64_t text_bytes) {
  SplitState& state = state_->splits[static_cast<int>(split)];
  state.documents++;
  state.text_bytes += text_bytes;
  state.tokens += static_cast<int64_t>(tokens.size());
  for (const int32_t token : tokens) {
    SENNIT_CHECK(token >= 0 && token < state_->vocabulary);
    // little-endian
    state.bytes.append(reinterpret_cast<const char*>(&token), state_->token_bytes);
    if (++state.in_shard == state_->shard_tokens)
      SENNIT_RETURN_IF_ERROR(state_->close_shard(static_cast<int>(split)));
  }
  return {};
}

int64_t ShardWriter::tokens(Split split) const {
  return state_->splits[static_cast<int>(split)].tokens;
}

Status ShardWriter::finish(const std::string& tokenizer, const Json& facts) {
  Json index = facts;
  index["format"] = "sennit-tokens-1";
  index["vocabulary"] = state_->vocabulary;
  index["token_bytes"] = state_->token_bytes;
  for (int split = 0; split < 2; split++) {
    SENNIT_RETURN_IF_ERROR(state_->close_shard(split));
    const SplitState& state = state_->splits[split];
    index["parts"][kSplitNames[split]] = {{"tokens", state.tokens},
                                          {"documents", state.documents},
                                          {"text_bytes", state.text_bytes},
                                          {"shards", state.shards}};
  }
  if (!tokenizer.empty()) {
    SENNIT_RETURN_IF_ERROR(write_file_durably(state_->folder + "/" + kTokenizerName, tokenizer));
    state_->unfinished.push_back(state_->folder + "/" + kTokenizerName);
    index["tokenizer"] = {{"file", kTokenizerName},
                          {"bytes", tokenizer.size()},
                          {"checksum", checksum_text(tokenizer.data(), tokenizer.size())}};
  }
  SENNIT_RETURN_IF_ERROR(write_file_durably(state_->folder + "/" + kIndexName, sealed_text(index)));
  state_->unfinished.clear();
  return {};
}

}  // namespace sennit::trainer
