// planner.cpp: text of the planner's types.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "plan.hpp"

namespace sennit {

std::string Parameters::to_text() const {
  std::string text = fmt::format("chunks {}", chunks);
  if (!radices.empty()) text += fmt::format(", radix {}", fmt::join(radices, " "));
  if (whole_stages == 255)
    text += ", whole pieces";
  else if (whole_stages > 0)
    text += fmt::format(", whole pieces in {} outer stages", whole_stages);
  return text;
}

}  // namespace sennit
