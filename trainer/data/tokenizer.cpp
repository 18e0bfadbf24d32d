// tokenizer.cpp: see trainer/data/tokenizer.hpp. sentencepiece learns and encodes words; everything
// that it would change (a space written as U+2581, bytes that are no UTF-8, NUL) is kept away from
// it and passed as byte pieces.
#include "trainer/data/tokenizer.hpp"

#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include <algorithm>

#include <fmt/core.h>

#include "trainer/base/files.hpp"

namespace sennit::trainer {
namespace {

constexpr std::string_view kSpace = "\xe2\x96\x81";  // U+2581, which stands for a space in pieces

// What sentencepiece must not see.
size_t strange(std::string_view text) {
  if (text[0] == '\n' || text[0] == '\0') return 1;
  const size_t length = utf8_length(text);
  if (length == 0) return 1;
  return text.substr(0, kSpace.size()) == kSpace ? kSpace.size() : 0;
}

// Lines of the texts, without what sentencepiece must not see, cut where they are longer than it
// takes.
class Lines : public sentencepiece::SentenceIterator {
 public:
  explicit Lines(const std::vector<std::string>& texts) : texts_(texts) { Next(); }
  bool done() const override { return done_; }
  void Next() override {
    // at a space; in scripts that write none, anywhere
    constexpr size_t kLongest = 4000, kMost = 8000;
    line_.clear();
    while (text_ < texts_.size()) {
      const std::string_view rest = std::string_view(texts_[text_]).substr(at_);
      if (rest.empty()) {
        text_++;
        at_ = 0;
        if (!line_.empty()) return;
        continue;
      }
      const size_t skip = strange(rest);
      const size_t length = skip ? 0 : utf8_length(rest);
      at_ += skip + length;
      line_ += rest.substr(0, length);
      if (!line_.empty() &&
          (skip || (line_.size() > kLongest && rest[0] == ' ') || line_.size() > kMost))
        return;
    }
    done_ = line_.empty();
  }
  const std::string& value() const override { return line_; }
  sentencepiece::util::Status status() const override { return {}; }

 private:
  const std::vector<std::string>& texts_;
  size_t text_ = 0, at_ = 0;
  std::string line_;
  bool done_ = false;
};

}  // namespace

size_t utf8_length(std::string_view text) {
  const auto byte = [&](size_t i) {
    return static_cast<uint32_t>(static_cast<unsigned char>(text[i]));
  };
  if (text.empty()) return 0;
  const uint32_t first = byte(0);
  if (first < 0x80) return 1;
  const size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < length) return 0;
  uint32_t code = first & (0x7fu >> length);
  for (size_t i = 1; i < length; i++) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
    code = code << 6 | (byte(i) & 0x3f);
  }
  const bool proper = length == 2 ||
                      (length == 3 && code >= 0x800 && (code < 0xd800 || code > 0xdfff)) ||
                      (length == 4 && code >= 0x10000 && code < 0x110000);
  return proper ? length : 0;
}

struct Tokenizer::State {
  sentencepiece::SentencePieceProcessor processor;
  std::string model;
  bool exact = false;
  int32_t bytes[256] = {};         // the piece of each byte, or -1
  std::vector<std::string> texts;  // of each piece, as decode() writes it

  // What the processor makes of a word or a line, as it is.
  std::vector<int32_t> pieces(std::string_view text) const {
    std::vector<int> ids;
    const auto status = processor.Encode({text.data(), text.size()}, &ids);
    SENNIT_CHECK(status.ok());
    return ids;
  }

  Status open(const std::string& name) {
    if (!processor.LoadFromSerializedProto({model.data(), model.size()}).ok() ||
        processor.GetPieceSize() < 1)
      return invalid(fmt::format("{}: is no tokenizer of sentencepiece's, or is damaged", name));
    if (processor.bos_id() < 0 || processor.eos_id() < 0)
      return invalid(
          fmt::format("{}: has no pieces for the beginning and the end of a text", name));
    bool words = true;  // no piece reaches from one word into the next
    int found = 0;
    std::fill(std::begin(bytes), std::end(bytes), -1);
    for (int id = 0; id < processor.GetPieceSize(); id++) {
      std::string piece = processor.IdToPiece(id);
      if (processor.IsByte(id)) {
        // <0x41>
        const auto byte = static_cast<uint8_t>(std::stoul(piece.substr(3, 2), nullptr, 16));
        bytes[byte] = id;
        found++;
        piece.assign(1, static_cast<char>(byte));
      } else if (processor.IsControl(id) || processor.IsUnknown(id)) {
        piece.clear();
      } else {
        std::string text;
        for (size_t at = 0; at < piece.size();) {
          const bool space = piece.compare(at, kSpace.size(), kSpace) == 0;
          if (space && !text.empty() && text.back() != ' ') words = false;
          text += space ? ' ' : piece[at];
          at += space ? kSpace.size() : 1;
        }
        piece = text;
      }
      texts.push_back(piece);
    }
    exact = words && found == 256;
    for (const char* probe :
         {"x", "  x  ", "\xef\xac\x81 \xc2\xbd"}) {  // prefix, spaces, compatibility characters
      std::string back;
      for (const int32_t id : pieces(probe)) back += texts[static_cast<size_t>(id)];
      exact = exact && back == probe;
    }
    return {};
  }

