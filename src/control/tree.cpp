// tree.cpp: keeping the tree. Heartbeats between neighbours; a rank that loses its parent goes to
// the lowest rank that is not known to be gone; if that is itself, it is the coordinator.
//
// Leaving: goodbye goes up to the coordinator, who acknowledges, so that nobody takes the closing
// for death. Who has left serves the ranks below it for kHandOverMs, because often all leave at
// once, and then sends them elsewhere. A coordinator waits for those that are on their way to it,
// so that its successor knows that it has left.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "base/log.hpp"
#include "control/state.hpp"

namespace sennit::control {
namespace {

constexpr int64_t kSeekRetryMs = 20;
constexpr int kSilentCandidates = 3;    // that do not answer, one after the other
constexpr int64_t kLeftSpreadMs = 500;  // early leavers are made known to all after this long

}  // namespace

int ControlPlane::lowest_alive() const {
  int rank = 0;
  while (rank != rank_ && gone(rank)) rank++;
  return rank;
}

void ControlPlane::send_attach(Connection& connection) {
  Writer frame(Frame::attach);
  frame.rank(rank_).rank(size_).u64(job_).u8(phase_ >= Phase::running).ranks(left_).ranks(dead_);
  if (!dead_.empty()) frame.status(decision_);
  send(connection, frame.finish());
  if (phase_ < Phase::running) {
    connection.joined = true;
    check_joined();
  }
}

void ControlPlane::on_attach(uint64_t id, Connection& connection, Reader& in) {
  const int peer = in.rank(), size = in.rank();
  const uint64_t job = in.u64();
  const bool running = in.u8() != 0;
  const std::set<int> left = in.ranks(size_), dead = in.ranks(size_);
  const Status status = dead.empty() ? Status{} : in.status();
  if (!in.ok() || in.left() != 0 || peer != connection.rank)
    return lost(id, End::garbage, "a malformed 'attach'");
  if (size != size_ || peer <= rank_ || peer >= size_ || (job_ != 0 && job != job_) ||
      phase_ == Phase::closing)
    return refuse(
        connection, SENNIT_INVALID_ARGUMENT,
        fmt::format("rank {} of {} has no place below rank {} of {}", peer, size, rank_, size_));
  if (running != (phase_ >= Phase::running) || (!running && static_parent(peer) != rank_))
    return refuse(connection, SENNIT_INVALID_ARGUMENT,
                  fmt::format("rank {} comes at the wrong time", peer));
  if (dead_.count(peer)) {  // it will find itself among the dead
    send(connection, Writer(Frame::welcome).ranks(left_).ranks(dead_).status(decision_).finish());
    connection.role = Role::visitor;
    connection.deadline_ms = now_ms_ + kClosingMs;
    return connection.shut();
  }
  if (const auto before = children_.find(peer); before != children_.end()) drop(before->second);
  settle(connection, Role::child, peer);
  children_[peer] = id;
  if (!running) return;  // says 'joined' when its subtree is complete
  connection.joined = true;
  orphans_.erase(peer);
  if (const auto suspected = suspects_.find(peer);
      suspected != suspects_.end() && !suspected->second.dead)
    if (!(suspected->second.evidence & kBroken)) {
      drop(suspected->second.probe);
      suspects_.erase(suspected);
    }
  Writer welcome(Frame::welcome);
  welcome.ranks(left_).ranks(dead_);
  if (!dead_.empty()) welcome.status(decision_);
  send(connection, welcome.finish());
  for (const auto& [event, frame] : events_) send(connection, frame);
  note_left(left);
  adopt_decision(dead, status, id);
}

void ControlPlane::on_welcome(Connection& connection, Reader& in) {
  const std::set<int> left = in.ranks(size_), dead = in.ranks(size_);
  const Status status = dead.empty() ? Status{} : in.status();
  if (!in.ok()) return;
  connection.joined = true;
  seek_candidate_ = -1;
  seek_since_ms_ = 0;
  seek_silent_ = 0;
  const uint64_t id = connection.id;
  note_left(left);
  adopt_decision(dead, status, id);
  if (find(id) == nullptr || phase_ == Phase::closing) return;
  for (const auto& [rank, suspect] : suspects_) send_up(suspect_frame(rank, suspect));
  for (const int rank : goodbyes_pending_) send_up(Writer(Frame::goodbye).rank(rank).finish());
  for (ToldUp& told : told_up_)
    if (may_be_lost(told) && send_up(told.frame)) told.sent_ms = now_ms_;
}

void ControlPlane::refused_by_parent(int peer, const std::string& text) {
  log(LogLevel::debug, "{} does not take this rank: {}", describe_rank(peer), text);
  give_up_candidate(peer, kRefused, text);
}

// The connection to the parent, or the attempt at one, has ended.
void ControlPlane::parent_lost(int peer, bool attached, End end, const std::string& reason) {
  if (attached) {
    suspect(peer, end == End::unreachable ? kSilent : kClosed, rank_, reason);
    seek_candidate_ = -1;
    return seek();
  }
  const auto known = suspects_.find(peer);
  const bool silent_before = known != suspects_.end() && (known->second.evidence & kSilent);
  const int64_t full = options_.heartbeat_timeout_ms;
  const int64_t patience = silent_before      ? kProbeMs
                           : seek_silent_ > 0 ? std::max(kProbeMs, full / 4)
                                              : full;
  if (end == End::refused || end == End::unproven || end == End::garbage)
    return give_up_candidate(peer, kRefused, reason);
  if (now_ms_ - seek_since_ms_ >= patience) return give_up_candidate(peer, kSilent, reason);
  seek_retry_ms_ = now_ms_ + kSeekRetryMs;  // it may be about to die, or it is slow
  due(seek_retry_ms_);
}

void ControlPlane::give_up_candidate(int peer, uint8_t evidence, const std::string& reason) {
  if (parent_ != 0) drop(parent_);
  unreachable_.insert(peer);
  suspect(peer, evidence, rank_, reason);
  // it is this rank that is cut off
  if (evidence == kSilent && ++seek_silent_ >= kSilentCandidates)
    for (int r = 0; r < rank_; r++) unreachable_.insert(r);
  seek();
}

void ControlPlane::seek() {
  while (!excluded_ && (phase_ == Phase::running || phase_ == Phase::leaving) && !find(parent_)) {
    const int candidate = lowest_alive();
    if (candidate == rank_) return become_coordinator();
    if (candidate != seek_candidate_) seek_candidate_ = candidate, seek_since_ms_ = now_ms_;
    int error = 0;
    Connection* connection =
        connect(members_[static_cast<size_t>(candidate)].address, Role::parent, candidate, &error);
    if (connection) {
      connection->deadline_ms = now_ms_ + std::max(kProbeMs, now_ms_ - seek_since_ms_);
      parent_ = connection->id;
      return;
    }
    if (error != ECONNREFUSED)
      return parent_lost(candidate, false, End::unreachable, std::strerror(error));
    unreachable_.insert(candidate);
    suspect(candidate, kRefused, rank_, std::strerror(error));
  }
}

void ControlPlane::become_coordinator() {
  seek_candidate_ = -1;
  for (auto& [rank, suspect] : suspects_) suspect.since_ms = now_ms_, suspect.next_probe_ms = 0;
  if (!suspects_.empty()) batch_since_ms_ = now_ms_;
  for (const int rank : dead_) expect_orphans(rank, now_ms_ + kOrphanGraceMs);
  for (const int rank : unreachable_) expect_orphans(rank, now_ms_ + kOrphanGraceMs);
  for (const int rank : left_) expect_orphans(rank, now_ms_ + kLingerMs + kClosingMs);
  if (phase_ == Phase::leaving) leave_acked_ = true;
  goodbyes_pending_.erase(rank_);
  const std::set<int> leaving = std::move(goodbyes_pending_);
  goodbyes_pending_.clear();
  note_left(leaving);
  for (const int rank : leaving)
    if (Connection* child = find(goodbye_via_[rank]))
      send(*child, Writer(Frame::goodbye_ack).rank(rank).finish());
  const std::deque<ToldUp> told = std::exchange(told_up_, {});
  for (const ToldUp& each : told)
    if (may_be_lost(each)) take_own(each.frame);
  due(now_ms_);
}

void ControlPlane::tick_tree(int64_t now) {
  std::vector<uint64_t> silent;
  for (auto& [id, connection] : connections_) {
    if ((connection->role != Role::parent && connection->role != Role::child) ||
        !connection->open())
      continue;
    if (now - connection->last_out_ms >= heartbeat_ms_) send(*connection, heartbeat_);
    due(connection->last_out_ms + heartbeat_ms_);
    const int64_t limit = connection->last_in_ms + options_.heartbeat_timeout_ms;
    if (now >= limit)
      silent.push_back(id);
    else
      due(limit);
  }
  for (const uint64_t id : silent)
    lost(id, End::unreachable,
         fmt::format("no sign of life for {} ms", options_.heartbeat_timeout_ms));
  if (phase_ != Phase::running && phase_ != Phase::leaving) return;
  if (!find(parent_) && !coordinator()) {
    if (now >= seek_retry_ms_)
      seek();
    else
      due(seek_retry_ms_);
  }
  if (left_changed_ms_ != 0 && coordinator()) {
    if (now - left_changed_ms_ < kLeftSpreadMs) return due(left_changed_ms_ + kLeftSpreadMs);
    left_changed_ms_ = 0;
    flood_down(Writer(Frame::leaving).u8(0).ranks(left_).finish());
  }
}

// ---- leaving ----

void ControlPlane::begin_leave() {
  if (phase_ == Phase::leaving || phase_ == Phase::closing) return;
  if (phase_ < Phase::running) return close_all(now_ms_);
  phase_ = Phase::leaving;
  leave_since_ms_ = now_ms_;
  if (coordinator()) {
    leave_acked_ = true;
    return;
  }
  goodbyes_pending_.insert(rank_);
  send_up(Writer(Frame::goodbye).rank(rank_).finish());
}

void ControlPlane::on_goodbye(uint64_t id, Connection& connection, Reader& in,
                              const Message& message) {
  const int leaver = in.rank();
  if (!in.ok() || leaver < 0 || leaver >= size_) return in.fail();
  goodbye_via_[leaver] = id;
  if (leaver == connection.rank) connection.said_goodbye = true;
  if (coordinator()) {
    note_left({leaver});
    send(connection, Writer(Frame::goodbye_ack).rank(leaver).finish());
  } else {
    goodbyes_pending_.insert(leaver);
    send_up(forward(message));
  }
}

void ControlPlane::on_goodbye_ack(Reader& in, const Message& message) {
  const int leaver = in.rank();
  if (!in.ok()) return;
  goodbyes_pending_.erase(leaver);
  if (leaver == rank_) {
    leave_acked_ = true;
  } else if (const auto via = goodbye_via_.find(leaver); via != goodbye_via_.end()) {
    if (Connection* child = find(via->second)) send(*child, forward(message));
  }
}

void ControlPlane::on_leaving(uint64_t id, Connection& connection, Reader& in) {
  const bool parent_leaves = in.u8() != 0;
  const std::set<int> left = in.ranks(size_);
  if (!in.ok()) return;
  if (!parent_leaves) {
    flood_down(Writer(Frame::leaving).u8(0).ranks(left).finish());
    return note_left(left);
  }
  connection.said_goodbye = true;
  drop(id);
  note_left(left);
  seek();
}

void ControlPlane::note_left(const std::set<int>& left) {
  for (const int rank : left) {
    if (rank == rank_ || !left_.insert(rank).second) continue;
    if (const auto suspected = suspects_.find(rank); suspected != suspects_.end()) {
      drop(suspected->second.probe);
      suspects_.erase(suspected);
    }
    orphans_.erase(rank);
    if (!coordinator()) continue;
    left_changed_ms_ = now_ms_;
    expect_orphans(rank, now_ms_ + kLingerMs + kClosingMs);
  }
}

void ControlPlane::tick_leave(int64_t now) {
  const bool known = leave_acked_ && !(coordinator() && !orphans_.empty());
  const bool alone = children_.empty() || now - leave_since_ms_ >= kHandOverMs;
  if (!(known && alone) && now - leave_since_ms_ < kLingerMs)
    return due(leave_since_ms_ + (alone ? kLingerMs : kHandOverMs));
  std::set<int> left = left_;
  left.insert(rank_);
  flood_down(Writer(Frame::leaving).u8(1).ranks(left).finish());
  close_all(now);
}

void ControlPlane::close_all(int64_t now) {
  phase_ = Phase::closing;
  closing_since_ms_ = now;
  for (const auto& [id, connection] : connections_) connection->shut();
  if (!start_failed_ && listener_ >= 0) {
    close_socket(listener_);
    listener_ = -1;
  }
  due(now);
}

}  // namespace sennit::control
