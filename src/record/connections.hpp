// connections.hpp: what lies below a transport, the kernel for tcp, knows of its connections, and
// the table of it in a recording.
//
// The table is a note like others, but of a fixed size: the first one behind the ring, and written
// again and again in its place. So a job of any length with any number of peers leaves only what it
// saw last, and who does not know the kind reads on behind it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace sennit {

// What was counted on a connection since it was made, or in a stretch of time. Data of this rank to
// its peer alone.
struct ConnectionCounters {
  uint64_t when_ns = 0;              // CLOCK_MONOTONIC: when it was read; 0: as it was made
  uint64_t busy_us = 0;              // there was something to send; of that:
  uint64_t receiver_limited_us = 0;  // the receiver's window was full
  uint64_t buffer_limited_us = 0;    // the sender's own buffer was too small
  uint64_t segments = 0, segments_again = 0;  // sent at all, and of those again
  uint64_t bytes = 0, bytes_again = 0;
  bool operator==(const ConnectionCounters&) const = default;
};
// What `later` has more than `earlier`; its time is the later one.
ConnectionCounters difference(const ConnectionCounters& later, const ConnectionCounters& earlier);

// One connection as it is now.
struct ConnectionStatistics {
  int32_t peer = -1;                   // world rank
  uint32_t least_rtt_us = 0;           // round trip; 0: none was measured
  uint32_t smoothed_rtt_us = 0;        // now
  uint32_t application_limited = 0;    // not 0: there was too little to send to tell the rate
  uint64_t delivered_bytes_per_s = 0;  // the latest rate; 0: none was measured
  ConnectionCounters counters;
  bool operator==(const ConnectionStatistics&) const = default;
};

// As it lies in the table, little-endian. `before`: of some ten to twenty seconds before `latest`,
// or as the connection was made, so that what happens now is not lost in what was.
struct ConnectionRecord {
  ConnectionStatistics latest;
  ConnectionCounters before;
  // Of all the rest. A record that is read while it is written does not fit it, and is passed over.
  uint64_t check = 0;

  uint64_t expected_check() const;
  ConnectionCounters lately() const { return difference(latest.counters, before); }
  bool operator==(const ConnectionRecord&) const = default;
};
static_assert(sizeof(ConnectionRecord) == 160);

// In one table: of more peers those that were busy longest are kept.
inline constexpr size_t kMostConnectionRecords = 256;

// The whole table, in the order of its places; those without a record are left out.
struct ConnectionsNote {
  std::vector<ConnectionRecord> records;
  bool operator==(const ConnectionsNote&) const = default;
};

}  // namespace sennit
