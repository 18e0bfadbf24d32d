// corpus.hpp: finds texts and makes documents of them.
//
// A file is one document, and one of JSON lines (.jsonl) a document a line ("text"); a manual page's source
// becomes plain text; gzip is undone. What is longer than kLongestDocument is cut at the ends of lines, so
// that a single long text, too, has parts to hold out and work for every thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "status.hpp"

namespace sennit::trainer {

inline constexpr size_t kLongestDocument = 64 * 1024;

// Files by name, each once, sorted. inputs: files, folders (every file below them) and globs; none: the
// manual pages of the packages manpages and manpages-dev. Errors: an input that matches nothing.
Result<std::vector<std::string>> find_texts(const std::vector<std::string>& inputs);

// Appends a file's documents. Errors: it cannot be read; a line that is no JSON object with a "text".
Status read_documents(const std::string& file, std::vector<std::string>* documents);

}  // namespace sennit::trainer
