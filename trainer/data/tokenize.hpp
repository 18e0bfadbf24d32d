// tokenize.hpp: the whole way from files of text to a folder of shards: find, read, clean, learn a
// tokenizer or load one, encode, write. The same files and options give the same bytes, on any
// number of threads.
//
// Files go through in blocks: read and judged on all threads, chosen in order, encoded on all
// threads, written in order. Memory: a block (kBlockBytes), the sample that the tokenizer is
// learned from, and what trainer/data/clean.hpp says.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "trainer/data/clean.hpp"

namespace sennit::trainer {

// What to make of which texts. `inputs` are as find_texts() takes them; the folder is made where it
// is not there, and a corpus in it is replaced.
struct TokenizeOptions {
  std::vector<std::string> inputs;    // none: the manual pages
  std::string folder;                 // written into
  std::string tokenizer;              // a model to use; empty: learn one
  int64_t vocabulary = 4096;          // to learn
  uint64_t sample_bytes = 256 << 20;  // of text to learn from, at most
  CleanOptions clean;
  int64_t shard_tokens = 64 << 20;
  int threads = 0;  // 0: one a core
};

// What was read, kept and written, and how long that took in seconds.
struct TokenizeReport {
  int64_t files = 0, vocabulary = 0;
  uint64_t text_bytes = 0, sample_bytes = 0;  // read as text; learned from
  int64_t documents = 0, tokens[2] = {0, 0};  // kept; training, held out
  double bytes_per_token = 0;
  bool exact = false;  // any bytes come back
  double learn_seconds = 0, read_seconds = 0, encode_seconds = 0, seconds = 0;  // read: and clean
  int threads = 0;
  Cleaner::Counts cleaned;
};

// progress: called now and then with a line that says how far it is.
Result<TokenizeReport> tokenize(const TokenizeOptions& options,
                                const std::function<void(const std::string&)>& progress);

}  // namespace sennit::trainer
