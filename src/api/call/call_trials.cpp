// call_trials.cpp: see api/call/call_trials.hpp.
#include "api/call/call_trials.hpp"

namespace sennit {
namespace {

Request without_place(Request request) {
  request.in_place = false;
  return request;
}

template <typename List>
auto find_in(List& all, const Request& request) -> decltype(&all.front().second) {
  const Request shared = without_place(request);
  for (auto& [known, trials] : all)
    if (known == shared) return &trials;
  return nullptr;
}

}  // namespace

bool CallTrials::takes_part(const Call& call, int ranks) {
  return !call.as_planned && !call.vector_variant && ranks > 1 && call.count > 0 &&
         call.collective != Collective::send_recv && call.collective != Collective::barrier;
}

Trials* CallTrials::find(const Request& request) { return find_in(trials_, request); }
const Trials* CallTrials::find(const Request& request) const { return find_in(trials_, request); }

Result<Trials*> CallTrials::begin(const Request& request, const Planning& planning) {
  const Request shared = without_place(request);
  if (!try_known_ && planning.measured(shared)) return nullptr;
  const Result<Plan> plan = planning.plan(shared, Planning::Memory::host, effort_.every_chunk);
  if (!plan) return plan.status();
  return &trials_.emplace_back(shared, Trials(*plan, shared, planning.tree(), effort_)).second;
}

void CallTrials::restart() {
  trials_.clear();
  try_known_ = true;
}

}  // namespace sennit
