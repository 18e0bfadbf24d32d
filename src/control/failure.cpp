// failure.cpp: who is dead. Ranks report suspects up the tree; the coordinator asks each suspect
// itself, by connecting to it, gathers what else comes in for kGatherReportsMs, decides the failed
// set and floods it.
//
//   probe answered      alive: a broken data connection is a failed link, anything else is forgotten
//   probe refused       dead: a rank listens as long as it lives
//   no answer           dead if its tree connection had ended or it was silent for the heartbeat time-out;
//   else
//                       asked again until the time-out is over
// The children of a dead rank have to come to the coordinator; those that do not are asked as well,
// so that a rank that died together with its parent is found in the same decision. Failed sets only
// grow; whoever knows more tells its neighbours. Cost: nothing until something fails.
#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fmt/format.h>

#include "base/log.hpp"
#include "control/state.hpp"

namespace sennit::control {
namespace {

constexpr int64_t kReprobeMs = 20;
constexpr size_t kNamedDead = 8;  // in one text, each with its host and pid

}  // namespace

Buffer ControlPlane::suspect_frame(int rank, const Suspect& suspect) const {
  return Writer(Frame::suspect)
      .rank(rank)
      .u8(suspect.evidence)
      .rank(suspect.reporter)
      .text(suspect.what)
      .finish();
}

void ControlPlane::on_suspect(Reader& in) {
  const int rank = in.rank();
  const uint8_t evidence = in.u8();
  const int reporter = in.rank();
  const std::string what = in.text();
  if (!in.ok() || rank < 0 || rank >= size_ || reporter < 0 || reporter >= size_ ||
      rank == reporter)
    return in.fail();
  suspect(rank, evidence, reporter, what);
}

void ControlPlane::suspect(int rank, uint8_t evidence, int reporter, const std::string& what) {
  if (phase_ != Phase::running && phase_ != Phase::leaving) return;
  if (excluded_ || dead_.count(rank) || left_.count(rank)) return;
  const bool deciding = coordinator();
  if (rank == rank_) {  // somebody below cannot reach this rank, which lives
    if (deciding && (evidence & kBroken)) announce_link_down(reporter, rank, what);
    return;
  }
  const auto [it, fresh] = suspects_.try_emplace(rank);
  Suspect& suspect = it->second;
  const bool news = (suspect.evidence | evidence) != suspect.evidence;
  suspect.evidence |= evidence;
  if (fresh) suspect.since_ms = now_ms_;
  if (fresh || ((evidence & kBroken) && news)) suspect.reporter = reporter, suspect.what = what;
  if (!news) return;
  log(LogLevel::debug, "suspects {} (evidence {}, from rank {}): {}", describe_rank(rank), evidence,
      reporter, what);
  if (!deciding) {
    send_up(suspect_frame(rank, suspect));  // and again to the next parent, until it is decided
    return;
  }
  if (batch_since_ms_ == 0) batch_since_ms_ = now_ms_;
  due(now_ms_);
}

void ControlPlane::probe(int rank, Suspect& suspect, int64_t now) {
  int error = 0;
  suspect.next_probe_ms = now + kProbeMs;
  Connection* connection =
      connect(members_[static_cast<size_t>(rank)].address, Role::probing, rank, &error);
  if (connection) {
    connection->deadline_ms = now + kProbeMs;
    suspect.probe = connection->id;
  } else {
    probe_ended(rank, error == ECONNREFUSED ? End::refused : End::unreachable,
                std::strerror(error));
  }
}

void ControlPlane::probe_ended(int rank, End end, const std::string& reason) {
  const auto it = suspects_.find(rank);
  if (it == suspects_.end() || it->second.dead) return;
  Suspect& suspect = it->second;
  suspect.probe = 0;
  log(LogLevel::debug, "asked {} whether it lives: {}", describe_rank(rank), reason);
  const bool waited = now_ms_ - suspect.since_ms >= options_.heartbeat_timeout_ms;
  if (end == End::refused || end == End::unproven || end == End::garbage) {
    judge_dead(rank, suspect, "connection closed without goodbye");
  } else if ((end == End::closed || end == End::forged) && now_ms_ - suspect.since_ms < kProbeMs) {
    suspect.next_probe_ms = now_ms_ + kReprobeMs;  // it is dying: its listener goes last
    due(suspect.next_probe_ms);
  } else if ((suspect.evidence & (kClosed | kRefused)) && !(suspect.evidence & kSilent)) {
    judge_dead(rank, suspect,
               fmt::format("connection closed without goodbye, and no answer since ({})", reason));
  } else if ((suspect.evidence & kSilent) || waited) {
    judge_dead(rank, suspect,
               fmt::format("no sign of life for {} ms", options_.heartbeat_timeout_ms));
  }
}

void ControlPlane::probe_answered(int rank) {
  const auto it = suspects_.find(rank);
  if (it == suspects_.end()) return;
  const Suspect suspect = std::move(it->second);
  suspects_.erase(it);
  if (suspect.evidence & kBroken) announce_link_down(suspect.reporter, rank, suspect.what);
}

void ControlPlane::judge_dead(int rank, Suspect& suspect, const std::string& cause) {
  suspect.dead = true;
  suspect.cause = cause;
  expect_orphans(rank, now_ms_ + kOrphanGraceMs);
}

// The children of a rank that is gone come to the coordinator by themselves.
void ControlPlane::expect_orphans(int of, int64_t when) {
  const int64_t first = int64_t{of} * kFanOut + 1;
  for (int64_t r = first; r < first + kFanOut && r < size_; r++) {
    const int child = static_cast<int>(r);
    if (child == rank_ || dead_.count(child) || left_.count(child) || children_.count(child))
      continue;
    if (orphans_.empty()) next_orphan_ms_ = when;
    orphans_.try_emplace(child, when);
    next_orphan_ms_ = std::min(next_orphan_ms_, when);
    due(when);
  }
}

void ControlPlane::tick_failure(int64_t now) {
  if (phase_ != Phase::running && phase_ != Phase::leaving) return;
  if (!coordinator()) {  // reports that the coordinator did not find worth a decision
    std::erase_if(suspects_, [&](const auto& entry) {
      return now - entry.second.since_ms > 2 * options_.heartbeat_timeout_ms;
    });
    return;
  }
  const bool look = !orphans_.empty() && now >= next_orphan_ms_;
  if (!orphans_.empty()) due(next_orphan_ms_);
  if (look) next_orphan_ms_ = INT64_MAX;
  for (auto it = orphans_.begin(); look && it != orphans_.end();) {
    const int rank = it->first;
    if (children_.count(rank) || gone(rank)) {
      it = orphans_.erase(it);
      continue;
    }
    if (now >= it->second) {
      it->second = now + kProbeMs;  // if it lives and still does not come: once more
      suspect(rank, kOrphan, rank_, "its parent in the tree is gone");
    }
    next_orphan_ms_ = std::min(next_orphan_ms_, it->second);
    due(it->second);
    ++it;
  }
  bool unresolved = false, dead = false;
  std::vector<int> to_probe;
  for (auto& [rank, suspect] : suspects_) {
    dead = dead || suspect.dead;
    if (suspect.dead) continue;
    unresolved = true;
    if (suspect.probe != 0) continue;
    if (now >= suspect.next_probe_ms)
      to_probe.push_back(rank);
    else
      due(suspect.next_probe_ms);
  }
  for (const int rank : to_probe)
    if (const auto it = suspects_.find(rank); it != suspects_.end()) probe(rank, it->second, now);
  if (suspects_.empty()) batch_since_ms_ = 0;
  if (batch_since_ms_ == 0 || !dead) return;
  const int64_t when = batch_since_ms_ + kGatherReportsMs + (unresolved ? kProbeMs : 0);
  if (now >= when)
    decide(now);
  else
    due(when);
}

void ControlPlane::decide(int64_t now) {
  std::set<int> dead = dead_, fresh;
  std::string text = decision_.text();
  for (const auto& [rank, suspect] : suspects_)
    if (suspect.dead) fresh.insert(rank);
  size_t named = 0;
  for (const int rank : fresh) {
    dead.insert(rank);
    if (named++ < kNamedDead)
      text += fmt::format("{}{} died: {}", text.empty() ? "" : "; ", describe_rank(rank),
                          suspects_[rank].cause);
  }
  if (named > kNamedDead) text += fmt::format("; {} died in all", name_ranks(fresh));
  std::erase_if(suspects_, [](const auto& entry) { return entry.second.dead; });
  batch_since_ms_ = suspects_.empty() ? 0 : now;
  log(LogLevel::error, "{}", text);
  adopt_decision(dead, {SENNIT_PEER_FAILED, text}, 0);
}

void ControlPlane::adopt_decision(const std::set<int>& dead, const Status& status, uint64_t from) {
  if (std::includes(dead_.begin(), dead_.end(), dead.begin(), dead.end())) return;
  const bool more = std::includes(dead.begin(), dead.end(), dead_.begin(), dead_.end());
  decision_ = more ? status : Status{SENNIT_PEER_FAILED, decision_.text() + "; " + status.text()};
  const std::set<int> before = dead_;
  dead_.insert(dead.begin(), dead.end());
  excluded_ = dead_.count(rank_) > 0;
  for (const int rank : dead_) {
    if (before.count(rank) || rank == rank_) continue;
    if (const auto suspected = suspects_.find(rank); suspected != suspects_.end()) {
      drop(suspected->second.probe);
      suspects_.erase(suspected);
    }
    orphans_.erase(rank);
    if (const auto child = children_.find(rank); child != children_.end()) drop(child->second);
    if (const Connection* parent = find(parent_); parent && parent->rank == rank) drop(parent_);
  }
  if (excluded_) {
    decision_ = {SENNIT_PEER_FAILED,
                 fmt::format("this rank, {}, was taken for dead by the others: {}", rank_,
                             decision_.text())};
    log(LogLevel::error, "{}", decision_.text());
  } else {
    const Buffer frame = decision_frame();
    flood_down(frame, from);
    if (parent_ != from) send_up(frame);
    if (coordinator())
      for (const int rank : dead_) expect_orphans(rank, now_ms_ + kOrphanGraceMs);
  }
  {
    const std::lock_guard lock(mutex_);
    counters_.decisions++;
    failure_ = decision_;
    changed_.notify_all();
  }
  if (callbacks_.peers_failed) callbacks_.peers_failed({dead_.begin(), dead_.end()}, decision_);
  if (excluded_)
    close_all(now_ms_);
  else if (!find(parent_))
    seek();
}

Buffer ControlPlane::decision_frame() const {
  return Writer(Frame::decision).ranks(dead_).status(decision_).finish();
}

void ControlPlane::on_decision(uint64_t id, Reader& in) {
  const std::set<int> dead = in.ranks(size_);
  const Status status = in.status();
  if (in.ok()) adopt_decision(dead, status, id);
}

void ControlPlane::announce_link_down(int a, int b, const std::string& what) {
  if (!links_down_.insert({std::min(a, b), std::max(a, b)}).second) return;
  const Status status{SENNIT_LINK_FAILED,
                      fmt::format("the connection between {} and {} broke while both live: {}",
                                  describe_rank(a), describe_rank(b), what)};
  log(LogLevel::error, "{}", status.text());
  const uint64_t event = new_event();
  const Buffer frame = Writer(Frame::link_down).u64(event).rank(a).rank(b).status(status).finish();
  remember(event, frame);
  flood_down(frame);
  deliver_link_down(a, b, status);
}

void ControlPlane::on_link_down(Reader& in, const Message& message) {
  const uint64_t event = in.u64();
  const int a = in.rank(), b = in.rank();
  const Status status = in.status();
  const Buffer frame = forward(message);
  if (!in.ok() || !remember(event, frame)) return;
  links_down_.insert({std::min(a, b), std::max(a, b)});
  flood_down(frame);
  deliver_link_down(a, b, status);
}

void ControlPlane::deliver_link_down(int a, int b, const Status& status) {
  {
    // a collective of the start may have lost its frames on that way
    const std::lock_guard lock(mutex_);
    if (failure_.ok()) failure_ = status;
    changed_.notify_all();
  }
  if (callbacks_.link_failed)
    callbacks_.link_failed(a, b, status);
  else if (callbacks_.peers_failed)
    callbacks_.peers_failed({dead_.begin(), dead_.end()}, status);
}

}  // namespace sennit::control
