// call_watch.hpp: stalls, mismatches and aborts. A rank whose call makes no progress says so up the
// tree; the coordinator asks the members what they are doing (control/rank/call_judge.hpp compares)
// and, where calls differ or somebody is too late, floods the communicator's error. Answers are put
// together on the way up. Nothing is sent while calls progress.
//
// Disjoint groups may use the same communicator number. Every message therefore names a member
// beside the number, and only ranks whose communicator of that number contains that member feel
// addressed. A failure is told to all ranks, because one that has not made the communicator yet
// must know of it as well; once, however many of its members ask for it. Control thread only.
#pragma once

#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "control/rank/call_judge.hpp"
#include "control/tree/census.hpp"
#include "control/tree/sender.hpp"
#include "control/tree/told.hpp"

namespace sennit::control {

// Every rank has one. It passes on what others say, and judges where this rank is the coordinator.
class CallWatch {
 public:
  // How long a rank waits for more answers to pass on with the first. Four such ranks on the way,
  // which is a tree of a million, leave a third of a round.
  static constexpr int64_t kGatherMs = 50;
  static_assert(4 * kGatherMs < CallJudge::kRoundMs);

  CallWatch(Self& self, const Census& census, Sender& sender, Announcements& announcements)
      : self_(self),
        census_(census),
        sender_(sender),
        announcements_(announcements),
        reports_(self, sender),
        judge_(self.rank, self.options.stall_ms) {}

  // ---- of this rank ----
  // This rank's call makes no progress; `mismatching_peer` sent what does not match it, -1: nobody.
  void stalled(CallDescriptor mine, int mismatching_peer);
  // This rank's time for its call is over, after waited_ms.
  void expire(CallDescriptor mine, int64_t waited_ms);
  // The communicator is in error on all its ranks from now on.
  void fail(uint32_t comm, const Status& status);

  // ---- of others ----
  void on_report(const StallReport& report);
  void on_inquiry(const Inquiry& inquiry);
  void on_answers(InquiryAnswers answers);
  void on_comm_failed(const CommFailed& message);
  void on_abort_request(const AbortRequest& request);

  void tell_again() { reports_.tell_again(); }  // there is a new parent
  void became_coordinator();
  void tick();
  void excuse(int64_t gap_ms) { judge_.excuse(gap_ms); }

 private:
  // How long this rank has been reporting a call.
  struct Clock {
    uint32_t seq = 0;
    int64_t first_ms = 0, last_ms = 0, unbroken_since_ms = 0;
  };

  void message_stalled(const CallDescriptor& message);
  const Clock& clock_of(const CallDescriptor& call);
  std::set<int> members_of(uint32_t comm) const;
  void judge(const StallReport& report);
  void say(StallReport report);  // this rank's
  void ask(const Inquiry& inquiry);
  void answer(const Inquiry& inquiry);
  void pass_on();
  void announce(uint32_t comm, int anchor, const Status& status);
  void tell(const CommFailed& message);

  Self& self_;
  const Census& census_;
  Sender& sender_;
  Announcements& announcements_;
  Reports reports_;                   // what must not be lost on the way up
  CallJudge judge_;                   // coordinator
  std::map<uint32_t, Clock> clocks_;  // by communicator
  // Communicator, lowest member and call of stalls of others -> when one was passed on.
  std::map<std::tuple<uint32_t, int, uint32_t>, int64_t> passed_on_;
  std::map<uint64_t, InquiryAnswers> gathered_;  // to be passed on, by inquiry
  int64_t pass_on_ms_ = 0;                       // where there are some
  std::set<std::pair<uint32_t, int>> failed_;    // communicator and anchor, as all were told
};

}  // namespace sennit::control
