// connection_log.cpp: see watch/connection_log.hpp.
#include "watch/connection_log.hpp"

#include <algorithm>

namespace sennit::watch {
namespace {

// The kernel's counter, of 32 bits, begins again from 0 once it is full. Of a connection that was
// made again it is less as well, but it was hardly full.
bool is_less(uint64_t now, uint64_t last) {
  constexpr uint32_t kHalf = uint32_t{1} << 31;
  const auto last_bits = static_cast<uint32_t>(last);
  return now < last_bits && !(last_bits >= kHalf && now < kHalf);
}

uint32_t counted_since(uint64_t last, uint64_t now) { return static_cast<uint32_t>(now - last); }

// Older kernels count neither bytes nor time.
bool was_made_again(const ConnectionCounters& now, const ConnectionCounters& last) {
  return now.bytes < last.bytes || now.busy_us < last.busy_us ||
         is_less(now.segments, last.segments) || is_less(now.segments_again, last.segments_again);
}

}  // namespace

void ConnectionLog::look(std::span<const ConnectionStatistics> now) {
  for (const ConnectionStatistics& one : now) {
    if (one.counters.segments == 0) continue;
    Seen& seen = seen_[one.peer];
    if (was_made_again(one.counters, seen.latest.counters)) seen = {};
    const ConnectionCounters last = seen.latest.counters;
    const uint32_t more = counted_since(last.segments, one.counters.segments);
    if (more == 0) continue;
    seen.latest = one;
    ConnectionCounters& counted = seen.latest.counters;
    counted.segments = last.segments + more;
    counted.segments_again =
        last.segments_again + counted_since(last.segments_again, counted.segments_again);
    // The first stretch begins as the connection was made, of which the time is not known.
    if (seen.between.when_ns == 0) seen.between.when_ns = counted.when_ns;
    if (counted.when_ns < seen.between.when_ns + kStretchNs) continue;
    seen.before = seen.between;
    seen.between = counted;
  }
}

std::vector<ConnectionRecord> ConnectionLog::records(size_t most) const {
  std::vector<ConnectionRecord> all;
  for (const auto& [peer, seen] : seen_) all.push_back({seen.latest, seen.before});
  const auto busy = [](const ConnectionRecord& one) { return one.latest.counters.busy_us; };
  std::stable_sort(
      all.begin(), all.end(),
      [&](const ConnectionRecord& a, const ConnectionRecord& b) { return busy(a) > busy(b); });
  all.resize(std::min(all.size(), most));
  return all;
}

}  // namespace sennit::watch
