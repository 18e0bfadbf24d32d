// watch.cpp: see watch/watch.hpp.
#include "watch/watch.hpp"

#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <system_error>

#include <fmt/core.h>

#include "base/bytes.hpp"
#include "base/clock.hpp"
#include "base/log.hpp"
#include "base/options.hpp"
#include "base/process/first_thread.hpp"
#include "base/process/signals_blocked.hpp"
#include "diagnose/dump.hpp"
#include "diagnose/hang/hang.hpp"
#include "diagnose/sentences.hpp"
#include "watch/answer.hpp"
#include "watch/background_judge.hpp"
#include "watch/hang_watch.hpp"

namespace sennit::watch {
namespace {

using Clock = std::chrono::steady_clock;

// What Control::tell() and announce() carry of it. The numbers are part of the wire format.
constexpr uint8_t kDigestTopic = 1, kNotesTopic = 2;  // up
constexpr uint8_t kAnswerTopic = 3;                   // up: what this rank does
constexpr uint8_t kStallTopic = 4;                    // up: a send or a receive stalls
constexpr uint8_t kQuestionTopic = 5;                 // down: its number
constexpr uint8_t kHangTopic = 6;                     // down: who is behind

// Of a rank's events so many are read at once, and no more at a time: the rest comes later, or is
// overwritten until then.
constexpr uint64_t kAtOnce = 1024, kMostEvents = 65536;
// So long the coordinator waits for what others tell at about the same time.
constexpr std::chrono::milliseconds kGathered{100};
// What comes while the coordinator cannot keep up is lost, as each digest makes up for the last.
constexpr size_t kMostMessages = 1 << 16;
// Of plans that change with every call no more are remembered.
constexpr size_t kMostPlans = 256;

// That watch something in this process. Where there are several nobody knows whose threads compute.
std::atomic<int> g_watches = 0;

// Processor time that all threads of this process have had, ever.
uint64_t process_cpu_ns() {
  constexpr uint64_t kNsPerS = 1'000'000'000;
  struct timespec time {};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<uint64_t>(time.tv_sec) * kNsPerS + static_cast<uint64_t>(time.tv_nsec);
}

std::vector<bool> on_other_hosts(const WatchSetting& setting) {
  std::vector<bool> remote;
  const std::string& here = setting.placements[static_cast<size_t>(setting.rank)].host;
  for (const Placement& placement : setting.placements) remote.push_back(placement.host != here);
  return remote;
}

}  // namespace

Result<std::chrono::nanoseconds> digest_period() {
  const std::string text = option_text("SENNIT_WATCH");
  constexpr double kNsPerS = 1e9, kMostSeconds = 3600, kLeastSeconds = 0.05;
  double seconds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  const bool number = error == std::errc() && end == text.data() + text.size();
  if (!number || !(seconds == 0 || (seconds >= kLeastSeconds && seconds <= kMostSeconds)))
    return invalid(fmt::format("SENNIT_WATCH={}: expected a number of seconds from {} to {}, or 0",
                               text, kLeastSeconds, kMostSeconds));
  return std::chrono::nanoseconds(static_cast<int64_t>(seconds * kNsPerS));
}

Watch::Watch() = default;

Watch::~Watch() {
  if (origin_.forked()) {  // the thread is the parent's
    if (thread_.joinable()) thread_.detach();
    if (dumper_.joinable()) dumper_.detach();
    return;
  }
  stop();
}

void Watch::start(WatchSetting setting) {
  setting_ = std::move(setting);
  // Told now, and not only once something hangs and its copy is missing.
  if (const std::string& folder = setting_.dumps;
      !folder.empty() && access((folder + "/.").c_str(), W_OK | X_OK) != 0)
    log(LogLevel::warn, "SENNIT_DUMP: {}: {}: nothing can be copied there", folder,
        std::strerror(errno));
  if (!setting_.recording->path().empty()) {
    Result<std::unique_ptr<diagnose::RecordingFile>> file =
        diagnose::RecordingFile::open(setting_.recording->path());
    if (file) file_ = *std::move(file);
  }
  summary_ = std::make_unique<Summary>(on_other_hosts(setting_));
  if (setting_.rank == 0)
    judge_ = std::make_unique<BackgroundJudge>(setting_.fabric, setting_.placements);
  told_at_ns_ = now_ns();
  next_news_ = Clock::now() + setting_.period;
  dumps_made_ = diagnose::dumps_asked();
  try {
    const SignalsBlocked blocked;
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error& error) {
    log(LogLevel::warn,
        "the system has no thread left for watching what this rank does ({}): it tells no digests, "
        "does not say what it does where a call hangs, and copies nothing to SENNIT_DUMP; raise "
        "the limit of threads (ulimit -u, pids.max)",
        error.what());
    return;
  }
  g_watches++;
  started_ = true;
}

void Watch::stop() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
  if (dumper_.joinable()) dumper_.join();
  if (!started_.exchange(false)) return;
  g_watches--;
  if (!file_) return;
  // Also of a job that was shorter than the period.
  look_at_connections();
  note_clock();
  dump_if_asked();
  if (dumper_.joinable()) dumper_.join();
}

