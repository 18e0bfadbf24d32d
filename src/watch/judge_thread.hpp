// judge_thread.hpp: the coordinator's judge, on a thread that lets all others go first. Where cores
// are busy, what finds out why calls are slow would else make slow those of its own rank.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "base/mutex.hpp"
#include "base/process/forked.hpp"
#include "record/notes.hpp"
#include "topology/fabric/fabric.hpp"
#include "watch/digest.hpp"
#include "watch/judge.hpp"
#include "watch/live_verdict.hpp"

namespace sennit::watch {

// The public functions are for one thread.
class JudgeThread {
 public:
  // How much nicer it is than the thread that made it.
  static constexpr int kNicer = 10;
  static constexpr const char* kName = "sennit-judge";

  // What a rank has told, and when that came.
  struct Told {
    int rank = -1;
    uint64_t at_ns = 0;
    std::variant<Note, Digest> what;
  };

  // As Judge's.
  JudgeThread(const std::string& fabric, std::vector<Placement> placements);
  // Waits for a look that is under way. What it finds, and what was not looked at, is lost.
  ~JudgeThread() SENNIT_EXCLUDES(mutex_);
  JudgeThread(const JudgeThread&) = delete;
  JudgeThread& operator=(const JudgeThread&) = delete;

  // Is looked at once, as soon as the thread gets to it, with what has come until then.
  void give(std::vector<Told> told) SENNIT_EXCLUDES(mutex_);
  bool has_found() const { return has_found_; }
  // What is to be said.
  std::vector<LiveVerdict> take() SENNIT_EXCLUDES(mutex_);

 private:
  void run() SENNIT_EXCLUDES(mutex_);

  const Origin origin_{};
  Judge judge_;  // the thread's
  Mutex mutex_;
  Condition wake_;
  bool stopping_ SENNIT_GUARDED_BY(mutex_) = false;
  std::vector<Told> told_ SENNIT_GUARDED_BY(mutex_);
  std::vector<LiveVerdict> found_ SENNIT_GUARDED_BY(mutex_);
  std::atomic<bool> has_found_ = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace sennit::watch
