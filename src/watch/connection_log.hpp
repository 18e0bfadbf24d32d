// connection_log.hpp: what a rank has seen of its connections, one look after the other, as its
// recording keeps it: each connection as it was last, and what was counted since some time before.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "record/connections.hpp"

namespace sennit::watch {

// One thread at a time.
class ConnectionLog {
 public:
  // The second of the two looks back that are kept is at least so long after the first.
  static constexpr uint64_t kStretchNs = 10'000'000'000;

  // All connections as they are now. One that is not among them any more stays as it was, and one
  // on which nothing was sent since the last look as well: what is told of it is of the time in
  // which it was used.
  void look(std::span<const ConnectionStatistics> now);
  // At most `most`, those that were busy longest first.
  std::vector<ConnectionRecord> records(size_t most) const;

 private:
  struct Seen {
    ConnectionStatistics latest;
    ConnectionCounters before, between;  // `before` gives way to `between`
  };
  std::map<int, Seen> seen_;  // by peer
};

}  // namespace sennit::watch
