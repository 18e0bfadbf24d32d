// corpus.cpp: see trainer/data/corpus.hpp.
#include "trainer/data/corpus.hpp"

#include <glob.h>

#include <algorithm>
#include <filesystem>
#include <sstream>
#include <utility>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "base/text/json.hpp"
#include "trainer/base/files.hpp"
#include "trainer/data/man_text.hpp"

namespace sennit::trainer {
namespace {

namespace fs = std::filesystem;

constexpr size_t kLooksLikeAPage = 1 << 20;  // bytes in which a manual page says that it is one

bool ends_with(const std::string& text, const char* end) {
  const std::string_view tail(end);
  return text.size() >= tail.size() &&
         text.compare(text.size() - tail.size(), tail.size(), tail) == 0;
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
  if (files->size() == before)
    return {SENNIT_NOT_FOUND, fmt::format("{}: there is no file of text", input)};
  return {};
}

// What the two packages installed, by the package manager's own lists; elsewhere all pages in
// English.
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
            "there are no manual pages here: install the packages manpages and manpages-dev, or "
            "name texts"};
  return {};
}

// Where the document that a text begins with ends: the text is longer than kLongestDocument.
size_t end_of_document(std::string_view text) {
  size_t end = text.rfind('\n', kLongestDocument - 1);
  end = end == std::string_view::npos ? kLongestDocument : end + 1;
  // not inside of a character
  while (end > kLongestDocument - 4 && (text[end] & 0xc0) == 0x80) end--;
  return end;
}

void add_document(std::string_view text, std::vector<std::string>* documents) {
  while (text.size() > kLongestDocument) {
    const size_t end = end_of_document(text);
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

struct DocumentReader::State {
  std::string file, text;
  size_t at = 0;  // of what is next in `text`
  bool json_lines = false, begun = false;
  int64_t line = 0;
  MaybeCompressed stream;

  explicit State(const std::string& name, MaybeCompressed opened)
      : file(name),
        json_lines(ends_with(name, ".jsonl") || ends_with(name, ".jsonl.gz")),
        stream(std::move(opened)) {}

  std::string_view rest() const { return std::string_view(text).substr(at); }

  // Until so many bytes are there, or the file ends.
  Status fill(size_t bytes) {
    if (text.size() - at >= bytes) return {};
    text.erase(0, std::exchange(at, 0));
    while (text.size() < bytes && !stream.ended()) SENNIT_RETURN_IF_ERROR(stream.append_to(&text));
    return {};
  }

  Status take_line(std::vector<std::string>* documents) {
    for (size_t seen = 0; rest().find('\n', seen) == std::string_view::npos && !stream.ended();) {
      seen = rest().size();
      SENNIT_RETURN_IF_ERROR(fill(seen + 1));
    }
    const size_t end = std::min(rest().find('\n'), rest().size());
    const std::string_view text_of_line = rest().substr(0, end);
    at += std::min(end + 1, rest().size());
    line++;
    if (text_of_line.find_first_not_of(" \t\r") == std::string_view::npos) return {};
    const nlohmann::json object = parse_json(text_of_line);
    if (!object.is_object() || !object.contains("text") || !object["text"].is_string())
      return invalid(fmt::format("{}:{}: is no JSON object with a \"text\"", file, line));
    add_document(object["text"].get_ref<const std::string&>(), documents);
    return {};
  }

  Status take_plain(std::vector<std::string>* documents) {
    SENNIT_RETURN_IF_ERROR(fill(begun ? kLongestDocument + 1 : kLooksLikeAPage));
    if (!std::exchange(begun, true) && is_man_page(rest())) {
      SENNIT_RETURN_IF_ERROR(fill(SIZE_MAX));
      const Result<std::string> page = man_text(rest());
      if (!page) return page.status().with_context(file);
      add_document(*page, documents);
      at = text.size();
      return {};
    }
    const bool last = rest().size() <= kLongestDocument;
    const size_t end = last ? rest().size() : end_of_document(rest());
    if (end > 0) documents->emplace_back(rest().substr(0, end));
    at += end;
    return {};
  }
};

DocumentReader::DocumentReader() = default;
DocumentReader::DocumentReader(DocumentReader&&) noexcept = default;
DocumentReader& DocumentReader::operator=(DocumentReader&&) noexcept = default;
DocumentReader::~DocumentReader() = default;

Result<DocumentReader> DocumentReader::open(const std::string& file) {
  Result<MaybeCompressed> stream = MaybeCompressed::open(file);
  if (!stream) return stream.status();
  DocumentReader reader;
  reader.state_ = std::make_unique<State>(file, *std::move(stream));
  return reader;
}

Result<bool> DocumentReader::next(size_t bytes, std::vector<std::string>* documents) {
  State& state = *state_;
  size_t counted = documents->size();
  for (size_t made = 0; made < bytes;) {
    SENNIT_RETURN_IF_ERROR(state.json_lines ? state.take_line(documents)
                                            : state.take_plain(documents));
    for (; counted < documents->size(); counted++) made += (*documents)[counted].size();
    SENNIT_RETURN_IF_ERROR(state.fill(1));
    if (state.rest().empty()) return false;
  }
  return true;
}

Status read_documents(const std::string& file, std::vector<std::string>* documents) {
  Result<DocumentReader> reader = DocumentReader::open(file);
  if (!reader) return reader.status();
  return reader->next(SIZE_MAX, documents).status();
}

}  // namespace sennit::trainer
