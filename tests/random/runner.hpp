// runner.hpp: runs programs, several at a time, each in processes of its own, and says what went
// wrong in them.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/random/board.hpp"
#include "tests/random/model.hpp"

namespace random_programs {

// What came of one program.
struct Outcome {
  bool ok = true;
  Wrong kind = Wrong::nothing;
  bool ended_by_ucx = false;  // nothing is said of such a program
  // for people: differences, leaks, where a hanging program's threads are, what its processes wrote
  std::string what;
};

// How long a program may take, and how many run at a time.
struct RunOptions {
  std::chrono::seconds limit{60};
  int at_once = 4;
};

// Ranks are forked from this process, which therefore must have no threads, no other children and
// no job of its own; none is exec'ed. A program that is not over after `limit` is a hang; its
// processes, and those of one in which something else went wrong, are killed by their ids.
class Runner {
 public:
  explicit Runner(RunOptions options);
  ~Runner();
  Runner(const Runner&) = delete;
  Runner& operator=(const Runner&) = delete;

  // Runs what `next` gives until it gives nothing and tells `done` of each; `done` false: no more
  // of them.
  void run(const std::function<std::optional<Program>()>& next,
           const std::function<bool(const Program&, const Outcome&)>& done);
  Outcome run(const Program& program);

 private:
  struct Slot;
  bool begin(Slot& slot, Program program);
  void fork_process(Slot& slot, const std::vector<int>& ranks);
  void collect(pid_t pid, int status);
  void note_ends(Slot& slot);
  void give_up(Slot& slot);
  void look_for_files(Slot& slot);
  bool finish(Slot& slot, Outcome* outcome);  // false: not over yet

  const RunOptions options_;
  std::vector<std::unique_ptr<Slot>> slots_;
};

}  // namespace random_programs
