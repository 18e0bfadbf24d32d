// messages.cpp: see diagnose/recorded/messages.hpp.
#include "diagnose/recorded/messages.hpp"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <queue>
#include <tuple>
#include <unordered_map>
#include <utility>

#include <fmt/core.h>

#include "base/arithmetic.hpp"
#include "record/measured_clock.hpp"

namespace sennit::diagnose {
namespace {

// Both ends know a message by it.
struct MessageName {
  int from, to;
  uint32_t comm, seq, chunk, tag;
  bool point_to_point;
  bool operator==(const MessageName&) const = default;
};

struct HashOfName {
  size_t operator()(const MessageName& name) const {
    uint64_t hash = mix(static_cast<uint64_t>(name.from), static_cast<uint64_t>(name.to));
    hash = mix(mix(hash, name.comm), name.seq);
    return static_cast<size_t>(
        mix(mix(hash, name.chunk), uint64_t{name.tag} << 1 | uint64_t{name.point_to_point}));
  }
};

uint64_t end_of(const TraceEvent& event) { return event.ended_at(); }

uint64_t time_of(const Message& message) {
  return message.received ? end_of(*message.received) : end_of(*message.sent);
}

// ---- clocks ----

// Clocks drift, so only the latest messages count.
constexpr uint64_t kLatestNs = 10'000'000'000;
constexpr int64_t kNone = std::numeric_limits<int64_t>::max();

// Between two hosts, in the order of their names: the least that a message seemed to take from the
// first to the second, and back. kNone: there was no message.
struct Between {
  int64_t there_ns = kNone, back_ns = kNone;
  bool both() const { return there_ns != kNone && back_ns != kNone; }
  // What the second host's clock is ahead of the first one's.
  int64_t ahead_ns() const { return (there_ns - back_ns) / 2; }
  // Where clocks drift, the least of each direction are of different times, and may not fit.
  uint64_t error_ns() const { return static_cast<uint64_t>(std::abs(there_ns + back_ns)) / 2; }
};
using Pairs = std::map<std::pair<std::string, std::string>, Between>;

// What stands between two clocks: those of hosts, and those that the control plane measured by.
struct ClockStep {
  std::string from, to;
  int64_t ahead_ns = 0;  // the second one
  uint64_t error_ns = 0;
};

// The measured clocks of all ranks, each against that of its root, which is no host here: the rank
// may have left no recording. Those that changed their root meanwhile have another.
void add_measured(const JobRecording& job, std::vector<ClockStep>* steps) {
  for (const RankRecording& rank : job.ranks) {
    if (!rank.clock.known()) continue;
    const std::string root = fmt::format("\nrank {}", rank.clock.root);  // no host's name
    uint64_t latest = rank.clock.measured_ns;
    for (const TraceEvent& event : rank.events) latest = std::max(latest, event.posted_ns);
    steps->push_back({root, rank.host, rank.clock.ahead_ns,
                      rank.clock.error_ns + clock_drift_ns(latest - rank.clock.measured_ns)});
  }
}

Pairs between_hosts(const JobRecording& job, const std::vector<Message>& messages) {
  std::map<int, std::string> host_of;
  std::map<int, uint64_t> latest;  // by rank: when a message came last
  for (const RankRecording& rank : job.ranks) host_of[rank.rank] = rank.host;
  for (const Message& message : messages)
    if (message.received)
      latest[message.to] = std::max(latest[message.to], message.received->ended_at());
  Pairs pairs;
  for (const Message& message : messages) {
    if (!message.sent || !message.received) continue;
    if (message.received->ended_at() + kLatestNs < latest[message.to]) continue;
    const std::string &from = host_of[message.from], &to = host_of[message.to];
    if (from == to) continue;
    const auto took =
        static_cast<int64_t>(message.received->first_at() - message.sent->handed_at());
    Between& between = pairs[std::minmax(from, to)];
    int64_t& least = from < to ? between.there_ns : between.back_ns;
    least = std::min(least, took);
  }
  return pairs;
}

}  // namespace

std::vector<Message> join_messages(const JobRecording& job) {
  std::unordered_map<MessageName, size_t, HashOfName> known;
  std::vector<Message> messages;
  for (const RankRecording& rank : job.ranks) {
    for (const TraceEvent& event : rank.events) {
      if (!event.is_message()) continue;
      const bool sends = event.kind == EventKind::send;
      const int from = sends ? rank.rank : event.peer, to = sends ? event.peer : rank.rank;
      const MessageName name{
          from, to, event.comm, event.seq, event.chunk, event.tag, event.is(kEventPointToPoint)};
      const auto [found, added] = known.try_emplace(name, messages.size());
      if (added) messages.push_back({from, to});
      Message& message = messages[found->second];
      (sends ? message.sent : message.received) = &event;
    }
  }
  std::stable_sort(messages.begin(), messages.end(),
                   [](const Message& a, const Message& b) { return time_of(a) < time_of(b); });
  return messages;
}

// From clock to clock, always to the one that is known best (Dijkstra's shortest ways).
std::map<std::string, ClockOffset> clock_offsets(const JobRecording& job,
                                                 const std::vector<Message>& messages) {
  std::map<std::string, ClockOffset> offsets;
  if (job.ranks.empty()) return offsets;
  const RankRecording& first = job.ranks.front();
  // Real time less monotonic time, against that of the first host.
  const auto start_of = [](const RankRecording& rank) {
    return static_cast<int64_t>(rank.realtime_ns - rank.monotonic_ns);
  };
  for (const RankRecording& rank : job.ranks)
    offsets.try_emplace(rank.host, ClockOffset{start_of(first) - start_of(rank)});
  offsets[first.host] = {0, 0};
  std::vector<ClockStep> steps;
  for (const auto& [names, between] : between_hosts(job, messages))
    if (between.both())
      steps.push_back({names.first, names.second, between.ahead_ns(), between.error_ns()});
  add_measured(job, &steps);
  using Step = std::tuple<uint64_t, std::string, int64_t>;  // error, host, ahead
  std::priority_queue<Step, std::vector<Step>, std::greater<>> next;
  next.emplace(0, first.host, 0);
  std::map<std::string, bool> reached;
  while (!next.empty()) {
    const auto [error, host, ahead] = next.top();
    next.pop();
    if (std::exchange(reached[host], true)) continue;
    if (const auto known = offsets.find(host); known != offsets.end())
      known->second = {ahead, error};
    for (const ClockStep& step : steps) {
      if (step.from == host) next.emplace(error + step.error_ns, step.to, ahead + step.ahead_ns);
      if (step.to == host) next.emplace(error + step.error_ns, step.from, ahead - step.ahead_ns);
    }
  }
  return offsets;
}

}  // namespace sennit::diagnose
