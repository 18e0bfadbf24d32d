// standings.cpp: see diagnose/recorded/standings.hpp.
#include "diagnose/recorded/standings.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <string>

#include "diagnose/recorded/messages.hpp"

namespace sennit::diagnose {
namespace {

// By its clock: the earliest moment that a recording of it is of, and when something was recorded
// last; 0 where there is none.
struct HostMoments {
  uint64_t as_of_ns = 0, last_ns = 0;
};

class Moments {
 public:
  explicit Moments(const JobRecording& job) : clocks_(clock_offsets(job, join_messages(job))) {
    for (const RankRecording& rank : job.ranks) add(rank);
    for (const auto& [name, host] : hosts_) {
      if (!is_comparable(name)) continue;
      if (host.last_ns != 0) last_ns_ = std::max(last_ns_, host.last_ns - ahead(name));
      if (host.as_of_ns == 0) continue;
      const uint64_t as_of_ns = host.as_of_ns - ahead(name);
      as_of_ns_ = std::min(as_of_ns_.value_or(as_of_ns), as_of_ns);
    }
  }
  bool knows(const RankRecording& rank) const {
    return rank.as_of_ns != 0 || hosts_.at(rank.host).as_of_ns != 0 ||
           (as_of_ns_ && is_comparable(rank.host));
  }
  uint64_t of(const RankRecording& rank) const {
    const HostMoments& host = hosts_.at(rank.host);
    if (rank.as_of_ns != 0) return rank.as_of_ns;
    if (host.as_of_ns != 0) return host.as_of_ns;
    return is_comparable(rank.host) ? as_of_ns_.value_or(last_ns_) + ahead(rank.host)
                                    : host.last_ns;
  }

 private:
  void add(const RankRecording& rank) {
    HostMoments& host = hosts_[rank.host];
    for (const TraceEvent& event : rank.events)
      host.last_ns = std::max(host.last_ns, event.is_step() ? event.ended_at() : event.posted_ns);
    if (rank.as_of_ns != 0)
      host.as_of_ns = host.as_of_ns == 0 ? rank.as_of_ns : std::min(host.as_of_ns, rank.as_of_ns);
  }
  uint64_t ahead(const std::string& host) const {
    return static_cast<uint64_t>(clocks_.at(host).ahead_ns);
  }
  bool is_comparable(const std::string& host) const {
    return clocks_.at(host).error_ns != ClockOffset::kUnknown;
  }

  const std::map<std::string, ClockOffset> clocks_;
  std::map<std::string, HostMoments> hosts_;
  // Of all hosts whose clocks can be held against the first one's, by that.
  std::optional<uint64_t> as_of_ns_;
  uint64_t last_ns_ = 0;
};

}  // namespace

Standings standings_of(const JobRecording& job, Plans& plans) {
  const Moments moments(job);
  Standings standings;
  for (const RankRecording& rank : job.ranks) {
    standings.by_rank.push_back(standing_of(job, rank, plans, moments.of(rank)));
    if (rank.state == RankState::running && !moments.knows(rank))
      standings.undated.insert(rank.rank);
  }
  return standings;
}

}  // namespace sennit::diagnose
