// hang_watch.cpp: see watch/hang_watch.hpp.
#include "watch/hang_watch.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "base/clock.hpp"
#include "diagnose/communicator_numbers.hpp"

namespace sennit::watch {
namespace {

// Between two questions, until something is told and afterwards.
constexpr uint64_t kFirstPauseNs = 400'000'000, kLongestPauseNs = 2'000'000'000;
// So many times SENNIT_STALL, and so long besides, after it was said last a stall is over.
constexpr uint64_t kOverAfterStalls = 3, kOverAfterNs = 1'000'000'000;
constexpr size_t kMostRemembered = 1024;
constexpr int kOverAfterQuestions = 3;  // without the hang that was told
constexpr size_t kMostSentence = 4000;  // bytes; every rank logs it

}  // namespace

HangWatch::HangWatch(int rank, std::string fabric, std::vector<Placement> placements,
                     uint64_t stall_ns)
    : fabric_(std::move(fabric)),
      placements_(std::move(placements)),
      stall_ns_(stall_ns),
      asked_(static_cast<uint64_t>(rank) << 32) {}

HangWatch::Key HangWatch::key_of(const Found& found) {
  return {found.hang.cause, found.hang.behind, found.known_as, found.members, found.hang.seq};
}

uint64_t HangWatch::over_after_ns() const { return kOverAfterStalls * stall_ns_ + kOverAfterNs; }

bool HangWatch::lasts(uint64_t now_ns) const {
  return stalled_at_ns_ && now_ns < *stalled_at_ns_ + over_after_ns();
}

uint64_t HangWatch::due_ns() const {
  if (!stalled_at_ns_) return UINT64_MAX;
  if (waiting_) return asked_at_ns_ + kAnswerNs;
  return std::min(next_question_ns_, *stalled_at_ns_ + over_after_ns());
}

std::optional<uint64_t> HangWatch::question(uint64_t now_ns) {
  if (waiting_ || !lasts(now_ns) || now_ns < next_question_ns_) return std::nullopt;
  waiting_ = true;
  asked_at_ns_ = now_ns;
  answers_.clear();
  return ++asked_;
}

void HangWatch::answer(Answer answer) {
  if (!waiting_ || answer.question != asked_) return;
  const int rank = answer.standing.rank;
  answers_.insert_or_assign(rank, std::move(answer));
}

// Whether the same ranks were not told of in the last kAgainNs.
bool HangWatch::is_new(const Found& found, uint64_t now_ns) {
  Key key = key_of(found);
  std::get<4>(key) = 0;  // another call of theirs is no news
  if (told_at_ns_.size() > kMostRemembered) told_at_ns_.clear();
  const auto [told, first] = told_at_ns_.try_emplace(std::move(key), now_ns);
  if (!first && now_ns < told->second + kAgainNs) return false;
  told->second = now_ns;
  return true;
}

std::vector<LiveVerdict> HangWatch::look(uint64_t now_ns) {
  std::vector<LiveVerdict> out;
  const bool all = answers_.size() == placements_.size();
  if (waiting_ && (all || now_ns >= asked_at_ns_ + kAnswerNs)) {
    waiting_ = false;
    const std::optional<Found> found = judge();
    const std::optional<Key> before = std::exchange(seen_, std::nullopt);
    if (found) seen_ = key_of(*found);
    const bool same = told_ && found && key_of(*told_) == *seen_;
    not_found_ = same ? 0 : not_found_ + 1;
    const bool another = found && before == seen_ && !same;
    if (told_ && (another || not_found_ >= kOverAfterQuestions)) {
      out.push_back(verdict_of(*told_, true));
      told_.reset();
    }
    if (another && is_new(*found, now_ns)) {
      told_ = found;
      out.push_back(verdict_of(*told_, false));
    }
    // What was found for the first time is asked again soon.
    pause_ns_ = found && before != seen_
                    ? kFirstPauseNs
                    : std::clamp(2 * pause_ns_, kFirstPauseNs, kLongestPauseNs);
    next_question_ns_ = now_ns + pause_ns_;
  }
  if (stalled_at_ns_ && !waiting_ && !lasts(now_ns)) {
    if (told_) out.push_back(verdict_of(*told_, true));
    told_.reset();
    seen_.reset();
    stalled_at_ns_.reset();
    next_question_ns_ = pause_ns_ = 0;
  }
  return out;
}

std::optional<HangWatch::Found> HangWatch::judge() {
  diagnose::JobRecording job;
  job.size = static_cast<int>(placements_.size());
  job.fabric = fabric_;
  job.placements = placements_;
  job.index();
  diagnose::CommunicatorNumbers numbers(&job);
  for (const auto& [rank, answer] : answers_)
    for (const Note& note : answer.notes)
      if (const auto* comm = std::get_if<CommunicatorNote>(&note);
          comm && diagnose::is_sound(*comm, rank, job.size))
        numbers.take(*comm);
  std::vector<diagnose::Standing> standings;
  for (auto& [rank, answer] : answers_) {
    for (const Note& note : answer.notes) {
      if (const auto* plan = std::get_if<PlanNote>(&note)) {
        PlanNote renumbered = *plan;
        renumbered.comm = numbers.of(plan->comm, rank).value_or(plan->comm);
        job.plans.try_emplace({renumbered.comm, plan->hash}, renumbered);
      }
    }
    for (diagnose::StandingCall& call : answer.standing.calls)
      call.call.comm = numbers.of(call.call.comm, rank).value_or(call.call.comm);
    standings.push_back(std::move(answer.standing));
  }
  for (size_t rank = 0; rank < placements_.size(); rank++) {
    if (answers_.contains(static_cast<int>(rank))) continue;
    diagnose::Standing silent;
    silent.rank = static_cast<int>(rank);
    silent.host = placements_[rank].host;
    silent.state = diagnose::RankState::silent;
    standings.push_back(std::move(silent));
  }
  std::sort(standings.begin(), standings.end(),
            [](const auto& a, const auto& b) { return a.rank < b.rank; });
  answers_.clear();
  diagnose::Plans plans(job);
  const diagnose::Patience patience{stall_ns_, kMessagePatience * stall_ns_, over_after_ns()};
  std::optional<diagnose::Hang> hang =
      diagnose::find_hang(job, plans, std::move(standings), patience);
  if (!hang || hang->cause == diagnose::HangCause::unknown) return std::nullopt;
  Found found{*std::move(hang), "", "", 0, {}};
  found.members = job.members_of(found.hang.comm);
  found.known_as = job.known_as(found.hang.comm);
  if (found.hang.plan != 0) found.call = plans.call_name(found.hang.comm, found.hang.plan);
  if (found.hang.where) found.tier = plans.tier_name(found.hang.comm, found.hang.where->tier);
  return found;
}

LiveVerdict HangWatch::verdict_of(const Found& found, bool withdrawn) const {
  const diagnose::Hang& hang = found.hang;
  LiveVerdict verdict;
  verdict.about = VerdictAbout::hang;
  verdict.withdrawn = withdrawn;
  verdict.when_ns = realtime_ns();
  verdict.comm = found.known_as;
  verdict.members = found.members;
  verdict.plan = hang.plan;
  verdict.ranks = hang.behind;
  verdict.confidence = 1;
  verdict.hang =
      LiveHang{std::string(name(hang.cause)), found.call, hang.seq, hang.waiting, {}, ""};
  if (hang.where) verdict.hang->where = *hang.where;
  verdict.hang->tier = found.tier;
  verdict.sentence = hang.sentence;
  if (!withdrawn)
    for (const std::string& evidence : hang.evidence) verdict.sentence += "; " + evidence;
  if (verdict.sentence.size() > kMostSentence)
    verdict.sentence = verdict.sentence.substr(0, kMostSentence) + "...";
  return verdict;
}

}  // namespace sennit::watch
