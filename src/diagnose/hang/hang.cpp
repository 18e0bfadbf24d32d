// hang.cpp: see diagnose/hang/hang.hpp.
#include "diagnose/hang/hang.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "base/rank_ranges.hpp"

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

// Numbers of calls may wrap.
bool is_before(uint32_t a, uint32_t b) { return static_cast<int32_t>(a - b) < 0; }

class Search {
 public:
  Search(const JobRecording& job, Plans& plans, std::vector<Standing> standings,
         const Patience& patience);
  std::optional<Hang> run();

 private:
  using Way = std::vector<std::pair<int, CallRecord::Name>>;  // calls, of a rank or of all (-1)

  const Standing* find(int rank) const;  // null: nothing is known of it
  bool some_live() const;
  const StandingCall* open_call(int rank, uint32_t comm) const;
  const StandingCall* any_open_call(int rank) const;
  const CallRecord* last_call(int rank, uint32_t comm) const;
  uint64_t patience_ns(const CallRecord& call);
  std::set<int> members(const CallRecord& call) const;
  std::optional<Hang> look(const StandingCall& from, Way way);
  std::optional<Hang> of_collective(const StandingCall& from, const Way& way);
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
  std::optional<Hang> of_message(const StandingCall& call, const Way& way);
  Hang about(const StandingCall& call) const;
  std::string cause_text(const Hang& hang, const std::string& call) const;
  void say(Hang* hang);
  static void tell_ways(const std::set<std::pair<int, int>>& ways, Hang* hang);
  void tell_what_they_do(Hang* hang) const;
  std::string which(const CallRecord& call) const;
  std::string what_it_does(int rank) const;
  bool hangs(const StandingCall& call);
  bool moves(const StandingCall& call);
  std::vector<const StandingCall*> candidates();

  const JobRecording& job_;
  Plans& plans_;
  const Patience patience_;
  std::vector<Standing> standings_;
  std::map<int, size_t> index_;                                 // of a rank in standings_
  std::map<int, std::vector<const StandingCall*>> open_;        // by rank, as they began
  std::map<std::pair<int, uint32_t>, const CallRecord*> last_;  // by rank and communicator
  std::set<std::pair<int, CallRecord::Name>> in_vain_;          // looked at, and nothing was found
  bool goes_on_ = false;  // something that is waited for still moves
};

Search::Search(const JobRecording& job, Plans& plans, std::vector<Standing> standings,
               const Patience& patience)
    : job_(job), plans_(plans), patience_(patience), standings_(std::move(standings)) {
  for (size_t i = 0; i < standings_.size(); i++) {
    index_[standings_[i].rank] = i;
    for (const StandingCall& call : standings_[i].calls) {
      if (!call.ended()) open_[standings_[i].rank].push_back(&call);
      if (call.call.point_to_point) continue;
      const CallRecord*& last = last_[{standings_[i].rank, call.call.comm}];
      if (!last || !is_before(call.call.seq, last->seq)) last = &call.call;
    }
  }
}

const Standing* Search::find(int rank) const {
  const auto found = index_.find(rank);
  return found == index_.end() ? nullptr : &standings_[found->second];
}

// A call that takes long by itself is no hang before several times as much.
uint64_t Search::patience_ns(const CallRecord& call) {
  constexpr uint64_t kTimesAsLong = 4, kSlowBytesPerUs = 10;
  constexpr uint64_t kNsPerUs = 1000;
  if (call.point_to_point) return patience_.message_ns + call.bytes / kSlowBytesPerUs * kNsPerUs;
  const PlanNote* const note = plans_.note(call.comm, call.plan);
  return std::max(patience_.call_ns, note ? kTimesAsLong * note->predicted_ns : 0);
}

bool Search::some_live() const {
  return std::any_of(standings_.begin(), standings_.end(),
                     [](const Standing& standing) { return standing.state == RankState::running; });
}

