// clean.cpp: see trainer/data/clean.hpp.
#include "trainer/data/clean.hpp"

#include <algorithm>
#include <limits>

#include "base/arithmetic.hpp"
#include "trainer/base/checksum.hpp"
#include "trainer/data/tokenizer.hpp"

namespace sennit::trainer {
namespace {

constexpr size_t kLongParagraph = 200;  // bytes, evened out
constexpr int kBands = 16, kRows = kHashes / kBands;
constexpr double kNear = 0.8;  // of the runs of words are shared

bool is_space(char letter) { return letter == ' ' || (letter >= '\t' && letter <= '\r'); }

// Lower case, one space for any white space, none at the ends.
std::string evened(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char letter : text) {
    if (is_space(letter)) {
      if (!out.empty() && out.back() != ' ') out += ' ';
    } else {
      out += letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter + 32) : letter;
    }
  }
  if (!out.empty() && out.back() == ' ') out.pop_back();
  return out;
}

uint64_t hash_of(std::string_view text) { return checksum_of(text.data(), text.size()); }

// Calls take(begin, end) for each paragraph and the blank lines behind it.
template <typename Take>
void each_paragraph(std::string_view text, Take take) {
  for (size_t begin = 0; begin < text.size();) {
    size_t end = std::min(text.find("\n\n", begin), text.size());
    while (end < text.size() && text[end] == '\n') end++;
    take(begin, end);
    begin = end;
  }
}

void min_hashes(std::string_view even, std::array<uint32_t, kHashes>* out) {
  out->fill(std::numeric_limits<uint32_t>::max());
  std::vector<size_t> words{0};
  for (size_t i = 0; i < even.size(); i++)
    if (even[i] == ' ') words.push_back(i + 1);
  constexpr size_t kRun = 5;
  for (size_t i = 0; i + kRun <= words.size() || i == 0; i++) {
    const size_t end = i + kRun < words.size() ? words[i + kRun] - 1 : even.size();
    const uint64_t run = hash_of(even.substr(words[i], end - words[i]));
    for (int k = 0; k < kHashes; k++) {  // 64 functions of one hash: multiply and shift
      const uint64_t odd = (2 * static_cast<uint64_t>(k) + 1) * kGoldenRatio | 1;
      const auto value = static_cast<uint32_t>((run ^ (run >> 29)) * odd >> 32);
      (*out)[static_cast<size_t>(k)] = std::min((*out)[static_cast<size_t>(k)], value);
    }
  }
}

}  // namespace

const char* quality_fault(std::string_view text) {
  size_t characters = 0, plain = 0, words = 0, letters = 0;
  for (size_t at = 0; at < text.size(); characters++) {
    const size_t length = utf8_length(text.substr(at));
    if (length == 0 || text[at] == '\0') return "not UTF-8 text";
    const char first = text[at];
    const bool space = is_space(first);
    const bool word = length > 1 || (first >= '0' && first <= '9') ||
                      ((first | 32) >= 'a' && (first | 32) <= 'z');
    plain += space || word;
    letters += !space;
    words += !space && (at == 0 || is_space(text[at - 1]));
    at += length;
  }
  if (static_cast<double>(plain) < 0.6 * static_cast<double>(characters)) return "too few letters";
  if (letters < 2 * words || letters > 15 * words) return "words too short or too long";
  std::unordered_set<uint64_t> lines;
  size_t again = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    if (end > begin && !lines.insert(hash_of(text.substr(begin, end - begin))).second)
      again += end - begin;
    begin = end + 1;
  }
  return static_cast<double>(again) > 0.3 * static_cast<double>(text.size())
             ? "lines again and again"
             : nullptr;
}

Marks mark(std::string_view text, const CleanOptions& options) {
  Marks marks;
  const std::string even = evened(text);
  marks.hash = hash_of(even);
  if (even.empty() || text.size() < options.min_bytes) {
    marks.fault = "too short";
  } else if (options.quality) {
    marks.fault = quality_fault(text);
  }
  if (marks.fault) return marks;
  if (options.dedup >= Dedup::paragraphs)
    each_paragraph(text, [&](size_t begin, size_t end) {
      const std::string paragraph = evened(text.substr(begin, end - begin));
      marks.paragraphs.push_back(paragraph.size() < kLongParagraph ? 0 : hash_of(paragraph) | 1);
    });
  if (options.dedup >= Dedup::near) min_hashes(even, &marks.near);
  return marks;
}

bool held_out(const Marks& marks, const CleanOptions& options) {
  // The hash once more: documents are told apart by it elsewhere, too.
  const uint64_t again = checksum_of(&marks.hash, sizeof(marks.hash));
  return static_cast<double>(again >> 11) * 0x1p-53 < options.held_out;
}

bool Cleaner::near_copy(const Marks& marks) {
  uint64_t bands[kBands];
  for (int band = 0; band < kBands; band++) {
    bands[band] = checksum_of(marks.near.data() + band * kRows, kRows * sizeof(uint32_t)) * kBands +
                  static_cast<uint64_t>(band);
    const auto bucket = buckets_.find(bands[band]);
    if (bucket == buckets_.end()) continue;
    for (const uint32_t other : bucket->second) {
      int equal = 0;
      for (size_t k = 0; k < kHashes; k++) equal += marks.near[k] == near_[other][k];
      if (equal >= kNear * kHashes) return true;
    }
  }
  for (const uint64_t band : bands) buckets_[band].push_back(static_cast<uint32_t>(near_.size()));
  near_.push_back(marks.near);
  return false;
}

bool Cleaner::keep(const Marks& marks, std::string* text) {
  counts_.documents++;
  if (marks.fault) {
    counts_.faults[marks.fault]++;
    return false;
  }
  if (options_.dedup >= Dedup::exact && !texts_.insert(marks.hash).second) {
    counts_.copies++;
    return false;
  }
  if (options_.dedup >= Dedup::near && near_copy(marks)) {
    counts_.near_copies++;
    return false;
  }
  if (options_.dedup >= Dedup::paragraphs) {
    std::string rest;
    size_t number = 0;
    each_paragraph(*text, [&](size_t begin, size_t end) {
      const uint64_t hash = marks.paragraphs[number++];
      if (hash == 0 || paragraphs_.insert(hash).second) {
        rest.append(*text, begin, end - begin);
      } else {
        counts_.paragraphs++;
      }
    });
    *text = std::move(rest);
    if (text->size() < options_.min_bytes) {
      counts_.copies++;
      return false;
    }
  }
  counts_.kept++;
  return true;
}

}  // namespace sennit::trainer
