// ranks.cpp: see simulate/ranks.hpp.
#include "simulate/ranks.hpp"

#include <algorithm>
#include <functional>

#include <fmt/core.h>

#include "base/arithmetic.hpp"
#include "base/index.hpp"
#include "cost/rates.hpp"

namespace sennit::simulation {
namespace {

// An order of sends from its most significant bits: how far the tier is from the widest that there
// can be, the chunk, the step.
constexpr uint64_t kMostTier = 255;
constexpr int kTierShift = 56, kChunkShift = 28;
constexpr uint64_t kMessagesATold = 1 << 14;
constexpr uint32_t kStepMask = (1u << kChunkShift) - 1;

}  // namespace

World::World(const TierTree& tree, std::span<const GroupCall> calls, const SimulateOptions& options,
             const Symmetry& symmetry)
    : tree_(tree),
      options_(options),
      symmetry_(symmetry),
      network_(tree, options, symmetry),
      ranks_(symmetry.classes.size()) {
  for (size_t i = 0; i < ranks_.size(); i++) {
    const Symmetry::RankClass& kind = symmetry.classes[i];
    const GroupCall& call = calls[kind.call];
    Rank& rank = ranks_[i];
    rank.prepared = kind.prepared.get();
    rank.layout = call.layout();
    rank.chunks = options.fluid ? 1 : std::max(1u, call.chunks);
    rank.lanes = std::min(rank.chunks, kLanes);
    rank.element_bytes = type_bytes(call.request->type);
    rank.skip_empty = call.request->collective != Collective::barrier;
    rank.kind = &kind;
    rank.steps = kind.partner.size();
    rank.deps.resize(rank.lanes * rank.steps);
    rank.posted.assign(rank.lanes * rank.steps, 0);
    rank.chunk.resize(rank.lanes);
    rank.remaining.resize(rank.lanes);
    rank.chunks_left = rank.steps == 0 ? 0 : rank.chunks;
    all_messages_ += rank.chunks * static_cast<uint64_t>(std::ranges::count(
                                       kind.prepared->program.steps, StepKind::send, &Step::kind));
    add_peers(rank, kind);
  }
}

void World::add_peers(Rank& rank, const Symmetry::RankClass& kind) {
  rank.peers.resize(kind.prepared->peers.size());
  for (size_t i = 0; i < rank.peers.size(); i++) {
    PeerQueue& peer = rank.peers[i];
    const int to = kind.peer_position[i];
    const int common = tree_.common_group(kind.position, to);
    if (!options_.free_messages) {
      if (options_.every_latency_ns != 0) {
        peer.latency_ns = options_.every_latency_ns;
      } else {
        peer.latency_ns = planning_latency_ns(tree_, common, options_.cost);
        peer.asking_ns = asking_ns(tree_, common, options_.cost);
      }
      peer.post_ns =
          within_host(tree_, common) ? options_.cost.shared_memory_post_ns : options_.cost.post_ns;
    }
    if (options_.fluid) peer.post_ns = 0;
    peer.to = static_cast<int>(kind.peer_class[i]);
    peer.queues = options_.queues && queues_on_the_way(tree_, common, options_.cost);
    const std::pair<uint32_t, uint32_t> ends(&rank - ranks_.data(), i);
    const auto connect = [&](FlowNetwork::Part part) {
      peer_of_connection_.push_back(ends);
      return network_.connect(kind.position, to, kind.ranks, part);
    };
    peer.connection = connect(peer.queues ? FlowNetwork::Part::up : FlowNetwork::Part::all);
    if (peer.queues) connect(FlowNetwork::Part::down);
  }
}

Status World::run() {
  const int ranks = static_cast<int>(ranks_.size());
  for (int rank = 0; rank < ranks; rank++)
    if (ranks_[index(rank)].chunks_left > 0)
      for (uint32_t lane = 0; lane < ranks_[index(rank)].lanes; lane++)
        begin_chunk(rank, lane, lane);
  for (int rank = 0; rank < ranks; rank++) wake(rank);
  pump_woken();
  for (;;) {
    network_.settle(now_ns_);
    const uint64_t next =
        std::min(events_.empty() ? kNever : events_.top().time_ns, network_.next_end_ns());
    if (next == kNever) break;
    now_ns_ = next;
    for (;;) {  // all that happens at this time
      if (network_.next_end_ns() <= now_ns_) {
        ended(network_.end_next(now_ns_));
      } else if (!events_.empty() && events_.top().time_ns <= now_ns_) {
        const Event event = events_.top();
        events_.pop();
        switch (event.what) {
          case What::processor_free:
            processor_free(static_cast<int>(event.subject));
            break;
          case What::granted:
            move(event.subject);
            break;
          case What::left_sender:
            left_sender(event.subject);
            break;
          case What::delivery:
            deliver(event.subject);
            break;
        }
      } else if (!woken_.empty()) {
        pump_woken();
      } else {
        break;
      }
    }
  }
  return stuck();
}

// A rank acts on all that happens at a time together: else it would matter what is looked at first.
void World::wake(int position) {
  Rank& rank = ranks_[index(position)];
  if (!rank.woken) woken_.push_back(position);
  rank.woken = true;
}

void World::pump_woken() {
  for (const int position : woken_) {
    Rank& rank = ranks_[index(position)];
    rank.woken = false;
    const auto order = [&](const LaneStep& at) { return std::pair(rank.chunk[at.lane], at.step); };
    std::sort(rank.work_list.begin(), rank.work_list.end(),
              [&](const LaneStep& a, const LaneStep& b) { return order(a) < order(b); });
    pump(position);
  }
  woken_.clear();
}

Status World::stuck() const {
  if (!events_.empty() || network_.moves())
    return invalid("simulate: it takes more than 584 years, longer than a time can be here");
  for (size_t i = 0; i < ranks_.size(); i++)
    if (ranks_[i].chunks_left > 0)
      return {SENNIT_INTERNAL,
              fmt::format("simulate: position {} waits for ever, with {} of {} chunks left",
                          symmetry_.classes[i].position, ranks_[i].chunks_left, ranks_[i].chunks)};
  return {};
}

void World::begin_chunk(int position, uint32_t lane, uint32_t chunk) {
  Rank& rank = ranks_[index(position)];
  const Prepared& prepared = *rank.prepared;
  rank.chunk[lane] = chunk;
  rank.remaining[lane] = static_cast<uint32_t>(prepared.program.steps.size());
  std::copy(prepared.initial_deps.begin(), prepared.initial_deps.end(),
            rank.deps.begin() + static_cast<ptrdiff_t>(lane * prepared.initial_deps.size()));
  for (const uint32_t step : prepared.ready_at_start) rank.work_list.push_back({lane, step});
}

void World::pump(int position) {
  Rank& rank = ranks_[index(position)];
  for (size_t i = 0; i < rank.work_list.size(); i++) step_ready(position, rank.work_list[i]);
  rank.work_list.clear();
  run_processor(position);
}

void World::step_ready(int position, LaneStep at) {
  Rank& rank = ranks_[index(position)];
  switch (rank.prepared->program.steps[at.step].kind) {
    case StepKind::recv:
      post_receive(position, at);
      break;
    case StepKind::send:
      queue_send(position, at);
      break;
    case StepKind::reduce:
    case StepKind::copy:
      rank.local.push_back(
          {uint64_t{rank.chunk[at.lane]} << kChunkShift | at.step, at.lane, at.step});
      std::push_heap(rank.local.begin(), rank.local.end());
      break;
  }
}

void World::step_done(int position, uint32_t lane, uint32_t step) {
  Rank& rank = ranks_[index(position)];
  const Prepared& prepared = *rank.prepared;
  uint32_t* deps = &rank.deps[lane * prepared.initial_deps.size()];
  for (uint32_t i = prepared.first_dependent[step]; i < prepared.first_dependent[step + 1]; i++)
    if (--deps[prepared.dependents[i]] == 0)
      rank.work_list.push_back({lane, prepared.dependents[i]});
  if (--rank.remaining[lane] > 0) return;
  const uint32_t next = rank.chunk[lane] + rank.lanes;
  if (--rank.chunks_left == 0)
    end_ns_ = rank.end_ns = now_ns_;
  else if (next < rank.chunks)
    begin_chunk(position, lane, next);
}

uint64_t World::bytes_of(const Rank& rank, const Operand& operand, uint32_t chunk) const {
  return rank.layout.length(rank.prepared->program, operand, {chunk, rank.chunks}) *
         rank.element_bytes;
}

void World::post_receive(int position, LaneStep at) {
  Rank& rank = ranks_[index(position)];
  const Step& step = rank.prepared->program.steps[at.step];
  const uint32_t chunk = rank.chunk[at.lane];
  if (rank.skip_empty && step.target.ranges > 0 && bytes_of(rank, step.target, chunk) == 0)
    return step_done(position, at.lane, at.step);
  rank.posted[at.lane * rank.steps + at.step] = chunk + 1;
  if (const auto early = rank.early.find(key(chunk, at.step)); early != rank.early.end()) {
    uint32_t message = early->second;
    rank.early.erase(early);
    while (message != kNone) {
      const uint32_t next = std::exchange(messages_[message].next, kNone);
      grant(message);
      message = next;
    }
    return;
  }
  const auto arrived = rank.arrived.find(key(chunk, at.step));
  if (!is_full(rank, at.step, arrived == rank.arrived.end() ? 0 : arrived->second)) return;
  if (arrived != rank.arrived.end()) rank.arrived.erase(arrived);
  step_done(position, at.lane, at.step);
}

bool World::is_full(const Rank& rank, uint32_t receive, uint32_t arrived) {
  return arrived >= (rank.kind->fills.empty() ? 1 : rank.kind->fills[receive]);
}

void World::queue_send(int position, LaneStep at) {
  Rank& rank = ranks_[index(position)];
  const Program& program = rank.prepared->program;
  const Step& step = program.steps[at.step];
  const uint32_t chunk = rank.chunk[at.lane];
  const Operand& source = program.operands[step.first_source];
  if (rank.skip_empty && source.ranges > 0 && bytes_of(rank, source, chunk) == 0)
    return step_done(position, at.lane, at.step);
  const uint32_t slot = rank.prepared->peer_slot[at.step];
  PeerQueue& peer = rank.peers[slot];
  const uint64_t order = ((kMostTier - step.tier) << kTierShift) |
                         (static_cast<uint64_t>(chunk) << kChunkShift) | (at.step & kStepMask);
  peer.ready.push_back({order, at.lane, at.step});
  std::push_heap(peer.ready.begin(), peer.ready.end());
  open_peer(rank, slot);
}

void World::open_peer(Rank& rank, uint32_t peer) {
  if (rank.peers[peer].open) return;
  rank.peers[peer].open = true;
  rank.open_peers.push_back(peer);
  std::push_heap(rank.open_peers.begin(), rank.open_peers.end(), std::greater<>());
}

void World::run_processor(int position) {
  Rank& rank = ranks_[index(position)];
  while (!rank.busy && (!rank.local.empty() || !rank.open_peers.empty())) {
    rank.busy = rank.open_peers.empty() ? do_local(position) : post_next(position);
    for (size_t i = 0; i < rank.work_list.size(); i++) step_ready(position, rank.work_list[i]);
    rank.work_list.clear();
  }
}

bool World::do_local(int position) {
  Rank& rank = ranks_[index(position)];
  rank.local_now = {rank.local.front().lane, rank.local.front().step};
  std::pop_heap(rank.local.begin(), rank.local.end());
  rank.local.pop_back();
  const Step& step = rank.prepared->program.steps[rank.local_now.step];
  const uint64_t bytes =
      step.sources * bytes_of(rank, step.target, rank.chunk[rank.local_now.lane]);
  const uint64_t ns = options_.fluid ? 0 : transfer_ns(bytes, options_.cost.reduce_bytes_per_s);
  if (ns > 0) {
    at(now_ns_ + ns, What::processor_free, static_cast<uint32_t>(position));
    return true;
  }
  const LaneStep done = rank.local_now;
  rank.local_now = {kNone, 0};
  step_done(position, done.lane, done.step);
  return false;
}

bool World::may_post(const Rank& rank, const PeerQueue& peer) const {
  if (peer.ready.empty()) return false;
  if (peer.in_flight < 2) return true;
  const ReadyStep& next = peer.ready.front();
  const Program& program = rank.prepared->program;
  const Operand& source = program.operands[program.steps[next.step].first_source];
  return peer.bytes_in_flight + bytes_of(rank, source, rank.chunk[next.lane]) <=
         options_.in_flight_bytes;
}

bool World::post_next(int position) {
  Rank& rank = ranks_[index(position)];
  const uint32_t slot = rank.open_peers.front();
  PeerQueue& peer = rank.peers[slot];
  if (!may_post(rank, peer)) {  // looked at again when a send is done or becomes ready
    std::pop_heap(rank.open_peers.begin(), rank.open_peers.end(), std::greater<>());
    rank.open_peers.pop_back();
    peer.open = false;
    return false;
  }
  const ReadyStep next = peer.ready.front();
  std::pop_heap(peer.ready.begin(), peer.ready.end());
  peer.ready.pop_back();
  const Program& program = rank.prepared->program;
  const Step& step = program.steps[next.step];
  const uint32_t chunk = rank.chunk[next.lane];
  const uint64_t bytes = bytes_of(rank, program.operands[step.first_source], chunk);
  peer.in_flight++;
  peer.bytes_in_flight += bytes;
  const uint32_t message = new_message({.from = position,
                                        .to = peer.to,
                                        .lane = next.lane,
                                        .step = next.step,
                                        .chunk = chunk,
                                        .bytes = bytes,
                                        .begin_ns = 0,
                                        .next = kNone});
  messages_sent_ += rank.kind->ranks;
  if (options_.progress && done_messages_++ % kMessagesATold == 0)
    options_.progress(done_messages_, all_messages_);
  if (peer.post_ns == 0) {
    posted(message);
    return false;
  }
  rank.posting = message;
  at(now_ns_ + peer.post_ns, What::processor_free, static_cast<uint32_t>(position));
  return true;
}

void World::processor_free(int position) {
  Rank& rank = ranks_[index(position)];
  rank.busy = false;
  if (rank.local_now.lane != kNone) {
    const LaneStep done = rank.local_now;
    rank.local_now = {kNone, 0};
    step_done(position, done.lane, done.step);
  } else {
    const uint32_t message = rank.posting;
    rank.posting = kNone;
    posted(message);
  }
  wake(position);
}

// ---- messages, from posting to delivery ----

uint32_t World::new_message(const Message& message) {
  if (free_messages_.empty()) {
    messages_.push_back(message);
    return static_cast<uint32_t>(messages_.size() - 1);
  }
  const uint32_t number = free_messages_.back();
  free_messages_.pop_back();
  messages_[number] = message;
  return number;
}

World::PeerQueue& World::peer_of(const Message& message) {
  Rank& rank = ranks_[index(message.from)];
  return rank.peers[rank.prepared->peer_slot[message.step]];
}

uint32_t World::receive_of(const Message& message) const {
  return ranks_[index(message.from)].kind->partner[message.step];
}

bool World::is_posted(const Rank& rank, uint32_t chunk, uint32_t receive) {
  return rank.posted[chunk % rank.lanes * rank.steps + receive] == chunk + 1;
}

// Handed over. Large ones wait for the receive.
void World::posted(uint32_t number) {
  Message& message = messages_[number];
  Rank& rank = ranks_[index(message.to)];
  const uint32_t receive = receive_of(message);
  message.begin_ns = now_ns_;
  if (message.bytes <= options_.cost.eager_bytes) return move(number);
  if (receive == kNone || is_posted(rank, message.chunk, receive)) return grant(number);
  const auto [first, alone] = rank.early.try_emplace(key(message.chunk, receive), number);
  message.next = alone ? kNone : std::exchange(first->second, number);
}

// Its receive is posted. Where it asks for that, it has done so since it was handed over.
void World::grant(uint32_t number) {
  const Message& message = messages_[number];
  const uint64_t one_way_ns = peer_of(message).asking_ns / 2;
  if (one_way_ns == 0) return move(number);
  at(std::max(now_ns_, message.begin_ns + one_way_ns) + one_way_ns, What::granted, number);
}

void World::move(uint32_t number) {
  Message& message = messages_[number];
  PeerQueue& peer = peer_of(message);
  if (options_.fluid) {
    network_.count(peer.connection, message.bytes);
    if (peer.queues) network_.count(peer.connection + 1, message.bytes);
  }
  if (message.bytes == 0 || options_.fluid) {
    message.begin_ns = now_ns_;
    at(now_ns_, What::left_sender, number);
  } else if (peer.moving == kNone) {
    start(peer, number);
  } else {
    append(number, &peer.first_waiting, &peer.last_waiting);
  }
}

// It is its turn. No part of it arrives before.
void World::start(PeerQueue& peer, uint32_t number) {
  Message& message = messages_[number];
  message.begin_ns = now_ns_;
  peer.moving = number;
  network_.start(peer.connection, message.bytes, now_ns_);
  if (!peer.queues) return;
  message.parts_left = 2;
  const bool first = peer.first_coming == kNone;
  append(number, &peer.first_coming, &peer.last_coming);
  if (first) network_.start(peer.connection + 1, message.bytes, now_ns_);
}

// To the end of a list of messages.
void World::append(uint32_t number, uint32_t* first, uint32_t* last) {
  messages_[number].next = kNone;
  (*first == kNone ? *first : messages_[*last].next) = number;
  *last = number;
}

// The first of a list of messages, taken out.
uint32_t World::take_first(uint32_t* first) const {
  const uint32_t number = *first;
  if (number != kNone) *first = messages_[number].next;
  return number;
}

void World::tell(const Message& message, const PeerQueue& peer) const {
  const Symmetry::RankClass& kind = symmetry_.classes[index(message.from)];
  const int to = kind.peer_position[kind.prepared->peer_slot[message.step]];
  options_.observe({.from = kind.position,
                    .to = to,
                    .ranks = kind.ranks,
                    .tier = static_cast<uint8_t>(tree_.crossing_tier(kind.position, to)),
                    .chunk = message.chunk,
                    .bytes = message.bytes,
                    .begin_ns = message.begin_ns,
                    .left_ns = message.left_ns,
                    .passed_ns = now_ns_,
                    .delivered_ns = now_ns_ + peer.latency_ns});
}

// Of a connection's message the last byte has passed.
void World::ended(uint32_t connection) {
  const auto [from, slot] = peer_of_connection_[connection];
  PeerQueue& peer = ranks_[from].peers[slot];
  if (connection != peer.connection) {
    const uint32_t number = take_first(&peer.first_coming);
    if (peer.first_coming != kNone)
      network_.start(connection, messages_[peer.first_coming].bytes, now_ns_);
    return passed(number);
  }
  const uint32_t number = std::exchange(peer.moving, kNone);
  if (const uint32_t next = take_first(&peer.first_waiting); next != kNone) start(peer, next);
  left_sender(number);
}

void World::left_sender(uint32_t number) {
  messages_[number].left_ns = now_ns_;
  const Message message = messages_[number];
  PeerQueue& peer = peer_of(message);
  peer.in_flight--;
  peer.bytes_in_flight -= message.bytes;
  if (!peer.ready.empty())
    open_peer(ranks_[index(message.from)],
              ranks_[index(message.from)].prepared->peer_slot[message.step]);
  passed(number);
  step_done(message.from, message.lane, message.step);
  wake(message.from);
}

// One part of its way.
void World::passed(uint32_t number) {
  Message& message = messages_[number];
  if (--message.parts_left > 0) return;
  const PeerQueue& peer = peer_of(message);
  at(now_ns_ + peer.latency_ns, What::delivery, number);
  if (options_.observe) tell(message, peer);
}

void World::deliver(uint32_t number) {
  const Message message = messages_[number];
  free_messages_.push_back(number);
  Rank& rank = ranks_[index(message.to)];
  for (uint32_t receive = receive_of(message); receive != kNone;
       receive = rank.kind->also.empty() ? kNone : rank.kind->also[receive])
    fill(message.to, message.chunk, receive);
}

// One more message of a receive has arrived.
void World::fill(int position, uint32_t chunk, uint32_t receive) {
  Rank& rank = ranks_[index(position)];
  const bool posted = is_posted(rank, chunk, receive);
  if (!posted || !is_full(rank, receive, 1)) {
    const auto arrived = rank.arrived.try_emplace(key(chunk, receive), 0).first;
    arrived->second++;
    if (!posted || !is_full(rank, receive, arrived->second)) return;
    rank.arrived.erase(arrived);
  }
  step_done(position, chunk % rank.lanes, receive);
  wake(position);
}

}  // namespace sennit::simulation
