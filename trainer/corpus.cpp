// corpus.cpp: see corpus.hpp.
#include "corpus.hpp"

#include <glob.h>

#include <algorithm>
#include <filesystem>
#include <sstream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "files.hpp"
#include "man_text.hpp"

namespace sennit::trainer {
namespace {

namespace fs = std::filesystem;

bool ends_with(const std::string& text, const char* end) {
  const std::string_view tail(end);
  return text.size() >= tail.size() && text.compare(text.size() - tail.size(), tail.size(), tail) == 0;
}

// Under its real name, so that a page with two names is read once.
void add_file(const fs::path& file, std::vector<std::string>* files) {
  std::error_code error;
  const fs::path real = fs::canonical(file, error);
  if (!error && fs::is_regular_file(real, error)) files->push_back(real.string());
}

Status add_input(const std::string& input, std::vector<std::string>* files) {
  const size_t before = files->size();
  std::error_code error;
  if (fs::is_directory(input, error)) {
    const auto options = fs::directory_options::skip_permission_denied;
    for (fs::recursive_directory_iterator at(input, options, error), end; !error && at != end;
         at.increment(error))
      add_file(at->path(), files);
    if (error) return invalid(fmt::format("{}: cannot be listed: {}", input, error.message()));
  } else if (fs::exists(input, error)) {
    add_file(input, files);
  } else {
    glob_t found{};
    if (::glob(input.c_str(), GLOB_BRACE | GLOB_TILDE, nullptr, &found) == 0)
      for (size_t i = 0; i < found.gl_pathc; i++) add_file(found.gl_pathv[i], files);
    ::globfree(&found);
  }
  if (files->size() == before) return {SENNIT_NOT_FOUND, fmt::format("{}: there is no file of text", input)};
  return {};
}

// What the two packages installed, by the package manager's own lists; elsewhere all pages in English.
Status add_manual_pages(std::vector<std::string>* files) {
  for (const char* package : {"manpages", "manpages-dev"}) {
    const Result<std::string> list = read_file(fmt::format("/var/lib/dpkg/info/{}.list", package));
    if (!list) continue;
    std::istringstream lines(*list);
    for (std::string line; std::getline(lines, line);)
      if (line.find("/man/man") != std::string::npos) add_file(line, files);
  }
  if (files->empty())
    for (const char section : std::string_view("12345678"))
      static_cast<void>(add_input(fmt::format("/usr/share/man/man{}", section), files));
  if (files->empty())
    return {SENNIT_NOT_FOUND,
            "there are no manual pages here: install the packages manpages and manpages-dev, or name texts"};
  return {};
}

void add_document(std::string_view text, std::vector<std::string>* documents) {
  while (text.size() > kLongestDocument) {
    size_t end = text.rfind('\n', kLongestDocument - 1);
    end = end == std::string_view::npos ? kLongestDocument : end + 1;
    while (end > kLongestDocument - 4 && (text[end] & 0xc0) == 0x80) end--;  // not inside of a character
    documents->emplace_back(text.substr(0, end));
    text.remove_prefix(end);
  }
  if (!text.empty()) documents->emplace_back(text);
}

}  // namespace

Result<std::vector<std::string>> find_texts(const std::vector<std::string>& inputs) {
  std::vector<std::string> files;
  for (const std::string& input : inputs) SENNIT_RETURN_IF_ERROR(add_input(input, &files));
  if (inputs.empty()) SENNIT_RETURN_IF_ERROR(add_manual_pages(&files));
  std::sort(files.begin(), files.end());
  files.erase(std::unique(files.begin(), files.end()), files.end());
  return files;
}

Status read_documents(const std::string& file, std::vector<std::string>* documents) {
  const Result<std::string> text = read_maybe_compressed(file);
  if (!text) return text.status();
  if (!ends_with(file, ".jsonl") && !ends_with(file, ".jsonl.gz")) {
    if (is_man_page(*text)) {
      add_document(man_text(*text), documents);
    } else {
      add_document(*text, documents);
    }
    return {};
  }
  std::istringstream lines(*text);
  int64_t number = 1;
  for (std::string line; std::getline(lines, line); number++) {
    if (line.find_first_not_of(" \t\r") == line.npos) continue;
    const nlohmann::json object = nlohmann::json::parse(line, nullptr, false);
    if (!object.is_object() || !object.contains("text") || !object["text"].is_string())
      return invalid(fmt::format("{}:{}: is no JSON object with a \"text\"", file, number));
    add_document(object["text"].get_ref<const std::string&>(), documents);
  }
  return {};
}

}  // namespace sennit::trainer
