// scan.cpp: see topology/text/scan.hpp.
#include "topology/text/scan.hpp"

#include <algorithm>
#include <charconv>

#include <fmt/core.h>

namespace sennit {
namespace {

constexpr size_t kMostShown = 40;   // bytes of a word that an error quotes
constexpr size_t kMostDigits = 15;  // of a number; far below what 64 bits hold
constexpr char kFirstPrintable = ' ', kLastPrintable = '~';  // of ASCII

// The beginning, with what is not printable made visible: error texts go to terminals.
std::string shown(std::string_view text) {
  std::string out;
  for (const char c : text.substr(0, kMostShown))
    out += c >= kFirstPrintable && c <= kLastPrintable ? c : '?';
  return text.size() > kMostShown ? out + "..." : out;
}

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r'; }
constexpr std::string_view kBlanks = " \t\r\n", kPieceEnds = "[], \t\r\n";

// One name of a hostlist: literal pieces and brackets in turn.
struct Piece {
  std::vector<std::string> choices;
};

class HostlistReader {
 public:
  HostlistReader(std::string_view file, const Token& token, size_t limit)
      : file_(file), token_(token), limit_(limit) {}

  Result<std::vector<std::string>> read() {
    skip_blanks();
    for (bool comma = true; comma || !end();) {
      SENNIT_RETURN_IF_ERROR(read_name());
      skip_blanks();
      comma = skip(',');
      skip_blanks();
    }
    return std::move(names_);
  }

 private:
  Status error(std::string_view expected) const {
    Token here = token_;
    here.column += std::min(at_, token_.text.size());
    here.text = token_.text.substr(std::min(at_, token_.text.size()));
    return error_at(file_, here, expected);
  }
  Status too_many() const {
    return error_at(file_, token_, fmt::format("a hostlist of at most {} names", limit_));
  }
  bool end() const { return at_ == token_.text.size(); }
  char peek() const { return end() ? '\0' : token_.text[at_]; }
  bool skip(char c) {
    if (end() || token_.text[at_] != c) return false;
    at_++;
    return true;
  }

  bool at_blank() const { return !end() && kBlanks.find(peek()) != kBlanks.npos; }
  void skip_blanks() {
    while (at_blank()) at_++;
  }

  Status read_name() {
    std::vector<Piece> pieces;
    size_t names = 1;
    size_t longest = 0;
    while (!end() && peek() != ',' && !at_blank()) {
      Piece piece;
      if (skip('[')) {
        SENNIT_RETURN_IF_ERROR(read_bracket(&piece));
      } else {
        const size_t begin = at_;
        at_ = std::min(token_.text.find_first_of(kPieceEnds, at_), token_.text.size());
        if (at_ == begin) return error("a name before \"]\"");
        const std::string_view text = token_.text.substr(begin, at_ - begin);
        if (!std::all_of(text.begin(), text.end(), is_plain)) {
          at_ = begin;
          return error("a name without quotes and control characters");
        }
        piece.choices.emplace_back(text);
      }
      names *= piece.choices.size();
      longest += piece.choices.back().size();
      if (names > limit_ - names_.size()) return too_many();
      pieces.push_back(std::move(piece));
    }
    if (pieces.empty()) return error("a name");
    if (longest > kMaxNameBytes)
      return error_at(file_, token_, fmt::format("names of at most {} bytes", kMaxNameBytes));
    for (size_t i = 0; i < names; i++) {
      std::string name;
      size_t rest = i;
      size_t below = names;
      for (const Piece& piece : pieces) {
        below /= piece.choices.size();
        name += piece.choices[rest / below];
        rest %= below;
      }
      names_.push_back(std::move(name));
    }
    return {};
  }

  Status read_number(uint64_t* value, size_t* width) {
    const size_t begin = at_;
    while (peek() >= '0' && peek() <= '9') at_++;
    *width = at_ - begin;
    const auto [stop, failed] =
        std::from_chars(token_.text.data() + begin, token_.text.data() + at_, *value);
    if (*width == 0 || *width > kMostDigits || failed != std::errc()) {
      at_ = begin;
      return error(fmt::format("a number of at most {} digits", kMostDigits));
    }
    return {};
  }

