// observe.cpp: see diagnose/recorded/observe.hpp.
#include "diagnose/recorded/observe.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "diagnose/calls.hpp"

namespace sennit::diagnose {
namespace {

using Pair = std::pair<int, int>;

CallEdges listed(const std::map<Pair, Service>& edges) {
  std::vector<EdgeTime> list;
  for (const auto& [edge, service] : edges) list.push_back(service.of(edge));
  return std::make_shared<const std::vector<EdgeTime>>(std::move(list));
}

using CallNumber = std::tuple<uint32_t, uint64_t, uint32_t>;  // communicator, plan, number

struct Span {
  int64_t first = INT64_MAX, last_begin = INT64_MIN, last = INT64_MIN;
  std::set<int> ranks;
  bool spoiled = false;  // it failed, or a rank was in two calls at once
};

// Takes out those that overlap others: what they take says as much of those.
void drop_overlapping(std::map<CallNumber, Span>* spans) {
  std::vector<std::pair<const CallNumber, Span>*> order;
  for (auto& span : *spans) order.push_back(&span);
  std::sort(order.begin(), order.end(),
            [](const auto* a, const auto* b) { return a->second.first < b->second.first; });
  std::set<CallNumber> overlapping;
  size_t longest = 0;  // in `order`: the one that ends last so far
  for (size_t i = 1; i < order.size(); i++) {
    // Of one communicator a rank may begin the next while others are still in the one before.
    const bool next = std::get<0>(order[i]->first) == std::get<0>(order[longest]->first);
    if (!next && order[i]->second.first < order[longest]->second.last) {
      overlapping.insert(order[i]->first);
      overlapping.insert(order[longest]->first);
    }
    if (order[i]->second.last > order[longest]->second.last) longest = i;
  }
  for (const CallNumber& call : overlapping) spans->erase(call);
}

// Calls that all members have begun and ended, and how long each took once the last had come.
std::map<CallNumber, double> whole_calls(const JobRecording& job,
                                         const std::map<std::string, ClockOffset>& clocks) {
  std::map<CallNumber, Span> spans;
  std::map<int, std::pair<uint64_t, CallNumber>> latest;  // by rank: an end, and of which call
  for (const CallRecord& call : find_calls(job)) {        // by rank, as they began
    if (call.point_to_point || call.end_ns == 0) continue;
    const CallNumber number{call.comm, call.plan, call.seq};
    const auto [before, first] = latest.try_emplace(call.rank, call.end_ns, number);
    if (!first && call.begin_ns < before->second.first)
      spans[before->second.second].spoiled = spans[number].spoiled = true;
    if (call.end_ns >= before->second.first) before->second = {call.end_ns, number};
    const int64_t ahead = clocks.at(job.find(call.rank)->host).ahead_ns;
    Span& span = spans[number];
    span.first = std::min(span.first, static_cast<int64_t>(call.begin_ns) - ahead);
    span.last_begin = std::max(span.last_begin, static_cast<int64_t>(call.begin_ns) - ahead);
    span.last = std::max(span.last, static_cast<int64_t>(call.end_ns) - ahead);
    span.ranks.insert(call.rank);
    span.spoiled |= call.failed;
  }
  drop_overlapping(&spans);
  std::map<CallNumber, double> whole;
  for (const auto& [call, span] : spans) {
    const auto members = job.communicators.find(std::get<0>(call));
    if (!span.spoiled && members != job.communicators.end() &&
        span.ranks.size() == members->second.size())
      whole[call] = static_cast<double>(span.last - span.last_begin);
  }
  return whole;
}

// The plan that moved most bytes over edges that can be judged.
std::optional<std::pair<uint32_t, uint64_t>> busiest(const std::vector<Message>& messages,
                                                     const std::map<CallNumber, double>& whole,
                                                     Plans& plans) {
  std::map<std::pair<uint32_t, uint32_t>, uint64_t> plan_of;  // by communicator and number
  for (const auto& [call, took] : whole)
    plan_of[{std::get<0>(call), std::get<2>(call)}] = std::get<1>(call);
  std::map<std::tuple<uint32_t, uint32_t, int, int>, uint64_t> edges;
  for (const Message& message : messages)
    if (message.received && !message.received->is(kEventPointToPoint))
      edges[{message.received->comm, message.received->seq, message.from, message.to}] +=
          message.received->bytes;
  std::map<std::pair<uint32_t, uint64_t>, uint64_t> moved;
  for (const auto& [edge, bytes] : edges) {
    const auto [comm, seq, from, to] = edge;
    const auto found = plan_of.find({comm, seq});
    if (bytes < kLeastEdgeBytes || found == plan_of.end()) continue;
    const PlanNote* const note = plans.note(comm, found->second);
    // Where ranks do not know each other's counts nothing is expected of them.
    if (note && (!note->request.vector_variant || !note->request.counts.empty()))
      moved[{comm, found->second}] += bytes;
  }
  if (moved.empty()) return std::nullopt;
  return std::max_element(moved.begin(), moved.end(),
                          [](const auto& a, const auto& b) { return a.second < b.second; })
      ->first;
}

// For how long, while a message could have moved, the process of one of its ends did not run.
double paused_between(const JobRecording& job, const std::map<std::string, ClockOffset>& clocks,
                      const Message& message) {
  const RankRecording &from = *job.find(message.from), &to = *job.find(message.to);
  if (from.pauses.empty() && to.pauses.empty()) return 0;
  const int64_t apart = clocks.at(to.host).ahead_ns - clocks.at(from.host).ahead_ns;
  const auto at_receiver = [&](uint64_t ns) {
    return static_cast<uint64_t>(static_cast<int64_t>(ns) + apart);
  };
  const uint64_t could_move =
      std::max(at_receiver(message.sent->handed_at()), message.received->posted_ns);
  std::vector<Pause> all = to.pauses;
  for (const Pause& pause : from.pauses)
    all.push_back({at_receiver(pause.begin_ns), at_receiver(pause.end_ns)});
  std::sort(all.begin(), all.end(),
            [](const Pause& a, const Pause& b) { return a.begin_ns < b.begin_ns; });
  uint64_t after_ns = 0;  // that of both ends counts once
  for (Pause& pause : all) {
    pause.begin_ns = std::max(pause.begin_ns, after_ns);
    after_ns = std::max(after_ns, pause.end_ns);
  }
  return static_cast<double>(paused_ns(all, could_move, message.received->ended_at()));
}

}  // namespace

std::optional<ObservedPlan> observe_edges(const JobRecording& job, Plans& plans,
                                          const std::vector<Message>& messages, size_t most_calls) {
  const std::map<std::string, ClockOffset> clocks = clock_offsets(job, messages);
  const std::map<CallNumber, double> whole = whole_calls(job, clocks);
  const auto chosen = busiest(messages, whole, plans);
  if (!chosen || !plans.tree(chosen->first)) return std::nullopt;
  const auto [comm, plan] = *chosen;
  std::map<uint32_t, std::map<Pair, Service>> calls;
  std::set<uint32_t> torn;  // a message of theirs is not recorded at both ends
  const auto common = [&](int rank, uint64_t ns) {
    return static_cast<double>(static_cast<int64_t>(ns) - clocks.at(job.find(rank)->host).ahead_ns);
  };
  for (const Message& message : messages) {  // by the time at which they were there
    const TraceEvent& any = message.received ? *message.received : *message.sent;
    if (any.comm != comm || any.is(kEventPointToPoint) || !whole.contains({comm, plan, any.seq}))
      continue;
    if (!message.sent || !message.received) {
      torn.insert(any.seq);
      continue;
    }
    const TraceEvent &sent = *message.sent, &received = *message.received;
    const double there = common(message.to, received.ended_at());
    const double could_move = std::min(there, paused_between(job, clocks, message) +
                                                  std::max(common(message.from, sent.handed_at()),
                                                           common(message.to, received.posted_ns)));
    const Pair edge{plans.position(comm, message.from), plans.position(comm, message.to)};
    if (edge.first >= 0 && edge.second >= 0)
      calls[any.seq][edge].add(could_move, there, received.bytes);
  }
  ObservedPlan observed;
  observed.comm = comm;
  observed.plan = plan;
  for (auto call = calls.rbegin(); call != calls.rend(); ++call) {
    if (torn.contains(call->first) || observed.calls.size() == most_calls) continue;
    observed.calls.insert(observed.calls.begin(), call->first);
    observed.edges.insert(observed.edges.begin(), listed(call->second));
    observed.time_ns.insert(observed.time_ns.begin(), whole.at({comm, plan, call->first}));
  }
  if (observed.calls.empty()) return std::nullopt;
  return observed;
}

}  // namespace sennit::diagnose
