// GOAL text: writing and reading. The reader takes what LogGOPSim's converter takes: words apart by
// blanks or not where they cannot be mistaken (`l1:send 8b to 1`), comments in both of C's manners,
// optional tag, cpu and nic. Cost: linear in the text; memory within a few times its length.
#include <algorithm>
#include <charconv>
#include <iterator>
#include <unordered_map>

#include <fmt/format.h>

#include "base/index.hpp"
#include "goal/goal.hpp"
#include "topology/text/scan.hpp"

namespace sennit {
namespace {

constexpr uint64_t kMostRanks = 1u << 20;
constexpr uint64_t kMostStream = 255;  // a processor or a NIC: a byte of an operation

class Reader {
 public:
  Reader(std::string_view text, std::string_view file) : text_(text), file_(file) {}

  Result<Goal> read() {
    SENNIT_RETURN_IF_ERROR(skip_lines());
    SENNIT_RETURN_IF_ERROR(expect_word("num_ranks"));
    SENNIT_RETURN_IF_ERROR(read_number(&ranks_, 1, kMostRanks));
    SENNIT_RETURN_IF_ERROR(end_line());
    for (uint64_t rank = 0; rank < ranks_; rank++) {
      SENNIT_RETURN_IF_ERROR(skip_lines());
      SENNIT_RETURN_IF_ERROR(expect_word("rank"));
      const size_t begin = at_;
      uint64_t number = 0;
      SENNIT_RETURN_IF_ERROR(read_number(&number, 0, ranks_ - 1));
      if (number != rank) {
        at_ = begin;
        skip_blanks();
        return error(fmt::format("{}: ranks come in order", rank));
      }
      if (!skip('{')) return error("\"{\"");
      SENNIT_RETURN_IF_ERROR(read_rank());
    }
    SENNIT_RETURN_IF_ERROR(skip_lines());
    if (at_ != text_.size()) return error(fmt::format("nothing more after {} ranks", ranks_));
    return std::move(goal_);
  }

 private:
  // What is here: a word, a number, or one sign.
  std::string_view here() const {
    size_t end = at_;
    while (end < text_.size() &&
           (is_letter(text_[end]) || is_digit(text_[end]) || text_[end] == '_'))
      end++;
    return text_.substr(at_, std::max<size_t>(end - at_, at_ < text_.size() ? 1 : 0));
  }
  Status error(std::string_view expected) const {
    const size_t line =
        1 + index(std::count(text_.begin(), text_.begin() + static_cast<ptrdiff_t>(at_), '\n'));
    const size_t line_begin = at_ == 0 ? 0 : text_.rfind('\n', at_ - 1) + 1;  // npos + 1 is 0
    if (at_ < text_.size() && text_[at_] == '\n')
      return invalid(fmt::format("{}:{}:{}: expected {}, found the end of the line", file_, line,
                                 at_ - line_begin + 1, expected));
    return error_at(file_, {here(), line, at_ - line_begin + 1, false}, expected);
  }

