// watch.hpp: one rank's part in watching the job while it runs: it tells the coordinator, again and
// again, what its calls took (watch/digest.hpp), and the coordinator judges what all have told
// (watch/judge.hpp) and says it: in its log, in its recording, and to who listens. While a call
// stalls the coordinator asks all ranks what they do (watch/hang_watch.hpp), and who is behind is
// said by every rank.
//
// What a rank tells it reads in its own recording's file, so that calls are neither locked out nor
// slowed down. A thread of its own does all of it, but for the judging, which others go before
// (watch/background_judge.hpp). It also keeps there what the kernel knows of this rank's
// connections, and how its clock stands to the coordinator's.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/mutex.hpp"
#include "base/process/forked.hpp"
#include "base/status.hpp"
#include "control/control_plane.hpp"
#include "diagnose/file.hpp"
#include "record/recording.hpp"
#include "topology/fabric/fabric.hpp"
#include "watch/connection_log.hpp"
#include "watch/core_time.hpp"
#include "watch/live_verdict.hpp"
#include "watch/summary.hpp"
#include "watch/work_between.hpp"

namespace sennit::watch {

class BackgroundJudge;
class HangWatch;

// How often a digest is told, by SENNIT_WATCH: seconds. 0: never. Errors: it is no such number.
Result<std::chrono::nanoseconds> digest_period();

// What a watch works with; all of it outlives it, but for what is copied.
struct WatchSetting {
  Control* control = nullptr;
  Recording* recording = nullptr;  // of this rank, with a file
  int rank = 0;
  std::string fabric;                 // its text form
  std::vector<Placement> placements;  // by rank
  std::chrono::nanoseconds period{0};
  std::chrono::nanoseconds stall{0};  // SENNIT_STALL
  std::string dumps;                  // SENNIT_DUMP: a folder; empty: none
  // Transport::connections() of this rank's transports; may be empty.
  std::function<std::vector<ConnectionStatistics>()> connections;
};

// The public functions may be called from any thread.
class Watch {
 public:
  // On a thread of this object, at the coordinator, and with a hang on all ranks; must not destroy
  // what it was registered by.
  using Listener = std::function<void(const LiveVerdict&)>;

  Watch();
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  // Once. Without it nothing is told, and what others tell is passed over; so it is, too, where the
  // system has no thread left, which is logged. Where the recording has no file this rank tells
  // nothing of itself.
  void start(WatchSetting setting) SENNIT_EXCLUDES(mutex_);
  // Returns when the thread has ended; from then on the setting is not used any more.
  void stop() SENNIT_EXCLUDES(mutex_);

  // Control::Callbacks of these names.
  void told(int rank, uint8_t topic, const std::vector<std::byte>& blob) SENNIT_EXCLUDES(mutex_);
  void announced(uint8_t topic, const std::vector<std::byte>& blob) SENNIT_EXCLUDES(mutex_);
  void stall_reported() SENNIT_EXCLUDES(mutex_);
  void may_be_lost() { may_be_lost_ = true; }

  // On this rank a send or a receive has been without progress for so long; to be said again and
  // again while that lasts. Collective calls say it by Control::report_stall().
  void message_stalls(std::chrono::nanoseconds stalled);

  // Called from now on with all that is told. The number is for unlisten(), after which, but for on
  // the listener's own thread, it is not being called any more.
  uint64_t listen(Listener listener) SENNIT_EXCLUDES(mutex_);
  void unlisten(uint64_t number) SENNIT_EXCLUDES(mutex_);

 private:
  struct Message {
    int rank = -1;  // of what was announced: -1
    uint8_t topic = 0;
    std::vector<std::byte> blob;
  };
  // What has come since the thread looked.
  struct Arrived {
    std::vector<Message> told, announced;
    bool stalls = false;
    bool empty() const { return told.empty() && announced.empty() && !stalls; }
  };
  struct Listening {
    Mutex mutex;  // held while it is called
    Listener call;
  };
  void run() SENNIT_EXCLUDES(mutex_);
  // ---- the thread's ----
  bool has_work() const SENNIT_REQUIRES(mutex_);
  void sleep_until(MutexLock& lock, std::chrono::steady_clock::time_point when)
      SENNIT_REQUIRES(mutex_);
  std::chrono::steady_clock::time_point due() const;
  void handle(const Arrived& arrived, uint64_t now_ns);
  void tell_news();
  void look_at_connections();
  void note_clock();
  void tell_notes(const Digest& digest);
  void dump_if_asked();
  void answer(const std::vector<std::byte>& question);
  void hear(const std::vector<Message>& messages, uint64_t now_ns);
  void look_at_hangs(uint64_t now_ns);
  void say(LiveVerdict verdict) SENNIT_EXCLUDES(mutex_);

  const Origin origin_{};
  Mutex mutex_;
  Condition wake_;
  bool stopping_ SENNIT_GUARDED_BY(mutex_) = false;
  Arrived arrived_ SENNIT_GUARDED_BY(mutex_);
  std::map<uint64_t, std::shared_ptr<Listening>> listening_ SENNIT_GUARDED_BY(mutex_);
  uint64_t listened_ SENNIT_GUARDED_BY(mutex_) = 0;  // numbers given, ever
  std::atomic<bool> may_be_lost_ = false, started_ = false;
  std::thread thread_;

  // The thread's, once it runs.
  WatchSetting setting_;
  std::unique_ptr<diagnose::RecordingFile> file_;  // null: this rank tells nothing
  std::unique_ptr<Summary> summary_;
  CoreTime core_time_;
  WorkBetween work_between_;
  ConnectionLog connections_;
  std::chrono::steady_clock::time_point next_news_;
  uint64_t next_event_ = 0, told_at_ns_ = 0;
  uint64_t hangs_heard_ = 0, dumps_made_ = 0;  // the latter of all that ask for one
  // Plans that digests were about, by communicator and hash: once, and told to the coordinator.
  std::set<std::pair<uint32_t, uint64_t>> heard_, told_;
  std::unique_ptr<BackgroundJudge> judge_;  // null, but for rank 0, until it is told something
  std::unique_ptr<HangWatch> hangs_;        // null until a call stalls
  // Writes to a folder that may be slow, while this rank goes on answering. Where the system has no
  // thread left for it the watch's own writes, and this rank does not answer meanwhile.
  std::thread dumper_;
  std::atomic<bool> dumping_ = false;
};

}  // namespace sennit::watch
