// tokenize.cpp: see trainer/data/tokenize.hpp.
#include "trainer/data/tokenize.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <new>
#include <optional>
#include <thread>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "trainer/base/checksum.hpp"
#include "trainer/base/start_thread.hpp"
#include "trainer/data/corpus.hpp"
#include "trainer/data/shards.hpp"
#include "trainer/data/tokenizer.hpp"

namespace sennit::trainer {
namespace {

using Clock = std::chrono::steady_clock;
double since(Clock::time_point began) {
  return std::chrono::duration<double>(Clock::now() - began).count();
}

constexpr uint64_t kBlockBytes = 64 << 20;  // of files, as they lie on disk
constexpr uint64_t kSliceBytes = 4 << 20;   // of a larger file's text: work for a thread

Status no_memory() {
  return {
      SENNIT_OUT_OF_RESOURCES,
      "there is no memory left: --sample takes less text to learn from, --threads less at a time"};
}

struct Document {
  std::string text;
  Marks marks;
  std::vector<int32_t> tokens;
};

// A file, or the part of a large one.
struct FileOfBlock {
  std::string name;
  std::vector<std::string> texts;
  bool read = false;
  std::vector<Document> documents;
  Status status;
};

struct Files {
  const std::vector<std::string>& names;
  size_t next = 0;
  std::optional<DocumentReader> open;  // names[next], which is large
  bool done() const { return next == names.size(); }
};

class Tokenization {
 public:
  explicit Tokenization(const TokenizeOptions& options) : options_(options) {
    report_.threads = options.threads > 0
                          ? options.threads
                          : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
    memories_.resize(static_cast<size_t>(report_.threads));
  }

  Result<TokenizeReport> go(const std::function<void(const std::string&)>& progress) {
    const auto began = Clock::now();
    Result<std::vector<std::string>> files = find_texts(options_.inputs);
    if (!files) return files.status();
    report_.files = static_cast<int64_t>(files->size());
    SENNIT_RETURN_IF_ERROR(options_.tokenizer.empty() ? learn(*files, progress) : load());
    auto writer =
        ShardWriter::open(options_.folder, tokenizer_->vocabulary(), options_.shard_tokens);
    if (!writer) return writer.status();
    Cleaner cleaner(options_.clean);
    uint64_t tokenized_bytes = 0;
    for (Files reading{.names = *files, .open = {}}; !reading.done();) {
      std::vector<FileOfBlock> block;
      SENNIT_RETURN_IF_ERROR(read_block(&reading, &cleaner, &block));
      const auto encoding = Clock::now();
      SENNIT_RETURN_IF_ERROR(parallel(block.size(), [&](size_t i, size_t thread) {
        for (Document& document : block[i].documents) encode(&document, thread);
      }));
      for (const FileOfBlock& file : block)
        for (const Document& document : file.documents) {
          const Split split =
              held_out(document.marks, options_.clean) ? Split::held_out : Split::training;
          SENNIT_RETURN_IF_ERROR((*writer)->add(split, document.tokens, document.text.size()));
          tokenized_bytes += document.text.size();
        }
      report_.encode_seconds += since(encoding);
      progress(fmt::format("{} of {} files, {:.1f} MB of text", reading.next, files->size(),
                           static_cast<double>(report_.text_bytes) / 1e6));
    }
    report_.cleaned = cleaner.counts();
    report_.documents = report_.cleaned.kept;
    for (const Split split : {Split::training, Split::held_out})
      report_.tokens[static_cast<int>(split)] = (*writer)->tokens(split);
    if (report_.tokens[0] == 0) return nothing_left(report_.cleaned);
    report_.bytes_per_token = static_cast<double>(tokenized_bytes) /
                              static_cast<double>(report_.tokens[0] + report_.tokens[1]);
    SENNIT_RETURN_IF_ERROR((*writer)->finish(tokenizer_->model(), facts()));
    report_.seconds = since(began);
    return report_;
  }

 private:
  // body(i, thread) for i below n, on all threads.
  template <typename Body>
  Status parallel(size_t n, Body body) {
    std::atomic<size_t> next{0};
    std::atomic<bool> failed{false};
    const auto work = [&](size_t thread) {
      try {
        for (size_t i = 0; !failed && (i = next++) < n;) body(i, thread);
      } catch (const std::bad_alloc&) {
        failed = true;
      }
    };
    std::vector<std::thread> helpers =
        start_helpers("reading and tokenizing", report_.threads,
                      [&](int thread) { work(static_cast<size_t>(thread)); });
    report_.threads = 1 + static_cast<int>(helpers.size());
    work(0);
    for (std::thread& helper : helpers) helper.join();
    return failed ? no_memory() : Status();
  }

  // The next small file, which a thread will read, or part of a large one. *bytes grows by its
  // size.
  static Status add_to_block(Files* files, std::vector<FileOfBlock>* block, uint64_t* bytes) {
    FileOfBlock& file = block->emplace_back();
    file.name = files->names[files->next];
    if (!files->open) {
      std::error_code error;
      const auto size = std::filesystem::file_size(file.name, error);
      if (error || size <= kSliceBytes) {
        *bytes += error ? 0 : size;
        files->next++;
        return {};
      }
      Result<DocumentReader> opened = DocumentReader::open(file.name);
      if (!opened) return opened.status();
      files->open = *std::move(opened);
    }
    const Result<bool> more = files->open->next(kSliceBytes, &file.texts);
    if (!more) return more.status();
    file.read = true;
    for (const std::string& text : file.texts) *bytes += text.size();
    if (*more) return {};
    files->open.reset();
    files->next++;
    return {};
  }

