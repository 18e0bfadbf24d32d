// cancelled.hpp: communicators that were given up, each with the status that its requests end with.
#pragma once

#include <functional>
#include <unordered_map>

#include "transports/transport.hpp"

namespace sennit {

class Cancelled {
 public:
  // False if it is here already; then nothing changes.
  bool add(uint32_t comm, const Status& status) { return statuses_.emplace(comm, status).second; }
  // nullptr: it was not given up.
  const Status* find(uint32_t comm) const {
    if (statuses_.empty()) return nullptr;  // as nearly always
    const auto found = statuses_.find(comm);
    return found == statuses_.end() ? nullptr : &found->second;
  }
  void forget(const std::function<bool(uint32_t comm)>& over) {
    std::erase_if(statuses_, [&](const auto& entry) { return over(entry.first); });
  }

 private:
  std::unordered_map<uint32_t, Status> statuses_;
};

}  // namespace sennit
