// call_judge.hpp: compares what the members of a communicator are doing when a call stalls, and
// says who differs or who is late. Pure: no sockets, no clock of its own; the coordinator feeds it.
//
// A *case* is one call number on one communicator, of one group of members: disjoint groups may use
// the same communicator number, so a case is known by its lowest member too. A case begins with a
// report; every round asks all members (Inquiry) and judges their answers when all are in or
// kRoundMs is over. An answer that comes later still tells that its rank has come to the call, and
// whether its stream has. Ranks answer with a text only where their call is not the asker's, or
// where they have none and were refused one. The making of a group (CallDescriptor::makers) is a
// case.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "control/messages.hpp"

namespace sennit::control {

// A communicator is in error.
struct CallVerdict {
  uint32_t comm = 0;
  int anchor = -1;  // lowest member
  Status status;
};

// "all_reduce count 8 sum, in call 17 of communicator 1" -> "all_reduce count 8 sum"
std::string call_without_place(const std::string& text);

// The coordinator's. Feed it reports and answers, and call judge() no later than Outcome::next_ms.
// Times are those of Self::now_ms.
class CallJudge {
 public:
  // `coordinator`: the rank that judges. No two of a job have an inquiry of the same number, so
  // what was answered to one that is dead counts for none of its successor's. `stall_ms`: between
  // two reports of a rank (SENNIT_STALL).
  CallJudge(int coordinator, int64_t stall_ms)
      : forget_ms_(forget_ms(stall_ms)),
        next_inquiry_((static_cast<uint64_t>(coordinator) << 32) + 1) {}

  static constexpr int64_t kRoundMs = 300;     // for the answers of one round
  static constexpr int64_t kRoundGapMs = 400;  // between rounds of one case, at least
  static constexpr int64_t kLeftMs = 10'000;   // without progress, where a member has left the job
  // A call of which there was no report for so long stalls no more: longer than ranks take between
  // two reports of one that does.
  static constexpr int64_t forget_ms(int64_t stall_ms) {
    return std::max(kLeastForgetMs, kForgetStalls * stall_ms);
  }

  // A member says that its call stalls. The inquiry to send to all, if a round is due.
  std::optional<Inquiry> report(const StallReport& report, int64_t now);
  void answer(InquiryAnswers answers);
  // What the coordinator has to do now: flood the verdicts and the inquiries, log the rest.
  struct Outcome {
    std::vector<CallVerdict> verdicts;
    std::vector<Inquiry> inquiries;    // further rounds of mismatches
    std::vector<std::string> waiting;  // to be logged, once per case
    int64_t next_ms = INT64_MAX;       // judge again by then
  };
  // `arrival_ms`: how long a member may take to come to a call.
  Outcome judge(int64_t now, const std::set<int>& dead, const std::set<int>& left,
                int64_t arrival_ms);
  // This process did not run for so long: nobody is later for it.
  void excuse(int64_t gap_ms);

 private:
  static constexpr int64_t kLeastForgetMs = 10'000;
  static constexpr int64_t kForgetStalls = 3;

  // Communicator, lowest member, call; of a group that is made, its tag and its signature instead,
  // since the next one of other members may have the same tag.
  using Key = std::tuple<uint32_t, int, uint32_t, uint64_t>;
  // One stalled call (see above). Times are moments, stalled_ms a duration.
  struct Case {
    StallReport first;
    int64_t since_ms = 0, reported_ms = 0, asked_ms = 0;
    int64_t stalled_ms = 0;            // the longest that was reported for this round
    int64_t in_stream_ms = INT64_MIN;  // when a member's stream had last not come to it
    uint64_t inquiry = 0;              // of the last round
    bool asking = false;               // that round is under way
    int rounds = 0;                    // finished ones
    bool said_waiting = false;
    int mismatch_reporter = -1, mismatching_peer = -1;
    int expirer = -1;  // whose time for the call is over, after expired_ms; -1: nobody's
    int64_t expired_ms = 0;
    std::map<int, InquiryAnswer> answers;
    std::set<int> came;  // who once said that it is in the call, or beyond it
  };
  Inquiry ask(Case& c, int64_t now);
  // Empty status: nothing to complain about yet.
  Status assess(Case& c, int64_t now, const std::set<int>& dead, const std::set<int>& left,
                int64_t arrival_ms, std::vector<std::string>* waiting) const;
  static Status mismatch(const Case& c);
  // Members that were refused the call, and have made nothing in its place, while others waited.
  static Status refused(const Case& c);
  // Of those whose streams have not come to the call: said once.
  static void say_in_stream(Case& c, const std::set<int>& in_stream, const std::string& what,
                            std::vector<std::string>* waiting);
  // Of the one who is late; nothing of several.
  static std::string what_it_does(const Case& c, const std::set<int>& late);
  // Somebody's time is over, whoever is late.
  static Status expired(const Case& c, const std::string& what, const std::set<int>& late,
                        const std::set<int>& left);

  int64_t forget_ms_;
  std::map<Key, Case> cases_;
  uint64_t next_inquiry_;
};

}  // namespace sennit::control
