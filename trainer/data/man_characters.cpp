// man_characters.cpp: see trainer/data/man_characters.hpp.
#include "trainer/data/man_characters.hpp"

#include <cctype>
#include <utility>

namespace sennit::trainer {
namespace {

// groff_char(7), as far as manual pages use it.
constexpr std::pair<std::string_view, std::string_view> kCharacters[] = {
    {"aq", "'"}, {"bu", "•"},  {"ha", "^"}, {"ti", "~"}, {"rq", "”"},  {"lq", "“"}, {"oq", "‘"},
    {"cq", "’"}, {"dq", "\""}, {"em", "—"}, {"en", "–"}, {"co", "©"},  {"rg", "®"}, {"tm", "™"},
    {"+-", "±"}, {"mu", "×"},  {"di", "÷"}, {"<=", "≤"}, {">=", "≥"},  {"!=", "≠"}, {"->", "→"},
    {"<-", "←"}, {"de", "°"},  {"sc", "§"}, {"dg", "†"}, {"dd", "‡"},  {"mc", "µ"}, {"*m", "μ"},
    {"*p", "π"}, {"if", "∞"},  {"ga", "`"}, {"aa", "´"}, {"rs", "\\"}, {"sl", "/"}, {"ba", "|"},
    {"or", "|"}, {"bv", "|"},  {"ul", "_"}, {"la", "⟨"}, {"ra", "⟩"},  {"fm", "′"}, {"sd", "″"},
    {"mi", "−"}, {"pl", "+"},  {"eq", "="}, {"at", "@"}, {"sh", "#"},  {"Do", "$"}, {"lB", "["},
    {"rB", "]"}, {"lC", "{"},  {"rC", "}"}, {"14", "¼"}, {"12", "½"},  {"34", "¾"}, {"S1", "¹"},
    {"S2", "²"}, {"S3", "³"},  {":a", "ä"}, {":o", "ö"}, {":u", "ü"},  {":A", "Ä"}, {":O", "Ö"},
    {":U", "Ü"}, {"ss", "ß"},  {"'a", "á"}, {"'e", "é"}, {"'i", "í"},  {"'o", "ó"}, {"'u", "ú"},
    {"'E", "É"}, {"`a", "à"},  {"`e", "è"}, {"`u", "ù"}, {"^a", "â"},  {"^e", "ê"}, {"^i", "î"},
    {"^o", "ô"}, {"^u", "û"},  {",c", "ç"}, {"~n", "ñ"}, {"oa", "å"},  {"oA", "Å"}, {"/o", "ø"},
    {"/O", "Ø"}, {"ae", "æ"},  {"AE", "Æ"}, {"Po", "£"}, {"Eu", "€"},  {"ct", "¢"}, {"Ye", "¥"},
    {"pc", "·"}, {"md", "·"},  {"no", "¬"}, {"ci", "○"}, {"sq", "□"},  {"mo", "∈"}, {"es", "∅"},
    {"sr", "√"}, {"**", "*"},  {"hy", "-"}, {"lh", "☜"}, {"rh", "☞"},  {"Fo", "«"}, {"Fc", "»"},
    {"*a", "α"}, {"*b", "β"},  {"*g", "γ"}, {"*d", "δ"}, {"*e", "ε"},  {"*l", "λ"}, {"*s", "σ"},
    {"shc", ""}, {"R", "®"},   {"Tm", "™"}, {"ua", "↑"}, {"da", "↓"},  {"lA", "⇐"}, {"rA", "⇒"},
};

}  // namespace

void append_utf8(std::string* out, uint32_t code) {
  const auto put = [&](uint32_t byte) { out->push_back(static_cast<char>(byte)); };
  if (code < 0x80) return put(code);
  if (code < 0x800) return put(0xc0 | code >> 6), put(0x80 | (code & 63));
  if (code < 0x10000)
    return put(0xe0 | code >> 12), put(0x80 | (code >> 6 & 63)), put(0x80 | (code & 63));
  if (code < 0x110000)
    put(0xf0 | code >> 18), put(0x80 | (code >> 12 & 63)), put(0x80 | (code >> 6 & 63)),
        put(0x80 | (code & 63));
}

std::string man_character(std::string_view name) {
  for (const auto& [key, text] : kCharacters)
    if (key == name) return std::string(text);
  std::string text;
  if (name.size() >= 5 && name[0] == 'u') {
    uint32_t code = 0;
    for (const char digit : name.substr(1)) {
      if (!std::isxdigit(static_cast<unsigned char>(digit)) || code > 0x10ffff) return "";
      code =
          16 * code + static_cast<uint32_t>(digit <= '9' ? digit - '0' : (digit | 32) - 'a' + 10);
    }
    if (code < 0xd800 || code > 0xdfff) append_utf8(&text, code);
  }
  return text;
}

}  // namespace sennit::trainer
