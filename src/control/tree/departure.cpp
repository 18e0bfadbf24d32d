// departure.cpp: see control/tree/departure.hpp.
#include "control/tree/departure.hpp"

#include <utility>

namespace sennit::control {
namespace {

constexpr int64_t kHandOverMs = 50;  // for the next one below to leave as well
constexpr int64_t kLingerMs = 1500;  // for the others to know of it, without any news of them
// The children of a rank that has left come to the coordinator when it has closed.
constexpr int64_t kLeaversChildrenMs = kLingerMs + kClosingMs;
constexpr int64_t kLeftSpreadMs = 500;  // early leavers are made known to all after this long

}  // namespace

void Departure::begin() {
  if (self_.phase == Phase::leaving || self_.phase == Phase::closing) return;
  if (self_.starting()) return close();
  self_.phase = Phase::leaving;
  news_ms_ = goodbye_ms_ = self_.now_ms;
  if (census_.coordinator()) {
    acknowledged_ = true;
    return;
  }
  pending_.insert(self_.rank);
  tree_.send_up(encode(Goodbye{self_.rank}));
}

void Departure::on_goodbye(Channel& from, const Goodbye& message) {
  news_ms_ = goodbye_ms_ = self_.now_ms;
  goodbye_via_[message.rank] = from.id;
  if (message.rank == from.rank) from.said_goodbye = true;
  if (census_.coordinator()) {
    note_left({message.rank});
    channels_.send(from, encode(GoodbyeAck{message.rank}));
  } else {
    pending_.insert(message.rank);
    tree_.send_up(encode(message));
  }
}

void Departure::on_goodbye_ack(const GoodbyeAck& message) {
  news_ms_ = self_.now_ms;
  pending_.erase(message.rank);
  if (message.rank == self_.rank) {
    acknowledged_ = true;
  } else if (const auto via = goodbye_via_.find(message.rank); via != goodbye_via_.end()) {
    if (Channel* const child = channels_.find(via->second)) channels_.send(*child, encode(message));
  }
}

void Departure::on_leaving(Channel& from, const Leaving& message) {
  if (!message.parent_leaves) {
    tree_.flood_down(encode(message));
    return note_left(message.left);
  }
  from.said_goodbye = true;
  channels_.drop(from.id);
  note_left(message.left);
  tree_.seek();
}

void Departure::note_left(const std::set<int>& left) {
  for (const int rank : left) {
    if (rank == self_.rank || !census_.left.insert(rank).second) continue;
    news_ms_ = self_.now_ms;
    failures_.forget(rank);
    if (!census_.coordinator()) continue;
    left_changed_ms_ = self_.now_ms;
    failures_.expect_orphans(rank, self_.now_ms + kLeaversChildrenMs);
  }
}

void Departure::tell_again() {
  news_ms_ = self_.now_ms;
  for (const int rank : pending_) tree_.send_up(encode(Goodbye{rank}));
}

void Departure::became_coordinator() {
  news_ms_ = self_.now_ms;
  for (const int rank : census_.left)
    failures_.expect_orphans(rank, self_.now_ms + kLeaversChildrenMs);
  if (self_.phase == Phase::leaving) acknowledged_ = true;
  pending_.erase(self_.rank);
  const std::set<int> leaving = std::exchange(pending_, {});
  note_left(leaving);
  for (const int rank : leaving)
    if (Channel* const child = channels_.find(goodbye_via_[rank]))
      channels_.send(*child, encode(GoodbyeAck{rank}));
}

// The coordinator makes known who left early.
void Departure::tell_left() {
  if (!self_.serving() || left_changed_ms_ == 0 || !census_.coordinator()) return;
  if (self_.now_ms - left_changed_ms_ < kLeftSpreadMs)
    return self_.due(left_changed_ms_ + kLeftSpreadMs);
  left_changed_ms_ = 0;
  tree_.flood_down(encode(Leaving{false, census_.left}));
}

void Departure::tick_leaving() {
  const bool known = acknowledged_ && !(census_.coordinator() && failures_.expects_orphans());
  const bool alone = !tree_.has_children() || self_.now_ms - goodbye_ms_ >= kHandOverMs;
  if (!(known && alone) && self_.now_ms - news_ms_ < kLingerMs)
    return self_.due(alone ? news_ms_ + kLingerMs : goodbye_ms_ + kHandOverMs);
  std::set<int> left = census_.left;
  left.insert(self_.rank);
  tree_.flood_down(encode(Leaving{true, std::move(left)}));
  close();
}

void Departure::tick() {
  tell_left();
  if (self_.phase == Phase::leaving) tick_leaving();
  if (self_.phase == Phase::closing && closing_since_ms_ != 0)
    self_.due(closing_since_ms_ + closing_ms_);
}

// ---- closing ----

void Departure::close() {
  self_.phase = Phase::closing;
  closing_since_ms_ = self_.now_ms;
  // After a start that failed, who is still proving itself has yet to be told why.
  channels_.for_each([this](Channel& channel) {
    if (!stays_open_ || channel.role != Role::stranger) channels_.shut(channel);
  });
  if (!stays_open_) door_.close();
  self_.due(self_.now_ms);
}

void Departure::close_late(int64_t ms) {
  stays_open_ = true;
  closing_ms_ = ms;
  close();
}

void Departure::excuse(int64_t gap_ms) {
  news_ms_ += gap_ms;
  goodbye_ms_ += gap_ms;
  if (stays_open_) closing_since_ms_ += gap_ms;
}

void Departure::hurry() { closing_ms_ = kClosingMs; }

bool Departure::over(bool no_channels) const {
  return self_.phase == Phase::closing && closing_since_ms_ != 0 &&
         ((no_channels && !stays_open_) || self_.now_ms - closing_since_ms_ >= closing_ms_);
}

}  // namespace sennit::control