void Watch::told(int rank, uint8_t topic, const std::vector<std::byte>& blob) {
  if (topic < kDigestTopic || topic > kStallTopic) return;
  if (topic == kStallTopic) return stall_reported();
  if (!started_) return;  // nobody would ever take it
  const MutexLock lock(mutex_);
  if (stopping_ || arrived_.told.size() >= kMostMessages) return;
  arrived_.told.push_back({rank, topic, blob});
  if (arrived_.told.size() == 1) wake_.notify_all();
}

void Watch::announced(uint8_t topic, const std::vector<std::byte>& blob) {
  if ((topic != kQuestionTopic && topic != kHangTopic) || !started_) return;
  const MutexLock lock(mutex_);
  if (stopping_ || arrived_.announced.size() >= kMostMessages) return;
  arrived_.announced.push_back({-1, topic, blob});
  wake_.notify_all();
}

void Watch::stall_reported() {
  const MutexLock lock(mutex_);
  if (std::exchange(arrived_.stalls, true)) return;
  wake_.notify_all();
}

void Watch::message_stalls(std::chrono::nanoseconds stalled) {
  if (started_ && stalled >= HangWatch::kMessagePatience * setting_.stall)
    setting_.control->tell(kStallTopic, {}, Control::MayWait::yes);
}

uint64_t Watch::listen(Listener listener) {
  auto listening = std::make_shared<Listening>();
  listening->call = std::move(listener);
  const MutexLock lock(mutex_);
  listening_[++listened_] = std::move(listening);
  return listened_;
}

void Watch::unlisten(uint64_t number) {
  std::shared_ptr<Listening> listening;
  {
    const MutexLock lock(mutex_);
    const auto found = listening_.find(number);
    if (found == listening_.end()) return;
    listening = found->second;
    listening_.erase(found);
  }
  if (std::this_thread::get_id() == thread_.get_id()) return;
  const MutexLock until_it_returns(listening->mutex);
}

// ---- the thread ----

void Watch::run() {
  prctl(PR_SET_NAME, "sennit-watch");
  MutexLock lock(mutex_);
  while (!stopping_) {
    if (!has_work()) {
      sleep_until(lock, due());
      continue;
    }
    // What others tell at about the same time is judged at once; who is asked answers before.
    const Clock::time_point gathered = std::min(next_news_, Clock::now() + kGathered);
    while (!stopping_ && arrived_.announced.empty() && !arrived_.told.empty() &&
           Clock::now() < gathered)
      sleep_until(lock, gathered);
    if (stopping_) break;
    const Arrived arrived = std::exchange(arrived_, {});
    const uint64_t now = now_ns();
    lock.unlock();
    handle(arrived, now);
    lock.lock();
  }
  lock.unlock();
  if (judge_)
    for (const LiveVerdict& verdict : judge_->end()) say(verdict);
}

bool Watch::has_work() const {
  return !arrived_.empty() || Clock::now() >= due() || (judge_ && judge_->has_found());
}

// No longer than for a moment: that it took longer shows that the process did not run.
void Watch::sleep_until(MutexLock& lock, Clock::time_point when) {
  const Clock::time_point begin = Clock::now(), asked = std::min(when, begin + CoreTime::kSleep);
  wake_.wait_until(lock, asked);
  const auto ns = [](Clock::time_point time) {
    return static_cast<uint64_t>(time.time_since_epoch().count());
  };
  const uint64_t now = now_ns();
  if (const std::optional<Pause> pause = core_time_.slept(ns(begin), ns(asked), now))
    setting_.recording->pause(*pause);
  if (file_) work_between_.look(now, process_cpu_ns(), first_thread_ready());
}

Clock::time_point Watch::due() const {
  if (!hangs_) return next_news_;
  constexpr uint64_t kMost = INT64_MAX;
  const std::chrono::nanoseconds hangs(static_cast<int64_t>(std::min(hangs_->due_ns(), kMost)));
  return std::min(next_news_, Clock::time_point(hangs));
}

