// small_collectives.cpp: see control/rank/small_collectives.hpp.
#include "control/rank/small_collectives.hpp"

#include <utility>
#include <vector>

#include <fmt/core.h>

#include "base/log.hpp"
#include "base/rank_ranges.hpp"
#include "control/tree/shape.hpp"

namespace sennit::control {
namespace {

constexpr int64_t kFlushMs = 500;  // what has come goes up in parts after this long

}  // namespace

void SmallCollectives::contribute(uint32_t number, Blob mine) {
  Gather own{number, {}};
  own.blobs[self_.rank] = std::move(mine);
  on_gather(std::move(own));
}

void SmallCollectives::broadcast(uint32_t number, const Blob& blob) {
  sender_.flood_down(encode(Broadcast{number, blob}));
}

void SmallCollectives::on_gather(Gather message) {
  if (failed_.count(message.number)) return;  // too late
  Gathering& gathering = gatherings_[message.number];
  for (auto& [rank, blob] : message.blobs)
    if (gathering.have.insert(rank).second) gathering.fresh[rank] = std::move(blob);
  advance(message.number, gathering);
}

bool SmallCollectives::subtree_complete(const Gathering& gathering) const {
  // Walks the static tree below this rank; a rank's descendants are one range per level.
  int64_t first = self_.rank, last = self_.rank;
  while (first < self_.size) {
    for (int64_t r = first; r <= last && r < self_.size; r++)
      if (!gathering.have.count(static_cast<int>(r))) return false;
    first = first * kFanOut + 1;
    last = last * kFanOut + kFanOut;
  }
  return true;
}

// Something has come. May end it.
void SmallCollectives::advance(uint32_t number, Gathering& gathering) {
  if (gathering.first_ms == 0) gathering.first_ms = gathering.flushed_ms = self_.now_ms;
  if (self_.rank == 0) {
    if (static_cast<int>(gathering.have.size()) == self_.size) return complete(number, gathering);
    return self_.due(gathering.first_ms + self_.options.arrival_timeout_ms);
  }
  if (gathering.fresh.empty()) return;
  if (!subtree_complete(gathering)) return self_.due(gathering.flushed_ms + kFlushMs);
  send_fresh(number, gathering);
}

void SmallCollectives::complete(uint32_t number, Gathering& gathering) {
  Gathered result{number, {}};
  for (auto& [rank, blob] : gathering.fresh) result.blobs.push_back(std::move(blob));
  sender_.flood_down(encode(result));
  finish(number, std::move(result.blobs));
}

void SmallCollectives::send_fresh(uint32_t number, Gathering& gathering) {
  if (!sender_.send_up(encode(Gather{number, gathering.fresh}))) return;
  gathering.fresh.clear();
  gathering.flushed_ms = self_.now_ms;
}

void SmallCollectives::tick() {
  std::vector<uint32_t> overdue;
  for (auto& [number, gathering] : gatherings_) {
    if (self_.rank == 0) {
      const int64_t limit = gathering.first_ms + self_.options.arrival_timeout_ms;
      if (self_.now_ms >= limit)
        overdue.push_back(number);
      else
        self_.due(limit);
    } else if (!gathering.fresh.empty()) {
      if (self_.now_ms - gathering.flushed_ms >= kFlushMs)
        send_fresh(number, gathering);
      else
        self_.due(gathering.flushed_ms + kFlushMs);
    }
  }
  for (const uint32_t number : overdue) give_up(number);
}

// Rank 0: not all came in time.
void SmallCollectives::give_up(uint32_t number) {
  std::set<int> missing;
  for (int r = 0; r < self_.size; r++)
    if (!gatherings_[number].have.count(r)) missing.insert(r);
  const Status status{SENNIT_TIMED_OUT,
                      fmt::format("{} did not come to all_gather {} of the start within {} ms",
                                  name_ranks(missing), number, self_.options.arrival_timeout_ms)};
  log(LogLevel::error, "{}", status.text());
  sender_.flood_down(encode(CollectiveOff{number, status}));
  failed_.insert(number);
  finish(number, status);
}

void SmallCollectives::on_gathered(Gathered message) {
  sender_.flood_down(encode(message));
  finish(message.number, std::move(message.blobs));
}

void SmallCollectives::on_broadcast(Broadcast message) {
  sender_.flood_down(encode(message));
  Callers::Blobs one;
  one.push_back(std::move(message.blob));
  finish(message.number, std::move(one));
}

void SmallCollectives::on_off(const CollectiveOff& message) {
  sender_.flood_down(encode(message));
  finish(message.number, message.status);
}

void SmallCollectives::finish(uint32_t number, Result<Callers::Blobs> result) {
  gatherings_.erase(number);
  callers_.finish(number, std::move(result));
}

}  // namespace sennit::control