  // Comments are blanks.
  void skip_blanks() {
    while (at_ < text_.size()) {
      const std::string_view rest = text_.substr(at_);
      if (rest[0] == ' ' || rest[0] == '\t' || rest[0] == '\r') {
        at_++;
      } else if (rest.substr(0, 2) == "//") {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else if (rest.substr(0, 2) == "/*" && text_.find("*/", at_ + 2) != std::string_view::npos) {
        at_ = text_.find("*/", at_ + 2) + 2;
      } else {
        return;
      }
    }
  }
  Status skip_lines() {
    for (skip_blanks(); at_ < text_.size() && text_[at_] == '\n'; skip_blanks()) at_++;
    return text_.substr(at_, 2) == "/*" ? error("the comment's end, \"*/\"") : Status();
  }
  Status end_line() {
    skip_blanks();
    if (at_ < text_.size() && text_[at_] != '\n' && text_[at_] != '}')
      return error("the end of the line");
    return {};
  }
  bool skip(char c) {
    skip_blanks();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    at_++;
    return true;
  }
  // Letters, digits and underscores from a letter on; empty where there is none.
  std::string_view word() {
    skip_blanks();
    if (at_ >= text_.size() || !is_letter(text_[at_])) return {};
    const std::string_view found = here();
    at_ += found.size();
    return found;
  }
  bool skip_word(std::string_view wanted) {
    const size_t begin = at_;
    if (word() == wanted) return true;
    at_ = begin;
    skip_blanks();
    return false;
  }
  Status expect_word(std::string_view wanted) {
    return skip_word(wanted) ? Status() : error(fmt::format("\"{}\"", wanted));
  }
  Status read_number(uint64_t* value, uint64_t least, uint64_t most) {
    skip_blanks();
    const char* const begin = text_.data() + at_;
    const auto [end, failed] = std::from_chars(begin, text_.data() + text_.size(), *value);
    if (failed != std::errc() || *value < least || *value > most)
      return error(most == ~uint64_t{0} ? std::string("a number")
                                        : fmt::format("a number from {} to {}", least, most));
    at_ += index(end - begin);
    return {};
  }
  bool skip_any() {  // "-1"
    skip_blanks();
    if (text_.substr(at_, 2) != "-1" || (at_ + 2 < text_.size() && is_digit(text_[at_ + 2])))
      return false;
    at_ += 2;
    return true;
  }

  Status read_rank() {
    goal_.ranks.emplace_back();
    labels_.clear();
    for (;;) {
      SENNIT_RETURN_IF_ERROR(skip_lines());
      if (skip('}')) return {};
      const size_t begin = at_;
      const std::string_view first = word();
      if (first.empty()) return error("an operation, a label or \"}\"");
      if (OperationKind kind; kind_of(first, &kind)) {
        SENNIT_RETURN_IF_ERROR(read_operation(kind));
      } else if (skip(':')) {
        const auto number = static_cast<uint32_t>(goal_.ranks.back().operations.size());
        if (!labels_.try_emplace(first, number).second) {
          at_ = begin;
          return error("a label that is not taken yet");
        }
        const std::string_view name = word();
        if (!kind_of(name, &kind)) {
          at_ -= name.size();
          return error("\"send\", \"recv\" or \"calc\"");
        }
        SENNIT_RETURN_IF_ERROR(read_operation(kind));
      } else {
        SENNIT_RETURN_IF_ERROR(read_dependency(first, begin));
      }
      SENNIT_RETURN_IF_ERROR(end_line());
    }
  }

  static bool kind_of(std::string_view name, OperationKind* kind) {
    *kind = name == "send"   ? OperationKind::send
            : name == "recv" ? OperationKind::recv
                             : OperationKind::calc;
    return name == "send" || name == "recv" || name == "calc";
  }

  Status read_operation(OperationKind kind) {
    if (++operations_ > kMaxGoalOperations)
      return error(fmt::format("at most {} operations", kMaxGoalOperations));
    Goal::Operation operation;
    operation.kind = kind;
    SENNIT_RETURN_IF_ERROR(read_number(&operation.amount, 0, ~uint64_t{0}));
    uint64_t number = 0;
    if (kind != OperationKind::calc) {
      SENNIT_RETURN_IF_ERROR(expect_word("b"));
      SENNIT_RETURN_IF_ERROR(expect_word(kind == OperationKind::send ? "to" : "from"));
      if (kind == OperationKind::recv && skip_any()) {
        operation.peer = kAnyRank;
      } else {
        skip_blanks();
        const size_t begin = at_;
        SENNIT_RETURN_IF_ERROR(read_number(&number, 0, ranks_ - 1));
        if (number + 1 == goal_.ranks.size()) {
          at_ = begin;
          return error("another rank than itself");
        }
        operation.peer = static_cast<int32_t>(number);
      }
      if (skip_word("tag")) {
        if (kind == OperationKind::recv && skip_any())
          number = kAnyTag;
        else
          SENNIT_RETURN_IF_ERROR(read_number(&number, 0, kAnyTag - 1));
        operation.tag = static_cast<uint32_t>(number);
      }
    }
    if (skip_word("cpu")) {
      SENNIT_RETURN_IF_ERROR(read_number(&number, 0, kMostStream));
      operation.cpu = static_cast<uint8_t>(number);
    }
    if (kind != OperationKind::calc && skip_word("nic")) {
      SENNIT_RETURN_IF_ERROR(read_number(&number, 0, kMostStream));
      operation.nic = static_cast<uint8_t>(number);
    }
    goal_.ranks.back().operations.push_back(operation);
    return {};
  }

  Status find(std::string_view label, size_t begin, uint32_t* number) {
    const auto known = labels_.find(label);
    if (known == labels_.end()) {
      at_ = begin;
      return error("a label of an operation above");
    }
    *number = known->second;
    return {};
  }

  Status read_dependency(std::string_view label, size_t begin) {
    Goal::Dependency dependency;
    dependency.on_start = skip_word("irequires");
    if (!dependency.on_start && !skip_word("requires"))
      return error("\":\", \"requires\" or \"irequires\"");
    SENNIT_RETURN_IF_ERROR(find(label, begin, &dependency.operation));
    skip_blanks();
    const size_t second = at_;
    SENNIT_RETURN_IF_ERROR(find(word(), second, &dependency.on));
    goal_.ranks.back().dependencies.push_back(dependency);
    return {};
  }

  const std::string_view text_, file_;
  size_t at_ = 0;
  uint64_t ranks_ = 0, operations_ = 0;
  std::unordered_map<std::string_view, uint32_t> labels_;  // of the rank that is read
  Goal goal_;
};

void write(std::string* text, const Goal::Rank& rank) {
  auto out = std::back_inserter(*text);
  size_t d = 0;
  for (uint32_t i = 0; i < rank.operations.size(); i++) {
    const Goal::Operation& operation = rank.operations[i];
    const auto or_any = [](uint64_t number, bool any) {
      return any ? std::string("-1") : fmt::format("{}", number);
    };
    if (operation.kind == OperationKind::calc)
      fmt::format_to(out, "l{}: calc {}", i + 1, operation.amount);
    else
      fmt::format_to(out, "l{}: {} {}b {} {} tag {}", i + 1,
                     operation.kind == OperationKind::send ? "send" : "recv", operation.amount,
                     operation.kind == OperationKind::send ? "to" : "from",
                     or_any(static_cast<uint64_t>(operation.peer), operation.peer == kAnyRank),
                     or_any(operation.tag, operation.tag == kAnyTag));
    if (operation.cpu != 0) fmt::format_to(out, " cpu {}", operation.cpu);
    if (operation.nic != 0) fmt::format_to(out, " nic {}", operation.nic);
    *text += '\n';
    // As soon as both labels are known.
    for (; d < rank.dependencies.size(); d++) {
      const Goal::Dependency& dependency = rank.dependencies[d];
      if (std::max(dependency.operation, dependency.on) > i) break;
      fmt::format_to(out, "l{} {} l{}\n", dependency.operation + 1,
                     dependency.on_start ? "irequires" : "requires", dependency.on + 1);
    }
  }
}

}  // namespace

uint64_t Goal::operations() const {
  uint64_t sum = 0;
  for (const Rank& rank : ranks) sum += rank.operations.size();
  return sum;
}

std::string Goal::to_text() const {
  std::string text = fmt::format("num_ranks {}\n", ranks.size());
  for (size_t r = 0; r < ranks.size(); r++) {
    fmt::format_to(std::back_inserter(text), "\nrank {} {{\n", r);
    write(&text, ranks[r]);
    text += "}\n";
  }
  return text;
}

Result<Goal> parse_goal(std::string_view text, std::string_view file) {
  return Reader(text, file).read();
}

}  // namespace sennit
