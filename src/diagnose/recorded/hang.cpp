// hang.cpp: see diagnose/recorded/hang.hpp.
#include "diagnose/recorded/hang.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include <fmt/core.h>

#include "base/rank_ranges.hpp"
#include "diagnose/recorded/messages.hpp"

namespace sennit::diagnose {
namespace {

constexpr double kNsPerS = 1e9;

std::vector<int> listed(const std::set<int>& ranks) { return {ranks.begin(), ranks.end()}; }

// A message of a collective call between two of its ranks.
struct Edge {
  int from, to;
  uint32_t chunk, tag;
  bool operator<(const Edge& other) const {
    return std::tie(from, to, chunk, tag) < std::tie(other.from, other.to, other.chunk, other.tag);
  }
};

class Search {
 public:
  Search(const JobRecording& job, Plans& plans, uint64_t quiet_ns, std::optional<uint64_t> now_ns);
  std::optional<Hang> run();

 private:
  using Way = std::vector<std::pair<int, CallRecord::Name>>;  // calls, of a rank or of all (-1)

  bool some_live() const;
  const CallRecord* open_call(int rank, uint32_t comm) const;
  const CallRecord* any_open_call(int rank) const;
  const CallRecord* last_call(int rank, uint32_t comm) const;
  uint64_t patience_ns(const CallRecord& call);
  std::set<int> members(const CallRecord& call) const;
  std::optional<Hang> look(const CallRecord& call, Way way);
  std::optional<Hang> behind_in(const Hang& about, const std::set<int>& behind, const Way& way);
  // Of the ranks that are in a call.
  struct Inside {
    std::map<Edge, OpenStep> awaited;
    std::set<Edge> left;  // sent, or about to be
    std::map<int, OpenStep> local;
    std::set<uint64_t> plans;
  };
  Inside look_inside(const Hang& about, const std::set<int>& ranks) const;
  std::optional<Hang> inside(const Hang& about, const std::set<int>& ranks);
  std::optional<Hang> of_message(const CallRecord& call, const Way& way);
  Hang about(const CallRecord& call) const;
  std::string cause_text(const Hang& hang, const std::string& call) const;
  void say(Hang* hang) const;
  std::string what_it_does(int rank) const;

