// man_text.cpp: see trainer/data/man_text.hpp. Escapes first (escape()), then requests and macros
// line by line (Page).
#include "trainer/data/man_text.hpp"

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "trainer/data/man_characters.hpp"

namespace sennit::trainer {
namespace {

bool ends_with(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

class Page {
 public:
  std::string take(std::string_view roff) {
    while (!roff.empty()) {
      const size_t end = std::min(roff.find('\n'), roff.size());
      std::string_view line = roff.substr(0, end);
      roff.remove_prefix(std::min(end + 1, roff.size()));
      if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
      if (ends_with(line, "\\") && !ends_with(line, "\\\\")) {  // goes on in the next line
        held_ += line.substr(0, line.size() - 1);
        continue;
      }
      held_ += line;
      const std::string whole = std::exchange(held_, "");
      input(whole);
    }
    flush();
    while (!out_.empty() && out_.back() == '\n') out_.pop_back();
    if (!out_.empty()) out_ += '\n';
    return std::move(out_);
  }

 private:
  // ---- escapes ----
  // The name after \( \[ \* \n and the like: (xx, [name] or x.
  static std::string_view name_at(std::string_view text, size_t* at) {
    if (*at >= text.size()) return {};
    if (text[*at] == '(') {
      const std::string_view name = text.substr(std::min(*at + 1, text.size()), 2);
      *at = std::min(*at + 3, text.size());
      return name;
    }
    if (text[*at] == '[') {
      const size_t end = std::min(text.find(']', *at), text.size());
      const std::string_view name = text.substr(*at + 1, end - *at - 1);
      *at = std::min(end + 1, text.size());
      return name;
    }
    return text.substr((*at)++, 1);
  }
  static void skip_quoted(std::string_view text, size_t* at) {  // 'anything', as \h and \w have it
    if (*at >= text.size()) return;
    *at = std::min(text.find(text[*at], *at + 1), text.size() - 1) + 1;
  }

  std::string escape(std::string_view text) {
    std::string out;
    for (size_t at = 0; at < text.size();) {
      if (text[at] != '\\' || at + 1 == text.size()) {
        out += text[at++];
        continue;
      }
      const char kind = text[at + 1];
      at += 2;
      switch (kind) {
        case '"':
        case '#':
          return out;  // a comment
        case 'e':
        case 'E':
        case '\\':
          out += '\\';
          break;
        case '-':
        case '.':
        case '\'':
        case '`':
          out += kind;
          break;
        case ' ':
        case '~':
        case '0':
          out += ' ';
          break;
        case 't':
          out += '\t';
          break;
        case '(':
        case '[':
          at--;
          out += man_character(name_at(text, &at));
          break;
        case '*': {
          const std::string name(name_at(text, &at));
          const auto found = strings_.find(name);
          out += found != strings_.end() ? found->second : man_character(name);
          break;
        }
        case 'f':
        case 'F':
        case 'n':
        case 'g':
        case 'k':
        case 'm':
        case 'M':
        case 'V':
        case 'Y':
          static_cast<void>(name_at(text, &at));
          break;
        case 's':  // \s0 \s-1 \s+2 \s(12
          if (at < text.size() && (text[at] == '-' || text[at] == '+')) at++;
          static_cast<void>(name_at(text, &at));
          break;
        case 'N': {
          const size_t begin = at + 1;
          skip_quoted(text, &at);
          uint32_t code = 0;
          for (size_t i = begin; i + 1 < at && code < 0x110000; i++)
            if (text[i] >= '0' && text[i] <= '9')
              code = 10 * code + static_cast<uint32_t>(text[i] - '0');
          if (code >= 32) append_utf8(&out, code);
          break;
        }
        case 'c':
          joined_ = true;
          return out;
        // \h'..' and its like take something quoted; \& \% \: \/ \| \^ \{ \} and others nothing
        default:
          if (std::string_view("hvwlLobDxXZ").find(kind) != std::string_view::npos)
            skip_quoted(text, &at);
          break;
      }
    }
    return out;
  }

  // The arguments of a macro: words, or "quoted ones" in which "" is a quote; a comment ends them.
  std::vector<std::string> arguments(std::string_view text) {
    std::vector<std::string> words;
    for (size_t at = 0; at < text.size();) {
      if (text[at] == ' ' || text[at] == '\t') {
        at++;
        continue;
      }
      if (text.substr(at, 2) == "\\\"") break;
      std::string word;
      if (text[at] == '"') {
        for (at++; at < text.size(); at++) {
          if (text[at] == '"' && (at + 1 >= text.size() || text[at + 1] != '"')) break;
          if (text[at] == '"') at++;
          word += text[at];
        }
        at++;
      } else {
        while (at < text.size() && text[at] != ' ' && text[at] != '\t') {
          if (text[at] == '\\' && at + 1 < text.size()) word += text[at++];
          word += text[at++];
        }
      }
      words.push_back(escape(word));
    }
    return words;
  }

  // ---- output ----
  void flush() {
    while (!line_.empty() && (line_.back() == ' ' || line_.back() == '\t')) line_.pop_back();
    if (!line_.empty()) out_ += line_ + '\n';
    line_.clear();
    joined_ = false;
  }
  void blank() {
    flush();
    if (!out_.empty() && !ends_with(out_, "\n\n")) out_ += '\n';
  }
  void text(const std::string& words) {
    const bool join = std::exchange(was_joined_, joined_);
    joined_ = false;
    if (filling_ || tag_next_) {
      const size_t begin = words.find_first_not_of(" \t");
      if (begin == std::string::npos) return;
      if (!line_.empty() && !join && line_.back() != ' ') line_ += ' ';
      line_ += words.substr(begin);
    } else {
      line_ += words;
      if (!was_joined_) {
        out_ += line_ + '\n';
        line_.clear();
      }
    }
    if (tag_next_ && !was_joined_) {
      tag_next_ = false;
      flush();
    }
  }

  // ---- input ----
  void input(std::string_view line) {
    if (!skip_until_.empty()) {  // of .de and .ig
      if (line == skip_until_) skip_until_.clear();
      return;
    }
    if (braces_ > 0) {  // of a condition that does not hold
      braces_ += count(line, "\\{") - count(line, "\\}");
      return;
    }
    if (table_ != Table::none && table_line(line)) return;
    if (line.empty()) return filling_ ? blank() : text("");
    if (line[0] != '.' && line[0] != '\'') return text(escape(line));
    line.remove_prefix(1);
    while (!line.empty() && (line[0] == ' ' || line[0] == '\t')) line.remove_prefix(1);
    const size_t end = std::min(line.find_first_of(" \t\\"), line.size());
    request(std::string(line.substr(0, end)), line.substr(end));
  }

  static int count(std::string_view line, std::string_view what) {
    int found = 0;
    for (size_t at = 0; (at = line.find(what, at)) != std::string_view::npos; at += what.size())
      found++;
    return found;
  }

  void condition(std::string_view rest, bool holds) {
    if (holds) {
      while (!rest.empty() && (rest[0] == ' ' || rest.substr(0, 2) == "\\{"))
        rest.remove_prefix(rest[0] == ' ' ? 1 : 2);
      if (rest.empty() || nested_ == kMostNested) return;
      nested_++;
      input(std::string(rest));
      nested_--;
    } else {
      braces_ = std::max(0, count(rest, "\\{") - count(rest, "\\}"));
    }
  }

  void request(const std::string& name, std::string_view rest) {
    if (name == "if" || name == "ie") {
      const size_t begin = std::min(rest.find_first_not_of(' '), rest.size());
      holds_ = rest.substr(begin, 1) == "n";
      return condition(rest.substr(std::min(begin + 1, rest.size())), holds_);
    }
    if (name == "el") return condition(rest, !holds_);
    if (name == "de" || name == "am" || name == "ig") {
      skip_until_ = "..";
      return;
    }
    if (name == "TS") {
      flush();
      table_ = Table::layout;
      separator_ = '\t';
      return;
    }
    const std::vector<std::string> words = arguments(rest);
    if (name == "ds") {
      if (words.size() > 1) strings_[words[0]] = joined(words, " ", 1);
    } else if (name == "SH" || name == "SS" || name == "Sh" || name == "Ss") {
      blank();
      filling_ = true;
      if (words.empty()) {
        tag_next_ = true;
      } else {
        out_ += joined(words, " ") + '\n';
      }
    } else if (name == "PP" || name == "P" || name == "LP" || name == "HP" || name == "sp" ||
               name == "Pp" || name == "SY") {
      blank();
      if (name == "SY") text(joined(words, " "));
    } else if (name == "TP") {
      blank();
      tag_next_ = true;
    } else if (name == "TQ") {
      flush();
      tag_next_ = true;
    } else if (name == "IP" || name == "It") {
      blank();
      if (!words.empty()) text(words[0]);
      if (!words.empty() && words[0].size() > 4) flush();
    } else if (name == "nf" || name == "EX" || name == "Bd") {
      flush();
      filling_ = false;
    } else if (name == "fi" || name == "EE" || name == "Ed") {
      flush();
      filling_ = true;
    } else if (name == "br" || name == "in" || name == "ti" || name == "RS" || name == "RE") {
      flush();
    } else if (name == "UR" || name == "MT") {
      if (!words.empty()) link_ = words[0];
    } else if (name == "UE" || name == "ME") {
      text("<" + std::exchange(link_, "") + ">" + joined(words, ""));
    } else if (name == "B" || name == "I" || name == "SM" || name == "SB" || name == "R" ||
               name == "q") {
      if (!words.empty()) text(joined(words, " "));
    } else if (name.size() == 2 && is_font(name[0]) && is_font(name[1])) {
      text(joined(words, ""));
    } else if (name == "OP") {
      text("[" + joined(words, " ") + "]");
    } else if (name == "Xr") {
      if (words.size() > 1) text(words[0] + "(" + words[1] + ")" + joined(words, "", 2));
    } else if (name.size() == 2 && name[0] >= 'A' && name[0] <= 'Z' && name[1] >= 'a' &&
               name[1] <= 'z' && name != "Dd" && name != "Dt" && name != "Os" && name != "Bl" &&
               name != "El") {
      text(joined(words, " "));  // mdoc(7): what the macro would set in a font
    }
  }

  static bool is_font(char letter) { return letter == 'B' || letter == 'R' || letter == 'I'; }
  static std::string joined(const std::vector<std::string>& words, const char* between,
                            size_t first = 0) {
    std::string all;
    for (size_t i = first; i < words.size(); i++) all += (i == first ? "" : between) + words[i];
    return all;
  }

  // ---- tbl: options; then layout lines up to one that ends in a dot; then rows. True: the line is done. ----
  bool table_line(std::string_view line) {
    if (line.substr(0, 3) == ".TE") {
      table_row();
      table_ = Table::none;
      return true;
    }
    if (table_ == Table::layout) {
      if (const size_t tab = line.find("tab(");
          tab != std::string_view::npos && tab + 4 < line.size())
        separator_ = line[tab + 4];
      while (!line.empty() && line.back() == ' ') line.remove_suffix(1);
      if (ends_with(line, ".")) table_ = Table::rows;
      return true;
    }
    if (line.substr(0, 2) == ".\\" || line == "_" || line == "=" || line == ".sp") return true;
    if (table_ == Table::block) {  // T{ ... T}: a cell of several lines
      if (line.substr(0, 2) != "T}") {
        if (line.empty() || line[0] == '.' || line[0] == '\'') {
          const size_t end = std::min(line.find(' '), line.size());
          const std::string words =
              joined(arguments(line.substr(end)), line.size() > 3 && is_font(line[2]) ? "" : " ");
          cell(words);
        } else {
          cell(escape(line));
        }
        return true;
      }
      table_ = Table::rows;
      line.remove_prefix(2);
      if (line.empty()) return table_row(), true;
    } else if (!line.empty() && line[0] == '.') {
      return false;  // .PP and fonts between rows
    }
    for (;;) {
      const size_t end = std::min(line.find(separator_), line.size());
      if (ends_with(line.substr(0, end), "T{")) {
        table_ = Table::block;
        return true;
      }
      cell(escape(line.substr(0, end)));
      if (end == line.size()) return table_row(), true;
      row_ += row_.empty() ? "" : " | ";
      line.remove_prefix(end + 1);
    }
  }
  void cell(const std::string& words) {
    if (words.empty()) return;
    if (!row_.empty() && row_.back() != ' ') row_ += ' ';
    row_ += words;
  }
  void table_row() {
    while (!row_.empty() && row_.back() == ' ') row_.pop_back();
    if (!row_.empty()) out_ += row_ + '\n';
    row_.clear();
  }

  enum class Table : uint8_t { none, layout, rows, block };
  std::string out_, line_, held_, skip_until_, link_, row_;
  std::map<std::string, std::string> strings_;
  bool filling_ = true, tag_next_ = false, joined_ = false, was_joined_ = false, holds_ = false;
  static constexpr int kMostNested = 64;  // conditions on one line; what is deeper is left out
  int braces_ = 0, nested_ = 0;
  Table table_ = Table::none;
  char separator_ = '\t';
};

}  // namespace

bool is_man_page(std::string_view text) {
  for (int lines = 0; lines < 400 && !text.empty(); lines++) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    const std::string_view start = line.substr(0, 3);
    if (start == ".TH" || start == ".Dd" || start == ".so" || start == ".SH") return true;
    if (!line.empty() && line[0] != '.' && line[0] != '\'') return false;
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return false;
}

std::string man_text(std::string_view roff) { return Page().take(roff); }

}  // namespace sennit::trainer
