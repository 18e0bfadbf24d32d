// shards.hpp: writes what trainer/data/loader.hpp reads: a folder with index.json, the shards of
// both splits, and the tokenizer's model.
//
// A shard is a header of 32 bytes (magic, bytes a token, vocabulary, tokens) and the tokens,
// little-endian, 2 bytes each where the vocabulary allows it and 4 otherwise. index.json lists the
// shards with their checksums, and carries its own; it is written last, so a folder with one is
// whole.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "base/status.hpp"
#include "trainer/data/loader.hpp"

namespace sennit::trainer {

inline constexpr char kShardMagic[9] = "SNTTOKN1";
inline constexpr size_t kShardHeaderBytes = 32;
inline constexpr const char* kIndexName = "index.json";
inline constexpr const char* kTokenizerName = "tokenizer.model";

// A shard's first bytes, as they lie in the file.
struct ShardHeader {
  char magic[8];  // kShardMagic, without its NUL
  uint32_t token_bytes;
  uint32_t vocabulary;
  uint64_t tokens;  // of this shard
  uint64_t zero;
};
static_assert(sizeof(ShardHeader) == kShardHeaderBytes);

// Writes one corpus. Documents of a split follow each other in the order of add(), and may go on in
// the next shard. One thread. Memory: the shard of each split that is being filled.
class ShardWriter {
 public:
  // Makes the folder; an index that is there already is removed first, and its shards are written
  // over.
  static Result<std::unique_ptr<ShardWriter>> open(const std::string& folder, int64_t vocabulary,
                                                   int64_t tokens_a_shard);
  ~ShardWriter();  // what was written without a finish() goes
  // One document: `text_bytes` long before it was tokenized. Every token is below the vocabulary.
  Status add(Split split, std::span<const int32_t> tokens, uint64_t text_bytes);
  // Closes the shards and writes the index. tokenizer: a sentencepiece model's bytes, or empty;
  // facts: what else the index is to say (how the text was cleaned, where it came from).
  Status finish(const std::string& tokenizer, const nlohmann::json& facts);
  int64_t tokens(Split split) const;

 private:
  ShardWriter();
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace sennit::trainer
