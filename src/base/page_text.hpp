// page_text.hpp: text for HTML and SVG, in elements and in attributes.
#pragma once

#include <string>

namespace sennit {

// What means something in markup becomes an entity; control characters, which XML forbids, are left
// out.
inline std::string escape(const std::string& text) {
  std::string safe;
  for (const char c : text) {
    if (c == '&')
      safe += "&amp;";
    else if (c == '<')
      safe += "&lt;";
    else if (c == '>')
      safe += "&gt;";
    else if (c == '\'')
      safe += "&#39;";
    else if (c == '"')
      safe += "&quot;";
    else if (static_cast<unsigned char>(c) >= 32 || c == '\n' || c == '\t')
      safe += c;
  }
  return safe;
}

}  // namespace sennit
