// refusal_log.cpp: see control/refusal_log.hpp.
#include "control/refusal_log.hpp"

#include "base/log.hpp"

namespace sennit::control {
namespace {

constexpr int64_t kLogMs = 10'000;       // between two lines
constexpr uint64_t kStrangersNamed = 5;  // one by one

}  // namespace

void RefusalLog::refused(const Channel& channel, const std::string& reason, int64_t now_ms) {
  const uint64_t so_far = ++count_;
  if (so_far > kStrangersNamed && now_ms - logged_ms_ < kLogMs) {
    unlogged_++;
    return;
  }
  logged_ms_ = now_ms;
  log(LogLevel::warn, "refused a connection {} {}: {}", channel.outgoing ? "to" : "from",
      channel.other.text(), reason);
}

void RefusalLog::tick(int64_t now_ms) {
  if (unlogged_ == 0 || now_ms - logged_ms_ < kLogMs) return;
  log(LogLevel::warn, "refused {} more connections that are not of this job", unlogged_);
  logged_ms_ = now_ms;
  unlogged_ = 0;
}

}  // namespace sennit::control
