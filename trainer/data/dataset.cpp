// dataset.cpp: the reading side of trainer/data/shards.hpp; see trainer/data/loader.hpp. A shard's
// header and length must be what the index says before a token of it is used.
#include <algorithm>
#include <cstring>

#include <fmt/core.h>
#include <sys/stat.h>
#include <nlohmann/json.hpp>

#include "base/text/json.hpp"
#include "trainer/base/checksum.hpp"
#include "trainer/base/files.hpp"
#include "trainer/data/loader.hpp"
#include "trainer/data/shards.hpp"

namespace sennit::trainer {
namespace {

using Json = nlohmann::json;

constexpr int64_t kCheckedAtOnce = 1 << 30;  // bytes: a fraction of a second

struct Shard {
  std::string file, checksum;
  MappedFile mapped;
  int64_t first = 0, tokens = 0;  // of the split's stream
};

struct SplitShards {
  std::vector<Shard> shards;
  int64_t tokens = 0;
  double text_bytes = 0;
};

// A whole number >= 0 under a key, or -1.
int64_t number(const Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number_unsigned()) return -1;
  const auto value = found->get<uint64_t>();
  return value > static_cast<uint64_t>(INT64_MAX) ? -1 : static_cast<int64_t>(value);
}

Json member(const Json& object, const char* key) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  return found != object.end() ? *found : Json();
}

std::string text(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

}  // namespace

struct Dataset::State {
  std::string folder, fingerprint, tokenizer, tokenizer_model, tokenizer_checksum;
  int64_t vocabulary = 0;
  size_t token_bytes = 2;
  SplitShards splits[2];

  Status open_shard(const Json& entry, SplitShards* split) {
    Shard shard;
    const std::string name = entry.is_object() ? text(entry, "file") : std::string();
    if (name.empty() || name.find('/') != std::string::npos)
      return invalid(fmt::format("{}/{}: a shard without a proper name", folder, kIndexName));
    shard.file = folder + "/" + name;
    shard.checksum = text(entry, "checksum");
    shard.tokens = number(entry, "tokens");
    shard.first = split->tokens;
    Result<MappedFile> mapped = MappedFile::open(shard.file);
    if (!mapped) return mapped.status();
    shard.mapped = std::move(*mapped);
    const size_t bytes = shard.mapped.bytes();
    const size_t most = (SIZE_MAX - kShardHeaderBytes) / token_bytes;
    if (shard.tokens < 1 || static_cast<uint64_t>(shard.tokens) > most)
      return invalid(fmt::format("{}: {} tokens by the index", shard.file, shard.tokens));
    const size_t expected = kShardHeaderBytes + static_cast<size_t>(shard.tokens) * token_bytes;
    if (bytes != expected)
      return invalid(
          fmt::format("{}: {} bytes long; the index says {}: it is {}. Run sennit tokenize again",
                      shard.file, bytes, expected, bytes < expected ? "cut short" : "another one"));
    ShardHeader header{};
    std::memcpy(&header, shard.mapped.data(), sizeof(header));
    if (std::memcmp(header.magic, kShardMagic, sizeof(header.magic)) != 0)
      return invalid(fmt::format("{}: does not begin like a shard of tokens", shard.file));
    if (header.token_bytes != token_bytes ||
        header.vocabulary != static_cast<uint32_t>(vocabulary) ||
        header.tokens != static_cast<uint64_t>(shard.tokens))
      return invalid(
          fmt::format("{}: its header is not of the corpus of {}", shard.file, kIndexName));
    split->tokens += shard.tokens;
    split->shards.push_back(std::move(shard));
    return {};
  }

