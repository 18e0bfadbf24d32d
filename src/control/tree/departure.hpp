// departure.hpp: leaving the job, and knowing who has left. Goodbye goes up to the coordinator, who
// acknowledges, so that nobody takes the closing for death. Who has left serves the ranks below it
// for a moment, because often all leave at once, and then sends them elsewhere. A coordinator waits
// for those that are on their way to it, so that its successor knows that it has left. On a slow
// machine all of this takes long; who leaves gives up only when it has had no news for a while.
// Control thread only.
#pragma once

#include <map>
#include <set>

#include "control/tree/failure_detector.hpp"
#include "control/tree/tree.hpp"

namespace sennit::control {

class Departure {
 public:
  Departure(Self& self, Census& census, Channels& channels, Door& door, Tree& tree,
            FailureDetector& failures)
      : self_(self),
        census_(census),
        channels_(channels),
        door_(door),
        tree_(tree),
        failures_(failures) {}

  // ---- leaving ----
  void begin();
  void on_goodbye(Channel& from, const Goodbye& message);
  void on_goodbye_ack(const GoodbyeAck& message);
  void on_leaving(Channel& from, const Leaving& message);
  // These ranks have left the job.
  void note_left(const std::set<int>& left);
  void tell_again();  // there is a new parent
  void became_coordinator();
  void tick();

  // ---- closing ----
  // Writes what is left, and ends.
  void close();
  // The same after a start that failed: the door stays open for `ms`, for those that still come,
  // and who has come but not said yet what it wants may say it.
  void close_late(int64_t ms);
  // All who might come have been told.
  void hurry();
  // This process did not run for so long: nobody was heard, and who still comes has not had it.
  void excuse(int64_t gap_ms);
  // Whether the control thread is done; `no_channels`: all have ended.
  bool over(bool no_channels) const;

 private:
  void tell_left();
  void tick_leaving();

  Self& self_;
  Census& census_;
  Channels& channels_;
  Door& door_;
  Tree& tree_;
  FailureDetector& failures_;

  std::map<int, uint64_t> goodbye_via_;  // rank -> the child's channel that its goodbye came by
  std::set<int> pending_;                // goodbyes that are not acknowledged yet
  bool acknowledged_ = false;            // this rank's own
  int64_t news_ms_ = 0;                  // when this leave last got on, by whatever came
  int64_t goodbye_ms_ = 0;               // when it began, or the last goodbye from below came
  int64_t left_changed_ms_ = 0;

  int64_t closing_since_ms_ = 0;
  int64_t closing_ms_ = kClosingMs;
  bool stays_open_ = false;
};

}  // namespace sennit::control
