// call.cpp: from a user's call to a running Execution: checks, the Request in fabric order, caches,
// buffers, works.
#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "api/communicator.hpp"
#include "collectives/algorithm.hpp"
#include "reduce/reduce.hpp"

namespace sennit {
namespace {

constexpr size_t kCachedRequests = 128;
constexpr uint64_t kMostElements = uint64_t{1} << 56;

std::vector<uint64_t> prefix_sums(const size_t* counts, int n) {
  std::vector<uint64_t> sums(static_cast<size_t>(n), 0);
  for (size_t i = 1; i < sums.size(); i++) sums[i] = sums[i - 1] + counts[i - 1];
  return sums;
}

}  // namespace

Status Communicator::check(const Call& call) const {
  const auto what = [&] {
    if (call.collective == Collective::send_recv)
      return std::string(call.receiving ? "recv" : "send");
    return std::string(name(call.collective));
  };
  if ((has_root(call.collective) || call.collective == Collective::send_recv) &&
      (call.root < 0 || call.root >= size()))
    return invalid(fmt::format("{}: {} {}: expected 0 <= it < {}", what(),
                               call.collective == Collective::send_recv ? "peer" : "root",
                               call.root, size()));
  const bool reduces = call.collective == Collective::all_reduce ||
                       call.collective == Collective::reduce ||
                       call.collective == Collective::reduce_scatter;
  if (reduces && call.op >= SENNIT_OP_CUSTOM_BASE) {
    const auto found = custom_ops_.find(call.op);
    if (found == custom_ops_.end())
      return invalid(
          fmt::format("{}: op {} was not created on this communicator", what(), call.op));
    if (found->second.type != call.type)
      return invalid(fmt::format("{}: op {} was created for {}, the call is for {}", what(),
                                 call.op, name(found->second.type), name(call.type)));
  } else if (reduces && (call.op < 0 || call.op > SENNIT_AVG)) {
    return invalid(fmt::format("{}: op {}: expected SENNIT_SUM..SENNIT_AVG or a created one",
                               what(), call.op));
  }
  if (call.collective == Collective::barrier) return {};
  if (call.vector_variant &&
      (!call.counts || (call.collective == Collective::all_to_all && !call.recv_counts)))
    return invalid(what() + "_v: counts is NULL");
  if (call.vector_variant) return check_counts(call);
  const bool at_root = call.root == rank_;
  const bool sends =
      call.collective == Collective::scatter || call.collective == Collective::broadcast ? at_root
      : call.collective == Collective::send_recv ? !call.receiving
                                                 : true;
  const bool receives =
      call.collective == Collective::gather || call.collective == Collective::reduce ? at_root
      : call.collective == Collective::send_recv ? call.receiving
                                                 : true;
  if (call.count > 0 && sends && !call.send) return invalid(what() + ": the send buffer is NULL");
  if (call.count > 0 && receives && !call.recv)
    return invalid(what() + ": the receive buffer is NULL");
  Request size;
  size.collective = call.collective;
  size.type = call.type;
  size.count = call.count;
  return check_size(size, this->size());
}

// What this rank uses of a v-variant's arrays: sums of these stay far below 2^64 bytes.
Status Communicator::check_counts(const Call& call) const {
  const bool rooted =
      call.collective == Collective::gather || call.collective == Collective::scatter;
  for (int r = 0; r < size(); r++) {
    if (rooted && rank_ != call.root && r != rank_) continue;
    for (const size_t* values :
         {call.counts, call.displacements, call.recv_counts, call.recv_displacements})
      if (values && values[r] > kMostElements / static_cast<size_t>(size()))
        return invalid(fmt::format("{}_v: rank {}'s count or displacement is {}: too large",
                                   name(call.collective), r, values[r]));
  }
  return {};
}

Request Communicator::to_request(const Call& call) const {
  Request request;
  request.collective = call.collective;
  request.type = call.type;
  request.count = call.count;
  request.vector_variant = call.vector_variant;
  if ((has_root(call.collective) || call.collective == Collective::send_recv))
    request.root = tree_.position_of_rank[static_cast<size_t>(call.root)];
  if (request.reduces())
    request.op = call.op >= SENNIT_OP_CUSTOM_BASE ? Op::premul_sum : static_cast<Op>(call.op);
  // gather and scatter: only the root knows all counts, so the program must not depend on them.
  const bool counts_agreed =
      call.collective == Collective::all_gather || call.collective == Collective::reduce_scatter;
  if (call.vector_variant && counts_agreed)
    for (const int32_t r : tree_.rank_of_position) request.counts.push_back(call.counts[r]);
  request.in_place = is_in_place(call);
  // The scaled copy of the input is what the program reads.
  if (request.reduces() && request.op == Op::premul_sum) request.in_place = false;
  return request;
}

bool Communicator::is_in_place(const Call& call) const {
  const size_t bytes = type_bytes(call.type);
  const auto* send = static_cast<const std::byte*>(call.send);
  const auto* recv = static_cast<const std::byte*>(call.recv);
  const auto block = [&](uint64_t r) {
    if (!call.vector_variant) return r * call.count * bytes;
    uint64_t at = 0;
    if (call.displacements && call.collective != Collective::reduce_scatter)
      at = call.displacements[r];
    else
      for (uint64_t i = 0; i < r; i++) at += call.counts[i];
    return at * bytes;
  };
  const auto mine = static_cast<uint64_t>(rank_);
  switch (call.collective) {
    case Collective::all_gather:
      return send == recv + block(mine);
    case Collective::gather:
      return call.root == rank_ && send == recv + block(mine);
    case Collective::reduce_scatter:
      return recv == send + block(mine);
    case Collective::scatter:
      return call.root == rank_ && recv == send + block(mine);
    default:
      return send == recv;
  }
}

Program Communicator::point_to_point_program(const CacheKey& key) const {
  ProgramBuilder builder;
  const Range whole{0, 0, kUnits};
  const int tier = tree_.crossing_tier(position(), key.request.root);
  if (key.direction == 1)
    builder.send(key.request.root, builder.input({&whole, 1}), tier, true);
  else
    builder.recv(key.request.root, builder.output({&whole, 1}), tier, true);
  return builder.finish();
}

Result<Communicator::CacheEntry*> Communicator::find_or_prepare(const CacheKey& key,
                                                                const Plan* given) {
  for (auto it = cache_.begin(); it != cache_.end(); ++it) {
    if (!(it->key == key)) continue;
    if (it != cache_.begin()) cache_.splice(cache_.begin(), cache_, it);
    return &cache_.front();
  }
  CacheEntry entry{key, nullptr, {}};
  std::shared_ptr<Prepared> prepared;
  if (key.direction != 0) {
    // Both ends have the other as root; the signature must not tell them apart.
    Request shared = key.request;
    shared.root = 0;
    Plan direct;
    direct.algorithm = "point to point";
    prepared = sennit::prepare(key.request, direct, point_to_point_program(key));
    prepared->signature = signature_of(shared, 0);
  } else {
    Result<Plan> plan = given ? *given : this->plan(key.request);
    if (!plan) return plan.status();
    const Algorithm* algorithm = find_algorithm(plan->algorithm);
    SENNIT_CHECK(algorithm != nullptr);
    SENNIT_RETURN_IF_ERROR(asked_for_.check(tree_, key.request, *plan));
    Program program = algorithm->prepare(tree_, key.request, plan->parameters)->program(position());
    prepared = sennit::prepare(key.request, *std::move(plan), std::move(program));
  }
  prepared->description = describe_request(key.request);
  if (key.direction != 0)
    prepared->description =
        fmt::format("{} count {} {} {} rank {}", key.direction == 1 ? "send" : "recv",
                    key.request.count, name(key.request.type), key.direction == 1 ? "to" : "from",
                    tree_.rank_of_position[static_cast<size_t>(key.request.root)]);
  entry.prepared = std::move(prepared);
  cache_.push_front(std::move(entry));
  if (cache_.size() > kCachedRequests) {
    const auto guard = context_->engine().lock();
    cache_.pop_back();
  }
  return &cache_.front();
}

void Communicator::fill_buffers(const Call& call, const Request& request, Work& work,
                                Buffers* b) const {
  const auto n = static_cast<size_t>(size());
  b->input = static_cast<const std::byte*>(call.send);
  b->output = static_cast<std::byte*>(call.recv);
  if (b->input == nullptr) b->input = b->output;  // broadcast: recv alone serves
  b->divisor = request.op == Op::avg && request.reduces() ? n : 1;
  Layout whole;
  whole.count = request.count;
  b->input_layout = b->output_layout = b->wire_layout = whole;

  if (request.op == Op::premul_sum && request.reduces()) {
    const uint64_t blocks = call.collective == Collective::reduce_scatter ? n : 1;
    uint64_t elements = request.count * blocks;
    for (const uint64_t c : request.counts) elements += c;
    work.scaled_.resize(elements * type_bytes(request.type));
    scale(request.type, work.scaled_.data(), call.send, custom_ops_.at(call.op).scalar.data(),
          elements);
    b->input = work.scaled_.data();
  }

  Layout ranked = whole;  // block b lies where the user's rank of position b says
  ranked.places = tree_.rank_of_position.data();
  if (call.vector_variant) {
    const auto by_position = [&](const size_t* values, std::vector<uint64_t>* out) {
      out->resize(n);
      for (size_t p = 0; p < n; p++) (*out)[p] = values[tree_.rank_of_position[p]];
      return out->data();
    };
    const auto offsets = [&](const size_t* counts, const size_t* displacements,
                             std::vector<uint64_t>* out) {
      if (displacements) return by_position(displacements, out);
      const std::vector<uint64_t> sums = prefix_sums(counts, size());
      return by_position(sums.data(), out);
    };
    ranked.places = nullptr;
    if (call.collective == Collective::all_to_all) {
      b->input_layout.counts = by_position(call.counts, &b->input_counts);
      b->input_layout.offsets = offsets(call.counts, call.displacements, &b->input_offsets);
      b->output_layout.counts = by_position(call.recv_counts, &b->counts);
      b->output_layout.offsets =
          offsets(call.recv_counts, call.recv_displacements, &b->output_offsets);
      return;
    }
    whole.counts = ranked.counts = b->wire_layout.counts = by_position(call.counts, &b->counts);
    ranked.offsets = offsets(
        call.counts, call.collective == Collective::reduce_scatter ? nullptr : call.displacements,
        &b->input_offsets);
    // A rank's own block lies at the start of its other buffer.
    b->output_offsets.assign(n, 0);
    whole.offsets = b->output_offsets.data();
  }
  switch (call.collective) {
    case Collective::all_gather:
    case Collective::gather:
      b->input_layout = whole, b->output_layout = ranked;
      break;
    case Collective::reduce_scatter:
    case Collective::scatter:
      b->input_layout = ranked, b->output_layout = whole;
      break;
    case Collective::all_to_all:
      b->input_layout = b->output_layout = ranked;
      break;
    default:
      break;
  }
}

Result<std::unique_ptr<Work>> Communicator::prepare(const Call& call) {
  SENNIT_RETURN_IF_ERROR(check(call));
  SENNIT_RETURN_IF_ERROR(status());
  auto work = std::make_unique<Work>();
  work->communicator_ = shared_from_this();
  work->call_ = call;
  if (call.collective == Collective::send_recv && call.root == rank_) return work;
  CacheKey key{to_request(call), 0, 0};
  if (call.collective == Collective::send_recv) {
    key.direction = call.receiving ? 2 : 1;
    key.request.in_place = false;
  }
  const Result<Trials*> trials = trials_of(call, key.request);
  if (!trials) return trials.status();
  const Plan* given = nullptr;
  if (*trials) {
    const Trials::Turn turn = (*trials)->next();
    given = &(*trials)->plans()[turn.plan];
    key.variant = turn.plan + 1;
    work->trials_ = *trials;
    work->sample_ = turn.sample;
  }
  Result<CacheEntry*> entry = find_or_prepare(key, given);
  if (!entry) return entry.status();
  if ((*entry)->idle.empty()) {
    work->execution_ = std::make_unique<Execution>(context_->engine(), id_, world_of_position_,
                                                   (*entry)->prepared);
  } else {
    work->execution_ = std::move((*entry)->idle.back());
    (*entry)->idle.pop_back();
  }
  work->execution_->timed = work->sample_ >= 0;
  fill_buffers(call, key.request, *work, &work->execution_->buffers());
  return work;
}

void Communicator::start(Work& work, bool nonblocking) {
  work.place_ = outstanding_.size();
  outstanding_.push_back(&work);
  if (!work.execution_) {
    start_self_message(work);
    return;
  }
  const Call& call = work.call_;
  if (call.collective == Collective::send_recv) {
    uint32_t& next = (call.receiving ? next_recv_seq_ : next_send_seq_)[call.root];
    context_->engine().start(*work.execution_, ++next, true, nonblocking);
  } else {
    const uint32_t seq = next_seq_++;
    log_call(seq, work.execution_->shared_prepared());
    context_->engine().start(*work.execution_, seq, false, nonblocking);
  }
  // The communicator may have failed between the check and the start: then nobody cancels what was
  // just posted.
  if (const Status failed = status(); !failed.ok())
    context_->engine().fail_communicator(id_, failed);
}

void Communicator::start_self_message(Work& work) {
  auto& waiting = work.call_.receiving ? self_sends_ : self_receives_;
  auto& mine = work.call_.receiving ? self_receives_ : self_sends_;
  work.self_matched_ = std::make_shared<bool>(false);
  if (waiting.empty()) {
    mine.push_back({work.call_, work.self_matched_});
    return;
  }
  const SelfMessage other = waiting.front();
  waiting.pop_front();
  match_self_message(work, other);
}

// Halves that differ fail the communicator, as they do between two ranks.
void Communicator::match_self_message(Work& work, const SelfMessage& other) {
  const Call& sent = work.call_.receiving ? other.call : work.call_;
  const Call& expected = work.call_.receiving ? work.call_ : other.call;
  if (sent.count != expected.count || sent.type != expected.type)
    return fail_and_tell(
        {SENNIT_MISMATCH,
         fmt::format("on communicator {} rank {} called send count {} {} to itself, but recv "
                     "count {} {} from itself",
                     id_, members_[static_cast<size_t>(rank_)], sent.count, name(sent.type),
                     expected.count, name(expected.type))});
  if (sent.count > 0) std::memmove(expected.recv, sent.send, sent.count * type_bytes(sent.type));
  *other.matched = *work.self_matched_ = true;
}

// One thread uses a communicator at a time, so while it waits nobody can start the other half.
Status Communicator::withdraw_self_message(const Work& work) {
  for (auto* waiting : {&self_sends_, &self_receives_})
    std::erase_if(*waiting, [&](const SelfMessage& m) { return m.matched == work.self_matched_; });
  return invalid(
      work.call_.receiving
          ? "recv from oneself: nothing was sent; start the send first, with sennit_send_start"
          : "send to oneself: no receive waits for it; start that first, with sennit_recv_start");
}

void Communicator::give_back(std::unique_ptr<Execution> execution) {
  for (CacheEntry& entry : cache_) {
    if (entry.prepared.get() != &execution->prepared()) continue;
    entry.idle.push_back(std::move(execution));
    return;
  }
  // evicted meanwhile: its scratch goes back to the engine
  const auto guard = context_->engine().lock();
  execution.reset();
}

// After the execution is done: its result, as the communicator sees it.
Status Communicator::finish_call(const Execution& execution) {
  Status result;
  {
    // The engine may still be on its way out of the execution that it completed.
    const auto guard = context_->engine().lock();
    result = execution.status();
  }
  if (execution.collective_call()) mark_finished(execution.seq());
  if (result.ok()) return result;
  const Status verdict = status();  // what all ranks are told, where there is more to tell
  return verdict.ok() ? result : verdict;
}

}  // namespace sennit
