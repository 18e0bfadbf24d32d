// call_judge.cpp: see control/rank/call_judge.hpp.
#include "control/rank/call_judge.hpp"

#include <algorithm>

#include <fmt/core.h>

#include "base/rank_ranges.hpp"

namespace sennit::control {

std::string call_without_place(const std::string& text) {
  return text.substr(0, text.find(", in call "));
}

std::optional<Inquiry> CallJudge::report(const StallReport& report, int64_t now) {
  if (report.members.empty()) return {};
  const Key key{report.call.comm, *report.members.begin(), report.call.seq,
                report.makes_group ? report.call.signature : 0};
  const auto [it, fresh] = cases_.try_emplace(key);
  Case& c = it->second;
  if (fresh) {
    c.first = report;
    c.since_ms = now - report.waited_ms;
  }
  c.since_ms = std::min(c.since_ms, now - report.waited_ms);
  c.reported_ms = now;
  const bool urgent = (report.mismatching_peer >= 0 && c.mismatching_peer < 0) ||
                      (report.expired_ms >= 0 && c.expirer < 0);
  if (report.expired_ms >= 0 && c.expirer < 0) {
    c.expirer = report.reporter;
    c.expired_ms = report.expired_ms;
  }
  if (report.mismatching_peer >= 0) {
    c.mismatch_reporter = report.reporter;
    c.mismatching_peer = report.mismatching_peer;
  }
  const bool due = !c.asking && (fresh || urgent || now - c.asked_ms >= kRoundGapMs);
  // Things may have moved since the last round.
  c.stalled_ms = due ? report.stalled_ms : std::max(c.stalled_ms, report.stalled_ms);
  if (!due) return {};
  return ask(c, now);
}

Inquiry CallJudge::ask(Case& c, int64_t now) {
  c.inquiry = next_inquiry_++;
  c.asking = true;
  c.asked_ms = now;
  c.answers.clear();
  return {c.inquiry, c.first.call.comm, c.first.call.seq, c.first.call.signature, c.first.reporter};
}

void CallJudge::answer(InquiryAnswers answers) {
  // No two cases have one inquiry.
  const auto asked = std::find_if(cases_.begin(), cases_.end(), [&](const auto& entry) {
    return entry.second.inquiry == answers.inquiry;
  });
  if (asked == cases_.end()) return;
  Case& c = asked->second;
  const auto note = [&c](InquiryAnswer answer) {
    const int rank = answer.rank;
    if (!c.first.members.count(rank)) return;
    if (answer.where >= InquiryAnswer::Where::at) {
      c.came.insert(rank);
      if (answer.in_stream) c.in_stream_ms = c.asked_ms;
    }
    c.answers[rank] = std::move(answer);
  };
  const CallDescriptor& call = c.first.call;
  for (const int rank : answers.alike)
    note({rank, InquiryAnswer::Where::at, call.seq, call.signature, "", false});
  for (InquiryAnswer& answer : answers.others) note(std::move(answer));
}

CallJudge::Outcome CallJudge::judge(int64_t now, const std::set<int>& dead,
                                    const std::set<int>& left, int64_t arrival_ms) {
  Outcome outcome;
  for (auto it = cases_.begin(); it != cases_.end();) {
    Case& c = it->second;
    Status status;
    if (c.asking) {
      const bool all = c.answers.size() >= c.first.members.size();
      if (!all && now - c.asked_ms < kRoundMs) {
        outcome.next_ms = std::min(outcome.next_ms, c.asked_ms + kRoundMs);
        ++it;
        continue;
      }
      c.asking = false;
      c.rounds++;
      status = assess(c, now, dead, left, arrival_ms, &outcome.waiting);
    } else if (c.mismatching_peer >= 0 && now - c.asked_ms >= kRoundGapMs) {
      outcome.inquiries.push_back(ask(c, now));
    }
    if (!status.ok())
      outcome.verdicts.push_back({c.first.call.comm, *c.first.members.begin(), status});
    const bool forget = !status.ok() || now - c.reported_ms > forget_ms_;
    if (!forget && (c.mismatching_peer >= 0 || c.asking))
      outcome.next_ms = std::min(outcome.next_ms, c.asked_ms + (c.asking ? kRoundMs : kRoundGapMs));
    it = forget ? cases_.erase(it) : std::next(it);
  }
  // The communicator is in error as a whole: its other cases are settled with it.
  for (const CallVerdict& verdict : outcome.verdicts)
    std::erase_if(cases_, [&](const auto& entry) {
      return std::get<0>(entry.first) == verdict.comm && std::get<1>(entry.first) == verdict.anchor;
    });
  return outcome;
}

Status CallJudge::mismatch(const Case& c) {
  const CallDescriptor& call = c.first.call;
  struct Side {
    std::string text;
    std::set<int> ranks;
  };
  std::map<uint64_t, Side> sides;
  for (const auto& [rank, answer] : c.answers) {
    if (answer.where != InquiryAnswer::Where::at || answer.signature == kNotKnownYet) continue;
    Side& side = sides[answer.signature];
    side.ranks.insert(rank);
    if (side.text.empty())
      side.text = call_without_place(answer.text.empty() ? call.text : answer.text);
  }
  const std::string place = fmt::format("call {} on communicator {}: ", call.seq, call.comm);
  if (sides.size() < 2) {
    if (c.mismatching_peer < 0 || c.rounds < 2) return {};
    return {SENNIT_MISMATCH,
            place + fmt::format("a message of rank {} does not match what rank {} called, {}",
                                c.mismatching_peer, c.mismatch_reporter,
                                call_without_place(call.text))};
  }
  std::vector<Side> order;
  bool alike = true;
  for (auto& [signature, side] : sides) {
    alike = alike && side.text == sides.begin()->second.text;
    order.push_back(std::move(side));
  }
  std::sort(order.begin(), order.end(), [](const Side& a, const Side& b) {
    return std::pair(a.ranks.size(), *a.ranks.begin()) <
           std::pair(b.ranks.size(), *b.ranks.begin());
  });
  if (alike)  // same arguments, other plan
    return {SENNIT_MISMATCH, place + fmt::format("{} and {} planned {} differently: are the "
                                                 "SENNIT_* variables the same on all ranks?",
                                                 name_ranks(order[0].ranks),
                                                 name_ranks(order[1].ranks), order[0].text)};
  std::string text;
  for (const Side& side : order)
    text +=
        fmt::format("{}{} called {}", text.empty() ? "" : "; ", name_ranks(side.ranks), side.text);
  return {SENNIT_MISMATCH, place + text};
}

// Where the reporter was refused one, too, its fellows may only be slower to make another.
Status CallJudge::refused(const Case& c) {
  const CallDescriptor& call = c.first.call;
  if (call.refused_before || c.stalled_ms < kRefusalStandsMs) return {};
  std::map<std::string, std::set<int>> by_reason;
  std::set<int> there;
  for (const auto& [rank, answer] : c.answers) {
    if (answer.where >= InquiryAnswer::Where::at)
      there.insert(rank);
    else if (!answer.text.empty())
      by_reason[answer.text].insert(rank);
  }
  if (by_reason.empty()) return {};
  const bool makes_group = c.first.makes_group;
  std::string text =
      makes_group ? call.text : fmt::format("call {} on communicator {}", call.seq, call.comm);
  // Each rank may have one of its own, and all ranks are told the text.
  constexpr size_t kMostReasons = 8;
  const char* separator = ": ";
  size_t told = 0;
  for (const auto& [reason, ranks] : by_reason) {
    if (told++ == kMostReasons) {
      text += "; others were refused it, too";
      break;
    }
    text += fmt::format("{}{} {} refused it, {}", separator, name_ranks(ranks),
                        ranks.size() == 1 ? "was" : "were", reason);
    separator = "; ";
  }
  if (!makes_group)
    text += fmt::format("; {} called {}", name_ranks(there), call_without_place(call.text));
  return {SENNIT_MISMATCH, text};
}

std::string CallJudge::what_it_does(const Case& c, const std::set<int>& late) {
  if (late.size() != 1) return "";
  const auto answer = c.answers.find(*late.begin());
  if (answer == c.answers.end()) return "; it does not answer";
  return answer->second.where == InquiryAnswer::Where::before
             ? fmt::format("; its last call there is {}", answer->second.seq)
             : "; it has called nothing there";
}

Status CallJudge::expired(const Case& c, const std::string& what, const std::set<int>& late,
                          const std::set<int>& left) {
  if (!late.empty())
    return {SENNIT_TIMED_OUT,
            fmt::format("{} did not arrive in {} within {} ms{}", name_ranks(late), what,
                        c.expired_ms, what_it_does(c, late))};
  std::string why = "though all ranks are in it";
  if (!left.empty())
    why =
        fmt::format("but {} {} left the job", name_ranks(left), left.size() == 1 ? "has" : "have");
  return {SENNIT_TIMED_OUT, fmt::format("{} did not complete within {} ms on {}, {}", what,
                                        c.expired_ms, name_ranks({c.expirer}), why)};
}

Status CallJudge::assess(Case& c, int64_t now, const std::set<int>& dead, const std::set<int>& left,
                         int64_t arrival_ms, std::vector<std::string>* waiting) const {
  if (Status status = mismatch(c); !status.ok()) return status;
  if (Status status = refused(c); !status.ok() || c.first.makes_group) return status;
  const CallDescriptor& call = c.first.call;
  const std::string what = fmt::format("call {} on communicator {} ({})", call.seq, call.comm,
                                       call_without_place(call.text));
  std::set<int> late, left_here, in_stream;
  for (const int member : c.first.members) {
    if (dead.count(member)) return {};  // the decision about the dead fails the communicator
    const auto answer = c.answers.find(member);
    const bool here = answer != c.answers.end() && answer->second.where >= InquiryAnswer::Where::at;
    if (here && answer->second.in_stream) in_stream.insert(member);
    if (left.count(member))
      left_here.insert(member);
    else if (!c.came.count(member))
      late.insert(member);
  }
  if (c.expirer >= 0) return expired(c, what, late, left_here);
  // A rank may leave when it has finished a call that others are still in, so only a lasting stall
  // tells.
  if (!left_here.empty() && late.empty() && c.stalled_ms < std::min(arrival_ms, kLeftMs)) return {};
  if (!left_here.empty() && c.stalled_ms >= std::min(arrival_ms, kLeftMs))
    return {SENNIT_PEER_FAILED,
            fmt::format("{} {} left the job, but other ranks are in {}", name_ranks(left_here),
                        left_here.size() == 1 ? "has" : "have", what)};
  if (late.empty()) {
    if (!in_stream.empty()) say_in_stream(c, in_stream, what, waiting);
    // The others have waited for the stream, as long as it took.
    if (c.stalled_ms < arrival_ms || now - arrival_ms < c.in_stream_ms) return {};
    return {SENNIT_TIMED_OUT,
            fmt::format("no progress in {} for {} ms, though all ranks are in it; {} reported it",
                        what, c.stalled_ms, name_ranks({c.first.reporter}))};
  }
  const std::string doing = what_it_does(c, late);
  if (now - c.since_ms >= arrival_ms)
    return {SENNIT_TIMED_OUT, fmt::format("{} did not arrive in {} within {} ms{}",
                                          name_ranks(late), what, arrival_ms, doing)};
  if (!c.said_waiting) {
    c.said_waiting = true;
    waiting->push_back(fmt::format("waiting for {} in {}{}", name_ranks(late), what, doing));
  }
  return {};
}

void CallJudge::say_in_stream(Case& c, const std::set<int>& in_stream, const std::string& what,
                              std::vector<std::string>* waiting) {
  if (c.said_waiting) return;
  c.said_waiting = true;
  waiting->push_back(
      fmt::format("waiting for {} in {}: the call is in a stream that has not come to it",
                  name_ranks(in_stream), what));
}

void CallJudge::excuse(int64_t gap_ms) {
  for (auto& [key, c] : cases_) {
    c.since_ms += gap_ms;
    c.reported_ms += gap_ms;
    c.asked_ms += gap_ms;
  }
}

}  // namespace sennit::control
