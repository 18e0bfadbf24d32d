// small_collectives.hpp: all_gather and broadcast over the tree, for the start of communicators.
//
// Contributions go up in one frame per edge as soon as a subtree is complete; while somebody is
// late, what is there goes up in parts, so that rank 0 knows by name who is missing when the time
// is up. The result comes down in one frame. Collectives are numbered; a fast rank may be ahead of
// its parent. Where somebody has left they end on all ranks. Cost: 2 frames per edge, the bytes of
// all blobs once up and once down each edge. Control thread only.
#pragma once

#include <map>
#include <set>

#include "control/callers.hpp"
#include "control/self.hpp"
#include "control/tree/census.hpp"
#include "control/tree/sender.hpp"

namespace sennit::control {

// Results and errors go to `callers`, by number. All ranks number their collectives alike.
class SmallCollectives {
 public:
  SmallCollectives(Self& self, const Census& census, Sender& sender, Callers& callers)
      : self_(self), census_(census), sender_(sender), callers_(callers) {}

  // This rank's part of all_gather `number`.
  void contribute(uint32_t number, Blob mine);
  // Rank 0's broadcast.
  void broadcast(uint32_t number, const Blob& blob);

  void on_gather(Gather message);
  void on_gathered(Gathered message);
  void on_broadcast(Broadcast message);
  void on_off(const CollectiveOff& message);
  void tick();

 private:
  // An all_gather under way.
  struct Gathering {
    std::map<int, Blob> fresh;  // not yet sent up; at rank 0: all
    std::set<int> have;
    int64_t first_ms = 0, flushed_ms = 0;
  };

  bool subtree_complete(const Gathering& gathering) const;
  void advance(uint32_t number, Gathering& gathering);
  void complete(uint32_t number, Gathering& gathering);
  void send_fresh(uint32_t number, Gathering& gathering);
  Status has_left() const;
  Status trouble(uint32_t number, const Gathering& gathering) const;
  void give_up(uint32_t number, const Status& status);
  void finish(uint32_t number, Result<Callers::Blobs> result);

  Self& self_;
  const Census& census_;
  Sender& sender_;
  Callers& callers_;
  std::map<uint32_t, Gathering> gatherings_;
  std::set<uint32_t> failed_;  // rank 0
};

}  // namespace sennit::control