const StandingCall* Search::open_call(int rank, uint32_t comm) const {
  const auto its = open_.find(rank);
  if (its == open_.end()) return nullptr;
  for (const StandingCall* const open : its->second)
    if (open->call.comm == comm && !open->call.point_to_point) return open;
  return nullptr;
}

// One that it waits for: a receive that was posted early holds nobody up.
const StandingCall* Search::any_open_call(int rank) const {
  const auto its = open_.find(rank);
  if (its == open_.end()) return nullptr;
  for (const StandingCall* const open : its->second)
    if (open->call.awaited) return open;
  return nullptr;
}

const CallRecord* Search::last_call(int rank, uint32_t comm) const {
  const auto found = last_.find({rank, comm});
  return found == last_.end() ? nullptr : found->second;
}

std::set<int> Search::members(const CallRecord& call) const {
  const std::vector<int> noted = job_.members_of(call.comm);
  if (!noted.empty()) return {noted.begin(), noted.end()};
  std::set<int> seen;  // of no note: those that called
  for (const Standing& standing : standings_)
    if (last_call(standing.rank, call.comm)) seen.insert(standing.rank);
  return seen;
}

Hang Search::about(const StandingCall& standing) const {
  const CallRecord& call = standing.call;
  const uint64_t now = find(call.rank)->now_ns;
  Hang hang;
  hang.comm = call.comm;
  hang.seq = call.seq;
  hang.plan = call.plan;
  hang.since_ns = now > standing.moved_ns ? now - standing.moved_ns : 0;
  return hang;
}

// Whether nothing has moved in it for too long.
bool Search::hangs(const StandingCall& call) {
  return find(call.call.rank)->now_ns >= call.moved_ns + patience_ns(call.call);
}

// Whether something has moved in it lately: then whoever waits for it does not hang. Ranks that
// wait for one another came to their calls at about one time, and not all have waited for as long.
bool Search::moves(const StandingCall& call) {
  return find(call.call.rank)->now_ns < call.moved_ns + patience_ns(call.call) / 2;
}

// Calls that somebody waits for, those first that have been without a step for longest. What ranks
// left open that are gone says something only where all are.
std::vector<const StandingCall*> Search::candidates() {
  std::vector<const StandingCall*> found;
  const bool live = some_live();
  for (const auto& [number, calls] : open_) {
    const Standing& rank = *find(number);
    if (rank.state == RankState::ended || (live && rank.state != RankState::running)) continue;
    for (const StandingCall* const open : calls) {
      const uint64_t said_ns = open->call.stalled_ns;
      const bool said = said_ns > open->moved_ns && rank.now_ns <= said_ns + patience_.said_ns;
      if (open->call.awaited && hangs(*open) && (patience_.said_ns == 0 || said))
        found.push_back(open);
    }
  }
  const auto quiet_ns = [this](const StandingCall* call) {
    return find(call->call.rank)->now_ns - call->moved_ns;
  };
  std::stable_sort(found.begin(), found.end(),
                   [&](const auto* a, const auto* b) { return quiet_ns(a) > quiet_ns(b); });
  return found;
}

std::optional<Hang> Search::run() {
  const StandingCall* unexplained = nullptr;
  for (const StandingCall* const call : candidates()) {
    goes_on_ = false;
    if (std::optional<Hang> hang = look(*call, {})) {
      say(&*hang);
      return hang;
    }
    if (!goes_on_ && !unexplained) unexplained = call;
  }
  if (!unexplained) return std::nullopt;
  Hang hang = about(*unexplained);
  hang.cause = HangCause::unknown;
  hang.waiting = {unexplained->call.rank};
  if (unexplained->call.point_to_point && !unexplained->open.empty())
    hang.where = unexplained->open.front();
  say(&hang);
  return hang;
}

