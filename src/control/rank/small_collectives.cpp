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
  for (auto& from : message.blobs)
    if (gathering.have.insert(from.first).second)
      gathering.fresh[from.first] = std::move(from.second);
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
  // Whose start has not ended when another one dies leaves for that, and the death is what all are
  // told.
  if (!census_.left.empty() && !census_.undecided()) callers_.fail_if_well(has_left());
  std::map<uint32_t, Status> ended;
  for (auto& [number, gathering] : gatherings_) {
    if (self_.rank == 0) {
      if (Status status = trouble(number, gathering); !status.ok())
        ended[number] = std::move(status);
      else
        self_.due(gathering.first_ms + self_.options.arrival_timeout_ms);
    } else if (!gathering.fresh.empty()) {
      if (self_.now_ms - gathering.flushed_ms >= kFlushMs)
        send_fresh(number, gathering);
      else
        self_.due(gathering.flushed_ms + kFlushMs);
    }
  }
  for (const auto& [number, status] : ended) give_up(number, status);
}

// Rank 0: why not all will come; ok: they may.
Status SmallCollectives::trouble(uint32_t number, const Gathering& gathering) const {
  // Where a rank has died others leave for that, and that is what all are told.
  if (!census_.left.empty()) return callers_.failure();
  if (self_.now_ms < gathering.first_ms + self_.options.arrival_timeout_ms) return {};
  std::set<int> missing;
  for (int r = 0; r < self_.size; r++)
    if (!gathering.have.count(r)) missing.insert(r);
  return {SENNIT_TIMED_OUT,
          fmt::format("{} did not come to all_gather {} of the start within {} ms",
                      name_ranks(missing), number, self_.options.arrival_timeout_ms)};
}

// Nobody leaves well who has not got all results, and those come here before the word of that. So
// what has not come then does not come: nobody need wait for others that may be late.
Status SmallCollectives::has_left() const {
  return {SENNIT_ABORTED, census_.describe(*census_.left.begin()) + " has left during the start"};
}

// Rank 0: not all came, or will.
void SmallCollectives::give_up(uint32_t number, const Status& status) {
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
