// small_calls.cpp: see api/call/small_calls.hpp.
#include "api/call/small_calls.hpp"

#include <utility>

namespace sennit {

SmallCalls::~SmallCalls() {
  const MutexLock lock(engine_.mutex());
  for (KeptCall& place : places_) place.execution.reset();
}

void SmallCalls::keep(const Call& call, bool in_place, std::unique_ptr<Execution> execution) {
  const Claim place = claim(call);
  const MutexLock lock(engine_.mutex());
  if (!place || !execution->compile_small()) execution.reset();
  if (!place) return;
  place->call = call;
  place->call.send = nullptr;
  place->call.recv = nullptr;
  place->in_place = in_place;
  place->forgotten.store(false, std::memory_order_relaxed);
  place->execution = std::move(execution);
}

void SmallCalls::forget(Collective collective) {
  for (KeptCall& place : places_)
    if (place.call.collective == collective) place.forgotten.store(true, std::memory_order_relaxed);
}

}  // namespace sennit
