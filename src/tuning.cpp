#include "tuning.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "algorithm.hpp"
#include "cached_file.hpp"
#include "options.hpp"
#include "read_file.hpp"
#include "text_scan.hpp"

namespace sennit {
namespace {

constexpr size_t kMaxEntries = 100'000;
constexpr size_t kMaxRadices = 64;

template <typename T>
bool number(std::string_view text, T* value, int base = 10) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value, base);
  return error == std::errc() && end == text.data() + text.size();
}

// One line of the file, word after word.
class Line {
 public:
  Line(const std::vector<Token>& words, std::string_view file) : words_(words), file_(file) {}

  // The next word, which must be there.
  Result<Token> next(std::string_view expected) {
    if (at_ < words_.size()) return words_[at_++];
    Token behind = words_.back();
    behind.column += behind.text.size();
    return error_at(file_, behind, fmt::format("{} behind it", expected));
  }
  Status word(std::string_view expected) {
    const Result<Token> token = next(fmt::format("\"{}\"", expected));
    if (!token) return token.status();
    return token->text == expected ? Status() : error_at(file_, *token, fmt::format("\"{}\"", expected));
  }
  template <typename T>
  Status value(std::string_view expected, T* to, int base = 10) {
    const Result<Token> token = next(expected);
    if (!token) return token.status();
    return number(token->text, to, base) ? Status() : error_at(file_, *token, expected);
  }
  Status end() const {
    return at_ == words_.size() ? Status() : error_at(file_, words_[at_], "the end of the line");
  }

 private:
  const std::vector<Token>& words_;
  const std::string_view file_;
  size_t at_ = 0;
};

Status parse_radices(const Token& token, std::string_view file, std::vector<uint16_t>* radices) {
  if (token.text == "-") return {};
  for (size_t begin = 0; begin <= token.text.size();) {
    const size_t end = std::min(token.text.find(',', begin), token.text.size());
    uint16_t radix = 0;
    if (!number(token.text.substr(begin, end - begin), &radix) || radices->size() >= kMaxRadices)
      return error_at(file, token, fmt::format("\"-\", or up to {} numbers as in 4,2", kMaxRadices));
    radices->push_back(radix);
    begin = end + 1;
  }
  return {};
}

}  // namespace

Tuning::Key Tuning::key(uint64_t tree, const Request& request, int ranks) {
  const auto bytes = static_cast<uint64_t>(std::min(payload_bytes(request, ranks), 9e18));
  return {tree, request.collective, std::bit_floor(bytes)};
}

const Tuned* Tuning::find(uint64_t tree, const Request& request, int ranks) const {
  const auto found = entries_.find(key(tree, request, ranks));
  return found == entries_.end() ? nullptr : &found->second;
}

void Tuning::set(uint64_t tree, const Request& request, int ranks, Tuned tuned) {
  entries_[key(tree, request, ranks)] = std::move(tuned);
}

void Tuning::merge(const Tuning& newer) {
  for (const auto& [key, tuned] : newer.entries_) entries_[key] = tuned;
}

std::string Tuning::to_text() const {
  std::string text =
      "# sennit: what was fastest when it was measured. A line may be deleted, and so may the file.\n";
  for (const auto& [key, tuned] : entries_) {
    const auto& [tree, collective, bytes] = key;
    const Parameters& p = tuned.parameters;
    text +=
        fmt::format("tree {:016x} {} {} {} chunks {} radices {} whole {} predicted_ns {} measured_ns {}\n",
                    tree, name(collective), bytes, tuned.algorithm, p.chunks,
                    p.radices.empty() ? std::string("-") : fmt::format("{}", fmt::join(p.radices, ",")),
                    p.whole_stages, tuned.predicted_ns, tuned.measured_ns);
  }
  return text;
}

