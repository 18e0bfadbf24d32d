// background_judge.hpp: the coordinator's judge, in the background: calls go first, also those of
// its own rank.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "base/mutex.hpp"
#include "base/process/background.hpp"
#include "record/notes.hpp"
#include "topology/fabric/fabric.hpp"
#include "watch/digest.hpp"
#include "watch/judge.hpp"
#include "watch/live_verdict.hpp"

namespace sennit::watch {

// The public functions are for one thread.
class BackgroundJudge {
 public:
  // What a rank has told, and when that came.
  struct Told {
    int rank = -1;
    uint64_t at_ns = 0;
    std::variant<Note, Digest> what;
  };

  // As Judge's. Its thread is there from the beginning, so that a job has as many all the while.
  BackgroundJudge(const std::string& fabric, const std::vector<Placement>& placements) {
    background_.post(
        [this, fabric, placements] { judge_ = std::make_unique<Judge>(fabric, placements); });
  }

  // Of about one time. Is looked at once the judge gets to it; of digests for which it finds no
  // time some are not.
  void give(std::vector<Told> told);
  bool has_found() const { return has_found_; }
  // What is to be said.
  std::vector<LiveVerdict> take() SENNIT_EXCLUDES(mutex_);
  // The same, once and for all: a look that is under way is waited for.
  std::vector<LiveVerdict> end() SENNIT_EXCLUDES(mutex_);

 private:
  void look(const std::vector<Told>& told) SENNIT_EXCLUDES(mutex_);

  std::unique_ptr<Judge> judge_;  // the background's
  Mutex mutex_;
  std::vector<LiveVerdict> found_ SENNIT_GUARDED_BY(mutex_);
  std::atomic<bool> has_found_ = false;
  std::atomic<int> waiting_ = 0;           // looks that have not begun
  Background background_{"sennit-judge"};  // last: its task uses the others
};

}  // namespace sennit::watch
