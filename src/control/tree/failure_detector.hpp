// failure_detector.hpp: who is dead. Ranks report suspects up the tree; the coordinator asks each
// suspect itself, by connecting to it, gathers what else comes in for a moment, decides the failed
// set and floods it.
//
//   probe answered   alive: each broken data connection is a failed link, else it is forgotten
//   probe refused    dead: a rank listens as long as it lives
//   no answer        dead if its tree connection had ended, or it was silent for the heartbeat
//                    time-out; else asked again until the time-out is over
//
// The children of a dead rank have to come to the coordinator; those that do not are asked as well,
// so that a rank that died together with its parent is found in the same decision. Who is leaving
// decides nothing: those that stay do. Failed sets only grow; whoever knows more tells its
// neighbours. Cost: nothing until something fails. Control thread only.
#pragma once

#include <map>
#include <set>
#include <string>

#include "control/callers.hpp"
#include "control/tree/evidence.hpp"
#include "control/tree/link_failures.hpp"
#include "control/tree/tree.hpp"

namespace sennit::control {

// Every rank has one: it collects what is suspected, and decides where this rank is the
// coordinator. What is decided goes to the callers and to Callbacks::peers_failed.
class FailureDetector {
 public:
  // Who is told that this rank has to end.
  class Owner {
   public:
    virtual ~Owner() = default;
    virtual void excluded() = 0;  // the others took this rank for dead
  };

  FailureDetector(Self& self, Census& census, Channels& channels, Tree& tree, LinkFailures& links,
                  Callers& callers, Owner& owner)
      : self_(self),
        census_(census),
        channels_(channels),
        tree_(tree),
        links_(links),
        callers_(callers),
        owner_(owner) {}

  // ---- suspects ----
  // `evidence`: bits of Evidence. `reporter` saw `what`.
  void suspect(int rank, uint8_t evidence, int reporter, const std::string& what);
  void on_suspect(const Suspicion& message);
  bool known_silent(int rank) const;
  // It hangs below this rank: it lives, and only what was said of its connections stays to be
  // asked.
  void came(int rank);
  // It has left, or is dead: nothing to find out any more.
  void forget(int rank);
  void tell_again();  // there is a new parent

  // ---- the coordinator's inquiry ----
  void became_coordinator();
  void probe_opened(Channel& channel);
  void probe_answered(int rank);
  void probe_ended(int rank, End end, const std::string& reason);
  // The children of a rank that is gone come to the coordinator by themselves, by `when`.
  void expect_orphans(int of, int64_t when);
  bool expects_orphans() const { return !orphans_.empty(); }

  // ---- decisions ----
  // What others have decided; `from` is the channel that it came by.
  void adopt(const std::set<int>& dead, const Status& status, uint64_t from);
  EncodedFrame decision_frame() const;

  void tick();
  void excuse(int64_t gap_ms);

 private:
  // One suspect. `since_ms`: since when it is one, or since when this rank is the coordinator.
  struct Case {
    uint8_t evidence = 0;
    int reporter = -1;  // the first one
    std::string what;   // that it saw
    // Who has lost its data connection to it -> what that one saw.
    std::map<int, std::string> broken;
    int64_t since_ms = 0;
    // The coordinator's inquiry.
    uint64_t probe = 0;  // channel; 0: none
    int64_t next_probe_ms = 0;
    bool dead = false;
    std::string cause;
  };

  static bool adds(Case& suspect, uint8_t evidence, int reporter, const std::string& what);
  void report_up(int rank, const Case& suspect);
  void probe(int rank, Case& suspect);
  void judge_dead(int rank, Case& suspect, const std::string& cause);
  void look_for_orphans();
  bool probe_all_due();
  void decide();
  void forget_old();
  void cut_off(int rank);

  Self& self_;
  Census& census_;
  Channels& channels_;
  Tree& tree_;
  LinkFailures& links_;
  Callers& callers_;
  Owner& owner_;
  // Coordinator: under inquiry; others: reported, not yet decided, this rank itself among them
  // where others have lost their data connections to it.
  std::map<int, Case> cases_;
  std::map<int, int64_t> orphans_;  // coordinator: expected to attach by then
  int64_t next_orphan_ms_ = 0;      // the earliest of them
  int64_t batch_since_ms_ = 0;      // first report of the decision under way; 0: none
};

}  // namespace sennit::control