  Status read_bracket(Piece* piece) {
    do {
      uint64_t first = 0;
      uint64_t last = 0;
      size_t width = 0;
      size_t last_width = 0;
      const size_t begin = at_;
      SENNIT_RETURN_IF_ERROR(read_number(&first, &width));
      last = first;
      if (skip('-')) SENNIT_RETURN_IF_ERROR(read_number(&last, &last_width));
      if (last < first) {
        at_ = begin;
        return error("a range that rises");
      }
      if (last - first >= limit_ - std::min(piece->choices.size(), limit_)) return too_many();
      for (uint64_t i = first; i <= last; i++)
        piece->choices.push_back(fmt::format("{:0{}}", i, width));
    } while (skip(','));
    if (!skip(']')) return error("\",\", \"-\" or \"]\"");
    return {};
  }

  std::string_view file_;
  const Token& token_;
  size_t limit_;
  size_t at_ = 0;
  std::vector<std::string> names_;
};

}  // namespace

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return out;
}

Status error_at(std::string_view file, const Token& token, std::string_view expected) {
  const std::string found =
      token.text.empty() && !token.quoted ? "the end" : fmt::format("\"{}\"", shown(token.text));
  return invalid(fmt::format("{}:{}:{}: expected {}, found {}", file, token.line, token.column,
                             expected, found));
}

Result<std::vector<std::vector<Token>>> scan(std::string_view text, std::string_view file,
                                             bool quotes) {
  std::vector<std::vector<Token>> lines;
  std::vector<Token> words;
  size_t line = 1;
  size_t line_begin = 0;
  size_t i = 0;
  const auto token = [&](size_t begin, size_t end) {
    return Token{text.substr(begin, end - begin), line, begin - line_begin + 1, false};
  };
  while (i < text.size()) {
    const char c = text[i];
    if (c == '#') {
      i = std::min(text.find('\n', i), text.size());
    } else if (c == '\n') {
      if (!words.empty()) lines.push_back(std::move(words));
      words.clear();
      line++;
      line_begin = ++i;
    } else if (c == '\\' && (text.substr(i + 1, 1) == "\n" || text.substr(i + 1, 2) == "\r\n")) {
      i = text.find('\n', i) + 1;
      line++;
      line_begin = i;
    } else if (is_space(c)) {
      i++;
    } else if (quotes && c == '"') {
      const size_t close = text.find_first_of("\"\n", i + 1);
      if (close == std::string_view::npos || text[close] == '\n')
        return error_at(file, token(i, std::min(close, text.size())),
                        "a closing quote on this line");
      Token word = token(i + 1, close);
      word.column--;
      word.quoted = true;
      words.push_back(word);
      i = close + 1;
    } else {
      const size_t begin = i;
      while (i < text.size() && !is_space(text[i]) && text[i] != '\n' && text[i] != '#' &&
             !(quotes && text[i] == '"'))
        i++;
      words.push_back(token(begin, i));
    }
  }
  if (!words.empty()) lines.push_back(std::move(words));
  for (const std::vector<Token>& words_of_line : lines)
    for (const Token& word : words_of_line)
      for (const char c : word.text)
        if (static_cast<unsigned char>(c) < 32 || c == 127)
          return error_at(file, word, "a word without control characters");
  return lines;
}

Result<std::vector<std::string>> expand_hostlist(std::string_view file, const Token& token,
                                                 size_t limit) {
  if (token.quoted && token.text.size() > kMaxNameBytes)
    return error_at(file, token, fmt::format("names of at most {} bytes", kMaxNameBytes));
  if (token.quoted) return std::vector<std::string>{std::string(token.text)};
  return HostlistReader(file, token, limit).read();
}

}  // namespace sennit
