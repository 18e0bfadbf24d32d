// scan.hpp: what the readers of fabric files share: lines to words with their columns, hostlists,
// and errors that say file, line, column and what was expected.
//
// Pure, on views of the caller's text. Memory is bounded by the text's length, but for hostlists,
// which the caller limits.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.hpp"

namespace sennit {

// Of ASCII, whatever the locale is.
constexpr bool is_digit(char c) { return c >= '0' && c <= '9'; }
constexpr bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
// Whether a name that is written in quotes may have it: no control character, and no quote.
constexpr bool is_plain(char c) {
  return static_cast<unsigned char>(c) >= 32 && c != 127 && c != '"';
}
std::string lower(std::string_view text);  // A to Z alone

// What a fabric may hold: enough for 100,000 GPUs with a NIC each, with all that is in their hosts.
inline constexpr size_t kMaxNameBytes = 255;
inline constexpr size_t kMaxVertices = 524'288;
inline constexpr size_t kMaxLinks = 2'097'152;  // directions

// A word of a text, and where it stands. The text must outlive it.
struct Token {
  std::string_view text;  // within quotes, without them
  size_t line = 0;        // from 1
  size_t column = 0;      // in bytes, from 1
  bool quoted = false;
};

// Where an error is: a file's name (for messages only), line and column.
Status error_at(std::string_view file, const Token& token, std::string_view expected);

// Splits text into lines of words. '#' starts a comment, a backslash at a line's end joins the next
// line, and "..." is one word where `quotes` is set. Lines without words are left out.
Result<std::vector<std::vector<Token>>> scan(std::string_view text, std::string_view file,
                                             bool quotes);

// "tux[0-3,12],login" -> tux0 tux1 tux2 tux3 tux12 login. Several brackets multiply out, the last
// running fastest; leading zeros keep their width. Blanks and ends of lines separate names
// as commas do, as in Slurm. At most `limit` names.
Result<std::vector<std::string>> expand_hostlist(std::string_view file, const Token& token,
                                                 size_t limit);

}  // namespace sennit