  void word(std::string_view text, std::vector<int32_t>* tokens, Memory* memory) const {
    constexpr size_t kMost = 1 << 18, kLongest = 64;
    if (text.size() > kLongest) {
      const std::vector<int32_t> found = pieces(text);
      tokens->insert(tokens->end(), found.begin(), found.end());
      return;
    }
    auto known = memory->find(std::string(text));
    if (known == memory->end()) {
      if (memory->size() >= kMost) memory->clear();
      known = memory->emplace(text, pieces(text)).first;
    }
    tokens->insert(tokens->end(), known->second.begin(), known->second.end());
  }
};

Tokenizer::Tokenizer() : state_(std::make_unique<State>()) {}
Tokenizer::~Tokenizer() = default;

Result<std::shared_ptr<const Tokenizer>> Tokenizer::learn(const std::vector<std::string>& texts,
                                                          int64_t vocabulary) {
  constexpr int64_t kLeast = 3 + 256 + 1, kMost = 1 << 20;
  if (vocabulary < kLeast || vocabulary > kMost)
    return invalid(fmt::format(
        "a vocabulary of {}: it must be from {} (256 bytes, 3 of its own, a piece) to {}",
        vocabulary, kLeast, kMost));
  if (std::all_of(texts.begin(), texts.end(), [](const std::string& text) { return text.empty(); }))
    return invalid("there is no text to learn a tokenizer from");
  Lines lines(texts);
  if (lines.done())
    return invalid("the text holds nothing but line ends and bytes that are no characters");
  std::string model;
  const auto status =
      sentencepiece::SentencePieceTrainer::Train({{"model_type", "bpe"},
                                                  {"vocab_size", std::to_string(vocabulary)},
                                                  {"hard_vocab_limit", "false"},
                                                  {"byte_fallback", "true"},
                                                  {"character_coverage", "0.9995"},
                                                  {"split_digits", "true"},
                                                  {"allow_whitespace_only_pieces", "true"},
                                                  {"normalization_rule_name", "identity"},
                                                  {"add_dummy_prefix", "false"},
                                                  {"remove_extra_whitespaces", "false"},
                                                  {"max_sentence_length", "8192"},
                                                  {"num_threads", "1"},
                                                  {"minloglevel", "2"}},
                                                 &lines, &model);
  const std::string words = status.ToString();
  if (const size_t needed = words.find(" vs ");
      words.find("required_chars") != words.npos && needed != words.npos)
    return invalid(
        fmt::format("a vocabulary of {} is too small: this text's characters alone need {}",
                    vocabulary, std::stoll(words.substr(needed + 4))));
  if (!status.ok())
    return invalid(fmt::format("sentencepiece cannot learn a vocabulary of {} from this text: {}",
                               vocabulary, words));
  return from_bytes(std::move(model), "the tokenizer that was just learned");
}

Result<std::shared_ptr<const Tokenizer>> Tokenizer::load(const std::string& file) {
  Result<std::string> model = read_file(file);
  if (!model) return model.status();
  return from_bytes(std::move(*model), file);
}

Result<std::shared_ptr<const Tokenizer>> Tokenizer::from_bytes(std::string model,
                                                               const std::string& name) {
  std::shared_ptr<Tokenizer> tokenizer(new Tokenizer);
  tokenizer->state_->model = std::move(model);
  SENNIT_RETURN_IF_ERROR(tokenizer->state_->open(name));
  return std::shared_ptr<const Tokenizer>(std::move(tokenizer));
}

int64_t Tokenizer::vocabulary() const { return static_cast<int64_t>(state_->texts.size()); }
int32_t Tokenizer::beginning() const { return state_->processor.bos_id(); }
int32_t Tokenizer::unknown() const { return state_->processor.unk_id(); }
std::string Tokenizer::piece(int32_t id) const { return state_->processor.IdToPiece(id); }
int32_t Tokenizer::end() const { return state_->processor.eos_id(); }
bool Tokenizer::exact() const { return state_->exact; }
const std::string& Tokenizer::model() const { return state_->model; }

void Tokenizer::encode(std::string_view text, std::vector<int32_t>* tokens, Memory* memory) const {
  if (!state_->exact) {  // as the model's makers have it, the whole text at once
    const std::vector<int32_t> found = state_->pieces(text);
    tokens->insert(tokens->end(), found.begin(), found.end());
    return;
  }
  size_t begin = 0, at = 0;  // of the word, with the spaces before it; of the next character
  const auto take = [&] {
    if (at > begin) state_->word(text.substr(begin, at - begin), tokens, memory);
    begin = at;
  };
  while (at < text.size()) {
    if (const size_t odd = strange(text.substr(at)); odd > 0) {
      take();
      for (; at < begin + odd;)
        tokens->push_back(state_->bytes[static_cast<unsigned char>(text[at++])]);
      begin = at;
      continue;
    }
    if (text[at] == ' ' && at > begin && text[at - 1] != ' ') take();
    at += utf8_length(text.substr(at));
  }
  take();
}

std::string Tokenizer::decode(std::span<const int32_t> tokens) const {
  std::string text;
  for (const int32_t token : tokens)
    if (token >= 0 && static_cast<size_t>(token) < state_->texts.size())
      text += state_->texts[static_cast<size_t>(token)];
  return text;
}

}  // namespace sennit::trainer
