// text.cpp: the tuning table's text form, as plan/tuning/table.hpp shows it.
#include <algorithm>
#include <bit>
#include <charconv>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "collectives/algorithm.hpp"
#include "plan/tuning/calibration.hpp"
#include "plan/tuning/table.hpp"
#include "topology/text/scan.hpp"

namespace sennit {
namespace {

constexpr size_t kMaxEntries = 100'000;
constexpr size_t kMaxListed = 64;

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
    return token->text == expected ? Status()
                                   : error_at(file_, *token, fmt::format("\"{}\"", expected));
  }
  template <typename T>
  Status value(std::string_view expected, T* to, int base = 10) {
    const Result<Token> token = next(expected);
    if (!token) return token.status();
    return number(token->text, to, base) ? Status() : error_at(file_, *token, expected);
  }
  bool more() const { return at_ < words_.size(); }
  Status end() const {
    return at_ == words_.size() ? Status() : error_at(file_, words_[at_], "the end of the line");
  }

 private:
  const std::vector<Token>& words_;
  const std::string_view file_;
  size_t at_ = 0;
};

// "4,2" as {4, 2}; "-" is none.
template <typename T>
Status parse_list(Line& line, std::string_view expected, std::string_view file,
                  std::vector<T>* values) {
  const Result<Token> token = line.next(expected);
  if (!token) return token.status();
  if (token->text == "-") return {};
  for (size_t begin = 0; begin <= token->text.size();) {
    const size_t end = std::min(token->text.find(',', begin), token->text.size());
    T value = 0;
    if (!number(token->text.substr(begin, end - begin), &value) || values->size() >= kMaxListed)
      return error_at(file, *token,
                      fmt::format("\"-\", or up to {} numbers as in 4,2", kMaxListed));
    values->push_back(value);
    begin = end + 1;
  }
  return {};
}

// The rest of a line "cost FINGERPRINT ...".
Status parse_cost(Line& line, std::string_view file, const Token& first, CostModel* cost) {
  const std::pair<const char*, uint64_t*> constants[] = {
      {"post_ns", &cost->post_ns},
      {"message_cpu_ns", &cost->shared_cores.message_cpu_ns},
      {"latency_ns", &cost->latency_ns},
      {"shared_memory_post_ns", &cost->shared_memory_post_ns},
      {"reduce_bytes_per_s", &cost->reduce_bytes_per_s}};
  for (const auto& [key, value] : constants) {
    SENNIT_RETURN_IF_ERROR(line.word(key));
    SENNIT_RETURN_IF_ERROR(line.value("a whole number", value));
  }
  std::vector<uint64_t> latency, goodput, burst;
  const std::pair<const char*, std::vector<uint64_t>*> lists[] = {
      {"latency_permille", &latency}, {"goodput_permille", &goodput}, {"burst_ns", &burst}};
  for (const auto& [key, values] : lists) {
    SENNIT_RETURN_IF_ERROR(line.word(key));
    SENNIT_RETURN_IF_ERROR(parse_list(line, "a number for each tier", file, values));
  }
  cost->way = Way::sockets;
  if (line.more()) {
    SENNIT_RETURN_IF_ERROR(line.word("rdma"));
    cost->way = Way::rdma;
  }
  SENNIT_RETURN_IF_ERROR(line.end());
  if (latency.empty() || latency.size() != goodput.size() || latency.size() != burst.size())
    return error_at(file, first, "as many latencies as goodputs and bursts, one a tier");
  for (size_t tier = 0; tier < latency.size(); tier++)
    cost->tiers.push_back({latency[tier], goodput[tier], burst[tier]});
  if (cost->reduce_bytes_per_s == 0 || std::ranges::min(goodput) == 0)
    return error_at(file, first, "rates and goodputs above 0");
  if (std::max(std::ranges::max(latency), std::ranges::max(goodput)) > kMostPermille ||
      std::max({cost->post_ns, cost->shared_cores.message_cpu_ns, cost->latency_ns,
                cost->shared_memory_post_ns, std::ranges::max(burst)}) > kMostNs)
    return error_at(file, first, "times below 11 days, and no factor above 1000");
  return {};
}

}  // namespace

std::string Tuning::to_text() const {
  std::string text =
      "# sennit: what was fastest when it was measured. A line may be deleted, and so may the "
      "file.\n";
  for (const auto& [key, cost] : costs_) {
    std::vector<uint64_t> latency, goodput, burst;
    for (const TierCost& tier : cost.tiers) {
      latency.push_back(tier.latency_permille);
      goodput.push_back(tier.goodput_permille);
      burst.push_back(tier.burst_ns);
    }
    text += fmt::format(
        "cost {:016x} post_ns {} message_cpu_ns {} latency_ns {} shared_memory_post_ns {} "
        "reduce_bytes_per_s {} latency_permille {} goodput_permille {} burst_ns {}{}\n",
        key.first, cost.post_ns, cost.shared_cores.message_cpu_ns, cost.latency_ns,
        cost.shared_memory_post_ns, cost.reduce_bytes_per_s, fmt::join(latency, ","),
        fmt::join(goodput, ","), fmt::join(burst, ","), cost.way == Way::rdma ? " rdma" : "");
  }
  for (const auto& [key, tuned] : entries_) {
    const auto& [tree, collective, bytes] = key;
    const Parameters& p = tuned.parameters;
    text += fmt::format(
        "tree {:016x} {} {} {} chunks {} radices {} whole {} predicted_ns {} measured_ns {}\n",
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
    const bool is_cost = words.front().text == "cost";
    SENNIT_RETURN_IF_ERROR(line.word(is_cost ? "cost" : "tree"));
    SENNIT_RETURN_IF_ERROR(line.value("a fingerprint of 16 hexadecimal digits", &tree, 16));
    if (table.entries_.size() + table.costs_.size() >= kMaxEntries)
      return error_at(file, words.front(), fmt::format("at most {} lines", kMaxEntries));
    if (is_cost) {
      CostModel cost;
      SENNIT_RETURN_IF_ERROR(parse_cost(line, file, words.front(), &cost));
      table.set_cost(tree, std::move(cost));
      continue;
    }
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
    SENNIT_RETURN_IF_ERROR(parse_list(line, "radices", file, &tuned.parameters.radices));
    SENNIT_RETURN_IF_ERROR(line.word("whole"));
    SENNIT_RETURN_IF_ERROR(
        line.value("a number of stages up to 255", &tuned.parameters.whole_stages));
    SENNIT_RETURN_IF_ERROR(line.word("predicted_ns"));
    SENNIT_RETURN_IF_ERROR(line.value("nanoseconds", &tuned.predicted_ns));
    SENNIT_RETURN_IF_ERROR(line.word("measured_ns"));
    SENNIT_RETURN_IF_ERROR(line.value("nanoseconds", &tuned.measured_ns));
    SENNIT_RETURN_IF_ERROR(line.end());
    const Algorithm* known = find_algorithm(tuned.algorithm);
    if (!known) return error_at(file, *algorithm, "one of the algorithms");
    if (const Status fits = check_parameters(*known, *collective, tuned.parameters); !fits.ok())
      return error_at(file, *algorithm, "other parameters: " + fits.text());
    table.entries_[{tree, *collective, std::bit_floor(bytes)}] = std::move(tuned);
  }
  return table;
}

}  // namespace sennit
