// man_text.hpp: a manual page's source (man(7) or mdoc(7)) as plain text, by groff: headings, a
// line a paragraph, examples as they stand, tables with their frames.
//
// Cost: a process of groff for each page, some 20 ms; any number of threads may ask at once.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "base/status.hpp"

namespace sennit::trainer {

// What a page may take. Pages are programs, and one of them may never end.
inline constexpr std::chrono::seconds kLongestPage{20};

// Whether a text begins like a manual page's source: comments, then .TH or .Dd.
bool is_man_page(std::string_view text);
// Empty for a page that only says where another lies (.so). Errors: groff is not installed, with
// the package that has it; it was given `limit` and did not end.
Result<std::string> man_text(std::string_view roff, std::chrono::milliseconds limit = kLongestPage);

}  // namespace sennit::trainer
