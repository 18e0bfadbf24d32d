// small_calls.cpp: see api/call/small_calls.hpp.
#include "api/call/small_calls.hpp"

#include <utility>

namespace sennit {

SmallCalls::~SmallCalls() {
  const MutexLock lock(engine_.mutex());
  for (KeptCall& place : places_) place.execution.reset();
}

void SmallCalls::keep(KeptCall& place, const Call& call, bool in_place,
                      std::unique_ptr<Execution> execution) {
  const MutexLock lock(engine_.mutex());
  if (!execution->compile_small()) execution.reset();
  place.call = call;
  place.call.send = nullptr;
  place.call.recv = nullptr;
  place.in_place = in_place;
  place.execution = std::move(execution);
}

void SmallCalls::forget(Collective collective) {
  const MutexLock lock(engine_.mutex());
  for (KeptCall& place : places_)
    if (place.call.collective == collective) place = KeptCall();
}

}  // namespace sennit
