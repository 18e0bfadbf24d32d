// `sennit tokenize`: text to shards of tokens for `sennit train`.
//
//   sennit tokenize --output corpus                           the manual pages of this system
//   sennit tokenize --output corpus --check                   every checksum of what was written
//   sennit tokenize --output corpus --vocabulary 8192 'books/*.txt' notes/ pages.jsonl.gz
#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>

#include <fmt/core.h>
#include <unistd.h>

#include "command/commands.hpp"
#include "trainer/data/loader.hpp"
#include "trainer/data/shards.hpp"
#include "trainer/data/tokenize.hpp"

namespace sennit {
namespace {

using namespace trainer;  // NOLINT: this file is the command itself

double mega(uint64_t bytes) { return static_cast<double>(bytes) / 1e6; }

// 12,345
std::string grouped(int64_t number) {
  std::string text = std::to_string(number);
  for (int at = static_cast<int>(text.size()) - 3; at > 0; at -= 3)
    text.insert(static_cast<size_t>(at), ",");
  return text;
}

void print(const TokenizeOptions& options, const TokenizeReport& report) {
  const Cleaner::Counts& cleaned = report.cleaned;
  fmt::print("read: {} file{}, {:.2f} MB of text, {} document{}{}\n", grouped(report.files),
             report.files == 1 ? "" : "s", mega(report.text_bytes), grouped(cleaned.documents),
             cleaned.documents == 1 ? "" : "s",
             options.inputs.empty() ? " (this system's manual pages)" : "");
  std::string left_out;
  const auto add = [&](int64_t count, const std::string& what) {
    if (count > 0)
      left_out += fmt::format("{}{} {}", left_out.empty() ? "" : ", ", grouped(count), what);
  };
  const std::map<std::string, int64_t> faults(cleaned.faults.begin(), cleaned.faults.end());
  for (const auto& [fault, count] : faults) add(count, fault);
  add(cleaned.copies, "copies");
  add(cleaned.near_copies, "near copies");
  add(cleaned.paragraphs, "paragraphs that stood before");
  fmt::print("kept: {} of them; left out: {}\n", grouped(report.documents),
             left_out.empty() ? "none" : left_out);
  if (options.tokenizer.empty()) {
    fmt::print(
        "tokenizer: {} pieces learned from {:.2f} MB in {:.1f} s{}\n", grouped(report.vocabulary),
        mega(report.sample_bytes), report.learn_seconds,
        report.vocabulary < options.vocabulary
            ? fmt::format(" (the text has no more; {} were asked for)", grouped(options.vocabulary))
            : "");
  } else {
    fmt::print("tokenizer: {}, {} pieces{}\n", options.tokenizer, grouped(report.vocabulary),
               report.exact ? "" : "; it does not give every text back exactly");
  }
  fmt::print("tokens: {} for training, {} held out; {:.2f} bytes a token\n",
             grouped(report.tokens[0]), grouped(report.tokens[1]), report.bytes_per_token);
  fmt::print(
      "speed: {:.1f} MB/s to read and clean, {:.1f} MB/s to tokenize and write, on {} threads; "
      "{:.1f} s in "
      "all\n",
      mega(report.text_bytes) / report.read_seconds,
      static_cast<double>(report.tokens[0] + report.tokens[1]) * report.bytes_per_token / 1e6 /
          report.encode_seconds,
      report.threads, report.seconds);
  fmt::print("written: {}/index.json\n", options.folder);
}

// Of a folder that was written before.
int check(const std::string& folder) {
  const auto data = Dataset::open(folder);
  const Status status = data.ok() ? (*data)->verify() : data.status();
  if (!status.ok()) {
    fmt::print(stderr, "sennit tokenize: {}\n", status.text());
    if (status.kind() == SENNIT_OUT_OF_RESOURCES) return 3;
    return std::filesystem::exists(folder + "/" + kIndexName) ? 1 : 2;
  }
  fmt::print("{}: {} tokens for training, {} held out, of {}: every checksum is right\n", folder,
             grouped((*data)->tokens(Split::training)), grouped((*data)->tokens(Split::held_out)),
             grouped((*data)->vocabulary()));
  return 0;
}

int run(const TokenizeOptions& options) {
  const bool terminal = ::isatty(STDERR_FILENO) == 1;
  const Result<TokenizeReport> report = tokenize(options, [&](const std::string& line) {
    if (terminal) fmt::print(stderr, "\r\033[K{}", line);
  });
  if (terminal) fmt::print(stderr, "\r\033[K");
  Status status = report.status();
  int exit_code = 2;
  if (status.ok()) {  // what was written is read back before anybody relies on it
    const auto data = Dataset::open(options.folder);
    status = data.ok() ? (*data)->verify() : data.status();
    exit_code = 1;
  }
  if (!status.ok()) {
    fmt::print(stderr, "sennit tokenize: {}\n", status.text());
    const bool lacks =
        status.kind() == SENNIT_OUT_OF_RESOURCES || status.kind() == SENNIT_UNSUPPORTED;
    return lacks ? 3 : exit_code;
  }
  print(options, *report);
  return 0;
}

}  // namespace

void add_tokenize_command(CommandLine& line) {
  const auto options = std::make_shared<TokenizeOptions>();
  const Command command = line.command("tokenize", "text to shards of tokens, for train");
  command.option(
      "texts", options->inputs,
      "files, folders and globs; gzip, manual pages and .jsonl (\"text\") are understood. None: "
      "this system's manual pages");
  command.option("-o,--output", options->folder, "the folder to write").required();
  command.option("--vocabulary", options->vocabulary, "tokens, to learn").show_default();
  command.option("--tokenizer", options->tokenizer,
                 "a sentencepiece model to use instead of learning one");
  command.option("--sample", options->sample_bytes, "bytes of text to learn from, at most")
      .size(Argument::Kilo::is_1024)
      .show_default();
  const auto dedup = std::make_shared<std::string>("none");
  command
      .option(
          "--dedup", *dedup,
          "exact (whole documents), paragraphs (these, too), near (and documents that share 80% of "
          "their runs of five words)")
      .one_of(std::vector<std::string>(std::begin(kDedups), std::end(kDedups)))
      .show_default();
  command.option("--min-length", options->clean.min_bytes, "bytes that a document must have")
      .within(0, 1 << 30)
      .show_default();
  command.flag("--quality", options->clean.quality,
               "leave out what is no prose: under 60% letters, digits and white space; words "
               "shorter than 2 or "
               "longer than 15 on average; over 30% of lines that stood before; no UTF-8");
  command.option("--validation", options->clean.held_out, "share of documents that is held out")
      .show_default();
  command.option("--threads", options->threads, "0: one a core").within(0, 1024);
  const auto checking = std::make_shared<bool>(false);
  command.flag("--check", *checking, "only see that what is in the output folder is undamaged");
  command.action([=] {
    if (*checking) {
      return check(options->folder);
    }
    const auto kind =
        std::find(std::begin(kDedups), std::end(kDedups), *dedup) - std::begin(kDedups);
    options->clean.dedup = static_cast<Dedup>(kind);
    return run(*options);
  });
}

}  // namespace sennit
