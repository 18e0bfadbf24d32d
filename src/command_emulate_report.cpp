// The page that `sennit emulate report` writes: self-contained HTML.
#include <fmt/format.h>

#include "command_emulate_compare.hpp"

namespace sennit::emulate {

Result<std::string> report_page(const Comparison& comparison) {
  return fmt::format("<!doctype html><meta charset=utf-8><title>sennit, measured</title><p>{}<pre>{}</pre>",
                     comparison.about.at("about").get<std::string>(), comparison.table());
}

}  // namespace sennit::emulate