// What the call waits for, and in the end who is behind. Nothing where that is not known, or, with
// goes_on_, where it moves.
std::optional<Hang> Search::look(const StandingCall& from, Way way) {
  const CallRecord& call = from.call;
  const std::pair<int, CallRecord::Name> key{call.point_to_point ? call.rank : -1, call.name()};
  if (std::find(way.begin(), way.end(), key) != way.end()) {
    Hang hang = about(from);
    hang.cause = HangCause::waits_itself;
    std::set<int> all;
    for (const auto& [number, calls] : open_)
      for (const StandingCall* const open : calls)
        for (const auto& [rank, name] : way)
          if (open->call.name() == name && (rank < 0 || number == rank)) all.insert(number);
    hang.behind = listed(all);
    tell_what_they_do(&hang);
    return hang;
  }
  if (in_vain_.contains(key)) return std::nullopt;
  way.push_back(key);
  std::optional<Hang> found =
      call.point_to_point ? of_message(from, way) : of_collective(from, way);
  if (!found && !goes_on_) in_vain_.insert(key);
  return found;
}

std::optional<Hang> Search::of_collective(const StandingCall& from, const Way& way) {
  const CallRecord& call = from.call;
  // The lowest number that somebody is in, or has yet to begin, is where it hangs.
  const StandingCall* earliest = &from;
  std::set<int> inside_ranks, behind;
  for (const int rank : members(call)) {
    const StandingCall* const open = open_call(rank, call.comm);
    if (open && is_before(open->call.seq, earliest->call.seq)) earliest = open;
  }
  Hang hang = about(*earliest);
  for (const int rank : members(call)) {
    const CallRecord* const last = last_call(rank, call.comm);
    const Standing* const standing = find(rank);
    if (!standing) continue;
    const StandingCall* const open = open_call(rank, call.comm);
    if (last ? is_before(last->seq, hang.seq) : !standing->forgets) {
      behind.insert(rank);
    } else if (open && open->call.seq == hang.seq) {
      inside_ranks.insert(rank);
      // It may be slow, but it is no hang.
      if (moves(*open)) goes_on_ = true;
    }
  }
  if (goes_on_) return std::nullopt;
  hang.waiting = listed(inside_ranks);
  if (!behind.empty()) return behind_in(hang, behind, way);
  return inside(hang, inside_ranks);
}

// `behind` have not begun the call: because they are gone, in another call, or elsewhere.
std::optional<Hang> Search::behind_in(const Hang& about, const std::set<int>& behind,
                                      const Way& way) {
  Hang hang = about;
  std::set<int> gone, silent;
  for (const int rank : behind) {
    const RankState state = find(rank)->state;
    if (state == RankState::silent)
      silent.insert(rank);
    else if (state != RankState::running)
      gone.insert(rank);
  }
  // Where all are gone the job was ended as it hung, and that says nothing.
  if ((!gone.empty() || !silent.empty()) && some_live()) {
    hang.cause = gone.empty() ? HangCause::silent : HangCause::gone;
    hang.behind = listed(gone.empty() ? silent : gone);
    return hang;
  }
  for (const int rank : behind) {
    const StandingCall* const elsewhere = any_open_call(rank);
    if (!elsewhere) continue;
    if (moves(*elsewhere)) goes_on_ = true;
    if (goes_on_) return std::nullopt;
    if (std::optional<Hang> deeper = look(*elsewhere, way)) return deeper;
    if (goes_on_) return std::nullopt;
  }
  hang.cause = HangCause::not_called;
  hang.behind = listed(behind);
  tell_what_they_do(&hang);
  return hang;
}

