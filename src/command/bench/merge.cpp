// merge.cpp: see command/bench/merge.hpp.
#include "command/bench/merge.hpp"

#include <algorithm>
#include <charconv>

#include <fmt/core.h>

#include "base/rank_ranges.hpp"

namespace sennit::bench {
namespace {

// "sennit: rank 3: error: text" -> "sennit: ", 3, "error: text". False where the line is not an
// error.
bool parse(std::string_view line, std::string* program, int* rank, std::string* text) {
  for (const std::string_view name : {"sennit: ", "sennit bench: ", "sennit tune: "}) {
    if (!line.starts_with(name) || !line.substr(name.size()).starts_with("rank ")) continue;
    const std::string_view rest = line.substr(name.size() + 5);
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), *rank);
    const std::string_view after(end, static_cast<size_t>(rest.data() + rest.size() - end));
    if (error != std::errc() || !after.starts_with(": ")) continue;
    *program = name;
    *text = after.substr(2);
    for (const char* level : {"warning: ", "info: ", "debug: "})
      if (text->starts_with(level)) return false;
    return true;
  }
  return false;
}

}  // namespace

std::string ErrorMerger::text_of(const Held& held) {
  if (held.ranks.size() == 1)
    return fmt::format("{}rank {}: {}\n", held.program, *held.ranks.begin(), held.text);
  return fmt::format("{}{} ({} of them): {}\n", held.program, name_ranks(held.ranks),
                     held.ranks.size(), held.text);
}

void ErrorMerger::merge(Held held) {
  for (Held& other : held_)
    if (other.program == held.program && other.text == held.text)
      return other.ranks.merge(held.ranks);
  held_.push_back(std::move(held));
}

void ErrorMerger::take(const std::string& line, Clock::time_point now, std::string* out) {
  if (open_ && line.starts_with("  ")) {
    last_.text += "\n" + line;
    return;
  }
  if (open_) merge(std::move(last_));
  open_ = false;
  last_ = {};
  int rank = -1;
  if (parse(line, &last_.program, &rank, &last_.text)) {
    open_ = true;
    last_.ranks = {rank};
    last_.since = now;
  } else {
    *out += line + "\n";
  }
}

std::string ErrorMerger::feed(std::string_view bytes, Clock::time_point now) {
  std::string out;
  partial_ += bytes;
  for (size_t end; (end = partial_.find('\n')) != partial_.npos; partial_.erase(0, end + 1))
    take(partial_.substr(0, end), now, &out);
  return out;
}

std::string ErrorMerger::due(Clock::time_point now) {
  std::string out;
  if (open_ && now - last_.since >= kHold) {
    merge(std::move(last_));
    open_ = false;
  }
  std::erase_if(held_, [&](const Held& held) {
    if (now - held.since < kHold) return false;
    out += text_of(held);
    return true;
  });
  return out;
}

std::string ErrorMerger::end() {
  std::string out;
  if (!partial_.empty()) take(partial_, {}, &out);
  partial_.clear();
  if (open_) merge(std::move(last_));
  open_ = false;
  for (const Held& held : held_) out += text_of(held);
  held_.clear();
  return out;
}

}  // namespace sennit::bench
