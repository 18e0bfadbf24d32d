// trials.hpp: autotuning of one request: its few best plans are run in turn by the calls that come,
// and the fastest is kept.
//
// Round after round every plan has its turn, of one call or of several in a row, of which the last
// is timed; the first round only sets up connections. A call's time is that of the slowest rank, so
// when the rounds are over the ranks compare (Communicator::decide). A machine is slower for
// seconds and faster for others, for all plans alike; so each plan is held against the others of
// its round, and the median of that is kept (typical_times). The planner's choice stays unless
// another is 3% faster. What runs when follows from the number of calls alone, so all ranks do the
// same. One thread, the communicator's.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/planner.hpp"

namespace sennit {

// By plan, of times by round, then plan: the median over the rounds of its share of the round's
// (geometric) mean, of the mean of the fastest round. Rounds in which a plan has no time (infinite)
// are left out; if that is all of them, each plan's least time.
std::vector<double> typical_times(const std::vector<double>& times_us, size_t plans);

// Of calls that took so long together with some barriers, what one takes without them, by barriers
// that were timed in the same moments. At least a twentieth of a call with its barriers: noise is
// no fast plan.
uint64_t without_barriers(uint64_t took_ns, size_t calls, size_t barriers,
                          std::vector<double> barriers_ns);

// The trials of one request. All ranks make the same calls in the same order. One thread.
class Trials {
 public:
  static constexpr uint64_t kHopeless = 3;  // times the best prediction: not tried
  struct Effort {
    size_t plans = 4, rounds = 3;
    size_t calls = 1;          // a turn
    bool every_chunk = false;  // each number of chunks is a plan of its own
    // Ranks are brought together before a timed call whose data goes one way. False: the caller
    // sees to it.
    bool together = true;
  };

  // Of a plan with its candidates, best first; before them what the tuning table has, if anything.
  Trials(const Plan& plan, const Request& request, const TierTree& tree, Effort effort);

  struct Turn {
    size_t plan = 0;
    int sample = -1;  // where this call's time belongs; -1: it is not timed
  };
  Turn next();
  void took(int sample, uint64_t ns) {
    times_us_[static_cast<size_t>(sample)] = static_cast<double>(ns) / 1e3;
    last_sample_ = sample;
  }
  // A better time for the call before, if that was timed.
  void retime(uint64_t ns) {
    if (last_sample_ >= 0) took(last_sample_, ns);
    last_sample_ = -1;
  }

  bool to_decide() const {
    return calls_ == (rounds_ + 1) * plans_.size() * turn_calls_ && !decided_;
  }
  bool decided() const { return decided_; }
  // By round, then plan; infinite where this rank has no time. After decide() the slowest rank's.
  const std::vector<double>& times_us() const { return times_us_; }
  void decide(const std::vector<double>& slowest_us);

  bool together() const { return together_; }
  const std::vector<Plan>& plans() const { return plans_; }
  // by plan, after decide()
  const std::vector<double>& measured_us() const { return measured_us_; }
  size_t winner() const { return winner_; }

 private:
  std::vector<Plan> plans_;
  std::vector<double> times_us_, measured_us_;
  size_t rounds_, turn_calls_, calls_ = 0, winner_ = 0;
  bool together_;
  int last_sample_ = -1;
  bool decided_ = false;
};

}  // namespace sennit
