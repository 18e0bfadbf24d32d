// tree.hpp: this rank's place in the tree: its parent, its children, and the heartbeats between
// them. A rank that loses its parent goes to the lowest rank that is not known to be gone; if that
// is itself, it is the coordinator. A parent always has a lower rank, so the tree has no cycle.
// Control thread only. Memory: nothing per pair of ranks.
#pragma once

#include <map>
#include <string>

#include "control/channels.hpp"
#include "control/tree/census.hpp"
#include "control/tree/sender.hpp"

namespace sennit::control {

// Knows the channels to the parent and the children by their ids; it owns none of them.
class Tree final : public Sender {
 public:
  // Who is told what becomes of the tree.
  class Owner {
   public:
    virtual ~Owner() = default;
    // What this rank saw of another; `evidence` as of control/tree/evidence.hpp.
    virtual void suspect(int rank, uint8_t evidence, const std::string& what) = 0;
    // Whether silence of it is known already.
    virtual bool known_silent(int rank) const = 0;
    // At the start: a neighbour of this rank's place has come.
    virtual void neighbour_came() = 0;
    // Later: a rank that has lost its parent hangs below this one, or above it.
    virtual void child_came(Channel& channel, const Attach& attach) = 0;
    virtual void parent_came(Channel& channel, const Welcome& welcome) = 0;
    virtual void became_coordinator() = 0;
  };

  Tree(Self& self, Census& census, Channels& channels, Owner& owner)
      : self_(self), census_(census), channels_(channels), owner_(owner) {}

  bool send_up(const EncodedFrame& frame) override;
  void flood_down(const EncodedFrame& frame, uint64_t except = 0) override;

  Channel* parent() const { return channels_.find(parent_); }
  uint64_t parent_id() const { return parent_; }
  Channel* child(int rank) const;  // null: not there
  bool has_child(int rank) const { return children_.count(rank) > 0; }
  bool has_children() const { return !children_.empty(); }

  // ---- the start ----
  // This connection, which may be under way, leads to the parent.
  void set_parent(const Channel& channel) { parent_ = channel.id; }
  void add_child(const Channel& channel) { children_[channel.rank] = channel.id; }
  void drop_parent() { channels_.drop(parent_); }

  // ---- the channels ----
  void parent_opened(Channel& channel);  // proven: says who hangs below it
  void on_attach(Channel& channel, const Attach& attach);
  void on_welcome(Channel& channel, const Welcome& welcome);
  // The parent, or a candidate, has told this rank to go elsewhere.
  void refused(int rank, const std::string& text);
  // The channel to the parent has ended; where it was not `attached`, the attempt at one.
  void parent_lost(int rank, bool attached, End end, const std::string& reason);
  void forget(const Channel& channel);  // it is about to be gone
  // Ends the channels to a rank that is dead.
  void drop_rank(int rank);

  // Finds a parent, where there is none.
  void seek();
  void tick();
  void excuse(int64_t gap_ms);

 private:
  void give_up(int rank, uint8_t evidence, const std::string& reason);
  void beat();

  Self& self_;
  Census& census_;
  Channels& channels_;
  Owner& owner_;
  uint64_t parent_ = 0;               // channel; 0: none
  std::map<int, uint64_t> children_;  // rank -> channel

  // While this rank has no parent.
  int candidate_ = -1;
  int64_t candidate_since_ms_ = 0, retry_ms_ = 0;
  int silent_candidates_ = 0;  // one after the other
  const EncodedFrame heartbeat_ = encode(Heartbeat{});
};

}  // namespace sennit::control
