// size_option.hpp: bytes on the command line: 4096, 64K, 1.5G; none below 1. CLI11 alone takes -1
// for the largest number there is.
#pragma once

#include <cstdint>

#include <CLI/CLI.hpp>

namespace sennit::trainer {

// kilo_is_1000: K is 1,000 and KiB 1,024; else both are 1,024.
inline CLI::Option* bytes_from_one(CLI::Option* option, bool kilo_is_1000) {
  const CLI::Validator digits(
      [](const std::string& text) {
        return !text.empty() && text[0] >= '0' && text[0] <= '9'
                   ? ""
                   : text + ": expected bytes, such as 64M";
      },
      "", "");
  // What is added last is looked at first.
  return option->transform(CLI::AsSizeValue(kilo_is_1000))
      ->transform(digits)
      ->check(CLI::Range(uint64_t{1}, uint64_t{1} << 62));
}

}  // namespace sennit::trainer
