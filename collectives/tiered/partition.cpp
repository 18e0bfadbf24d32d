// partition.cpp: see collectives/tiered/partition.hpp.
#include "collectives/tiered/partition.hpp"

#include <queue>

#include "base/sort_stretches.hpp"
#include "schedule/program.hpp"

namespace sennit::tiered {
namespace {

// What a child's piece asks for its rank: so many units between begin and end.
struct Claim {
  uint64_t begin, end;
  uint64_t left;  // units still to be given
  uint32_t child, rank;
};

struct Later {
  bool operator()(const Claim& a, const Claim& b) const {
    if (a.end != b.end) return a.end > b.end;
    if (a.begin != b.begin) return a.begin > b.begin;
    return a.child > b.child;
  }
};

std::vector<Claim> make_claims(std::span<const Partition::Child> children,
                               std::span<const uint64_t> prefix) {
  std::vector<Claim> claims;
  for (uint32_t c = 0; c < children.size(); c++) {
    const uint64_t share = prefix[c + 1] - prefix[c];
    if (share == 0) continue;
    const auto given = [&](uint64_t place) {
      return static_cast<uint64_t>(static_cast<unsigned __int128>(place) * share / kUnits);
    };
    const Partition& p = *children[c].partition;
    for (size_t i = 0; i < p.pieces(); i++)
      claims.push_back({p.begin(i), p.end(i), given(p.end(i)) - given(p.begin(i)), c,
                        children[c].first + p.rank(i)});
  }
  sort_stretches(claims, [](const Claim& a, const Claim& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.child < b.child;
  });
  return claims;
}

}  // namespace

Partition Partition::single() {
  Partition p;
  p.begin_ = {0, kUnits};
  p.rank_ = {0};
  p.index_ranks(1);
  return p;
}

Partition Partition::combine(std::span<const Child> children, std::span<const uint64_t> prefix) {
  const std::vector<Claim> claims = make_claims(children, prefix);
  Partition result;
  uint64_t last_deadline = 0;
  const auto give = [&](uint64_t begin, uint32_t rank, uint64_t deadline) {
    last_deadline = deadline;
    // pieces are gapless: it goes on
    if (!result.rank_.empty() && result.rank_.back() == rank) return;
    result.begin_.push_back(begin);
    result.rank_.push_back(rank);
  };
  std::priority_queue<Claim, std::vector<Claim>, Later> waiting;
  size_t next = 0;
  for (uint64_t at = 0; at < kUnits;) {
    for (; next < claims.size() && claims[next].begin <= at; next++)
      if (claims[next].left > 0) waiting.push(claims[next]);
    // rounding took its last units
    while (!waiting.empty() && waiting.top().end <= at) waiting.pop();
    const uint64_t event = next < claims.size() ? claims[next].begin : kUnits;
    if (waiting.empty()) {
      // Rounding left a few units over: they go to the piece before, if its rank still holds them
      // for its child, else to whoever of the first child that takes part holds them.
      if (last_deadline < event) {
        const auto claim = std::find_if(claims.begin(), claims.end(), [&](const Claim& c) {
          return c.begin <= at && at < c.end;
        });
        give(at, claim->rank, claim->end);
        at = std::min(event, claim->end);
      } else {
        at = event;
      }
      continue;
    }
    Claim claim = waiting.top();
    waiting.pop();
    give(at, claim.rank, claim.end);
    const uint64_t until = std::min({at + claim.left, event, claim.end});
    claim.left -= until - at;
    at = until;
    if (claim.left > 0) waiting.push(claim);
  }
  result.begin_.push_back(kUnits);
  result.begin_.shrink_to_fit();
  result.rank_.shrink_to_fit();
  result.index_ranks(children.back().first +
                     static_cast<uint32_t>(children.back().partition->first_of_rank_.size()) - 1);
  return result;
}

void Partition::index_ranks(uint32_t ranks) {
  first_of_rank_.assign(ranks + 1, 0);
  of_rank_.resize(rank_.size());
  for (const uint32_t r : rank_) first_of_rank_[r + 1]++;
  for (uint32_t r = 0; r < ranks; r++) first_of_rank_[r + 1] += first_of_rank_[r];
  std::vector<uint32_t> next(first_of_rank_.begin(), first_of_rank_.end() - 1);
  for (uint32_t p = 0; p < rank_.size(); p++) of_rank_[next[rank_[p]]++] = p;
}

}  // namespace sennit::tiered
