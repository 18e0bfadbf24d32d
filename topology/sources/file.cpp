// file.cpp: a fabric that somebody wrote down: SENNIT_FABRIC, else /etc/sennit/fabric. The text
// form of topology/fabric/fabric.hpp, or any other that a source has registered.
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include <fmt/core.h>

#include "topology/source.hpp"
#include "topology/text/read_file.hpp"

namespace sennit {

Result<std::string> read_file(const std::string& path) {
  constexpr size_t kMaxBytes = 64 << 20;
  const auto failed = [&] {
    return invalid(fmt::format("{}: cannot be read: {}", path, std::strerror(errno)));
  };
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "re"),
                                                             &std::fclose);
  if (!file) return failed();
  std::string text;
  char buffer[65536];
  for (size_t got = 1; got > 0 && text.size() <= kMaxBytes;) {
    got = std::fread(buffer, 1, sizeof buffer, file.get());
    text.append(buffer, got);
  }
  if (std::ferror(file.get()) != 0) return failed();
  if (text.size() > kMaxBytes)
    return invalid(fmt::format("{}: larger than {} bytes", path, kMaxBytes));
  return text;
}

bool file_exists(const std::string& path) {
  // A named pipe must not be opened for this: its writer would meet an end that is closed.
  struct stat status = {};
  // A description of a long tree may stand where a file's name could.
  return stat(path.c_str(), &status) == 0 || (errno != ENOENT && errno != ENAMETOOLONG);
}

namespace {

std::string path_of(const SourceContext& context) {
  return context.fabric_file.empty() ? kFabricFile : context.fabric_file;
}

Result<std::optional<Fabric>> read(const SourceContext& context) {
  if (context.fabric_file.rfind("synthetic:", 0) == 0) return std::optional<Fabric>();
  const std::string path = path_of(context);
  if (context.fabric_file.empty() && !file_exists(path)) return std::optional<Fabric>();
  Result<std::string> text = read_file(path);
  if (!text)
    return context.fabric_file.empty() ? text.status()
                                       : text.status().with_context("SENNIT_FABRIC");
  Result<Fabric> fabric = parse_any_form(*text, path, context.host);
  if (!fabric) return fabric.status();
  return std::optional<Fabric>(*std::move(fabric));
}

}  // namespace

SENNIT_TEXT_FORM_ENTRY(
    fabric, [](std::string_view) { return false; },
    [](std::string_view text, const std::string& file, const std::string&) {
      return parse_fabric(text, file);
    })
SENNIT_SOURCE_ENTRY(file, 90, false, read, true, path_of)

}  // namespace sennit
