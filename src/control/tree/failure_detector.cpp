// failure_detector.cpp: see control/tree/failure_detector.hpp.
#include "control/tree/failure_detector.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include <fmt/core.h>

#include "base/log.hpp"
#include "base/rank_ranges.hpp"
#include "control/tree/shape.hpp"

namespace sennit::control {
namespace {

constexpr int64_t kGatherReportsMs = 150;  // reports of one blow are decided together
constexpr int64_t kOrphanGraceMs = 30;     // for a dead rank's children to come by themselves
constexpr int64_t kReprobeMs = 20;
constexpr size_t kNamedDead = 8;  // in one text, each with its host and pid
constexpr int64_t kForgetAfterTimeouts = 2;
// Reports of broken connections that are kept of one rank. Any more of them say little that is new,
// and memory must not grow with all pairs of ranks.
constexpr size_t kMostBrokenKept = 256;

}  // namespace

// ---- suspects ----

// False: all of it was known.
bool FailureDetector::adds(Case& suspect, uint8_t evidence, int reporter, const std::string& what) {
  bool news = (suspect.evidence | evidence) != suspect.evidence;
  suspect.evidence |= evidence;
  if ((evidence & kBroken) && !suspect.broken.count(reporter)) {
    news = true;
    if (suspect.broken.size() < kMostBrokenKept) suspect.broken.emplace(reporter, what);
  }
  return news;
}

void FailureDetector::report_up(int rank, const Case& suspect) {
  if (const auto others = static_cast<uint8_t>(suspect.evidence & ~kBroken))
    tree_.send_up(encode(Suspicion{rank, others, suspect.reporter, suspect.what}));
  for (const auto& [reporter, what] : suspect.broken)
    tree_.send_up(encode(Suspicion{rank, kBroken, reporter, what}));
}

void FailureDetector::on_suspect(const Suspicion& message) {
  suspect(message.rank, message.evidence, message.reporter, message.what);
}

void FailureDetector::suspect(int rank, uint8_t evidence, int reporter, const std::string& what) {
  if (!self_.serving() || census_.excluded) return;
  if (census_.dead.count(rank) || census_.left.count(rank)) return;
  const bool deciding = census_.coordinator();
  if (rank == self_.rank) {  // somebody below cannot reach this rank, which lives
    if (!(evidence & kBroken)) return;
    if (deciding) return links_.announce(reporter, rank, what);
    evidence = kBroken;
  }
  const auto [it, fresh] = cases_.try_emplace(rank);
  Case& suspect = it->second;
  if (fresh) {
    suspect.since_ms = self_.now_ms;
    suspect.reporter = reporter;
    suspect.what = what;
  }
  if (!adds(suspect, evidence, reporter, what)) return;
  log(LogLevel::debug, "suspects {} (evidence {}, from rank {}): {}", census_.describe(rank),
      evidence, reporter, what);
  if (!deciding) {
    // And again to the next parent, until it is decided.
    tree_.send_up(encode(Suspicion{rank, evidence, reporter, what}));
    return;
  }
  if (batch_since_ms_ == 0) batch_since_ms_ = self_.now_ms;
  self_.due(self_.now_ms);
}

bool FailureDetector::known_silent(int rank) const {
  const auto it = cases_.find(rank);
  return it != cases_.end() && (it->second.evidence & kSilent);
}

void FailureDetector::came(int rank) {
  orphans_.erase(rank);
  const auto it = cases_.find(rank);
  if (it == cases_.end() || it->second.dead) return;
  if (it->second.evidence & kBroken) {
    it->second.evidence = kBroken;
    it->second.since_ms = self_.now_ms;
    return;
  }
  channels_.drop(it->second.probe);
  cases_.erase(it);
}

void FailureDetector::forget(int rank) {
  if (const auto it = cases_.find(rank); it != cases_.end()) {
    channels_.drop(it->second.probe);
    cases_.erase(it);
  }
  orphans_.erase(rank);
}

void FailureDetector::tell_again() {
  for (const auto& [rank, suspect] : cases_) report_up(rank, suspect);
}

// ---- the coordinator's inquiry ----

void FailureDetector::became_coordinator() {
  for (auto& [rank, suspect] : cases_) {
    suspect.since_ms = self_.now_ms;
    suspect.next_probe_ms = 0;
  }
  if (!cases_.empty()) batch_since_ms_ = self_.now_ms;
  for (const int rank : census_.dead) expect_orphans(rank, self_.now_ms + kOrphanGraceMs);
  for (const int rank : census_.unreachable) expect_orphans(rank, self_.now_ms + kOrphanGraceMs);
}

void FailureDetector::probe(int rank, Case& suspect) {
  if (rank == self_.rank) return probe_answered(rank);  // as it was not the coordinator yet
  int error = 0;
  suspect.next_probe_ms = self_.now_ms + kProbeMs;
  Channel* const channel = channels_.connect(census_.address_of(rank), Role::probing, rank, &error);
  if (!channel)
    return probe_ended(rank, error == ECONNREFUSED ? End::refused : End::unreachable,
                       std::strerror(error));
  channel->deadline_ms = self_.now_ms + kProbeMs;
  suspect.probe = channel->id;
}

void FailureDetector::probe_opened(Channel& channel) {
  channels_.send(channel, encode(Probe{self_.rank, channel.rank}));
}

void FailureDetector::probe_answered(int rank) {
  const auto it = cases_.find(rank);
  if (it == cases_.end()) return;
  const Case suspect = std::move(it->second);
  cases_.erase(it);
  for (const auto& [reporter, what] : suspect.broken) links_.announce(reporter, rank, what);
}

void FailureDetector::probe_ended(int rank, End end, const std::string& reason) {
  const auto it = cases_.find(rank);
  if (it == cases_.end() || it->second.dead) return;
  Case& suspect = it->second;
  suspect.probe = 0;
  log(LogLevel::debug, "asked {} whether it lives: {}", census_.describe(rank), reason);
  const int64_t timeout_ms = self_.options.heartbeat_timeout_ms;
  const int64_t suspected_ms = self_.now_ms - suspect.since_ms;
  if (end == End::refused || end == End::unproven || end == End::garbage) {
    judge_dead(rank, suspect, "connection closed without goodbye");
  } else if ((end == End::closed || end == End::forged) && suspected_ms < kProbeMs) {
    suspect.next_probe_ms = self_.now_ms + kReprobeMs;  // it is dying: its listener goes last
    self_.due(suspect.next_probe_ms);
  } else if ((suspect.evidence & (kClosed | kRefused)) && !(suspect.evidence & kSilent)) {
    judge_dead(rank, suspect,
               fmt::format("connection closed without goodbye, and no answer since ({})", reason));
  } else if ((suspect.evidence & kSilent) || suspected_ms >= timeout_ms) {
    judge_dead(rank, suspect, no_sign_of_life(timeout_ms));
  }
}

void FailureDetector::judge_dead(int rank, Case& suspect, const std::string& cause) {
  suspect.dead = true;
  suspect.cause = cause;
  expect_orphans(rank, self_.now_ms + kOrphanGraceMs);
}

void FailureDetector::expect_orphans(int of, int64_t when) {
  for_each_static_child(of, self_.size, [&](int child) {
    if (child == self_.rank || census_.dead.count(child) || census_.left.count(child) ||
        tree_.has_child(child))
      return;
    if (orphans_.empty()) next_orphan_ms_ = when;
    orphans_.try_emplace(child, when);
    next_orphan_ms_ = std::min(next_orphan_ms_, when);
    self_.due(when);
  });
}

// Those who did not come in time are suspects.
void FailureDetector::look_for_orphans() {
  if (orphans_.empty()) return;
  self_.due(next_orphan_ms_);
  if (self_.now_ms < next_orphan_ms_) return;
  next_orphan_ms_ = INT64_MAX;
  for (auto it = orphans_.begin(); it != orphans_.end();) {
    const int rank = it->first;
    if (tree_.has_child(rank) || census_.gone(rank)) {
      it = orphans_.erase(it);
      continue;
    }
    if (self_.now_ms >= it->second) {
      it->second = self_.now_ms + kProbeMs;  // if it lives and still does not come: once more
      suspect(rank, kOrphan, self_.rank, "its parent in the tree is gone");
    }
    next_orphan_ms_ = std::min(next_orphan_ms_, it->second);
    self_.due(it->second);
    ++it;
  }
}

// Asks every suspect whose turn it is. True: there are some of whom it is not known yet.
bool FailureDetector::probe_all_due() {
  bool unresolved = false;
  std::vector<int> to_probe;
  for (const auto& [rank, suspect] : cases_) {
    if (suspect.dead) continue;
    unresolved = true;
    if (suspect.probe != 0) continue;
    if (self_.now_ms >= suspect.next_probe_ms)
      to_probe.push_back(rank);
    else
      self_.due(suspect.next_probe_ms);
  }
  for (const int rank : to_probe)
    if (const auto it = cases_.find(rank); it != cases_.end()) probe(rank, it->second);
  return unresolved;
}

// Reports that the coordinator did not find worth a decision.
void FailureDetector::forget_old() {
  std::erase_if(cases_, [this](const auto& entry) {
    return self_.now_ms - entry.second.since_ms >
           kForgetAfterTimeouts * self_.options.heartbeat_timeout_ms;
  });
}

void FailureDetector::tick() {
  if (!self_.serving()) return;
  if (!census_.coordinator()) return forget_old();
  look_for_orphans();
  // Those that stay decide. Where all leave at once, nobody is left to be told, and who has closed
  // looks dead to a rank that was slow.
  if (self_.phase == Phase::leaving) return;
  const bool dead = std::any_of(cases_.begin(), cases_.end(),
                                [](const auto& entry) { return entry.second.dead; });
  const bool unresolved = probe_all_due();
  if (cases_.empty()) batch_since_ms_ = 0;
  if (batch_since_ms_ == 0 || !dead) return;
  const int64_t when = batch_since_ms_ + kGatherReportsMs + (unresolved ? kProbeMs : 0);
  if (self_.now_ms >= when)
    decide();
  else
    self_.due(when);
}

// ---- decisions ----

void FailureDetector::decide() {
  std::set<int> dead = census_.dead, fresh;
  std::string text = census_.decision.text();
  for (const auto& [rank, suspect] : cases_)
    if (suspect.dead) fresh.insert(rank);
  size_t named = 0;
  for (const int rank : fresh) {
    dead.insert(rank);
    if (named++ < kNamedDead)
      text += fmt::format("{}{} died: {}", text.empty() ? "" : "; ", census_.describe(rank),
                          cases_[rank].cause);
  }
  if (named > kNamedDead) text += fmt::format("; {} died in all", name_ranks(fresh));
  std::erase_if(cases_, [](const auto& entry) { return entry.second.dead; });
  batch_since_ms_ = cases_.empty() ? 0 : self_.now_ms;
  log(LogLevel::error, "{}", text);
  adopt(dead, {SENNIT_PEER_FAILED, text}, 0);
}

void FailureDetector::cut_off(int rank) {
  forget(rank);
  tree_.drop_rank(rank);
}

void FailureDetector::adopt(const std::set<int>& dead, const Status& status, uint64_t from) {
  std::set<int>& known = census_.dead;
  if (std::includes(known.begin(), known.end(), dead.begin(), dead.end())) return;
  const bool more = std::includes(dead.begin(), dead.end(), known.begin(), known.end());
  Status& decision = census_.decision;
  decision = more ? status : Status{SENNIT_PEER_FAILED, decision.text() + "; " + status.text()};
  const std::set<int> before = known;
  known.insert(dead.begin(), dead.end());
  census_.excluded = known.count(self_.rank) > 0;
  for (const int rank : known)
    if (!before.count(rank) && rank != self_.rank) cut_off(rank);
  if (census_.excluded) {
    decision = {SENNIT_PEER_FAILED,
                fmt::format("this rank, {}, was taken for dead by the others: {}", self_.rank,
                            decision.text())};
    log(LogLevel::error, "{}", decision.text());
  } else {
    const EncodedFrame frame = decision_frame();
    tree_.flood_down(frame, from);
    if (tree_.parent_id() != from) tree_.send_up(frame);
    if (census_.coordinator())
      for (const int rank : known) expect_orphans(rank, self_.now_ms + kOrphanGraceMs);
  }
  callers_.fail(decision);
  if (self_.callbacks.peers_failed)
    self_.callbacks.peers_failed({known.begin(), known.end()}, decision);
  if (census_.excluded)
    owner_.excluded();
  else if (!tree_.parent())
    tree_.seek();
}

EncodedFrame FailureDetector::decision_frame() const {
  return encode(Decision{census_.dead, census_.decision});
}

void FailureDetector::excuse(int64_t gap_ms) {
  for (auto& [rank, suspect] : cases_) suspect.since_ms += gap_ms;
  for (auto& [rank, when] : orphans_) when += gap_ms;
  next_orphan_ms_ += orphans_.empty() ? 0 : gap_ms;
}

}  // namespace sennit::control
