// summary.cpp: see watch/summary.hpp.
#include "watch/summary.hpp"

#include <algorithm>
#include <utility>

#include "base/median.hpp"

namespace sennit::watch {
namespace {

constexpr uint64_t kNsPerUs = 1000, kWayKeptNs = 30'000'000'000;
// Of calls that never end, and their like, no more is remembered.
constexpr size_t kMostOpen = 4096;

}  // namespace

// How much longer than the shortest a message was on its way: where links are busy it stands in
// queues there.
uint64_t Summary::queued_ns(const TraceEvent& event) {
  const uint64_t came_ns = event.first_at();  // the receive may have been posted long before
  const auto apart_us = static_cast<uint32_t>(came_ns / kNsPerUs) - event.sender_clock_us;
  const auto [found, first] = ways_.try_emplace(event.peer);
  Way& way = found->second;
  if (first) way.apart_us = apart_us, way.since_ns = came_ns;
  const auto later_us = static_cast<int32_t>(apart_us - way.apart_us);
  if (came_ns > way.since_ns + kWayKeptNs) {
    // Of a way that was idle what is known of it is older still.
    const bool idle = came_ns > way.since_ns + 2 * kWayKeptNs;
    way.least_before_us = idle ? later_us : way.least_us;
    way.least_us = later_us;
    way.since_ns = came_ns;
  }
  way.least_us = std::min<int64_t>(way.least_us, later_us);
  if (first) way.least_before_us = way.least_us;
  const int64_t least_us = std::min(way.least_us, way.least_before_us);
  return static_cast<uint64_t>(later_us - least_us) * kNsPerUs;
}

// When a message could move, as far as its receiver knows: both ends had to be ready. Where the
// transport does not tell how long the sender was, what it announced, or its first byte, has to do.
uint64_t Summary::could_move_ns(const TraceEvent& event) {
  if (!event.is(kEventKnowsItsWait))
    return event.posted_ns +
           event.after(event.ready != 0 ? std::min(event.ready, event.first) : event.first);
  const uint64_t before_ns = event.sender_waited_us * kNsPerUs + queued_ns(event);
  return std::max(event.posted_ns, event.first_at() - std::min(event.first_at(), before_ns));
}

Summary::Name Summary::name_of(const TraceEvent& event) {
  if (!event.is(kEventPointToPoint)) return {event.comm, event.seq, 0, -1, false, false};
  return {event.comm, event.seq, event.tag, event.peer, true, event.is(kEventReceiving)};
}

void Summary::add(const TraceEvent& event) {
  if (since_ns_ == UINT64_MAX) since_ns_ = event.ended_at();
  if (event.kind == EventKind::call_begin) return begin(event);
  if (event.kind == EventKind::call_end) return end(event);
  if (event.kind == EventKind::recv && !event.is(kEventPointToPoint)) receive(event);
}

// In which calls the rank is from here on is not known.
void Summary::forget_open() {
  open_.clear();
  covered_until_ns_ = 0;
}

void Summary::gap() {
  forget_open();
  incoming_.clear();
  latest_.clear();
  since_ns_ = UINT64_MAX;
}

void Summary::receive(const TraceEvent& event) {
  if (incoming_.size() > kMostOpen) incoming_.clear();
  Incoming& incoming = incoming_[{event.comm, event.seq}];
  incoming.tier_bytes[std::min<size_t>(event.tier, DigestPlan::kTiers - 1)] += event.bytes;
  if (event.peer < 0 || static_cast<size_t>(event.peer) >= remote_.size() ||
      !remote_[static_cast<size_t>(event.peer)])
    return;
  incoming.edges[event.peer].add(static_cast<double>(could_move_ns(event)),
                                 static_cast<double>(event.ended_at()), event.bytes);
}

// Time from here on is in a call.
Summary::Open Summary::open_at(const Name& name, uint64_t begin_ns) {
  if (open_.empty() && covered_until_ns_ != 0 && begin_ns > covered_until_ns_) {
    in_none_ns_ += begin_ns - covered_until_ns_;
    in_none_.push_back({covered_until_ns_, begin_ns});
  }
  const Open call{begin_ns, open_.empty() && begin_ns >= covered_until_ns_};
  for (auto& [other, under_way] : open_) under_way.alone = false;
  covered_until_ns_ = std::max(covered_until_ns_, begin_ns);
  follow(name, call);
  return call;
}

// What lay between the call and the one before it on its communicator.
void Summary::follow(const Name& name, const Open& call) {
  const auto before = latest_.find(name.comm);
  if (name.point_to_point || before == latest_.end() || before->second.seq + 1 != name.seq) return;
  Pace& pace = paces_[name.comm];
  pace.between_ns.push_back(static_cast<double>(in_none_ns_ - before->second.in_none_ns));
  pace.period_ns.push_back(static_cast<double>(call.begin_ns - before->second.begin_ns));
}

void Summary::begin(const TraceEvent& event) {
  const Name name = name_of(event);
  // A receive from anybody begins again once its source is known.
  Name from_any = name;
  from_any.peer = -1;
  from_any.seq = 0;
  if (const auto waited = open_.find(from_any);
      name.receiving && name.peer >= 0 && waited != open_.end()) {
    const Open call = waited->second;
    open_.erase(waited);
    open_[name] = call;
    return;
  }
  if (open_.size() > kMostOpen) forget_open();
  const Open call = open_at(name, event.posted_ns);
  open_[name] = call;
}

void Summary::end(const TraceEvent& event) {
  const Name name = name_of(event);
  const auto found = open_.find(name);
  Open call;
  if (found != open_.end()) {
    call = found->second;
    open_.erase(found);
  } else {
    // Of small calls that went through at once there is the end alone.
    const uint64_t took_ns = event.after(event.last);
    call = open_at(name, event.posted_ns - std::min(took_ns, event.posted_ns));
  }
  const bool whole = call.begin_ns >= since_ns_;
  covered_until_ns_ = std::max(covered_until_ns_, event.posted_ns);
  if (!name.point_to_point) {
    if (whole) {
      latest_[name.comm] = {name.seq, call.begin_ns, in_none_ns_};
      if (!event.is(kEventFailed)) finish(event, call);
    }
    incoming_.erase({name.comm, name.seq});
  }
}

void Summary::finish(const TraceEvent& event, const Open& call) {
  const std::pair<uint32_t, uint64_t> key{event.comm, event.plan()};
  DigestPlan& plan = plans_[key];
  if (plan.calls == 0) plan.comm = event.comm, plan.plan = event.plan(), plan.first = event.seq;
  const uint64_t took_ns = event.posted_ns - std::min(call.begin_ns, event.posted_ns);
  plan.last = event.seq;
  plan.calls++;
  plan.in_calls_ns += took_ns;
  const auto incoming = incoming_.find({event.comm, event.seq});
  if (incoming != incoming_.end())
    for (size_t tier = 0; tier < DigestPlan::kTiers; tier++)
      plan.tier_bytes[tier] += incoming->second.tier_bytes[tier];
  if (!call.alone) return;
  plan.quickest_ns = plan.alone == 0 ? took_ns : std::min(plan.quickest_ns, took_ns);
  plan.alone++;
  plan.alone_ns += took_ns;
  if (incoming == incoming_.end()) return;
  for (const auto& [peer, service] : incoming->second.edges) {
    const diagnose::EdgeTime time = service.of({peer, 0});
    DigestEdge& edge = edges_[key][peer];
    edge.peer = peer;
    edge.bytes += time.bytes;
    edge.service_ns += static_cast<uint64_t>(time.service_ns);
  }
}

// Communicators that come and go leave nothing.
void Summary::forget_older() {
  constexpr size_t kMostLatest = 64;
  if (latest_.size() <= kMostLatest) return;
  std::vector<uint64_t> begins;
  for (const auto& [comm, latest] : latest_) begins.push_back(latest.begin_ns);
  const auto least = begins.end() - static_cast<ptrdiff_t>(kMostLatest);
  std::nth_element(begins.begin(), least, begins.end());
  std::erase_if(latest_, [&](const auto& one) { return one.second.begin_ns < *least; });
}

Digest Summary::take(uint64_t span_ns) {
  Digest digest;
  digest.span_ns = span_ns;
  for (auto& [key, plan] : plans_) {
    for (const auto& [peer, edge] : edges_[key]) plan.edges.push_back(edge);
    digest.plans.push_back(std::move(plan));
  }
  for (auto& [comm, pace] : paces_)
    digest.paces.push_back({comm, static_cast<uint32_t>(pace.between_ns.size()),
                            static_cast<uint64_t>(median(pace.between_ns)),
                            static_cast<uint64_t>(median(pace.period_ns))});
  plans_.clear();
  edges_.clear();
  paces_.clear();
  forget_older();
  return digest;
}

}  // namespace sennit::watch
