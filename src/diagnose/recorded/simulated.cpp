// simulated.cpp: see diagnose/recorded/simulated.hpp.
#include "diagnose/recorded/simulated.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <random>

#include "base/index.hpp"
#include "simulate/simulate.hpp"

namespace sennit::diagnose {
namespace {

constexpr uint32_t kComm = 1;
constexpr uint64_t kStartNs = 1'000'000'000;
constexpr uint64_t kBetweenCallsNs = 20'000;

TraceEvent call_event(EventKind kind, uint32_t seq, uint64_t plan, uint64_t when_ns) {
  TraceEvent event;
  event.comm = kComm;
  event.seq = seq;
  event.kind = kind;
  event.posted_ns = when_ns;
  event.set_plan(plan);
  return event;
}

class Recorder {
 public:
  Recorder(const SimulatedJob& job, const TierTree& tree, JobRecording* out)
      : job_(job), tree_(tree), out_(out), random_(job.seed), noise_(0, job.noise) {}

  // One call, which ranks come to at came_ns or later; it moves once the last has come. `all_well`:
  // nobody is late yet. Returns when it ends.
  uint64_t record(uint32_t seq, uint64_t came_ns, const SimulatedCall& call, bool all_well) {
    const double slower = std::exp(noise_(random_));
    uint64_t begin_ns = came_ns;
    for (RankRecording& rank : out_->ranks) {
      const uint64_t at = came_ns + (all_well ? 0 : late_by(rank.rank));
      begin_ns = std::max(begin_ns, at);
      rank.events.push_back(call_event(EventKind::call_begin, seq, job_.plan.hash, at));
    }
    if (job_.records_messages) record_messages(seq, begin_ns, call, slower);
    const uint64_t end_ns =
        begin_ns + static_cast<uint64_t>(static_cast<double>(call.time_ns) * slower);
    for (RankRecording& rank : out_->ranks)
      rank.events.push_back(call_event(EventKind::call_end, seq, job_.plan.hash, end_ns));
    return end_ns;
  }

 private:
  void record_messages(uint32_t seq, uint64_t begin_ns, const SimulatedCall& call, double slower) {
    std::map<std::pair<int, int>, uint32_t> tags;
    for (const SimulatedMessage& message : call.messages) {
      const double noise = slower * std::exp(noise_(random_));
      const auto took = static_cast<uint64_t>(
          static_cast<double>(message.delivered_ns - message.begin_ns) * noise);
      TraceEvent event = call_event(EventKind::send, seq, 0, begin_ns + message.begin_ns);
      event.chunk = message.chunk;
      event.tag = tags[{message.from, message.to}]++;
      event.tier = message.tier;
      event.bytes = static_cast<uint32_t>(message.bytes);
      event.peer = rank_at(message.to);
      event.set_times({.last_ns = took});
      recording_of(message.from).events.push_back(event);
      event.kind = EventKind::recv;
      event.peer = rank_at(message.from);
      event.posted_ns = begin_ns;  // long before
      const uint64_t first_ns = message.begin_ns + message.delivered_ns - message.left_ns;
      event.set_times({.first_ns = first_ns, .last_ns = message.begin_ns + took});
      recording_of(message.to).events.push_back(event);
    }
  }

  uint64_t late_by(int rank) const {
    uint64_t late_ns = 0;
    for (const auto& [late_rank, ns] : job_.late)
      if (late_rank == rank) late_ns = ns;
    return late_ns;
  }
  int rank_at(int position) const { return tree_.rank_of_position[index(position)]; }
  RankRecording& recording_of(int position) { return out_->ranks[index(rank_at(position))]; }

