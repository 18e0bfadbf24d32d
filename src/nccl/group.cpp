// group.cpp: see nccl/group.hpp.
#include "nccl/group.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <system_error>
#include <utility>

#include "base/process/run_together.hpp"
#include "nccl/device.hpp"
#include "nccl/numbers.hpp"
#include "nccl/report.hpp"

namespace sennit::nccl {
namespace {

struct OpenGroup {
  int depth = 0;
  CallBatch batch;
  std::optional<bool> blocking;  // as its first batch
  Outcome error;                 // of the first call that was off
  bool breaks = false;           // one that was off makes or ends a communicator
  Outcome noted;                 // of the first that was for nothing
  uint32_t made_after = forks();
};
thread_local OpenGroup t_group;

// This thread's. A forked child has its parent's calls in it, and leaves them alone.
OpenGroup& group() {
  if (t_group.made_after != forks()) {
    static auto* const left = new std::vector<CallBatch>;
    left->push_back(std::move(t_group.batch));
    t_group = {};
  }
  return t_group;
}

template <typename T>
void append(std::vector<T>& to, std::vector<T>&& from) {
  std::move(from.begin(), from.end(), std::back_inserter(to));
}

Outcome no_thread(const std::system_error& error) {
  return {ncclSystemError, std::string("the system has no thread left: ") + error.what()};
}

// One after the other, until one cannot be made.
Outcome make_in_order(const std::vector<const Creation*>& creations) {
  Outcome outcome;
  for (const Creation* const creation : creations)
    if (outcome.ok()) outcome = contain(creation->make);
  return outcome;
}

Outcome make_all(const std::vector<Creation>& creations) {
  std::vector<std::vector<const Creation*>> by_parent;
  for (const Creation& creation : creations) {
    const auto is_its = [&](const auto& some) { return some.front()->parent == creation.parent; };
    auto its = std::find_if(by_parent.begin(), by_parent.end(), is_its);
    if (!creation.parent || its == by_parent.end()) its = by_parent.emplace(by_parent.end());
    its->push_back(&creation);
  }
  if (by_parent.size() == 1) return make_in_order(by_parent.front());
  std::vector<Outcome> outcomes(by_parent.size());
  try {
    run_together(by_parent.size(), [&](size_t i) { outcomes[i] = make_in_order(by_parent[i]); });
  } catch (const std::system_error& error) {
    return no_thread(error);
  }
  for (Outcome& outcome : outcomes)
    if (!outcome.ok()) return std::move(outcome);
  return {};
}

// Which stream a communicator's calls of one group go into.
using StreamOfCommunicator = std::map<const CommunicatorState*, cudaStream_t>;

// Makes all of them, between sennit_group_start and sennit_group_end where they are several.
Outcome start_calls(const std::vector<BatchedCall>& calls, const std::vector<bool>& for_host,
                    const StreamOfCommunicator& streams) {
  const auto make = [&](size_t i) {
    const auto found = streams.find(calls[i].communicator.get());
    const bool in_stream = calls[i].stream && !for_host[i] && found != streams.end();
    return calls[i].make(for_host[i], in_stream ? std::optional(found->second) : std::nullopt);
  };
  sennit_status_t status = SENNIT_OK;
  if (calls.size() == 1) {
    status = make(0);
  } else {
    sennit_group_start();
    // One with a wrong argument says so once more at the end, which then makes none of them.
    sennit_status_t first = SENNIT_OK;
    std::string text;
    for (size_t i = 0; i < calls.size(); i++) {
      const sennit_status_t made = make(i);
      if (made == SENNIT_OK || first != SENNIT_OK) continue;
      first = made;
      text = sennit_last_error();
    }
    status = sennit_group_end();
    if (status == SENNIT_OK && first != SENNIT_OK) return {result_of(first), text};
  }
  if (status == SENNIT_OK) return {};
  return {result_of(status), sennit_last_error()};
}

// Of each communicator, the streams that its calls go into, once each.
struct StreamsOf {
  const CommunicatorState* communicator;
  DeviceContext device;
  std::vector<cudaStream_t> streams;
};
std::vector<StreamsOf> streams_of(const std::vector<BatchedCall>& calls,
                                  const std::vector<bool>& for_host) {
  std::vector<StreamsOf> all;
  for (size_t i = 0; i < calls.size(); i++) {
    if (!calls[i].stream || for_host[i]) continue;
    const CommunicatorState* const communicator = calls[i].communicator.get();
    auto of = std::find_if(all.begin(), all.end(),
                           [&](const StreamsOf& one) { return one.communicator == communicator; });
    if (of == all.end()) of = all.insert(of, {communicator, {}, {}});
    if (!of->device.context) of->device = calls[i].device;
    const auto is_its = [&](cudaStream_t stream) { return is_same(stream, *calls[i].stream); };
    if (std::none_of(of->streams.begin(), of->streams.end(), is_its))
      of->streams.push_back(*calls[i].stream);
  }
  return all;
}

Outcome check_captures(const std::vector<StreamsOf>& all) {
  for (const StreamsOf& of : all) {
    const OnDevice here(of.device);
    if (Outcome off = check_captured_alike(of.streams); !off.ok()) return off;
  }
  return {};
}

Outcome join(const std::vector<StreamsOf>& all) {
  for (const StreamsOf& of : all) {
    const OnDevice here(of.device);
    if (Outcome off = join_streams(of.streams); !off.ok()) return off;
  }
  return {};
}

// The streams of one group are one point in time, as NCCL's guide has it: none of its calls begins
// before all streams have come to it, and none of these goes on before all calls are over. So a
// communicator's calls can all go into the first of its streams. In several, each of which may wait
// for the one before by itself, a call would wait for the end of another that needs it on the peer.
Outcome make_calls(const std::vector<BatchedCall>& calls) {
  std::vector<bool> for_host;
  for (const BatchedCall& call : calls) for_host.push_back(call.is_for_host && call.is_for_host());
  const std::vector<StreamsOf> streams = streams_of(calls, for_host);
  StreamOfCommunicator first;
  for (const StreamsOf& of : streams) first[of.communicator] = of.streams.front();
  if (Outcome off = check_captures(streams); !off.ok()) return off;
  if (Outcome off = join(streams); !off.ok()) return off;
  // Where one communicator has failed, the calls of the others are made all the same.
  Outcome made = start_calls(calls, for_host, first);
  Outcome joined = join(streams);
  return made.ok() ? joined : made;
}

// Whether this rank alone knows what became of the batch.
bool failed_here(const CallBatch& batch) {
  const auto& all = batch.communicators;
  return std::none_of(all.begin(), all.end(), [](const auto& one) { return one->failed(); });
}

// The calls were not made and will not be: other ranks would wait for them for ever.
void give_up_calls(const CallBatch& batch, const Outcome& why) {
  for (const BatchedCall& call : batch.calls) call.communicator->give_up(why);
}

// Where a communicator cannot be made since another one has failed, its ranks know that, and the
// calls on others are made all the same.
Outcome run(CallBatch& batch) {
  Outcome made;
  if (!batch.creations.empty()) made = make_all(batch.creations);
  if (!made.ok()) {
    if (failed_here(batch)) {
      give_up_calls(batch, made);
      return made;
    }
    std::erase_if(batch.calls, [](const BatchedCall& call) { return !call.communicator->comm(); });
  }
  Outcome called = batch.calls.empty() ? Outcome{} : make_calls(batch.calls);
  return made.ok() ? called : made;
}

// Of communicators that do not block. What a call was off with is their error from then on, so it
// cannot be put right and made once more.
Outcome run_as_job(CallBatch& batch) {
  Outcome outcome = run(batch);
  if (!outcome.ok() && failed_here(batch)) give_up_calls(batch, outcome);
  return outcome;
}

// Batches take their turns at all their communicators at once, so that two never wait for each
// other.
Mutex& turns_mutex() {
  static auto* const mutex = new Mutex;
  return *mutex;
}

// What the batch was to make is not made.
Outcome give_up(const CallBatch& batch, Outcome error) {
  for (const auto& communicator : batch.communicators) communicator->not_made(error);
  return error;
}

// The thread is that of one of its communicators: whatever that has to do comes before this batch,
// or behind it, in any case.
Outcome run_behind(CallBatch batch) {
  const MutexLock lock(turns_mutex());
  Worker* worker = nullptr;
  try {
    worker = &batch.communicators.front()->worker();
  } catch (const std::system_error& error) {
    return give_up(batch, no_thread(error));
  }
  std::vector<uint64_t> turns;
  for (const auto& communicator : batch.communicators) turns.push_back(communicator->take_turn());
  worker->add([batch = std::move(batch), turns = std::move(turns)]() mutable {
    for (size_t i = 0; i < turns.size(); i++) batch.communicators[i]->await_turn(turns[i]);
    const Outcome outcome = contain([&] { return run_as_job(batch); });
    for (const auto& communicator : batch.communicators) communicator->end_turn(outcome);
  });
  return {ncclInProgress, ""};
}

Outcome carry_out(CallBatch batch) {
  auto& all = batch.communicators;
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  for (const auto& communicator : batch.aborted) sennit_comm_abort(communicator->comm());
  if (!batch.blocking && !batch.now) return run_behind(std::move(batch));
  for (const auto& communicator : all) communicator->await_jobs();
  Outcome outcome = run(batch);
  return outcome.ok() ? outcome : give_up(batch, std::move(outcome));
}

}  // namespace

bool in_group() { return group().depth > 0; }

Outcome submit(CallBatch batch) {
  OpenGroup& open = group();
  if (open.depth == 0) return carry_out(std::move(batch));
  if (open.blocking.value_or(batch.blocking) != batch.blocking) {
    const Outcome off{ncclInvalidArgument,
                      "communicators that block and such that do not are in one group: end it "
                      "between them"};
    fail_group(off);
    return give_up(batch, off);
  }
  open.blocking = open.batch.blocking = batch.blocking;
  open.batch.now |= batch.now;
  append(open.batch.creations, std::move(batch.creations));
  append(open.batch.calls, std::move(batch.calls));
  append(open.batch.communicators, std::move(batch.communicators));
  append(open.batch.aborted, std::move(batch.aborted));
  return {};
}

void start_group() { group().depth++; }

Outcome end_group() {
  OpenGroup& open = group();
  if (open.depth == 0)
    return {ncclInvalidUsage, "ncclGroupEnd without ncclGroupStart on this thread"};
  if (--open.depth > 0) return {};
  OpenGroup ended = std::exchange(open, {});
  if (!ended.error.ok()) {
    for (const auto& communicator : ended.batch.communicators) {
      communicator->refuses(ended.error);
      if (ended.breaks) communicator->give_up(ended.error);
    }
    return give_up(ended.batch, std::move(ended.error));
  }
  if (ended.batch.communicators.empty()) return std::move(ended.noted);
  const auto& calls = ended.batch.calls;
  const bool some_fail = std::any_of(calls.begin(), calls.end(),
                                     [](const auto& call) { return call.communicator->revoked(); });
  Outcome outcome = carry_out(std::move(ended.batch));
  // What those end with is no error of their communicator's any more.
  if (outcome.result == ncclInProgress && some_fail)
    return {ncclRemoteError,
            "a communicator of the group was revoked: destroy, split or shrink it; the group's "
            "calls on others are made"};
  const bool is_fine = outcome.ok() || outcome.result == ncclInProgress;
  return is_fine && !ended.noted.ok() ? std::move(ended.noted) : std::move(outcome);
}

Outcome predict_group(std::optional<double>* microseconds) {
  OpenGroup& open = group();
  if (open.depth == 0)
    return {ncclInvalidUsage, "ncclGroupSimulateEnd without ncclGroupStart on this thread"};
  if (--open.depth > 0) return {};
  OpenGroup ended = std::exchange(open, {});
  const CallBatch& batch = ended.batch;
  if (!ended.error.ok()) return give_up(batch, std::move(ended.error));
  if (!batch.creations.empty())
    return give_up(batch,
                   {ncclInvalidUsage, "ncclGroupSimulateEnd: a communicator is made in the group"});
  for (const auto& communicator : batch.communicators) communicator->await_jobs();
  sennit_group_start();
  for (const BatchedCall& call : batch.calls)
    call.make(false, std::nullopt);  // what is off is said at the end
  uint64_t ns = 0;
  if (const sennit_status_t status = sennit_group_predict(&ns); status != SENNIT_OK)
    return {result_of(status), sennit_last_error()};
  *microseconds = static_cast<double>(ns) / 1e3;
  return {};
}

void fail_group(const Outcome& outcome) {
  OpenGroup& open = group();
  if (open.depth > 0 && open.error.ok()) open.error = outcome;
}

void break_group(const Outcome& outcome, const std::shared_ptr<CommunicatorState>& of) {
  OpenGroup& open = group();
  if (open.depth == 0) return;
  fail_group(outcome);
  open.breaks = true;
  if (of) open.batch.communicators.push_back(of);
}

void note_in_group(const Outcome& outcome) {
  OpenGroup& open = group();
  if (open.depth > 0 && open.noted.ok()) open.noted = outcome;
}

}  // namespace sennit::nccl
