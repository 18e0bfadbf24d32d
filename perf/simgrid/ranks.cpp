// See perf/simgrid/ranks.hpp. Where the words of engine/execution.hpp leave a choice (which peer is
// served first, messages before local work), engine/execution.cpp's pump() decides.
#include "perf/simgrid/ranks.hpp"

#include <algorithm>

#include <simgrid/kernel/Timer.hpp>

#include <fmt/core.h>

#include "schedule/layout.hpp"

namespace sennit::judge {
namespace {

namespace sg = simgrid::s4u;
using simgrid::kernel::timer::Timer;

constexpr uint32_t kChunksInFlight = 8;
constexpr double kInstant = 1e-9;  // s

}  // namespace

uint32_t Ranks::receiver_number(std::vector<Receiver>* receivers, int32_t position) {
  for (uint32_t i = 0; i < receivers->size(); i++)
    if ((*receivers)[i].position == position) return i;
  receivers->push_back({position, {}, 0, 0});
  return static_cast<uint32_t>(receivers->size() - 1);
}

Ranks::Ranks(const Platform& platform, const TierTree& tree, const Request& request,
             const Blueprint& blueprint, uint32_t chunks, const ReplayOptions& options)
    : platform_(platform),
      tree_(tree),
      request_(request),
      options_(options),
      chunks_(chunks),
      ranks_(static_cast<size_t>(tree.ranks())) {
  for (size_t position = 0; position < ranks_.size(); position++) {
    Rank& rank = ranks_[position];
    rank.program = blueprint.program(static_cast<int>(position));
    rank.followers.resize(rank.program.steps.size());
    rank.receiver_of.resize(rank.program.steps.size());
    for (uint32_t s = 0; s < rank.program.steps.size(); s++) {
      const Step& step = rank.program.steps[s];
      for (const uint32_t earlier : rank.program.deps_of(step))
        rank.followers[earlier].push_back(s);
      if (step.kind == StepKind::recv) rank.receives[{step.peer, step.tag}] = s;
      if (step.kind == StepKind::send)
        rank.receiver_of[s] = receiver_number(&rank.receivers, step.peer);
    }
    rank.chunks_left = rank.program.steps.empty() ? 0 : chunks;
  }
}

Status Ranks::run(const sg::Engine& engine) {
  sg::Activity::on_completion_cb([this](const sg::Activity& activity) { ended(activity); });
  const auto all = static_cast<uint32_t>(ranks_.size());
  for (uint32_t rank = 0; rank < all; rank++)
    if (ranks_[rank].chunks_left > 0)
      for (uint32_t c = 0; c < std::min(chunks_, kChunksInFlight); c++) start_chunk(rank, c);
  for (uint32_t rank = 0; rank < all; rank++) wake(rank);
  engine.run();
  for (uint32_t rank = 0; rank < all; rank++)
    if (ranks_[rank].chunks_left > 0)
      return {SENNIT_INTERNAL,
              fmt::format("judge: position {} waits for ever, with {} of {} chunks left", rank,
                          ranks_[rank].chunks_left, chunks_)};
  return {};
}

void Ranks::start_chunk(uint32_t number, uint32_t chunk) {
  Rank& rank = ranks_[number];
  ChunkState& state = rank.chunks[chunk];
  const auto steps = static_cast<uint32_t>(rank.program.steps.size());
  state.steps_left = steps;
  state.receive_posted.assign(steps, false);
  for (uint32_t s = 0; s < steps; s++) {
    state.waits_for.push_back(rank.program.steps[s].deps);
    if (rank.program.steps[s].deps == 0) rank.ready.push_back({chunk, s});
  }
}

// What happens within a nanosecond counts as one instant, of which a rank knows all before it acts,
// on the lowest chunk first: else the last bits of a sum would decide what is done first.
void Ranks::wake(uint32_t number) {
  if (woken_.empty())
    Timer::set(sg::Engine::get_clock() + kInstant, [this] {
      const std::set<uint32_t> woken = std::move(woken_);
      woken_.clear();
      for (const uint32_t rank : woken) {
        std::deque<Piece>& ready = ranks_[rank].ready;
        std::sort(ready.begin(), ready.end(), [](const Piece& a, const Piece& b) {
          return std::pair(a.chunk, a.step) < std::pair(b.chunk, b.step);
        });
        go_on(rank);
      }
    });
  woken_.insert(number);
}

void Ranks::go_on(uint32_t number) {
  Rank& rank = ranks_[number];
  for (;;) {
    if (!rank.ready.empty()) {
      const Piece piece = rank.ready.front();
      rank.ready.pop_front();
      start_step(number, piece);
    } else if (rank.busy || !(post_a_send(number) || work_locally(number))) {
      return;
    }
  }
}

void Ranks::start_step(uint32_t number, Piece piece) {
  Rank& rank = ranks_[number];
  const Step& step = rank.program.steps[piece.step];
  switch (step.kind) {
    case StepKind::recv:
      return post_receive(number, piece);
    case StepKind::send:
      if (nothing(rank, rank.program.operands[step.first_source], piece.chunk))
        return step_done(number, piece);
      rank.receivers[rank.receiver_of[piece.step]].queue.emplace(-step.tier, piece.chunk,
                                                                 piece.step);
      return;
    case StepKind::reduce:
    case StepKind::copy:
      rank.local.emplace(piece.chunk, piece.step);
      return;
  }
}

void Ranks::post_receive(uint32_t number, Piece piece) {
  Rank& rank = ranks_[number];
  if (nothing(rank, rank.program.steps[piece.step].target, piece.chunk))
    return step_done(number, piece);
  rank.chunks[piece.chunk].receive_posted[piece.step] = true;
  const auto found = rank.unexpected.find({piece.chunk, piece.step});
  if (found == rank.unexpected.end()) return;
  const MessagePtr message = found->second;
  rank.unexpected.erase(found);
  if (!message->arrived) return join_stream(message);
  step_done(number, piece);
}

// To the first peer to which a send may go.
bool Ranks::post_a_send(uint32_t number) {
  Rank& rank = ranks_[number];
  for (Receiver& receiver : rank.receivers) {
    if (receiver.queue.empty()) continue;
    const auto [tier, chunk, s] = *receiver.queue.begin();
    const Step& step = rank.program.steps[s];
    const uint64_t bytes = bytes_of(rank, rank.program.operands[step.first_source], chunk);
    if (receiver.under_way >= 2 && receiver.bytes_under_way + bytes > options_.in_flight_bytes)
      continue;
    receiver.queue.erase(receiver.queue.begin());
    receiver.under_way++;
    receiver.bytes_under_way += bytes;
    sent_++;
    const auto message = std::make_shared<Message>();
    message->from = number;
    message->to = static_cast<uint32_t>(receiver.position);
    message->send = {chunk, s};
    message->receive = {chunk,
                        ranks_[message->to].receives.at({static_cast<int32_t>(number), step.tag})};
    message->bytes = bytes;
    const bool near = platform_.same_machine(static_cast<int>(place(number)),
                                             static_cast<int>(place(message->to)));
    occupy(number,
           static_cast<double>(near ? options_.cost.shared_memory_post_ns : options_.cost.post_ns),
           [this, message] { handed_over(message); });
    return true;
  }
  return false;
}

bool Ranks::work_locally(uint32_t number) {
  Rank& rank = ranks_[number];
  if (rank.local.empty()) return false;
  const auto [chunk, step] = *rank.local.begin();
  rank.local.erase(rank.local.begin());
  const Piece piece{chunk, step};
  uint64_t read = 0;
  for (const Operand& source : rank.program.sources_of(rank.program.steps[piece.step]))
    read += bytes_of(rank, source, piece.chunk);
  const double ns =
      static_cast<double>(read) * 1e9 / static_cast<double>(options_.cost.reduce_bytes_per_s);
  occupy(number, ns, [this, number, piece] { step_done(number, piece); });
  return true;
}

void Ranks::step_done(uint32_t number, Piece piece) {
  Rank& rank = ranks_[number];
  ChunkState& state = rank.chunks[piece.chunk];
  for (const uint32_t follower : rank.followers[piece.step])
    if (--state.waits_for[follower] == 0) rank.ready.push_back({piece.chunk, follower});
  if (--state.steps_left > 0) return;
  rank.chunks.erase(piece.chunk);
  if (--rank.chunks_left == 0) end_s_ = sg::Engine::get_clock();
  // The chunk's lane takes the next of its own: the one that many further on.
  const uint32_t next = piece.chunk + kChunksInFlight;
  if (next < chunks_) start_chunk(number, next);
}

void Ranks::handed_over(const MessagePtr& message) {
  Rank& receiver = ranks_[message->to];
  const auto state = receiver.chunks.find(message->receive.chunk);
  const bool posted =
      state != receiver.chunks.end() && state->second.receive_posted[message->receive.step];
  if (message->bytes <= options_.cost.eager_bytes || posted)
    join_stream(message);
  else
    receiver.unexpected[{message->receive.chunk, message->receive.step}] = message;
}

void Ranks::join_stream(const MessagePtr& message) {
  Stream& stream = streams_[{message->from, message->to}];
  stream.push_back(message);
  if (stream.size() == 1) move(message);
}

void Ranks::move(const MessagePtr& message) {
  message->comm = sg::Comm::sendto_init(host(message->from), host(message->to));
  message->comm->set_payload_size(message->bytes);
  moving_[message->comm.get()] = message;
  message->comm->start();
}

void Ranks::last_byte_left(const MessagePtr& message) {
  Stream& stream = streams_[{message->from, message->to}];
  stream.pop_front();
  if (!stream.empty()) move(stream.front());
  Rank& sender = ranks_[message->from];
  Receiver& receiver = sender.receivers[sender.receiver_of[message->send.step]];
  receiver.under_way--;
  receiver.bytes_under_way -= message->bytes;
  const double way_s = platform_.latency_s(static_cast<int>(place(message->from)),
                                           static_cast<int>(place(message->to)));
  Timer::set(sg::Engine::get_clock() + way_s, [this, message] { arrived(message); });
  step_done(message->from, message->send);
  wake(message->from);
}

void Ranks::arrived(const MessagePtr& message) {
  const uint32_t to = message->to;
  const Piece receive = message->receive;
  Rank& receiver = ranks_[to];
  const auto state = receiver.chunks.find(receive.chunk);
  if (state == receiver.chunks.end() || !state->second.receive_posted[receive.step]) {
    message->arrived = true;
    receiver.unexpected[{receive.chunk, receive.step}] = message;
    return;
  }
  step_done(to, receive);
  wake(to);
}

void Ranks::occupy(uint32_t number, double ns, std::function<void()> then) {
  if (ns <= 0) return then();
  ranks_[number].busy = true;
  Timer::set(sg::Engine::get_clock() + ns * 1e-9, [this, number, then = std::move(then)] {
    ranks_[number].busy = false;
    then();
    wake(number);
  });
}

void Ranks::ended(const sg::Activity& activity) {
  const auto found = moving_.find(&activity);
  if (found == moving_.end()) return;
  const MessagePtr message = std::move(found->second);
  moving_.erase(found);
  last_byte_left(message);
  last_ended_ = message->comm;
}

uint64_t Ranks::bytes_of(const Rank& rank, const Operand& operand, uint32_t chunk) const {
  Layout layout;
  layout.count = request_.count;
  if (!request_.counts.empty()) layout.counts = request_.counts.data();
  return layout.length(rank.program, operand, {chunk, chunks_}) * type_bytes(request_.type);
}

// Messages without bytes are not sent, but for a barrier's, which have no ranges.
bool Ranks::nothing(const Rank& rank, const Operand& operand, uint32_t chunk) const {
  return request_.collective != Collective::barrier && operand.ranges > 0 &&
         bytes_of(rank, operand, chunk) == 0;
}

uint32_t Ranks::place(uint32_t position) const {
  return static_cast<uint32_t>(tree_.rank_of_position[position] * options_.every);
}

sg::Host* Ranks::host(uint32_t position) const {
  return platform_.host(static_cast<int>(place(position)));
}

}  // namespace sennit::judge
