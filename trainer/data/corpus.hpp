// corpus.hpp: finds texts and makes documents of them.
//
// A file is one document, and one of JSON lines (.jsonl) a document a line ("text"); a manual
// page's source becomes plain text, by groff; gzip is undone. What is longer than kLongestDocument
// is cut at the ends of lines, so that a single long text, too, has parts to hold out and work for
// every thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.hpp"

namespace sennit::trainer {

inline constexpr size_t kLongestDocument = 64 * 1024;

// Files by name, each once, sorted. inputs: files, folders (every file below them) and globs; none:
// the manual pages of the packages manpages and manpages-dev. Errors: an input that matches
// nothing.
Result<std::vector<std::string>> find_texts(const std::vector<std::string>& inputs);

// The documents of a file, some at a time: only a manual page is in memory as a whole.
class DocumentReader {
 public:
  // Errors, of both: it cannot be read; a line that is no JSON object with a "text".
  static Result<DocumentReader> open(const std::string& file);
  DocumentReader(DocumentReader&&) noexcept;
  DocumentReader& operator=(DocumentReader&&) noexcept;
  ~DocumentReader();
  // Appends documents of about so many bytes. False: these were the last.
  Result<bool> next(size_t bytes, std::vector<std::string>* documents);

 private:
  struct State;
  DocumentReader();
  std::unique_ptr<State> state_;
};

// Appends all of a file's documents. Errors: it cannot be read; a line that is no JSON object with
// a "text"; a manual page, and groff is not installed.
Status read_documents(const std::string& file, std::vector<std::string>* documents);

}  // namespace sennit::trainer
