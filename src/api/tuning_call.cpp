// The communicator's part in autotuning: which calls take part, and what the ranks decide together.
//
// A call takes part where SENNIT_TUNE asks for it, nothing like it is in the tuning table yet, and
// it is not of a group, whose calls may be prepared in another order than they are started. When
// the trials of a request are over, the next call of it first takes the maximum over the ranks of
// every time: all ranks come to it at the same call, and decide alike.
#include <limits>

#include "api/communicator.hpp"
#include "base/log.hpp"

namespace sennit {

namespace {

// As the trials of a request are kept: ranks may differ in whether it is in place.
Request without_place(Request request) {
  request.in_place = false;
  return request;
}

template <typename List>
auto find_trials(List& all, const Request& shared) -> decltype(&all.front().second) {
  for (auto& [request, trials] : all)
    if (request == shared) return &trials;
  return nullptr;
}

}  // namespace

const Trials* Communicator::trials(const Call& call) const {
  return find_trials(trials_, without_place(to_request(call)));
}

void Communicator::retime(const Call& call, uint64_t ns) {
  if (Trials* const trials = find_trials(trials_, without_place(to_request(call))))
    trials->retime(ns);
}

// Null: the call runs the plan as it is.
Result<Trials*> Communicator::trials_of(const Call& call, const Request& request) {
  if (!context_->tunes() || call.as_planned || call.vector_variant || size() == 1 ||
      call.count == 0 || call.collective == Collective::send_recv ||
      call.collective == Collective::barrier)
    return nullptr;
  const Request shared = without_place(request);
  if (Trials* const known = find_trials(trials_, shared)) {
    if (known->to_decide()) SENNIT_RETURN_IF_ERROR(decide(*known, shared));
    return known;
  }
  if (!try_known_ && tuning_.find(tree_fingerprint_, shared, size())) return nullptr;
  const Result<Plan> plan = this->plan(shared);
  if (!plan) return plan.status();
  return &trials_.emplace_back(shared, Trials(*plan, shared, tree_, effort_)).second;
}

Status Communicator::decide(Trials& trials, const Request& request) {
  std::vector<double> slowest_us(trials.times_us().size());
  Call call;
  call.collective = Collective::all_reduce;
  call.op = SENNIT_MAX;
  call.type = DataType::float64;
  call.send = trials.times_us().data();
  call.recv = slowest_us.data();
  call.count = slowest_us.size();
  call.as_planned = true;
  SENNIT_RETURN_IF_ERROR(run(call));
  trials.decide(slowest_us);
  const Plan& winner = trials.plans()[trials.winner()];
  const double us = trials.measured_us()[trials.winner()];
  Tuning found;
  if (us < std::numeric_limits<double>::infinity())
    found.set(tree_fingerprint_, request, size(),
              {winner.algorithm, winner.parameters, winner.predicted_ns,
               static_cast<uint64_t>(us * 1e3)});
  tuning_.merge(found);
  forget_plans(request.collective);
  if (rank_ != 0 || found.empty()) return {};
  if (const std::string path = tuning_path(context_->fabric().fingerprint()); !path.empty())
    if (const Status kept = found.add_to(path); !kept.ok())
      log(LogLevel::warn, "tuning: {}", kept.text());
  return {};
}

void Communicator::calibrate(const CostModel& cost) {
  tuning_.set_cost(tree_fingerprint_, cost);
  trials_.clear();
  try_known_ = true;
  for (int c = 0; c < kCollectives; c++) forget_plans(static_cast<Collective>(c));
}

// What was planned without this knowledge is planned anew.
void Communicator::forget_plans(Collective collective) {
  const auto guard = context_->engine().lock();  // scratch goes back to it
  cache_.remove_if([&](const CacheEntry& entry) {
    return entry.key.variant == 0 && entry.key.direction == 0 &&
           entry.key.request.collective == collective;
  });
  for (SmallCall& small : small_calls_)
    if (small.call.collective == collective) small = SmallCall();
}

}  // namespace sennit