  const SimulatedJob& job_;
  const TierTree& tree_;
  JobRecording* out_;
  std::mt19937_64 random_;
  std::normal_distribution<double> noise_;
};

JobRecording empty_recording(const SimulatedJob& job) {
  JobRecording recording;
  recording.size = static_cast<int>(job.placements.size());
  recording.fabric = job.fabric.to_text();
  recording.placements = job.placements;
  std::vector<int> members;
  for (int r = 0; r < recording.size; r++) {
    RankRecording rank;
    rank.rank = r;
    rank.size = recording.size;
    rank.host = job.placements[index(r)].host;
    rank.state = RankState::ended;
    recording.ranks.push_back(std::move(rank));
    members.push_back(r);
  }
  recording.communicators[kComm] = members;
  recording.index();
  recording.plans[{kComm, job.plan.hash}] = {kComm,
                                             job.plan.hash,
                                             job.request,
                                             job.plan.algorithm,
                                             job.plan.parameters,
                                             job.plan.predicted_ns,
                                             {}};
  return recording;
}

}  // namespace

Result<SimulatedCall> simulated_call(const SimulatedJob& job) {
  const Result<TierTree> tree = contract(job.fabric, job.placements);
  if (!tree) return tree.status();
  const Algorithm* const algorithm = find_algorithm(job.plan.algorithm);
  if (!algorithm) return invalid("there is no algorithm " + job.plan.algorithm);
  // The programs are those of the fabric as all believe it to be.
  const std::unique_ptr<Blueprint> blueprint =
      algorithm->prepare(*tree, job.request, job.plan.parameters);
  const TierTree slowed = slowed_down(*tree, job.slow);
  SimulatedCall call;
  SimulateOptions options;
  options.symmetry = false;
  options.grain_ns = job.grain_ns;
  options.cost = job.cost;
  options.cable_hash = job.cable_hash;
  options.slow_cables = job.slow_cables;
  options.observe = [&](const SimulatedMessage& message) { call.messages.push_back(message); };
  const Result<SimulatedTime> simulated =
      simulate(slowed, job.request, *blueprint, job.plan.parameters.chunks, options);
  if (!simulated) return simulated.status();
  call.time_ns = simulated->time_ns;
  return call;
}

Result<SimulatedCall> simulated_well_call(const SimulatedJob& job) {
  SimulatedJob well = job;
  well.slow.clear();
  well.slow_cables.clear();
  return simulated_call(well);
}

JobRecording recording_of(const SimulatedJob& job, const SimulatedCall& call,
                          const SimulatedCall& well) {
  const TierTree tree = *contract(job.fabric, job.placements);
  JobRecording recording = empty_recording(job);
  Recorder recorder(job, tree, &recording);
  uint64_t now_ns = kStartNs;
  for (uint32_t seq = 1; seq <= job.well_calls + job.calls; seq++) {
    const bool all_well = seq <= job.well_calls;
    now_ns = recorder.record(seq, now_ns + kBetweenCallsNs, all_well ? well : call, all_well);
  }
  for (RankRecording& rank : recording.ranks) rank.recorded = rank.events.size();
  return recording;
}

ObservedPlan observed_of(const SimulatedJob& job, const SimulatedCall& call,
                         const SimulatedCall& well) {
  std::mt19937_64 random(job.seed);
  std::normal_distribution<double> noise(0, job.noise), edge_noise(0, job.edge_noise);
  using Edges = std::map<std::pair<int, int>, std::vector<const SimulatedMessage*>>;
  const auto by_edge = [](const SimulatedCall& of) {
    Edges edges;
    for (const SimulatedMessage& message : of.messages)
      edges[{message.from, message.to}].push_back(&message);
    return edges;
  };
  const Edges edges = by_edge(call), well_edges = by_edge(well);
  ObservedPlan observed;
  observed.comm = kComm;
  observed.plan = job.plan.hash;
  for (uint32_t seq = 1; seq <= job.well_calls + job.calls; seq++) {
    const bool all_well = seq <= job.well_calls;
    const double slower = std::exp(noise(random));
    observed.calls.push_back(seq);
    observed.time_ns.push_back(static_cast<double>((all_well ? well : call).time_ns) * slower);
    std::vector<EdgeTime> times;
    for (const auto& [edge, messages] : all_well ? well_edges : edges) {
      std::vector<std::pair<double, const SimulatedMessage*>> there;
      for (const SimulatedMessage* const message : messages)
        there.emplace_back(static_cast<double>(message->begin_ns) +
                               static_cast<double>(message->delivered_ns - message->begin_ns) *
                                   slower * std::exp(noise(random)),
                           message);
      std::sort(there.begin(), there.end());
      Service service;
      for (const auto& [there_ns, message] : there)
        service.add(static_cast<double>(message->begin_ns), there_ns, message->bytes);
      times.push_back(service.of(edge));
      times.back().service_ns *= std::exp(edge_noise(random));
    }
    observed.edges.push_back(std::make_shared<const std::vector<EdgeTime>>(std::move(times)));
  }
  return observed;
}

Result<JobRecording> simulated_recording(const SimulatedJob& job) {
  const Result<SimulatedCall> call = simulated_call(job);
  if (!call) return call.status();
  if (job.well_calls == 0) return recording_of(job, *call, {});
  const Result<SimulatedCall> well = simulated_well_call(job);
  if (!well) return well.status();
  return recording_of(job, *call, *well);
}

}  // namespace sennit::diagnose
