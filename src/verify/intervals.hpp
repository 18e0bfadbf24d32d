// intervals.hpp: the verifier's containers: interned sequences and a map from places to values.
//
// A place is one number: block * kUnits + unit. Range lists, contributor sets and expressions occur
// many times over in the programs of thousands of ranks, so each is stored once and named by a
// number: equality is then a comparison of numbers. Not thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/index.hpp"

namespace sennit::verifier {

// A run of places, or of other numbers: [begin, end), never empty.
struct Stretch {
  uint64_t begin = 0, end = 0;
  bool operator==(const Stretch&) const = default;
};

// Sequences of T, each stored once. T has no padding. intern() is O(length), amortised.
template <typename T>
class SequencePool {
 public:
  uint32_t intern(std::span<const T> sequence) {
    if ((first_.size() + 1) * 2 > table_.size()) grow();
    const size_t mask = table_.size() - 1;
    size_t at = hash(sequence) & mask;
    for (; table_[at] != kEmpty; at = (at + 1) & mask) {
      const std::span<const T> known = (*this)[table_[at]];
      if (known.size() == sequence.size() &&
          std::equal(known.begin(), known.end(), sequence.begin()))
        return table_[at];
    }
    const uint32_t id = static_cast<uint32_t>(first_.size());
    table_[at] = id;
    first_.push_back(items_.size());
    items_.insert(items_.end(), sequence.begin(), sequence.end());
    return id;
  }
  std::span<const T> operator[](uint32_t id) const {
    const size_t end = id + 1 < first_.size() ? first_[id + 1] : items_.size();
    return {items_.data() + first_[id], end - first_[id]};
  }
  uint32_t size() const { return static_cast<uint32_t>(first_.size()); }

 private:
  static constexpr uint32_t kEmpty = 0xffffffffu;

  static size_t hash(std::span<const T> sequence) {
    return std::hash<std::string_view>{}(
        {reinterpret_cast<const char*>(sequence.data()), sequence.size_bytes()});
  }
  void grow() {
    table_.assign(std::max<size_t>(64, table_.size() * 2), kEmpty);
    const size_t mask = table_.size() - 1;
    for (uint32_t id = 0; id < first_.size(); id++) {
      size_t at = hash((*this)[id]) & mask;
      while (table_[at] != kEmpty) at = (at + 1) & mask;
      table_[at] = id;
    }
  }

  std::vector<T> items_;
  std::vector<size_t> first_;
  std::vector<uint32_t> table_;  // open addressing; a power of two
};

// Disjoint pieces in ascending order, each with a value; neighbours of equal value mostly are one
// piece.
template <typename V>
class IntervalMap {
 public:
  struct Piece {
    uint64_t begin, end;
    V value;
  };

  size_t size() const { return pieces_.size(); }
  std::span<const Piece> pieces() const { return pieces_; }

  // visit(begin, end, value or nullptr for a gap) over [begin, end) in ascending order.
  template <typename F>
  void visit(uint64_t begin, uint64_t end, F&& visit) const {
    auto it = std::upper_bound(pieces_.begin(), pieces_.end(), begin,
                               [](uint64_t at, const Piece& p) { return at < p.end; });
    visit_from(it, begin, end, visit);
  }

  // The same over several ascending runs; walks on from one run to the next.
  template <typename F>
  void visit(std::span<const Stretch> runs, F&& visit) const {
    auto it = pieces_.begin();
    for (const Stretch& run : runs) {
      it = gallop(it, run.begin);
      it = visit_from(it, run.begin, run.end, visit);
    }
  }

  // Overwrites with these pieces: ascending and disjoint. O(log size) a piece where these are few
  // and whole, else O(log size + pieces between the first and the last place written + what has to
  // move up).
  void replace(std::span<const Piece> news) {
    if (news.empty()) return;
    const auto low = std::lower_bound(pieces_.begin(), pieces_.end(), news.front().begin,
                                      [](const Piece& p, uint64_t at) { return p.end < at; });
    const auto high = std::upper_bound(low, pieces_.end(), news.back().end,
                                       [](uint64_t at, const Piece& p) { return at < p.begin; });
    const bool few = news.size() < index(high - low) / 4;
    if (replace_pieces(low, news, few)) return;
    std::vector<Piece>& merged = merged_;  // looked up once: it is the thread's
    merged.clear();
    const auto append = [&](const Piece& piece) {
      if (!merged.empty() && merged.back().end == piece.begin && merged.back().value == piece.value)
        merged.back().end = piece.end;
      else
        merged.push_back(piece);
    };
    auto old = low;
    uint64_t taken = 0;  // places of *old before this one are dealt with
    for (const Piece& piece : news) {
      for (; old != high && old->begin < piece.begin; ++old) {
        const uint64_t begin = std::max(old->begin, taken);
        if (begin < std::min(old->end, piece.begin))
          append({begin, std::min(old->end, piece.begin), old->value});
        if (old->end > piece.begin) break;
      }
      append(piece);
      taken = piece.end;
      while (old != high && old->end <= taken) ++old;
    }
    for (; old != high; ++old) {
      const uint64_t begin = std::max(old->begin, taken);
      if (begin < old->end) append({begin, old->end, old->value});
    }
    const size_t place = index(low - pieces_.begin());
    const size_t room = index(high - low);
    const size_t kept = std::min(room, merged.size());
    std::copy(merged.begin(), merged.begin() + static_cast<ptrdiff_t>(kept), low);
    const auto rest = pieces_.begin() + static_cast<ptrdiff_t>(place + kept);
    if (merged.size() > room)
      pieces_.insert(rest, merged.begin() + static_cast<ptrdiff_t>(kept), merged.end());
    else
      pieces_.erase(rest, rest + static_cast<ptrdiff_t>(room - kept));
  }

