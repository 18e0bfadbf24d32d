// state.hpp: which trees are up: a file for each, by which `run` and `down` find it, a
// lock, and a folder for what a command leaves to its processes.
//
// State files lie in /run/sennit (root) or $XDG_RUNTIME_DIR/sennit, one JSON object each; an
// instance whose keeper is gone counts as not there. A lock file serialises the choice of a name
// and of an address range, and what is removed. What a state file says is done by its reader, with
// the reader's rights, so nobody else may be able to write there.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/status.hpp"
#include "command/emulate/emulate.hpp"

namespace sennit::emulate {

// Whether only this user can have put there what lies in that folder, which need not exist.
Status check_private(const std::string& folder);
// Start time of a process in clock ticks since boot; 0: no such process.
uint64_t start_time(pid_t process);
bool alive(const Instance& instance);

// Holds off all others who choose a name, or change what the state files say, while this object
// lives and once take() went well.
class StateLock {
 public:
  StateLock() = default;
  StateLock(const StateLock&) = delete;
  ~StateLock();
  Status take();
  bool take_soon();  // for clean-up, which must not hang: gives up after half a second

 private:
  Status open_file(std::string* path);

  int fd_ = -1;
};

// Writes down what find() will say. Of a tree that others may change, too, only under the lock.
Status write_state(const Instance& instance);
Result<Instance> find(const std::string& name);
// Takes away the state files of those whose keepers are gone, where the lock is free.
Result<std::vector<Instance>> list();
// Of all state files, also those whose keepers are gone.
std::vector<std::string> known_names();
// Under the lock only: without it somebody may just have written the file anew.
void remove_dead(const std::string& name);

// A folder for the files of one command, removed with this object; those of crashed commands are
// removed too.
class ScratchFolder {
 public:
  static Result<ScratchFolder> make();
  ScratchFolder(ScratchFolder&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  ScratchFolder(const ScratchFolder&) = delete;
  ~ScratchFolder();
  // Writes a file there and returns its path.
  Result<std::string> write(const std::string& name, const std::string& text,
                            bool executable = false) const;
  const std::string& path() const { return path_; }

 private:
  explicit ScratchFolder(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

}  // namespace sennit::emulate
