// check_form.hpp: what holds for a registered text form, whatever the text: it gives a fabric that
// the fabric's own text form holds, or an error that begins with file:line:column.
#pragma once

#include <string>
#include <string_view>

#include "topology/source.hpp"

namespace sennit::test {

// "FILE:12:3: expected ..."
inline bool names_a_place(std::string_view error, std::string_view file) {
  size_t at = file.size() + 1;
  if (error.substr(0, file.size()) != file || error.substr(file.size(), 1) != ":") return false;
  for (int number = 0; number < 2; number++) {
    const size_t begin = at;
    while (at < error.size() && error[at] >= '0' && error[at] <= '9') at++;
    if (at == begin || at >= error.size() || error[at++] != ':') return false;
  }
  return true;
}

// What is wrong with what the form makes of the text; empty: nothing.
inline std::string check_form(const TextForm& form, const std::string& text) {
  constexpr size_t kReadBack = 5000;  // vertices; larger fabrics would only make the rounds few
  static_cast<void>(form.recognises(text));
  const Result<Fabric> fabric = form.parse(text, "fuzz", "host");
  if (!fabric)
    return names_a_place(fabric.status().text(), "fuzz")
               ? ""
               : "an error without a place: " + fabric.status().text();
  if (fabric->vertices.size() + fabric->links.size() >= kReadBack) return "";
  const std::string written = fabric->to_text();
  const Result<Fabric> again = parse_fabric(written, "fuzz");
  if (!again)
    return "what it read cannot be written and read: " + again.status().text() + "\n" + written;
  if (again->to_text() != written) return "what it read changes when written and read: " + written;
  return "";
}

}  // namespace sennit::test