  const JobRecording& job_;
  Plans& plans_;
  const uint64_t quiet_ns_;
  std::vector<CallRecord> calls_;
  std::map<int, uint64_t> now_ns_;        // by rank, its host's clock
  std::map<size_t, uint64_t> last_step_;  // by index in calls_: when something moved in it
  std::map<std::pair<int, uint32_t>, size_t> last_calls_;  // by rank and communicator
};

Search::Search(const JobRecording& job, Plans& plans, uint64_t quiet_ns,
               std::optional<uint64_t> now_ns)
    : job_(job), plans_(plans), quiet_ns_(quiet_ns), calls_(find_calls(job)) {
  const std::map<std::string, ClockOffset> clocks = clock_offsets(job, join_messages(job));
  uint64_t last = 0;  // that anybody recorded, by the first host's clock
  for (const RankRecording& rank : job.ranks)
    for (const TraceEvent& event : rank.events)
      last = std::max(last, (event.is_step() ? event.ended_at() : event.posted_ns) -
                                static_cast<uint64_t>(clocks.at(rank.host).ahead_ns));
  for (const RankRecording& rank : job.ranks)
    now_ns_[rank.rank] = now_ns ? *now_ns - rank.realtime_ns + rank.monotonic_ns
                                : last + static_cast<uint64_t>(clocks.at(rank.host).ahead_ns);
  for (size_t i = 0; i < calls_.size(); i++) {
    const CallRecord& call = calls_[i];
    if (!call.point_to_point) last_calls_[{call.rank, call.comm}] = i;
    if (call.end_ns != 0) continue;
    uint64_t& moved = last_step_[i] = call.begin_ns;
    const std::vector<TraceEvent>& events = job.find(call.rank)->events;
    for (size_t e = call.first_event; e < events.size(); e++)
      if (events[e].is_step() && events[e].comm == call.comm && events[e].seq == call.seq)
        moved = std::max(moved, events[e].ended_at());
  }
}

// A call that takes long by itself is no hang before several times as much.
uint64_t Search::patience_ns(const CallRecord& call) {
  constexpr uint64_t kTimesAsLong = 4, kSlowBytesPerUs = 10;
  constexpr uint64_t kNsPerUs = 1000;
  if (call.point_to_point) return quiet_ns_ + call.bytes / kSlowBytesPerUs * kNsPerUs;
  const PlanNote* const note = plans_.note(call.comm, call.plan);
  return std::max(quiet_ns_, note ? kTimesAsLong * note->predicted_ns : 0);
}

bool Search::some_live() const {
  return std::any_of(job_.ranks.begin(), job_.ranks.end(),
                     [](const RankRecording& rank) { return rank.state == RankState::running; });
}

const CallRecord* Search::open_call(int rank, uint32_t comm) const {
  for (const auto& [i, moved] : last_step_)
    if (calls_[i].rank == rank && calls_[i].comm == comm && !calls_[i].point_to_point)
      return &calls_[i];
  return nullptr;
}

const CallRecord* Search::any_open_call(int rank) const {
  for (const auto& [i, moved] : last_step_)
    if (calls_[i].rank == rank) return &calls_[i];
  return nullptr;
}

const CallRecord* Search::last_call(int rank, uint32_t comm) const {
  const auto found = last_calls_.find({rank, comm});
  return found == last_calls_.end() ? nullptr : &calls_[found->second];
}

std::set<int> Search::members(const CallRecord& call) const {
  const auto found = job_.communicators.find(call.comm);
  if (found != job_.communicators.end()) return {found->second.begin(), found->second.end()};
  std::set<int> seen;  // of no note: those that called
  for (const CallRecord& other : calls_)
    if (other.comm == call.comm) seen.insert(other.rank);
  return seen;
}

Hang Search::about(const CallRecord& call) const {
  Hang hang;
  hang.comm = call.comm;
  hang.seq = call.seq;
  hang.plan = call.plan;
  for (const auto& [i, moved] : last_step_) {
    if (calls_[i].rank != call.rank || calls_[i].name() != call.name()) continue;
    const uint64_t now = now_ns_.at(calls_[i].rank);
    hang.since_ns = now > moved ? now - moved : 0;
  }
  return hang;
}

// From the call that has been without a step for longest. What ranks left open that are gone says
// something only where all are.
std::optional<Hang> Search::run() {
  const CallRecord* worst = nullptr;
  uint64_t longest = 0;
  for (const auto& [i, moved] : last_step_) {
    const CallRecord& call = calls_[i];
    const RankState state = job_.find(call.rank)->state;
    const uint64_t now = now_ns_.at(call.rank);
    if (state == RankState::ended || (some_live() && state != RankState::running)) continue;
    if (!call.awaited || now < moved + patience_ns(call) || now - moved < longest) continue;
    longest = now - moved;
    worst = &call;
  }
  if (!worst) return std::nullopt;
  std::optional<Hang> hang = look(*worst, {});
  if (!hang) {
    hang = about(*worst);
    hang->cause = HangCause::unknown;
    hang->waiting = {worst->rank};
    if (worst->point_to_point) hang->where = open_steps(job_, *worst, plans_).front();
  }
  say(&*hang);
  return hang;
}

std::optional<Hang> Search::look(const CallRecord& call, Way way) {
  const std::pair<int, CallRecord::Name> key{call.point_to_point ? call.rank : -1, call.name()};
  if (std::find(way.begin(), way.end(), key) != way.end()) {
    Hang hang = about(call);
    hang.cause = HangCause::waits_itself;
    std::set<int> all;
    for (const auto& [i, moved] : last_step_)
      for (const auto& [rank, name] : way)
        if (calls_[i].name() == name && (rank < 0 || calls_[i].rank == rank))
          all.insert(calls_[i].rank);
    hang.behind = listed(all);
    return hang;
  }
  way.push_back(key);
  if (call.point_to_point) return of_message(call, way);
  // The lowest number that somebody is in, or has yet to begin, is where it hangs.
  const CallRecord* earliest = &call;
  std::set<int> inside_ranks, behind;
  for (const int rank : members(call)) {
    const CallRecord* const open = open_call(rank, call.comm);
    if (open && open->seq < earliest->seq) earliest = open;
  }
  Hang hang = about(*earliest);
  for (const int rank : members(call)) {
    const CallRecord* const last = last_call(rank, call.comm);
    const RankRecording* const recording = job_.find(rank);
    if (!recording) continue;
    const bool lost = recording->recorded > recording->events.size();  // older ones, and so a call
    if (last ? last->seq < earliest->seq : !lost)
      behind.insert(rank);
    else if (const CallRecord* open = open_call(rank, call.comm); open && open->seq == hang.seq)
      inside_ranks.insert(rank);
  }
  hang.waiting = listed(inside_ranks);
  if (!behind.empty()) return behind_in(hang, behind, way);
  return inside(hang, inside_ranks);
}

// `behind` have not begun the call: because they are gone, in another call, or elsewhere.
std::optional<Hang> Search::behind_in(const Hang& about, const std::set<int>& behind,
                                      const Way& way) {
  Hang hang = about;
  std::set<int> gone;
  for (const int rank : behind)
    if (job_.find(rank)->state != RankState::running) gone.insert(rank);
  // Where all are gone the job was ended as it hung, and that says nothing.
  if (!gone.empty() && some_live()) {
    hang.cause = HangCause::gone;
    hang.behind = listed(gone);
    return hang;
  }
  for (const int rank : behind)
    if (const CallRecord* elsewhere = any_open_call(rank))
      if (std::optional<Hang> deeper = look(*elsewhere, way)) return deeper;
  hang.cause = HangCause::not_called;
  hang.behind = listed(behind);
  for (const int rank : behind) hang.evidence.push_back(what_it_does(rank));
  return hang;
}

// A send or a receive: the other end has not made it.
std::optional<Hang> Search::of_message(const CallRecord& call, const Way& way) {
  Hang hang = about(call);
  hang.waiting = {call.rank};
  hang.where = open_steps(job_, call, plans_).front();
  if (call.peer < 0 || !job_.find(call.peer)) return std::nullopt;
  for (const auto& [i, moved] : last_step_) {
    const CallRecord& other = calls_[i];
    const bool matches = other.rank == call.peer && other.comm == call.comm &&
                         other.point_to_point && other.peer == call.rank && other.seq == call.seq &&
                         other.receiving != call.receiving && other.tag == call.tag;
    if (!matches) continue;
    hang.cause = HangCause::lost_message;  // both ends have made it
    hang.behind = {call.receiving ? call.peer : call.rank};
    hang.waiting = {call.receiving ? call.rank : call.peer};
    return hang;
  }
  return behind_in(hang, {call.peer}, way);
}

Search::Inside Search::look_inside(const Hang& about, const std::set<int>& ranks) const {
  Inside inside;
  for (const int rank : ranks) {
    const CallRecord& call = *open_call(rank, about.comm);
    inside.plans.insert(call.plan);
    for (const OpenStep& step : open_steps(job_, call, plans_)) {
      if (step.kind == EventKind::recv)
        inside.awaited[{step.peer, rank, step.chunk, step.tag}] = step;
      else if (step.kind == EventKind::send)
        inside.left.insert({rank, step.peer, step.chunk, step.tag});
      else
        inside.local[rank] = step;
    }
    for (const TraceEvent& event : job_.find(rank)->events)
      if (event.kind == EventKind::send && event.comm == about.comm && event.seq == about.seq)
        inside.left.insert({rank, event.peer, event.chunk, event.tag});
  }
  return inside;
}

// All have begun the call. Who waits for a message whose sender has not come to it waits for that
// one; the ways end at a rank that could go on, or at a message that has left and has not arrived.
std::optional<Hang> Search::inside(const Hang& about, const std::set<int>& ranks) {
  const Inside now = look_inside(about, ranks);
  Hang hang = about;
  if (now.plans.size() > 1) {
    hang.cause = HangCause::other_call;
    hang.behind = hang.waiting;
    for (const int rank : hang.behind) hang.evidence.push_back(what_it_does(rank));
    return hang;
  }
  std::set<int> stopped, standing, senders, receivers;
  for (const int rank : ranks)
    if (job_.find(rank)->process == 'T') stopped.insert(rank);
  for (const auto& [rank, step] : now.local) {
    standing.insert(rank);
    hang.where = step;
  }
  for (const auto& [edge, step] : now.awaited) {
    if (!job_.find(edge.from)) return std::nullopt;  // it may not even have called
    // Of a sender that left the call already nothing is open: what it sent has left.
    if (!now.left.contains(edge) && ranks.contains(edge.from)) continue;
    senders.insert(edge.from);
    receivers.insert(edge.to);
    hang.where = step;
  }
  if (!stopped.empty() || (!standing.empty() && senders.empty())) {
    hang.cause = HangCause::stands_still;
    hang.behind = listed(stopped.empty() ? standing : stopped);
    for (const int rank : hang.behind) hang.evidence.push_back(what_it_does(rank));
    return hang;
  }
  if (senders.empty()) return std::nullopt;
  // All that is missing was to go to one rank, from several: it does not take it.
  if (receivers.size() == 1 && senders.size() > 1) {
    hang.cause = HangCause::stands_still;
    hang.behind = listed(receivers);
    return hang;
  }
  hang.cause = HangCause::lost_message;
  hang.behind = listed(senders);
  hang.waiting = listed(receivers);
  return hang;
}

std::string Search::what_it_does(int rank) const {
  const RankRecording& recording = *job_.find(rank);
  std::string text = fmt::format("rank {} on {}", rank, recording.host);
  if (recording.process == 'T')
    text += " is stopped (SIGSTOP)";
  else if (recording.process == 'D')
    text += " waits for a device or a disk";
  const CallRecord* last = nullptr;
  for (const CallRecord& call : calls_)
    if (call.rank == rank) last = &call;
  if (!last) return text + ", has made no call";
  const auto age = [&](uint64_t when) {
    const uint64_t now = now_ns_.at(rank);
    return static_cast<double>(now > when ? now - when : 0) / kNsPerS;
  };
  const std::string which =
      fmt::format("{} (number {} of {})", plans_.call_name(last->comm, last->plan), last->seq,
                  job_.comm_name(last->comm));
  if (last->end_ns != 0)
    return text + fmt::format(", is in no call; its last, {}, ended {:.1f} s before", which,
                              age(last->end_ns));
  return text + fmt::format(", is in {} since {:.1f} s", which, age(last->begin_ns));
}

// "they" and what goes with it, of one or several.
struct Words {
  explicit Words(const std::set<int>& ranks) : one(ranks.size() == 1), who(name_ranks(ranks)) {}
  std::string be(const std::string& rest) const { return who + (one ? " is " : " are ") + rest; }
  const char* they_have() const { return one ? "it has" : "they have"; }
  bool one;
  std::string who;
};

std::string Search::cause_text(const Hang& hang, const std::string& call) const {
  const Words behind{std::set<int>(hang.behind.begin(), hang.behind.end())};
  switch (hang.cause) {
    case HangCause::gone:
      return behind.be("gone: left the job, ended without leaving, or killed");
    case HangCause::not_called:
      return behind.be(fmt::format("behind: {} not called {}", behind.they_have(), call));
    case HangCause::other_call:
      return behind.be("in different calls, as " + call);
    case HangCause::waits_itself:
      return behind.who + " wait for each other, in calls of their own";
    case HangCause::stands_still:
      return behind.be(fmt::format("behind: {} what comes next in {} needs, and {} not go on",
                                   behind.they_have(), call, behind.one ? "does" : "do"));
    case HangCause::lost_message:
      return fmt::format("what {} sent to {} in {} has not arrived", behind.who,
                         name_ranks(std::set<int>(hang.waiting.begin(), hang.waiting.end())), call);
    case HangCause::unknown:
      return "nothing moves in " + call + ", and the recordings do not say who is behind";
  }
  return "";
}

void Search::say(Hang* hang) const {
  if (hang->cause != HangCause::other_call && hang->cause != HangCause::lost_message)
    for (const int rank : hang->behind) std::erase(hang->waiting, rank);
  const bool message = hang->where && hang->plan == 0;
  const std::string which =
      message ? fmt::format("a message (tag {})", hang->where->tag)
              : fmt::format("{} (number {}", plans_.call_name(hang->comm, hang->plan), hang->seq);
  const std::string call =
      fmt::format("{} of {}{}", which, job_.comm_name(hang->comm), message ? "" : ")");
  hang->sentence = cause_text(*hang, call);
  if (hang->waiting.empty() || hang->cause == HangCause::lost_message ||
      hang->cause == HangCause::other_call)
    return;
  const Words waiting{std::set<int>(hang->waiting.begin(), hang->waiting.end())};
  hang->sentence +=
      fmt::format("; {} {} waited for {:.1f} s", waiting.who, waiting.one ? "has" : "have",
                  static_cast<double>(hang->since_ns) / kNsPerS);
}

}  // namespace

std::optional<Hang> find_hang(const JobRecording& job, Plans& plans, uint64_t quiet_ns,
                              std::optional<uint64_t> now_ns) {
  return Search(job, plans, quiet_ns, now_ns).run();
}

}  // namespace sennit::diagnose
