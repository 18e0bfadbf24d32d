// tokenizer.hpp: text to tokens and back, with a byte-pair encoding (arXiv 1508.07909) of
// sentencepiece's.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/status.hpp"

namespace sennit::trainer {

// A vocabulary, learned or loaded, that does not change. One that is learned here gives back any
// bytes exactly: it normalises nothing, and what has no piece of its own (a line's end, rare
// characters, bytes that are no UTF-8) becomes one token a byte. Its ids: 0 unknown, 1 beginning, 2
// end, 3 to 258 the bytes, then pieces in the order they were merged. Its pieces never reach from
// one word into the next, so a word's tokens are looked up once and remembered.
//
// Threads: encode() and decode() may be called from several, each with a Memory of its own.
class Tokenizer {
 public:
  using Memory = std::unordered_map<std::string, std::vector<int32_t>>;

  // Errors: a vocabulary too small for the bytes (259 and a few); no text.
  static Result<std::shared_ptr<const Tokenizer>> learn(const std::vector<std::string>& texts,
                                                        int64_t vocabulary);
  // Any sentencepiece model. Errors: no such file; damaged; no pieces for beginning or end of a
  // text.
  static Result<std::shared_ptr<const Tokenizer>> load(const std::string& file);
  static Result<std::shared_ptr<const Tokenizer>> from_bytes(std::string model,
                                                             const std::string& name);
  ~Tokenizer();

  int64_t vocabulary() const;
  int32_t beginning() const;
  int32_t end() const;
  int32_t unknown() const;
  std::string piece(int32_t id) const;  // as the model names it: "<s>"
  bool exact() const;                   // gives back any bytes
  const std::string& model() const;
  // Appends; neither beginning nor end.
  void encode(std::string_view text, std::vector<int32_t>* tokens, Memory* memory) const;
  // Ids that are none, and those without a text (beginning, end), give nothing.
  std::string decode(std::span<const int32_t> tokens) const;

 private:
  Tokenizer();
  struct State;
  std::unique_ptr<State> state_;
};

// Bytes of the character at the beginning of `text`, or 0 where it does not begin with proper
// UTF-8.
size_t utf8_length(std::string_view text);

}  // namespace sennit::trainer
