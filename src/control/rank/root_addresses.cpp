// root_addresses.cpp: see control/rank/root_addresses.hpp.
#include "control/rank/root_addresses.hpp"

#include <algorithm>
#include <iterator>

namespace sennit::control {
namespace {

constexpr int64_t kFirstPauseMs = 5;  // rank 0 may be a moment later than the others
constexpr int64_t kMostPauseMs = 500;
constexpr size_t kMostDoublings = 7;

}  // namespace

const Address& RootAddresses::next() {
  for (size_t skipped = 0; found_ && skipped < addresses_.size() && silent_.count(at()); skipped++)
    attempts_++;
  const Address& address = addresses_[at()];
  attempts_++;
  return address;
}

int64_t RootAddresses::pause_ms() const {
  const size_t rounds = (attempts_ - 1) / addresses_.size();
  return std::min(kFirstPauseMs << std::min(rounds, kMostDoublings), kMostPauseMs);
}

void RootAddresses::was_silent() {
  if (!found_) silent_.insert((attempts_ - 1) % addresses_.size());
}

bool RootAddresses::reached(const Address& address) {
  if (std::exchange(found_, true)) return false;
  const auto at = static_cast<size_t>(std::find(addresses_.begin(), addresses_.end(), address) -
                                      addresses_.begin());
  const auto silent = std::distance(silent_.begin(), silent_.lower_bound(at));
  if (static_cast<size_t>(silent) == at) return false;
  attempts_ = 0;
  return true;
}

}  // namespace sennit::control
