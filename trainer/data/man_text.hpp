// man_text.hpp: a manual page's source (man(7): roff with the macros of the Linux manual pages, and
// tbl) as plain text: headings, a line a paragraph, examples as they stand, tables a line a row.
//
// Not a roff: no registers, no macros that a page defines, no page layout. Pages in mdoc(7) lose
// their markup only roughly. Cost: one pass.
#pragma once

#include <string>
#include <string_view>

namespace sennit::trainer {

// Whether a text begins like a manual page's source: comments, then .TH or .Dd.
bool is_man_page(std::string_view text);
// Empty for a page that only says where another lies (.so).
std::string man_text(std::string_view roff);

}  // namespace sennit::trainer
