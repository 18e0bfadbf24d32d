// write.cpp: see command/write.hpp.
#include "command/write.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include <fmt/core.h>

namespace sennit {
namespace {

constexpr std::string_view kDevices = "/dev/";

}  // namespace

Status write_text(const std::string& file, const std::string& text) {
  if (file == "-") {
    std::fwrite(text.data(), 1, text.size(), stdout);
    return {};
  }
  const auto failed = [&] {
    return invalid(fmt::format("{}: cannot be written: {}", file, std::strerror(errno)));
  };
  // Beside the file and then in its place: a reader sees the old text or the new one, never a part.
  const bool special = access(file.c_str(), F_OK) == 0 && file.rfind(kDevices, 0) == 0;
  const std::string part = special ? file : fmt::format("{}.{}", file, getpid());
  {
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> out(std::fopen(part.c_str(), "we"),
                                                              &std::fclose);
    if (!out) return failed();
    if (std::fwrite(text.data(), 1, text.size(), out.get()) != text.size() ||
        std::fflush(out.get()) != 0) {
      const Status status = failed();
      if (!special) unlink(part.c_str());
      return status;
    }
  }
  if (special || std::rename(part.c_str(), file.c_str()) == 0) return {};
  const Status status = failed();
  unlink(part.c_str());
  return status;
}

Status check_outputs(std::initializer_list<std::pair<std::string_view, std::string_view>> options) {
  for (auto one = options.begin(); one != options.end(); ++one)
    for (auto other = one + 1; other != options.end(); ++other) {
      const std::string_view file = one->second;
      if (file.empty() || file != other->second || file.rfind(kDevices, 0) == 0) continue;
      return invalid(fmt::format("{} {} and {} {}: {} holds one of them", one->first, file,
                                 other->first, file, file == "-" ? "standard output" : "a file"));
    }
  return {};
}

}  // namespace sennit