// A send or a receive: the other end has not made it.
std::optional<Hang> Search::of_message(const StandingCall& standing, const Way& way) {
  const CallRecord& call = standing.call;
  Hang hang = about(standing);
  hang.waiting = {call.rank};
  if (!standing.open.empty()) hang.where = standing.open.front();
  if (call.peer < 0 || !find(call.peer)) return std::nullopt;
  for (const StandingCall* const open : open_[call.peer]) {
    const CallRecord& other = open->call;
    const bool matches = other.comm == call.comm && other.point_to_point &&
                         other.peer == call.rank && other.seq == call.seq &&
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
    const StandingCall& standing = *open_call(rank, about.comm);
    inside.plans.insert(standing.call.plan);
    for (const OpenStep& step : standing.open) {
      if (step.kind == EventKind::recv)
        inside.awaited[{step.peer, rank, step.chunk, step.tag}] = step;
      else if (step.kind == EventKind::send)
        inside.left.insert({rank, step.peer, step.chunk, step.tag});
      else
        inside.local[rank] = step;
    }
    for (const SentMessage& sent : standing.sent)
      inside.left.insert({rank, sent.to, sent.chunk, sent.tag});
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
    tell_what_they_do(&hang);
    return hang;
  }
  std::set<int> stopped, standing, senders, receivers;
  std::set<std::pair<int, int>> ways;
  for (const int rank : ranks)
    if (find(rank)->process == 'T') stopped.insert(rank);
  for (const auto& [rank, step] : now.local) {
    standing.insert(rank);
    hang.where = step;
  }
  for (const auto& [edge, step] : now.awaited) {
    // It may not even have called.
    const CallRecord* const last = last_call(edge.from, about.comm);
    if (!last || is_before(last->seq, about.seq)) return std::nullopt;
    // Of a sender that left the call already nothing is open: what it sent has left.
    if (!now.left.contains(edge) && ranks.contains(edge.from)) continue;
    senders.insert(edge.from);
    receivers.insert(edge.to);
    ways.emplace(edge.from, edge.to);
    hang.where = step;
  }
  if (!stopped.empty() || (!standing.empty() && senders.empty())) {
    hang.cause = HangCause::stands_still;
    hang.behind = listed(stopped.empty() ? standing : stopped);
    tell_what_they_do(&hang);
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
  tell_ways(ways, &hang);
  return hang;
}

// Who is at an end of all of them has most likely lost its link.
void Search::tell_ways(const std::set<std::pair<int, int>>& ways, Hang* hang) {
  constexpr size_t kMostTold = 4;
  if (ways.size() < 2) return;
  std::vector<std::string> told;
  std::set<int> common = {ways.begin()->first, ways.begin()->second};
  for (const auto& [from, to] : ways) {
    if (told.size() < kMostTold) told.push_back(fmt::format("from rank {} to rank {}", from, to));
    for (const int rank : std::set<int>(common))
      if (rank != from && rank != to) common.erase(rank);
  }
  std::string text = fmt::format("missing is what goes {}", fmt::join(told, ", "));
  if (ways.size() > told.size()) text += fmt::format(", and {} more", ways.size() - told.size());
  if (common.size() == 1) text += fmt::format(": all of it has rank {} at an end", *common.begin());
  hang->evidence.push_back(text);
}

// As evidence, of the first few that are behind.
void Search::tell_what_they_do(Hang* hang) const {
  constexpr size_t kMostTold = 4;
  const size_t told = std::min(hang->behind.size(), kMostTold);
  for (size_t i = 0; i < told; i++) hang->evidence.push_back(what_it_does(hang->behind[i]));
  if (hang->behind.size() > told)
    hang->evidence.push_back(fmt::format("and {} more", hang->behind.size() - told));
}

// What the call is, with its number. Those of sends and receives count between two ranks: beside a
// collective one's number they would only seem to be behind it.
std::string Search::which(const CallRecord& call) const {
  const std::string comm = job_.comm_name(call.comm);
  if (!call.point_to_point)
    return fmt::format("{} (number {} of {})", plans_.call_name(call.comm, call.plan), call.seq,
                       comm);
  const std::string peer = call.peer < 0 ? "any rank" : fmt::format("rank {}", call.peer);
  return fmt::format("a {} {} (tag {} of {})", call.receiving ? "receive from" : "send to", peer,
                     call.tag, comm);
}

// Of several calls, the one that it waits for.
std::string Search::what_it_does(int rank) const {
  const Standing& standing = *find(rank);
  std::string text = fmt::format("rank {} on {}", rank, standing.host);
  if (standing.process == 'T')
    text += " is stopped (SIGSTOP)";
  else if (standing.process == 'D')
    text += " waits for a device or a disk";
  if (standing.calls.empty()) return text + ", has made no call";
  const StandingCall* const open = any_open_call(rank);
  const CallRecord* const last = open ? &open->call : &standing.calls.back().call;
  const auto age = [&](uint64_t when) {
    return static_cast<double>(standing.now_ns > when ? standing.now_ns - when : 0) / kNsPerS;
  };
  if (last->end_ns != 0)
    return text + fmt::format(", is in no call; its last, {}, ended {:.1f} s before", which(*last),
                              age(last->end_ns));
  return text + fmt::format(", is in {} since {:.1f} s", which(*last), age(last->begin_ns));
}

// "they" and what goes with it, of one or several.
struct Words {
  explicit Words(const std::set<int>& ranks) : one(ranks.size() == 1), who(name_ranks(ranks)) {}
  std::string be(const std::string& rest) const { return who + (one ? " is " : " are ") + rest; }
  const char* they_have() const { return one ? "it has" : "they have"; }
  bool one;
  std::string who;
};

// What those that are behind have not done: the other end of what is waited for.
const char* missed(const Hang& hang) {
  if (hang.plan != 0 || !hang.where) return "called";
  return hang.where->kind == EventKind::recv ? "sent" : "received";
}

std::string Search::cause_text(const Hang& hang, const std::string& call) const {
  const Words behind{std::set<int>(hang.behind.begin(), hang.behind.end())};
  switch (hang.cause) {
    case HangCause::gone:
      return behind.be("gone: left the job, ended without leaving, or killed");
    case HangCause::silent:
      return fmt::format(
          "{} {} not answer: stopped, or {} host hangs or is cut off, or {} left the job",
          behind.who, behind.one ? "does" : "do", behind.one ? "its" : "their", behind.they_have());
    case HangCause::not_called:
      return behind.be(fmt::format("behind: {} not {} {}", behind.they_have(), missed(hang), call));
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

void Search::say(Hang* hang) {
  if (hang->cause != HangCause::other_call && hang->cause != HangCause::lost_message)
    for (const int rank : hang->behind) std::erase(hang->waiting, rank);
  const bool message = hang->where && hang->plan == 0;
  const std::string which =
      message ? fmt::format("a message (tag {})", hang->where->tag)
              : fmt::format("{} (number {}", plans_.call_name(hang->comm, hang->plan), hang->seq);
  const std::string call =
      fmt::format("{} of {}{}", which, job_.comm_name(hang->comm), message ? "" : ")");
  hang->sentence = cause_text(*hang, call);
  if (hang->where && !message && hang->where->peer >= 0) {
    const OpenStep& where = *hang->where;
    hang->evidence.push_back(fmt::format(
        "it hangs in step {} of chunk {}: a message (tag {}) {} rank {}{}", where.step, where.chunk,
        where.tag, where.kind == EventKind::recv ? "from" : "to", where.peer,
        where.tier == 0 ? "" : " over its " + plans_.tier_name(hang->comm, where.tier)));
  }
  if (hang->waiting.empty() || hang->cause == HangCause::lost_message ||
      hang->cause == HangCause::other_call)
    return;
  const Words waiting{std::set<int>(hang->waiting.begin(), hang->waiting.end())};
  hang->sentence +=
      fmt::format("; {} {} waited for {:.1f} s", waiting.who, waiting.one ? "has" : "have",
                  static_cast<double>(hang->since_ns) / kNsPerS);
}

}  // namespace

std::optional<Hang> find_hang(const JobRecording& job, Plans& plans,
                              std::vector<Standing> standings, const Patience& patience) {
  return Search(job, plans, std::move(standings), patience).run();
}

std::string_view name(HangCause cause) {
  constexpr std::string_view kNames[] = {"gone",         "silent",       "not_called",
                                         "other_call",   "waits_itself", "stands_still",
                                         "lost_message", "unknown"};
  return kNames[static_cast<size_t>(cause)];
}

}  // namespace sennit::diagnose