Result<Tuning> Tuning::parse(std::string_view text, std::string_view file) {
  const Result<std::vector<std::vector<Token>>> lines = scan(text, file, false);
  if (!lines) return lines.status();
  Tuning table;
  for (const std::vector<Token>& words : *lines) {
    Line line(words, file);
    uint64_t tree = 0, bytes = 0;
    Tuned tuned;
    SENNIT_RETURN_IF_ERROR(line.word("tree"));
    SENNIT_RETURN_IF_ERROR(line.value("a fingerprint of 16 hexadecimal digits", &tree, 16));
    const Result<Token> of = line.next("a collective");
    if (!of) return of.status();
    const Result<Collective> collective = parse_collective(of->text);
    if (!collective) return error_at(file, *of, "a collective, such as all_reduce");
    SENNIT_RETURN_IF_ERROR(line.value("a size in bytes", &bytes));
    const Result<Token> algorithm = line.next("an algorithm");
    if (!algorithm) return algorithm.status();
    tuned.algorithm = algorithm->text;
    SENNIT_RETURN_IF_ERROR(line.word("chunks"));
    SENNIT_RETURN_IF_ERROR(line.value("a number of chunks", &tuned.parameters.chunks));
    SENNIT_RETURN_IF_ERROR(line.word("radices"));
    const Result<Token> radices = line.next("radices");
    if (!radices) return radices.status();
    SENNIT_RETURN_IF_ERROR(parse_radices(*radices, file, &tuned.parameters.radices));
    SENNIT_RETURN_IF_ERROR(line.word("whole"));
    SENNIT_RETURN_IF_ERROR(line.value("a number of stages up to 255", &tuned.parameters.whole_stages));
    SENNIT_RETURN_IF_ERROR(line.word("predicted_ns"));
    SENNIT_RETURN_IF_ERROR(line.value("nanoseconds", &tuned.predicted_ns));
    SENNIT_RETURN_IF_ERROR(line.word("measured_ns"));
    SENNIT_RETURN_IF_ERROR(line.value("nanoseconds", &tuned.measured_ns));
    SENNIT_RETURN_IF_ERROR(line.end());
    if (tuned.parameters.chunks == 0 || tuned.parameters.chunks > 1u << 20)
      return error_at(file, words.front(), "from 1 to 1048576 chunks");
    if (table.entries_.size() >= kMaxEntries)
      return error_at(file, words.front(), fmt::format("at most {} lines", kMaxEntries));
    table.entries_[{tree, *collective, std::bit_floor(bytes)}] = std::move(tuned);
  }
  return table;
}

Result<Tuning> Tuning::read(const std::string& path) {
  std::error_code error;
  if (path.empty() || !std::filesystem::exists(path, error)) return Tuning();
  const Result<std::string> text = read_file(path);
  if (!text) return text.status();
  return parse(*text, path);
}

Status Tuning::add_to(const std::string& path) const {
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  if (!folder.empty()) std::filesystem::create_directories(folder, error);
  const auto lacking = [&](const char* what) {
    return Status(SENNIT_OUT_OF_RESOURCES, fmt::format("{}: {}: {}; SENNIT_TUNING names another place", path,
                                                       what, std::strerror(errno)));
  };
  // Two jobs that end at once must not lose what the other found.
  const std::string lock = path + ".lock";
  const int guard = open(lock.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0644);
  if (guard < 0) return lacking("cannot keep what was measured there");
  flock(guard, LOCK_EX);
  Result<Tuning> all = read(path);
  Status status = all.status();
  if (all) {
    all->merge(*this);
    const std::string temporary = fmt::format("{}.{}", path, getpid());
    std::ofstream file(temporary);
    file << all->to_text();
    file.close();
    if (!file || std::rename(temporary.c_str(), path.c_str()) != 0) {
      status = lacking("cannot be written");
      std::filesystem::remove(temporary, error);
    }
  }
  close(guard);
  return status;
}

std::string tuning_path(uint64_t fabric_fingerprint) {
  if (std::string given = option_text("SENNIT_TUNING"); !given.empty()) return given;
  return cached_file(fmt::format("tuning-{:016x}", fabric_fingerprint));
}

void apply(const Tuned& tuned, const Request& request, const TierTree& tree, Plan* plan) {
  const Algorithm* algorithm = find_algorithm(tuned.algorithm);
  if (!algorithm || !algorithm->applies(tree, request)) return;
  std::erase_if(plan->candidates, [&](const Candidate& c) {
    return c.algorithm == tuned.algorithm && c.parameters == tuned.parameters;
  });
  for (Candidate& c : plan->candidates)
    if (c.rejected.empty()) c.rejected = "slower when measured";
  plan->candidates.insert(plan->candidates.begin(),
                          {tuned.algorithm, tuned.parameters, tuned.predicted_ns, "", tuned.measured_ns});
  choose(request, tree, 0, plan);
}

}  // namespace sennit
