// connection_log.cpp: see watch/connection_log.hpp.
#include "watch/connection_log.hpp"

#include <algorithm>

namespace sennit::watch {

void ConnectionLog::look(std::span<const ConnectionStatistics> now) {
  for (const ConnectionStatistics& one : now) {
    const ConnectionCounters& counted = one.counters;
    if (counted.segments == 0) continue;
    Seen& seen = seen_[one.peer];
    const ConnectionCounters& last = seen.latest.counters;
    if (counted.segments == last.segments) continue;
    if (counted.segments < last.segments || counted.bytes < last.bytes ||
        counted.busy_us < last.busy_us)
      seen = {};  // it was made again
    seen.latest = one;
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