// now_ns: when that had arrived; who answers later is not late before that is looked at.
void Watch::handle(const Arrived& arrived, uint64_t now_ns) {
  for (const Message& message : arrived.announced) {
    if (message.topic == kQuestionTopic)
      answer(message.blob);
    else if (const Result<LiveVerdict> hang =
                 decode_hang(message.blob, static_cast<int>(setting_.placements.size()))) {
      say(*hang);
      if (hang->withdrawn) continue;
      hangs_heard_++;
      dump_if_asked();
    }
  }
  if (Clock::now() >= next_news_) {
    if (file_) {
      look_at_connections();
      note_clock();
      tell_news();
    }
    dump_if_asked();
    next_news_ = std::max(next_news_ + setting_.period, Clock::now());
  }
  if (!arrived.told.empty()) hear(arrived.told, now_ns);
  if (judge_ && judge_->has_found())
    for (const LiveVerdict& verdict : judge_->take()) say(verdict);
  if (arrived.stalls) {
    if (!hangs_)
      hangs_ = std::make_unique<HangWatch>(setting_.rank, setting_.fabric, setting_.placements,
                                           static_cast<uint64_t>(setting_.stall.count()));
    hangs_->stalls(now_ns);
  }
  if (hangs_) look_at_hangs(now_ns);
}

// Those within this host say nothing of a link.
void Watch::look_at_connections() {
  if (!setting_.connections) return;
  std::vector<ConnectionStatistics> remote = setting_.connections();
  const std::string& here = setting_.placements[static_cast<size_t>(setting_.rank)].host;
  std::erase_if(remote, [&](const ConnectionStatistics& one) {
    return setting_.placements[static_cast<size_t>(one.peer)].host == here;
  });
  connections_.look(remote);
  setting_.recording->connections(connections_.records(kMostConnectionRecords));
}

void Watch::note_clock() {
  if (const std::optional<MeasuredClock> clock = setting_.control->clock())
    setting_.recording->clock(*clock);
}

void Watch::tell_news() {
  for (uint64_t done = 0; done < kMostEvents; done += kAtOnce) {
    const Result<diagnose::RecordingFile::Events> read = file_->events_from(next_event_, kAtOnce);
    if (!read) {  // somebody has cut it off: there is nothing to tell any more
      file_.reset();
      return;
    }
    if (read->first > next_event_) summary_->gap();
    for (const TraceEvent& event : read->events) summary_->add(event);
    const bool more = read->next >= next_event_ + kAtOnce;
    next_event_ = std::max(read->next, next_event_);
    if (!more) break;
  }
  const uint64_t now = now_ns();
  Digest digest = summary_->take(now - std::exchange(told_at_ns_, now));
  digest.without_core_ns = std::min(core_time_.take_ns(), digest.span_ns);
  for (const Between& between : summary_->take_in_none())
    work_between_.in_none(between.begin_ns, between.end_ns);
  if (std::optional<double> cores = work_between_.cores(); g_watches == 1)
    digest.cores_between = cores;
  setting_.recording->cores_between(digest.cores_between);
  if (digest.plans.empty() && digest.paces.empty()) return;
  tell_notes(digest);
  setting_.control->tell(kDigestTopic, encode(digest), Control::MayWait::yes);
}

// The first member of a communicator tells the coordinator who its members are, and what its plans
// are made of, once they were in two digests: of communicators that come and go nothing is kept.
void Watch::tell_notes(const Digest& digest) {
  if (may_be_lost_.exchange(false)) told_.clear();
  std::set<std::pair<uint32_t, uint64_t>> plans;
  std::set<uint32_t> comms, led;
  for (const DigestPlan& plan : digest.plans) {
    const std::pair key{plan.comm, plan.plan};
    if (told_.contains(key) || heard_.insert(key).second) continue;
    plans.insert(key);
    comms.insert(plan.comm);
  }
  if (heard_.size() > kMostPlans) heard_.clear();
  if (plans.empty()) return;
  if (told_.size() > kMostPlans) told_.clear();
  told_.insert(plans.begin(), plans.end());
  for (const Note& note : file_->notes()) {
    const auto* const comm = std::get_if<CommunicatorNote>(&note);
    const auto* const plan = std::get_if<PlanNote>(&note);
    const bool leads = comm && comms.contains(comm->id) && !comm->members.empty() &&
                       comm->members.front() == setting_.rank;
    if (leads) led.insert(comm->id);
    if (leads || (plan && led.contains(plan->comm) && plans.contains({plan->comm, plan->hash})))
      setting_.control->tell(kNotesTopic, encode(note), Control::MayWait::yes);
  }
}