 private:
  using Iterator = typename std::vector<Piece>::const_iterator;

  // The first piece that ends after `at`, not before `it`: near steps are cheap, far ones
  // logarithmic.
  Iterator gallop(Iterator it, uint64_t at) const {
    ptrdiff_t stride = 1;
    Iterator low = it;
    while (it != pieces_.end() && it->end <= at) {
      low = it + 1;
      it += std::min<ptrdiff_t>(stride, pieces_.end() - it);
      stride *= 2;
    }
    return std::upper_bound(low, it, at,
                            [](uint64_t place, const Piece& p) { return place < p.end; });
  }

  // Where whole pieces get other values, nothing has to move; not where neighbours may become one,
  // unless few are concerned.
  bool replace_pieces(Iterator from, std::span<const Piece> news, bool few) {
    Iterator it = from;
    for (const Piece& piece : news) {
      it = gallop(it, piece.begin);
      if (it == pieces_.end() || it->begin != piece.begin || it->end != piece.end) return false;
      if (few) continue;
      if (it != pieces_.begin() && std::prev(it)->end == piece.begin) return false;
      if (it + 1 != pieces_.end() && (it + 1)->begin == piece.end) return false;
    }
    it = from;
    for (const Piece& piece : news) {
      it = gallop(it, piece.begin);
      pieces_[index(it - pieces_.cbegin())].value = piece.value;
    }
    return true;
  }

  template <typename F>
  Iterator visit_from(Iterator it, uint64_t begin, uint64_t end, F&& visit) const {
    uint64_t at = begin;
    while (at < end) {
      if (it == pieces_.end() || it->begin >= end) {
        visit(at, end, static_cast<const V*>(nullptr));
        return it;
      }
      if (it->begin > at) visit(at, it->begin, static_cast<const V*>(nullptr));
      const uint64_t from = std::max(at, it->begin);
      visit(from, std::min(end, it->end), &it->value);
      at = it->end;
      if (at <= end) ++it;
    }
    return it;
  }

  std::vector<Piece> pieces_;
  static thread_local std::vector<Piece> merged_;  // scratch of replace()
};
template <typename V>
thread_local std::vector<typename IntervalMap<V>::Piece> IntervalMap<V>::merged_;

// Lists of runs in the order in which a step names them. A list that is not ascending has a sorted
// twin.
class RangeLists {
 public:
  uint32_t intern(std::span<const Stretch> runs);
  std::span<const Stretch> runs(uint32_t id) const { return pool_[id]; }
  std::span<const Stretch> sorted(uint32_t id) const { return pool_[facts_[id].sorted]; }
  uint64_t length(uint32_t id) const { return facts_[id].length; }
  bool disjoint(uint32_t id) const { return facts_[id].disjoint; }
  bool ascending(uint32_t id) const { return facts_[id].sorted == id; }

 private:
  struct Facts {
    uint64_t length = 0;
    uint32_t sorted = 0;
    bool disjoint = true;
  };
  SequencePool<Stretch> pool_;
  std::vector<Facts> facts_;
};

inline uint32_t RangeLists::intern(std::span<const Stretch> runs) {
  const uint32_t id = pool_.intern(runs);
  if (id < facts_.size()) return id;
  Facts facts;
  facts.sorted = id;
  bool ascending = true;
  for (size_t i = 0; i < runs.size(); i++) {
    facts.length += runs[i].end - runs[i].begin;
    if (i > 0 && runs[i].begin < runs[i - 1].end) ascending = false;
  }
  facts_.push_back(facts);
  if (ascending) return id;
  std::vector<Stretch> sorted(runs.begin(), runs.end());
  std::sort(sorted.begin(), sorted.end(),
            [](const Stretch& a, const Stretch& b) { return a.begin < b.begin; });
  std::vector<Stretch> whole;
  for (const Stretch& run : sorted) {
    if (!whole.empty() && run.begin < whole.back().end) facts_[id].disjoint = false;
    if (!whole.empty() && run.begin <= whole.back().end)
      whole.back().end = std::max(whole.back().end, run.end);
    else
      whole.push_back(run);
  }
  const uint32_t twin = intern(whole);  // may move facts_
  facts_[id].sorted = twin;
  return id;
}

}  // namespace sennit::verifier
