// sharing.hpp: whether the communicator of a new job can be carried by an older job that all its
// ranks are in already, with the connections, descriptors and threads of that one. Every rank
// claims its memberships as it enlists (Claim), proved by the older job's secret; rank 0 looks for
// one that everybody is in, each as another rank of it.
//
// Ranks of one process claim the memberships of all of it, so there is a choice who becomes which.
// Control thread only. Memory at rank 0: the claims of those that came, while it is possible.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "control/messages.hpp"
#include "control/self.hpp"

namespace sennit::control {

// What a rank tells of its memberships; nothing where the job has no number yet to prove them for.
std::vector<Claim> claims_of(const Self& self);

// Rank 0's.
class Sharing {
 public:
  explicit Sharing(const Self& self) : self_(self) {}

  void begin();  // with rank 0's own memberships
  // A rank has come, or has come again, with these.
  void hear(int rank, const std::vector<Claim>& claims);
  // Whether all that were heard may still find a job. Once false it stays so.
  bool possible() const { return !candidates_.empty(); }
  // Of all ranks, once they were heard: the job; nothing where they do not find one each as another
  // rank of it. Nothing is possible after that.
  std::optional<SharedJob> choose();

 private:
  bool proves(int rank, const Claim& claim) const;
  std::optional<SharedJob> members_of(const Membership& membership) const;

  const Self& self_;
  // One of rank 0's memberships for each job that everybody so far is in.
  std::map<uint64_t, const Membership*> candidates_;
  std::map<int, std::vector<Claim>> claims_;  // proved ones, by rank
};

}  // namespace sennit::control
