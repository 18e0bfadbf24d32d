// streak.hpp: when what was found is told: once it has been found a few times more often than not,
// again once looks in a row have found it otherwise, and withdrawn once they have not found it.
#pragma once

#include <optional>
#include <vector>

#include "watch/live_verdict.hpp"

namespace sennit::watch {

// Whether both blame the same: some link, in some direction, or some rank, is in both.
bool blames_same(const LiveVerdict& a, const LiveVerdict& b);

// Of one kind of verdict, by the calls of one communicator.
class Streak {
 public:
  static constexpr int kLookLong = 4;
  // Of a whole tier: where all its links look slow alike it may be what they share, as the cores of
  // a machine that is busy for a while.
  static constexpr int kLookLongAtTier = 8;

  // What was found this time, if anything. Returns what is to be told now.
  std::vector<LiveVerdict> see(std::optional<LiveVerdict> found);
  // There are no looks any more. Returns what was told, withdrawn, if anything was.
  std::optional<LiveVerdict> end();
  // What the next look is asked about: it must cross these to say anything against them.
  const LiveVerdict* told() const { return told_ ? &*told_ : nullptr; }
  const LiveVerdict* candidate() const { return candidate_ ? &*candidate_ : nullptr; }

 private:
  void count(const std::optional<LiveVerdict>& found);
  bool has_held() const;
  bool is_otherwise(const LiveVerdict& found);

  std::optional<LiveVerdict> told_, candidate_;
  int held_ = 0;       // looks that have found the candidate, less those that have not
  int missing_ = 0;    // that have not found what was told
  int different_ = 0;  // that have found it, much cheaper or dearer than was told
  // That have found it and blame others, all the same; and what the last of them found.
  int others_ = 0;
  std::optional<LiveVerdict> blames_others_;
  // So many have to, twice as many each time: who is late now and then makes no news for ever.
  int patience_ = kLookLong;
};

}  // namespace sennit::watch
