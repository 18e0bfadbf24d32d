// The way of a message in a simulated collective: handed over, waiting for its receive or its turn,
// moving, arriving. See simulate/ranks.hpp.
#include "base/index.hpp"
#include "simulate/ranks.hpp"

namespace sennit::simulation {

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

bool World::receive_posted(const Message& message) const {
  const Rank& rank = ranks_[index(message.to)];
  const uint32_t step = ranks_[index(message.from)].partner[message.step];
  return rank.posted[message.chunk % rank.lanes * rank.steps + step] == message.chunk + 1;
}

// Handed over. Large ones wait for the receive.
void World::posted(uint32_t number) {
  const Message& message = messages_[number];
  if (message.bytes <= options_.eager_bytes || receive_posted(message)) return move(number);
  const uint32_t step = ranks_[index(message.from)].partner[message.step];
  ranks_[index(message.to)].early.emplace(key(message.chunk, step), number);
}

void World::move(uint32_t number) {
  Message& message = messages_[number];
  PeerQueue& peer = peer_of(message);
  message.begin_ns = now_ns_;
  if (options_.fluid) network_.count(peer.connection, message.bytes);
  if (message.bytes == 0 || options_.fluid) {
    at(now_ns_, What::left_sender, number);
  } else if (peer.moving == kNone) {
    peer.moving = number;
    network_.start(peer.connection, message.bytes, now_ns_);
  } else {
    (peer.first_waiting == kNone ? peer.first_waiting : messages_[peer.last_waiting].next) = number;
    peer.last_waiting = number;
  }
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
                    .left_ns = now_ns_,
                    .delivered_ns = now_ns_ + peer.latency_ns});
}

// The last byte has left.
void World::sent(uint32_t connection) {
  const auto [from, slot] = peer_of_connection_[connection];
  PeerQueue& peer = ranks_[from].peers[slot];
  const uint32_t number = peer.moving;
  peer.moving = kNone;
  if (const uint32_t next = peer.first_waiting; next != kNone) {
    peer.first_waiting = messages_[next].next;
    move(next);
  }
  left_sender(number);
}

void World::left_sender(uint32_t number) {
  const Message message = messages_[number];
  PeerQueue& peer = peer_of(message);
  peer.in_flight--;
  peer.bytes_in_flight -= message.bytes;
  if (!peer.ready.empty())
    open_peer(ranks_[index(message.from)],
              ranks_[index(message.from)].prepared->peer_slot[message.step]);
  at(now_ns_ + peer.latency_ns, What::delivery, number);
  if (options_.observe) tell(message, peer);
  step_done(message.from, message.lane, message.step);
  wake(message.from);
}

void World::deliver(uint32_t number) {
  Message& message = messages_[number];
  const uint32_t step = ranks_[index(message.from)].partner[message.step];
  if (!receive_posted(message)) {
    message.delivered = true;
    ranks_[index(message.to)].early.emplace(key(message.chunk, step), number);
    return;
  }
  const Message arrived = message;
  free_messages_.push_back(number);
  step_done(arrived.to, arrived.chunk % ranks_[index(arrived.to)].lanes, step);
  wake(arrived.to);
}

}  // namespace sennit::simulation
