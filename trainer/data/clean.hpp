// clean.hpp: which documents are worth learning from: long enough, of good quality, not seen
// before.
//
// Quality is the rule of quality_fault(). Duplicates are found on texts with case and white space
// evened out: the same whole text, the same long paragraph, or nearly the same text (MinHash over
// runs of five words; Broder 1997). The held-out part is chosen by a document's own hash, so it
// does not change when a corpus grows, and copies of a document are never on both sides.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace sennit::trainer {

// each also does what stands before it
enum class Dedup : uint8_t { none, exact, paragraphs, near };
inline constexpr const char* kDedups[] = {"none", "exact", "paragraphs", "near"};

// What is left out of a corpus, and how much of the rest is held out. mark(), held_out() and the
// Cleaner of one corpus get the same.
struct CleanOptions {
  Dedup dedup = Dedup::none;
  size_t min_bytes = 1;    // shorter documents go
  bool quality = false;    // those with a quality_fault() go
  double held_out = 0.05;  // share of the documents that is never learned from
};

// Why a text is no prose, or null. Of its characters at least 60% are letters, digits or white
// space; its words are 2 to 15 characters long on average; at most 30% of its lines' bytes are of
// lines that stood before; and it is UTF-8 without NUL.
const char* quality_fault(std::string_view text);

inline constexpr int kHashes = 64;  // of a MinHash

// All that keep() must know of one document. What `dedup` does not ask for is not worked out, nor
// is anything but `hash` where there is a fault.
struct Marks {
  uint64_t hash = 0;                     // of the evened text
  std::vector<uint64_t> paragraphs;      // hashes, in order; 0: too short to be left out
  std::array<uint32_t, kHashes> near{};  // the MinHash
  const char* fault = nullptr;           // of length or quality
};
// Pure: for many documents at once on many threads.
Marks mark(std::string_view text, const CleanOptions& options);
bool held_out(const Marks& marks, const CleanOptions& options);

// Decides on the documents of one corpus: of those that are alike the first stays. One thread.
// Memory: a hash of each document and long paragraph, and for near duplicates 256 bytes and 16
// entries of a hash table a document, as far as `dedup` asks for them.
class Cleaner {
 public:
  explicit Cleaner(const CleanOptions& options) : options_(options) {}
  // Documents in their order. Whether it stays; `text` loses the paragraphs that stood elsewhere
  // before.
  bool keep(const Marks& marks, std::string* text);
  struct Counts {
    int64_t documents = 0, kept = 0, copies = 0, near_copies = 0, paragraphs = 0;
    std::unordered_map<std::string, int64_t> faults;
  };
  const Counts& counts() const { return counts_; }

 private:
  bool near_copy(const Marks& marks);
  CleanOptions options_;
  Counts counts_;
  std::unordered_set<uint64_t> texts_, paragraphs_;
  std::vector<std::array<uint32_t, kHashes>> near_;  // of what was kept
  // a band's hash to indexes of near_
  std::unordered_map<uint64_t, std::vector<uint32_t>> buckets_;
};

}  // namespace sennit::trainer
