// judge.hpp: what is wrong with a running job, by the digests of its ranks.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "diagnose/communicator_numbers.hpp"
#include "diagnose/edges.hpp"
#include "diagnose/job.hpp"
#include "diagnose/plans.hpp"
#include "record/notes.hpp"
#include "watch/digest.hpp"
#include "watch/live_verdict.hpp"
#include "watch/streak.hpp"

namespace sennit::watch {

// From when on something is wrong. The bounds are wider than those of `sennit diagnose`, which
// looks at many calls once, because this looks again and again, and nobody has asked.
struct JudgeRules {
  double least_factor = 1.25;             // of slow links
  double least_late_cost = 0.1;           // part of the time
  double least_late_ns = 200'000;         // a call
  double least_starved = 0.1;             // part of the time without a core, over the usual
  uint64_t solver_part = 20;              // of so many parts of the time it takes at most one
  uint64_t forgotten_ns = 3'000'000'000;  // what was not heard of for so long, at least, is over
};

// Pure, but for the time that judging takes, which is measured to bound it. One thread at a time.
class Judge {
 public:
  // `fabric`: its text form; placements by rank.
  Judge(const std::string& fabric, std::vector<Placement> placements, const JudgeRules& rules = {});
  ~Judge();
  Judge(const Judge&) = delete;
  Judge& operator=(const Judge&) = delete;

  // A communicator or a plan, as its ranks call it; others are passed over. `rank`: who says it.
  void note(int rank, const Note& note);
  // What a rank, of the job, has told at now_ns (of any clock that goes on).
  void digest(int rank, Digest digest, uint64_t now_ns);
  // Judges what there are new digests of, of all members, and returns what is to be told. What was
  // told by the calls of a communicator is withdrawn, too, once nothing has been heard of it for
  // several times as long as usual, while ranks tell of others.
  std::vector<LiveVerdict> look(uint64_t now_ns);

 private:
  // Calls of one plan on one communicator, by member: what was told lately, the newest last.
  // `fresh`: that is not judged yet.
  struct Told {
    uint64_t at_ns = 0;
    DigestPlan plan;
  };
  // What one look saw: the part of the time in which ranks ran, what a call took in that, and for
  // how long edges were served.
  struct FoundNothing {
    double ran = 1, took_ns = 0;
    diagnose::CallEdges edges;
  };
  struct OfPlan {
    std::vector<std::vector<Told>> told;
    std::vector<bool> fresh;
    uint32_t looks = 0;
    uint64_t calls = 0;  // of the member with index 0, ever
    // The shortest call so far, of those by which nothing was found; and when that was last asked.
    double well_ns = 0;
    uint64_t well_at_ns = 0;
    // How long edges were served in such calls, by positions: a mean to which later ones add more.
    std::map<std::pair<int, int>, double> well_service_ns;
    std::deque<FoundNothing> found_nothing;  // the last looks in a row that did, the oldest first
  };
  struct OfComm {
    uint32_t known_as = 0;
    std::vector<int> members;
    std::map<uint64_t, OfPlan> plans;
    std::vector<DigestPace> paces;
    std::vector<bool> fresh_paces;
    uint32_t pace_looks = 0;
    // By member: how late it was in the last looks, of which there are as many of each.
    std::vector<std::vector<double>> late_ns;
    uint64_t busy_until_ns = 0;  // its calls disturb others' until then
    // By listened_ns_: when it was heard of last, and how far apart that lately was, at most.
    uint64_t heard_ns = 0, apart_ns = 0;
    bool heard = false;  // since the last look
    Streak link, late, starved;
  };
  void forget_unheard(std::vector<LiveVerdict>* out);
  void remember_well(OfPlan* plan, const diagnose::ObservedPlan& observed, double ran) const;
  bool disturbed(uint32_t number, uint64_t now_ns) const;
  std::vector<double> without_core(const OfComm& comm) const;
  double usually_ran(const OfComm& comm) const;
  std::vector<DigestPlan> lately(const OfPlan& plan, uint64_t now_ns) const;
  std::optional<diagnose::ObservedPlan> observe(uint32_t number, const OfPlan& plan,
                                                const std::vector<DigestPlan>& by_member) const;
  bool is_suspicious(uint32_t number, const OfPlan& plan, double took_ns, uint64_t now_ns) const;
  std::optional<LiveVerdict> solve(uint32_t number, const OfComm& comm,
                                   const diagnose::ObservedPlan& observed);
  void spend(uint64_t ns, uint64_t now_ns);
  bool says_something(uint32_t number, const OfComm& comm,
                      const diagnose::ObservedPlan& observed) const;
  void look_at_links(uint32_t number, OfComm* comm, uint64_t now_ns, std::vector<LiveVerdict>* out);
  void look_at_ranks(OfComm* comm, std::vector<LiveVerdict>* out);
  std::set<int> told_by_others(Streak OfComm::*streak, const OfComm& comm) const;
  std::vector<size_t> late_members(OfComm* comm, double period_ns) const;
  std::optional<LiveVerdict> late(OfComm* comm, const std::set<int>& known) const;
  std::vector<int> starved(const OfComm& comm) const;
  std::optional<LiveVerdict> starvation(const OfComm& comm, const std::vector<int>& ranks) const;

  const JudgeRules rules_;
  diagnose::JobRecording job_;  // fabric, communicators and plans alone
  mutable diagnose::Plans plans_;
  diagnose::CommunicatorNumbers numbers_{&job_};
  std::map<uint32_t, OfComm> comms_;
  std::vector<double> without_core_;  // by rank: part of the time, by its last digest
  std::vector<std::optional<double>> cores_between_;  // by rank: Digest::cores_between
  uint64_t next_solving_ns_ = 0;
  std::optional<uint32_t> without_time_;  // the first that was not judged by it in the last look
  // For how long ranks have told digests, and when the last came. Where all compute none does.
  uint64_t listened_ns_ = 0, last_digest_ns_ = 0;
};

}  // namespace sennit::watch
