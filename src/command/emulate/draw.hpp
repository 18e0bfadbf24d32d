// draw.hpp: the pictures of the report, as inline SVG whose colours are the page's CSS
// variables.
#pragma once

#include <string>
#include <vector>

#include "base/text/page.hpp"
#include "command/emulate/compare.hpp"

namespace sennit::emulate {

// A library of the record by its name for people: "Open MPI" for "openmpi". One that is not known
// keeps its own.
std::string shown(const std::string& library);
// The CSS classes of a library's bars and lines; "pale" for one that is not known.
const char* color_class(const std::string& library);

// Switches, hosts and links with their rates, and under each host the ranks that every order puts
// there. Throws where the record's first line does not say all that.
std::string draw_tree(const nlohmann::json& about);
// Times of one collective and size, one bar per order and library, the bound as a line.
std::string draw_bars(const std::vector<const Point*>& orders);
// Time against size, both logarithmic, one panel per order, on common axes.
std::string draw_curves(const Comparison& comparison, const std::string& collective);

}  // namespace sennit::emulate