  // Reads about kBlockBytes of files, and keeps of their documents what the cleaner does.
  Status read_block(Files* files, Cleaner* cleaner, std::vector<FileOfBlock>* block) {
    const auto began = Clock::now();
    for (uint64_t bytes = 0; !files->done() && bytes < kBlockBytes;)
      SENNIT_RETURN_IF_ERROR(add_to_block(files, block, &bytes));
    SENNIT_RETURN_IF_ERROR(parallel(block->size(), [&](size_t i, size_t) {
      FileOfBlock& file = (*block)[i];
      if (!file.read) file.status = read_documents(file.name, &file.texts);
      for (std::string& text : file.texts) {
        Document document;
        document.marks = mark(text, options_.clean);
        document.text = std::move(text);
        file.documents.push_back(std::move(document));
      }
    }));
    for (FileOfBlock& file : *block) {
      SENNIT_RETURN_IF_ERROR(file.status);
      for (const Document& document : file.documents) report_.text_bytes += document.text.size();
      std::erase_if(file.documents, [&](Document& document) {
        return !cleaner->keep(document.marks, &document.text);
      });
    }
    report_.read_seconds += since(began);
    return {};
  }

  // For the training part.
  Status nothing_left(const Cleaner::Counts& counts) const {
    return invalid(
        fmt::format("no document is left to train on: of {} in {} files {} are held out, and the "
                    "others are empty or left out",
                    counts.documents, report_.files, counts.kept));
  }

  void encode(Document* document, size_t thread) {
    document->tokens.push_back(tokenizer_->beginning());
    tokenizer_->encode(document->text, &document->tokens, &memories_[thread]);
    document->tokens.push_back(tokenizer_->end());
  }

  Status load() {
    Result<std::shared_ptr<const Tokenizer>> loaded = Tokenizer::load(options_.tokenizer);
    if (!loaded) return loaded.status();
    return use(std::move(*loaded));
  }

  Status use(std::shared_ptr<const Tokenizer> tokenizer) {
    tokenizer_ = std::move(tokenizer);
    report_.vocabulary = tokenizer_->vocabulary();
    report_.exact = tokenizer_->exact();
    return {};
  }

  // From the training documents of files in an order that their names' hashes give, up to
  // sample_bytes.
  Status learn(std::vector<std::string> files,
               const std::function<void(const std::string&)>& progress) {
    const auto began = Clock::now();
    const auto key = [](const std::string& name) { return checksum_of(name.data(), name.size()); };
    std::sort(files.begin(), files.end(),
              [&](const auto& a, const auto& b) { return key(a) < key(b); });
    Cleaner cleaner(options_.clean);
    std::vector<std::string> sample;
    for (Files reading{.names = files, .open = {}};
         !reading.done() && report_.sample_bytes < options_.sample_bytes;) {
      std::vector<FileOfBlock> block;
      SENNIT_RETURN_IF_ERROR(read_block(&reading, &cleaner, &block));
      for (FileOfBlock& file : block)
        for (Document& document : file.documents)
          if (!held_out(document.marks, options_.clean) &&
              report_.sample_bytes < options_.sample_bytes) {
            report_.sample_bytes += document.text.size();
            sample.push_back(std::move(document.text));
          }
    }
    if (sample.empty()) return nothing_left(cleaner.counts());
    report_.text_bytes = 0;
    report_.read_seconds = 0;
    progress(fmt::format("learning {} pieces from {:.1f} MB", options_.vocabulary,
                         static_cast<double>(report_.sample_bytes) / 1e6));
    Result<std::shared_ptr<const Tokenizer>> learned =
        Tokenizer::learn(sample, options_.vocabulary);
    if (!learned) return learned.status();
    report_.learn_seconds = since(began);
    return use(std::move(*learned));
  }

  nlohmann::json facts() const {
    return {{"beginning", tokenizer_->beginning()},
            {"end", tokenizer_->end()},
            {"inputs",
             options_.inputs.empty() ? std::vector<std::string>{"manual pages"} : options_.inputs},
            {"cleaning",
             {{"dedup", kDedups[static_cast<int>(options_.clean.dedup)]},
              {"min_bytes", options_.clean.min_bytes},
              {"quality", options_.clean.quality},
              {"held_out", options_.clean.held_out}}}};
  }

  const TokenizeOptions& options_;
  TokenizeReport report_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::vector<Tokenizer::Memory> memories_;  // one a thread
};

}  // namespace

Result<TokenizeReport> tokenize(const TokenizeOptions& options,
                                const std::function<void(const std::string&)>& progress) {
  if (!(options.clean.held_out >= 0 && options.clean.held_out < 1))
    return invalid(fmt::format("a held-out part of {}: it must be at least 0 and below 1",
                               options.clean.held_out));
  try {
    return Tokenization(options).go(progress);
  } catch (const std::bad_alloc&) {
    return no_memory();
  }
}

}  // namespace sennit::trainer
