// tree.cpp: see control/tree/tree.hpp.
#include "control/tree/tree.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include <fmt/core.h>

#include "base/log.hpp"
#include "control/tree/evidence.hpp"
#include "control/tree/shape.hpp"

namespace sennit::control {
namespace {

constexpr int64_t kSeekRetryMs = 20;
constexpr int kMostSilentCandidates = 3;   // then it is this rank that is cut off
constexpr int64_t kNextPatienceShare = 4;  // of the first one's patience, for those after it

}  // namespace

bool Tree::send_up(const EncodedFrame& frame) {
  Channel* const channel = parent();
  if (!channel || !channel->joined) return false;
  channels_.send(*channel, frame);
  return true;
}

void Tree::flood_down(const EncodedFrame& frame, uint64_t except) {
  for (const auto& [rank, id] : children_)
    if (Channel* const channel = id == except ? nullptr : channels_.find(id))
      channels_.send(*channel, frame);
}

Channel* Tree::child(int rank) const {
  const auto it = children_.find(rank);
  return it == children_.end() ? nullptr : channels_.find(it->second);
}

void Tree::forget(const Channel& channel) {
  if (parent_ == channel.id) parent_ = 0;
  if (const auto it = children_.find(channel.rank);
      it != children_.end() && it->second == channel.id)
    children_.erase(it);
}

void Tree::drop_rank(int rank) {
  if (const auto it = children_.find(rank); it != children_.end()) channels_.drop(it->second);
  if (const Channel* const channel = parent(); channel && channel->rank == rank)
    channels_.drop(parent_);
}

// ---- who hangs where ----

void Tree::parent_opened(Channel& channel) {
  channel.deadline_ms = 0;
  channels_.send(channel, encode(Attach{self_.rank, self_.size, self_.job, !self_.starting(),
                                        census_.left, census_.dead, census_.decision}));
  if (!self_.starting()) return;
  channel.joined = true;
  owner_.neighbour_came();
}

void Tree::on_attach(Channel& channel, const Attach& attach) {
  const auto turn_away = [&](std::string text) {
    refuse(channels_, channel, self_.now_ms, {SENNIT_INVALID_ARGUMENT, std::move(text)});
  };
  const int rank = attach.rank;
  if (attach.ranks != self_.size || rank <= self_.rank || rank >= self_.size ||
      (self_.job != 0 && attach.job != self_.job) || self_.phase == Phase::closing)
    return turn_away(fmt::format("rank {} of {} has no place below rank {} of {}", rank,
                                 attach.ranks, self_.rank, self_.size));
  if (attach.running == self_.starting() || (!attach.running && static_parent(rank) != self_.rank))
    return turn_away(fmt::format("rank {} comes at the wrong time", rank));
  if (census_.dead.count(rank)) {  // it will find itself among the dead
    channels_.send(channel, encode(Welcome{census_.left, census_.dead, census_.decision}));
    return dismiss(channels_, channel, self_.now_ms, kClosingMs);
  }
  if (const auto before = children_.find(rank); before != children_.end())
    channels_.drop(before->second);
  channels_.settle(channel, Role::child, rank);
  add_child(channel);
  if (!attach.running) return;  // says 'joined' when its subtree is complete
  channel.joined = true;
  owner_.child_came(channel, attach);
}

void Tree::on_welcome(Channel& channel, const Welcome& welcome) {
  channel.joined = true;
  candidate_ = -1;
  candidate_since_ms_ = 0;
  silent_candidates_ = 0;
  owner_.parent_came(channel, welcome);
}

// ---- a new parent ----

void Tree::refused(int rank, const std::string& text) {
  log(LogLevel::debug, "{} does not take this rank: {}", census_.describe(rank), text);
  give_up(rank, kRefused, text);
}

void Tree::parent_lost(int rank, bool attached, End end, const std::string& reason) {
  if (attached) {
    owner_.suspect(rank, end == End::unreachable ? kSilent : kClosed, reason);
    candidate_ = -1;
    return seek();
  }
  const int64_t full = self_.options.heartbeat_timeout_ms;
  int64_t patience = full;
  if (owner_.known_silent(rank))
    patience = kProbeMs;
  else if (silent_candidates_ > 0)
    patience = std::max(kProbeMs, full / kNextPatienceShare);
  if (end == End::refused || end == End::unproven || end == End::garbage)
    return give_up(rank, kRefused, reason);
  if (self_.now_ms - candidate_since_ms_ >= patience) return give_up(rank, kSilent, reason);
  retry_ms_ = self_.now_ms + kSeekRetryMs;  // it may be about to die, or it is slow
  self_.due(retry_ms_);
}

void Tree::give_up(int rank, uint8_t evidence, const std::string& reason) {
  if (parent_ != 0) drop_parent();
  census_.unreachable.insert(rank);
  owner_.suspect(rank, evidence, reason);
  if (evidence == kSilent && ++silent_candidates_ >= kMostSilentCandidates)
    for (int r = 0; r < self_.rank; r++) census_.unreachable.insert(r);
  seek();
}

void Tree::seek() {
  while (!census_.excluded && self_.serving() && !parent()) {
    const int candidate = census_.lowest_alive();
    if (candidate == self_.rank) {
      candidate_ = -1;
      return owner_.became_coordinator();
    }
    if (candidate != candidate_) {
      candidate_ = candidate;
      candidate_since_ms_ = self_.now_ms;
    }
    int error = 0;
    Channel* const channel =
        channels_.connect(census_.address_of(candidate), Role::parent, candidate, &error);
    if (channel) {
      channel->deadline_ms = self_.now_ms + std::max(kProbeMs, self_.now_ms - candidate_since_ms_);
      return set_parent(*channel);
    }
    if (error != ECONNREFUSED)
      return parent_lost(candidate, false, End::unreachable, std::strerror(error));
    census_.unreachable.insert(candidate);
    owner_.suspect(candidate, kRefused, std::strerror(error));
  }
}

// ---- time ----

// Says to all neighbours that this rank lives, and gives up those that do not say so.
void Tree::beat() {
  std::vector<uint64_t> silent;
  channels_.for_each([&](Channel& channel) {
    if ((channel.role != Role::parent && channel.role != Role::child) || !channel.proven) return;
    if (self_.now_ms - channel.last_out_ms >= self_.heartbeat_ms)
      channels_.send(channel, heartbeat_);
    self_.due(channel.last_out_ms + self_.heartbeat_ms);
    const int64_t limit = channel.last_in_ms + self_.options.heartbeat_timeout_ms;
    if (self_.now_ms >= limit)
      silent.push_back(channel.id);
    else
      self_.due(limit);
  });
  for (const uint64_t id : silent)
    channels_.lost(id, End::unreachable, no_sign_of_life(self_.options.heartbeat_timeout_ms));
}

void Tree::tick() {
  beat();
  if (!self_.serving() || parent() || census_.coordinator()) return;
  if (self_.now_ms >= retry_ms_)
    seek();
  else
    self_.due(retry_ms_);
}

void Tree::excuse(int64_t gap_ms) {
  if (candidate_since_ms_) candidate_since_ms_ += gap_ms;
}

}  // namespace sennit::control