  Status open() {
    const std::string file = folder + "/" + kIndexName;
    const Result<Json> sealed = read_sealed(file);
    if (!sealed) return sealed.status();
    const Json& index = *sealed;
    if (text(index, "format") != "sennit-tokens-1")
      return invalid(fmt::format("{}: is no index of tokens that this version reads", file));
    vocabulary = number(index, "vocabulary");
    const int64_t width = number(index, "token_bytes");
    if (vocabulary < 1 || vocabulary > INT32_MAX || (width != 2 && width != 4))
      return invalid(
          fmt::format("{}: vocabulary {} with tokens of {} bytes", file, vocabulary, width));
    token_bytes = static_cast<size_t>(width);
    const char* const names[2] = {"training", "held_out"};
    for (int split = 0; split < 2; split++) {
      const Json entry = member(member(index, "parts"), names[split]);
      if (!entry.is_object() || !entry.contains("shards") || !entry["shards"].is_array())
        return invalid(fmt::format("{}: part {} is missing", file, names[split]));
      for (const Json& shard : entry["shards"])
        SENNIT_RETURN_IF_ERROR(open_shard(shard, &splits[split]));
      if (splits[split].tokens != number(entry, "tokens"))
        return invalid(fmt::format("{}: the shards of part {} do not add up", file, names[split]));
      splits[split].text_bytes =
          static_cast<double>(std::max<int64_t>(number(entry, "text_bytes"), 0));
    }
    if (const auto model = index.find("tokenizer"); model != index.end() && model->is_object()) {
      tokenizer = folder + "/" + kTokenizerName;
      tokenizer_checksum = text(*model, "checksum");
      Result<std::string> bytes = read_file(tokenizer);
      if (!bytes) return bytes.status();
      tokenizer_model = *std::move(bytes);
      if (checksum_text(tokenizer_model.data(), tokenizer_model.size()) != tokenizer_checksum)
        return invalid(
            fmt::format("{}: is damaged, or of another corpus: its checksum is off", tokenizer));
    }
    const std::string whole = json_to_text(index);
    fingerprint = checksum_text(whole.data(), whole.size());
    return {};
  }
};

Dataset::Dataset() : state_(std::make_unique<State>()) {}
Dataset::~Dataset() = default;

Result<std::shared_ptr<const Dataset>> Dataset::open(const std::string& folder) {
  std::shared_ptr<Dataset> data(new Dataset);
  data->state_->folder = folder;
  if (const Status opened = data->state_->open(); !opened.ok()) {
    if (opened.text().find("sennit tokenize") != std::string::npos) return opened;
    struct stat ignored {};
    const bool there = ::stat((folder + "/" + kIndexName).c_str(), &ignored) == 0;
    return Status(opened.kind(),
                  opened.text() + (there ? ". Run sennit tokenize again"
                                         : ". sennit tokenize --output makes such a folder"));
  }
  int64_t tokens = 0;
  for (const SplitShards& split : data->state_->splits) tokens += split.tokens;
  if (tokens * static_cast<int64_t>(data->state_->token_bytes) <= kCheckedAtOnce)
    SENNIT_RETURN_IF_ERROR(data->verify());
  return std::shared_ptr<const Dataset>(std::move(data));
}

int64_t Dataset::vocabulary() const { return state_->vocabulary; }
int64_t Dataset::tokens(Split split) const {
  return state_->splits[static_cast<int>(split)].tokens;
}
int64_t Dataset::samples(Split split, int64_t length) const {
  return length > 0 ? std::max<int64_t>(tokens(split) - 1, 0) / length : 0;
}
double Dataset::bytes_per_token(Split split) const {
  const SplitShards& shards = state_->splits[static_cast<int>(split)];
  return shards.tokens > 0 ? shards.text_bytes / static_cast<double>(shards.tokens) : 0;
}
std::string Dataset::tokenizer_file() const { return state_->tokenizer; }
const std::string& Dataset::tokenizer_model() const { return state_->tokenizer_model; }
const std::string& Dataset::fingerprint() const { return state_->fingerprint; }

void Dataset::read(Split split, int64_t first, std::span<int32_t> out) const {
  const SplitShards& shards = state_->splits[static_cast<int>(split)];
  SENNIT_CHECK(first >= 0 && first + static_cast<int64_t>(out.size()) <= shards.tokens);
  auto shard =
      std::upper_bound(shards.shards.begin(), shards.shards.end(), first,
                       [](int64_t at, const Shard& candidate) { return at < candidate.first; });
  if (shard != shards.shards.begin()) --shard;
  for (size_t done = 0; done < out.size(); ++shard) {
    const int64_t at = first + static_cast<int64_t>(done) - shard->first;
    const size_t count = std::min(out.size() - done, static_cast<size_t>(shard->tokens - at));
    const uint8_t* from =
        shard->mapped.data() + kShardHeaderBytes + static_cast<size_t>(at) * state_->token_bytes;
    if (state_->token_bytes == 4) {
      std::memcpy(out.data() + done, from, count * 4);
    } else {
      for (size_t i = 0; i < count; i++) {
        uint16_t token = 0;
        std::memcpy(&token, from + 2 * i, sizeof(token));
        out[done + i] = token;
      }
    }
    done += count;
  }
}

Status Dataset::verify() const {
  for (const SplitShards& split : state_->splits)
    for (const Shard& shard : split.shards)
      if (checksum_text(shard.mapped.data(), shard.mapped.bytes()) != shard.checksum)
        return invalid(fmt::format(
            "{}: is damaged: its checksum is not the index's. Run sennit tokenize again",
            shard.file));
  return {};
}

}  // namespace sennit::trainer
