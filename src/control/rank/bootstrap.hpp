// bootstrap.hpp: the start, as every rank sees it. Every rank says to rank 0 where it listens
// ("enlists") and learns where its parent is; rank 0's own children keep that connection. When a
// subtree is attached its root tells its parent, and when all is, rank 0 sends the table of
// addresses down: the start is complete.
//
// Rank 0 keeps the clock: when its time is up it tells everybody that came who is missing. A rank
// that cannot take part tells rank 0 ("complains"), who ends the start for everybody with that.
// Cost: two frames and one connection per rank at rank 0, then one frame up and one down each edge
// of the tree. Control thread only, but for prepare().
#pragma once

#include <optional>
#include <string>

#include "control/callers.hpp"
#include "control/rank/root_addresses.hpp"
#include "control/rank/roster.hpp"
#include "control/tree/departure.hpp"

namespace sennit::control {

// Made with the plane and used until the start is complete or has failed; the rest of the plane
// tells it what arrives, and it tells the callers how the start went.
class Bootstrap {
 public:
  Bootstrap(Self& self, Census& census, Channels& channels, Door& door, Tree& tree,
            Departure& departure, Callers& callers)
      : self_(self),
        census_(census),
        channels_(channels),
        door_(door),
        tree_(tree),
        departure_(departure),
        callers_(callers),
        roster_(self, census, channels, door, tree) {}

  // Finds rank 0's address, or listens there. On the caller's thread, before the control thread
  // runs: names may take long to resolve.
  Status prepare();
  // Called once, as the first thing on the control thread. Rank 0 takes its own place and draws the
  // job's number; other ranks begin with the first tick().
  void begin();
  // Called in every round of the loop while the start goes on: looks for rank 0 and the parent,
  // tries again, and fails the start when its time is up.
  void tick();

  void root_opened(Channel& channel);  // rank 0 has proved itself
  void on_enlist(Channel& channel, const Enlist& enlist);
  // False: it names a parent that cannot be.
  bool on_parent(Channel& channel, const Parent& message);
  // A neighbour in the tree has come, or its subtree is complete.
  void check_joined();
  // From the parent: all are attached. Passes it on to the children; the start is complete.
  void on_table(const Table& table);
  // The start is over for everybody that this rank can tell.
  void fail(const Status& status);
  // The same within a second, since this rank's user wants it no more. Ranks that it has not
  // reached wait for it as for one that is late.
  void abort(const Status& why);
  bool failed() const { return failed_; }
  // To whoever comes after that: why it failed.
  void tell_failure(Channel& channel);
  // Of a unique id's maker: where rank 0 is, or that it has not come.
  void on_root_at(Channel& channel, const RootAt& message);
  // From rank 0: an older job carries this one. False: this rank is not in it as is said.
  bool on_shared(Channel& channel, const Shared& message);
  // Once the start is over: that job; null where there is a tree of this one's own.
  const SharedJob* shared() const { return shared_ ? &*shared_ : nullptr; }
  // A connection ended while the start goes on. Depending on whose it was, this rank tries again,
  // complains to rank 0, or the start fails.
  void lost(const Ending& ending);
  void forget(const Channel& channel) { roster_.forget(channel); }
  // A connection could not be accepted for want of descriptors. During the start that fails it for
  // everybody; afterwards it does nothing.
  void out_of_descriptors();

  // This host's address as peers see it; once the start is complete.
  const std::string& own_address() const { return own_address_; }

 private:
  bool open_to_all() const { return !self_.options.secret.empty() || self_.options.insecure; }
  std::string root_text() const;  // "10.0.0.1:4242", as it was given
  Status find_root();
  Status listen_as_root();
  Status listen_as_rank(Address* own);

  void find_parent();
  void send_enlist(Channel& channel);
  void join_parent();
  bool leave_start_port();
  void complete();
  void go_on_without(Channel& channel, const Enlist& enlist);
  void share(const SharedJob& with);

  void take_no_part(const Status& why);
  void complain(const Status& what);
  void complain_of_parent(const std::string& text);
  void lost_parent(End end, const std::string& reason);
  void lost_root(End end, const std::string& reason);
  Status nobody_there() const;

  Self& self_;
  Census& census_;
  Channels& channels_;
  Door& door_;
  Tree& tree_;
  Departure& departure_;
  Callers& callers_;
  Roster roster_;  // of use at rank 0

  RootAddresses roots_;
  int64_t root_tried_ms_ = 0;
  bool root_seen_ = false;   // rank 0 has answered once
  bool with_maker_ = false;  // who has answered is the maker of the id, and waits for rank 0
  bool sent_on_ = false;     // the maker has told where rank 0 is, which is `root_text_`
  std::string root_text_;
  std::optional<SharedJob> shared_;
  int64_t deadline_ms_ = 0, retry_ms_ = 0, refused_since_ms_ = 0;
  int64_t nobody_since_ms_ = 0;  // nobody listens there; 0: somebody may
  std::string last_trouble_;

  bool failed_ = false;               // the start is over, for the reason in the census
  Status complaint_;                  // why this rank cannot take part; ok: it can
  int64_t complaining_until_ms_ = 0;  // without an answer; 0: there is none to wait for

  Address parent_address_;
  int64_t joining_since_ms_ = 0;
  std::string own_address_;
};

}  // namespace sennit::control