// By a signal, or because something has failed or hangs. While a copy is being made that is asked
// again later: what was recorded meanwhile is not in it. Where the system has no thread left this
// one makes the copy, and answers nobody until that is done: better than no copy.
void Watch::dump_if_asked() {
  const std::string& path = setting_.recording->path();
  if (setting_.dumps.empty() || path.empty()) return;
  const uint64_t asked = diagnose::dumps_asked() + setting_.recording->troubles() + hangs_heard_;
  if (asked == dumps_made_ || dumping_.exchange(true)) return;
  dumps_made_ = asked;
  if (dumper_.joinable()) dumper_.join();
  const auto dump = [this, path] {
    const Status dumped = diagnose::dump_recording(path, setting_.dumps);
    log(dumped.ok() ? LogLevel::info : LogLevel::warn, "{}",
        dumped.ok() ? "what this rank did lately is in " + setting_.dumps
                    : "SENNIT_DUMP: " + dumped.text());
    dumping_ = false;
  };
  try {
    const SignalsBlocked blocked;
    dumper_ = std::thread(dump);
  } catch (const std::system_error&) {
    dump();
  }
}

void Watch::answer(const std::vector<std::byte>& question) {
  ByteReader in(question);
  const uint64_t number = in.u64();
  if (!in.finish("a question").ok()) return;
  Answer answer;
  if (file_) {
    answer = answer_of(*file_, number, setting_.fabric, setting_.placements);
  } else {  // it keeps nothing
    answer.question = number;
    answer.standing.rank = setting_.rank;
    answer.standing.forgets = true;
  }
  setting_.control->tell(kAnswerTopic, encode(answer), Control::MayWait::yes);
}

// ---- at the coordinator ----

void Watch::look_at_hangs(uint64_t now_ns) {
  for (const LiveVerdict& verdict : hangs_->look(now_ns))
    setting_.control->announce(kHangTopic, 0, encode_hang(verdict));
  if (const std::optional<uint64_t> number = hangs_->question(now_ns)) {
    ByteWriter out;
    setting_.control->announce(kQuestionTopic, 0, out.u64(*number).take());
  }
}

void Watch::hear(const std::vector<Message>& messages, uint64_t now_ns) {
  std::vector<BackgroundJudge::Told> told;
  for (const Message& message : messages) {
    if (message.rank < 0 || static_cast<size_t>(message.rank) >= setting_.placements.size())
      continue;
    if (message.topic == kAnswerTopic) {
      Result<Answer> answer =
          decode_answer(message.blob, static_cast<int>(setting_.placements.size()));
      if (answer && hangs_ && answer->standing.rank == message.rank)
        hangs_->answer(*std::move(answer));
    } else if (message.topic == kNotesTopic) {
      for (Note& note : decode_notes(message.blob))
        told.push_back({message.rank, now_ns, std::move(note)});
    } else if (Result<Digest> digest = decode_digest(message.blob)) {
      told.push_back({message.rank, now_ns, *std::move(digest)});
    }
  }
  if (told.empty()) return;
  if (!judge_) judge_ = std::make_unique<BackgroundJudge>(setting_.fabric, setting_.placements);
  judge_->give(std::move(told));
}

void Watch::say(LiveVerdict verdict) {
  if (!verdict.withdrawn) {
    const int rank = verdict.ranks.empty() ? -1
                     : verdict.latest >= 0 ? verdict.latest
                                           : verdict.ranks.front();
    const bool lost =
        verdict.hang && verdict.hang->cause == diagnose::name(diagnose::HangCause::lost_message);
    verdict.next = diagnose::next_step(
        verdict.about, lost, rank < 0 ? "" : setting_.placements[static_cast<size_t>(rank)].host,
        "");
  }
  log(LogLevel::warn, "{}{}{}", verdict.withdrawn ? "no longer: " : "", verdict.sentence,
      verdict.withdrawn ? "" : "; next: " + verdict.next);
  VerdictNote note = note_of(verdict);
  note.noted_ns = now_ns();
  setting_.recording->note(encode(note));
  std::vector<std::shared_ptr<Listening>> all;
  {
    const MutexLock lock(mutex_);
    for (const auto& [number, listening] : listening_) all.push_back(listening);
  }
  for (const std::shared_ptr<Listening>& listening : all) {
    const MutexLock lock(listening->mutex);
    listening->call(verdict);
  }
}

}  // namespace sennit::watch
