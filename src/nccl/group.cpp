// group.cpp: see nccl/group.hpp.
#include "nccl/group.hpp"

#include <algorithm>
#include <thread>
#include <utility>

#include "nccl/numbers.hpp"

namespace sennit::nccl {
namespace {

struct OpenGroup {
  int depth = 0;
  CallBatch batch;
  Outcome error;  // of the first call that was off
};
thread_local OpenGroup t_group;

template <typename T>
void append(std::vector<T>& to, std::vector<T>&& from) {
  std::move(from.begin(), from.end(), std::back_inserter(to));
}

Outcome make_all(const std::vector<std::function<Outcome()>>& creations) {
  if (creations.size() == 1) return creations.front()();
  std::vector<Outcome> outcomes(creations.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < creations.size(); i++)
    threads.emplace_back([&, i] { outcomes[i] = creations[i](); });
  for (std::thread& thread : threads) thread.join();
  for (Outcome& outcome : outcomes)
    if (!outcome.ok()) return std::move(outcome);
  return {};
}

Outcome make_calls(const std::vector<std::function<sennit_status_t()>>& calls) {
  sennit_status_t status = SENNIT_OK;
  if (calls.size() == 1) {
    status = calls.front()();
  } else {
    sennit_group_start();
    // One with a wrong argument says so once more at the end, which then makes none of them.
    sennit_status_t first = SENNIT_OK;
    std::string text;
    for (const auto& call : calls) {
      const sennit_status_t made = call();
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

Outcome run(const CallBatch& batch) {
  if (!batch.creations.empty())
    if (Outcome outcome = make_all(batch.creations); !outcome.ok()) return outcome;
  return batch.calls.empty() ? Outcome{} : make_calls(batch.calls);
}

// Batches take their turns at all their communicators at once, so that two never wait for each
// other.
Mutex& turns_mutex() {
  static auto* const mutex = new Mutex;
  return *mutex;
}

void run_behind(CallBatch batch) {
  std::vector<uint64_t> turns;
  {
    const MutexLock lock(turns_mutex());
    for (const auto& communicator : batch.communicators) turns.push_back(communicator->take_turn());
  }
  std::thread([batch = std::move(batch), turns = std::move(turns)] {
    for (size_t i = 0; i < turns.size(); i++) batch.communicators[i]->await_turn(turns[i]);
    const Outcome outcome = run(batch);
    for (const auto& communicator : batch.communicators) communicator->end_turn(outcome);
  }).detach();
}

Outcome carry_out(CallBatch batch) {
  auto& all = batch.communicators;
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  if (std::all_of(all.begin(), all.end(), [](const auto& one) { return one->blocking(); }))
    return run(batch);
  run_behind(std::move(batch));
  return {ncclInProgress, ""};
}

}  // namespace

bool in_group() { return t_group.depth > 0; }

Outcome submit(CallBatch batch) {
  if (!in_group()) return carry_out(std::move(batch));
  append(t_group.batch.creations, std::move(batch.creations));
  append(t_group.batch.calls, std::move(batch.calls));
  append(t_group.batch.communicators, std::move(batch.communicators));
  return {};
}

void start_group() { t_group.depth++; }

Outcome end_group() {
  if (t_group.depth == 0)
    return {ncclInvalidUsage, "ncclGroupEnd without ncclGroupStart on this thread"};
  if (--t_group.depth > 0) return {};
  CallBatch batch = std::exchange(t_group.batch, {});
  if (Outcome error = std::exchange(t_group.error, {}); !error.ok()) return error;
  return carry_out(std::move(batch));
}

Outcome predict_group(double* microseconds) {
  if (t_group.depth == 0)
    return {ncclInvalidUsage, "ncclGroupSimulateEnd without ncclGroupStart on this thread"};
  if (t_group.depth > 1) return {ncclInvalidUsage, "ncclGroupSimulateEnd within another group"};
  t_group.depth = 0;
  const CallBatch batch = std::exchange(t_group.batch, {});
  if (Outcome error = std::exchange(t_group.error, {}); !error.ok()) return error;
  if (!batch.creations.empty())
    return {ncclInvalidUsage, "ncclGroupSimulateEnd: a communicator is made in the group"};
  for (const auto& communicator : batch.communicators) communicator->await_jobs();
  sennit_group_start();
  for (const auto& call : batch.calls) call();  // what is off is said at the end
  uint64_t ns = 0;
  if (const sennit_status_t status = sennit_group_predict(&ns); status != SENNIT_OK)
    return {result_of(status), sennit_last_error()};
  *microseconds = static_cast<double>(ns) / 1e3;
  return {};
}

void fail_group(const Outcome& outcome) {
  if (in_group() && t_group.error.ok()) t_group.error = outcome;
}

}  // namespace sennit::nccl
