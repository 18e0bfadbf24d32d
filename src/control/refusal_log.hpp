// refusal_log.hpp: says which connections were refused because they are not of this job: the first
// few one by one, then their number every ten seconds, so that nobody can fill a log from outside.
// Control thread only, but for count().
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "control/channels.hpp"

namespace sennit::control {

class RefusalLog {
 public:
  void refused(const Channel& channel, const std::string& reason, int64_t now_ms);
  void tick(int64_t now_ms);
  uint64_t count() const { return count_; }  // of all refusals. Any thread

 private:
  std::atomic<uint64_t> count_ = 0;
  uint64_t unlogged_ = 0;
  int64_t logged_ms_ = 0;  // when the last line was written
};

}  // namespace sennit::control
