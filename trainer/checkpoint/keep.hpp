// keep.hpp: the folder that a run's checkpoints lie in: which stay, and how they come and go so
// that a kill at any moment leaves only whole ones under their names.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "base/status.hpp"

namespace sennit::trainer {

// Renames `hidden` to `final`; one that is there already is exchanged for it, then removed.
Status put_in_place(const std::string& hidden, const std::string& final);

// Removes what is neither among the last `keep_last` (0: all stay), nor the one with the lowest
// held-out loss (where keep_best), nor the one of `step`, which was just saved. Whether that is the
// best.
bool keep_chosen(const std::string& folder, int64_t step, int keep_last, bool keep_best);

// Moves the checkpoints of steps after `step` into FOLDER/set-aside-N, the first N that is not
// there: those of a run that this one does not go on from, which its own would be taken for. Gives
// that folder and how many, or nothing where there are none. Nothing is removed.
struct SetAside {
  std::string folder;
  size_t checkpoints = 0;
};
Result<std::optional<SetAside>> set_aside_after(const std::string& folder, int64_t step);

// One run at a time saves into a folder: rank 0 holds a lock on FOLDER/.lock for as long as this
// lives, and the kernel gives it back however the process ends. In the file stands `attempt`, by
// which the other ranks see that their folder is rank 0's.
class FolderLock {
 public:
  FolderLock() = default;
  FolderLock(FolderLock&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  FolderLock& operator=(FolderLock&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~FolderLock();
  // Makes the folder. Errors: another run has it, by host and process; it cannot be written.
  static Result<FolderLock> take(const std::string& folder, const std::string& attempt);

 private:
  int descriptor_ = -1;
};
// Another rank's look at it: whether its own FOLDER/.lock is the one with this attempt. Waits a few
// seconds for a network file system to show it.
Status see_lock(const std::string& folder, const std::string& attempt);

// Removes hidden folders of saves that never came to an end, but for those of this attempt.
void remove_leftovers(const std::string& folder, const std::string& attempt);

}  // namespace sennit::trainer
