// call_log.cpp: see api/call/call_log.hpp.
#include "api/call/call_log.hpp"

#include <algorithm>

#include <fmt/core.h>

namespace sennit {

bool CallLog::describe(uint32_t seq, CallDescriptor* out) const {
  const MutexLock lock(mutex_);
  const LoggedCall* found = &calls_[seq % calls_.size()];
  const auto before = [](const LoggedCall& a, const LoggedCall& b) {
    return static_cast<int32_t>(a.seq - b.seq) < 0;  // call numbers may wrap
  };
  if (found->seq != seq) found = &*std::max_element(calls_.begin(), calls_.end(), before);
  if (!found->prepared) return false;
  out->seq = found->seq;
  const bool forgotten = static_cast<int32_t>(found->seq - seq) > 0;
  out->signature = forgotten ? 0 : found->prepared->signature;
  out->text =
      forgotten ? fmt::format("call {} is no longer known", seq) : found->prepared->description;
  return true;
}

}  // namespace sennit
