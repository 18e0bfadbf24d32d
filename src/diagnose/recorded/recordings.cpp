// recordings.cpp: see diagnose/recorded/recordings.hpp.
#include "diagnose/recorded/recordings.hpp"

#include <dirent.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "base/clock.hpp"
#include "base/text/date.hpp"
#include "diagnose/communicator_numbers.hpp"
#include "diagnose/file.hpp"
#include "record/recording.hpp"

namespace sennit::diagnose {
namespace {

RankState state_of(int fd, const RecordingHeader& header) {
  if (header.dumped_ns != 0) return RankState::running;
  if (header.ended.load(std::memory_order_relaxed) != 0) return RankState::ended;
  // Where a file system knows no locks it is most likely a copy: a rank that records there does so
  // by another way to it. Other errors, such as having no room for a lock, say nothing.
  if (flock(fd, LOCK_SH | LOCK_NB) != 0)
    return errno == ENOSYS || errno == EOPNOTSUPP ? RankState::gone : RankState::running;
  flock(fd, LOCK_UN);
  return RankState::gone;
}

// ---- where files are ----

bool is_name(std::string_view name) {
  return name.starts_with(kRecordingName) && !name.ends_with(kUnfinishedRecording);
}

Result<std::vector<std::string>> recordings_in(const std::string& folder) {
  std::vector<std::string> found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error))
    if (is_name(entry.path().filename().string())) found.push_back(entry.path().string());
  if (error) return invalid(fmt::format("{}: {}", folder, error.message()));
  std::sort(found.begin(), found.end());
  return found;
}

// Those that the process has open, by a path that leads to them also where it sees another /dev/shm
// than this process does.
std::vector<std::string> recordings_of(const std::string& pid) {
  std::vector<std::string> found;
  std::error_code error;
  for (const auto& entry :
       std::filesystem::directory_iterator(fmt::format("/proc/{}/fd", pid), error)) {
    std::error_code gone;
    const std::filesystem::path target = std::filesystem::read_symlink(entry.path(), gone);
    if (is_name(target.filename().string())) found.push_back(entry.path().string());
  }
  return found;
}

bool is_number(const std::string& text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
}

// Those that processes have open come first: by their paths the processes are known.
std::vector<std::string> recordings_of_this_user() {
  std::vector<std::string> found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error))
    if (const std::string pid = entry.path().filename().string(); is_number(pid))
      for (std::string& path : recordings_of(pid)) found.push_back(std::move(path));
  if (Result<std::vector<std::string>> left = recordings_in(kRecordingFolder))
    for (std::string& path : *left) found.push_back(std::move(path));
  return found;
}

// The process of this host that has it open, by its number here; 0 where that is not known.
int64_t process_of(const std::string& path, const struct stat& file, int64_t pid) {
  int64_t here = 0;
  if (std::sscanf(path.c_str(), "/proc/%" SCNd64 "/", &here) == 1) return here;
  struct stat open {};
  for (const std::string& other : recordings_of(std::to_string(pid)))
    if (stat(other.c_str(), &open) == 0 && open.st_ino == file.st_ino && open.st_dev == file.st_dev)
      return pid;
  return 0;
}

// The clock is shifted in a time namespace. Where the kernel has none both are empty.
bool has_our_clock(const std::string& process) {
  std::error_code none;
  return std::filesystem::read_symlink(process + "/ns/time", none) ==
         std::filesystem::read_symlink("/proc/self/ns/time", none);
}

char process_state(const std::string& process) {
  std::string text;
  std::getline(std::ifstream(process + "/stat"), text);
  // "pid (name) S ...": the name may hold anything
  const size_t at = text.rfind(')');
  return at == std::string::npos || at + 2 >= text.size() ? 0 : text[at + 2];
}

using Jobs = std::map<uint64_t, std::map<int, RankRecording>>;

// One file may be found by several paths: it is read once.
class Collected {
 public:
  explicit Collected(std::vector<std::string>* passed_over) : passed_over_(passed_over) {}
  // How the user came by a file.
  enum class Named { itself, its_folder, not_at_all };
  void add(const std::string& path, Named named) {
    struct stat info {};
    if (stat(path.c_str(), &info) == 0) {
      if (!seen_.insert({info.st_dev, info.st_ino}).second) return;
      const bool others = info.st_uid != geteuid() && geteuid() != 0;
      // What others left in a folder of everybody's is none of this user's.
      if (named != Named::itself && (!S_ISREG(info.st_mode) || others)) {
        if (others && named == Named::its_folder)
          passed_over_->push_back(path + ": it is another user's; ask as that one, or as root");
        return;
      }
    } else if (errno == ENOENT && named == Named::not_at_all) {
      return;  // a process has ended since it was found
    }
    Result<RankRecording> read = read_recording(path);
    if (!read && named == Named::itself) return add_error(read.status());
    if (!read) return passed_over_->push_back(read.status().text());
    const std::string what = fmt::format("{}: rank {} of its job has another", path, read->rank);
    std::map<int, RankRecording>& ranks = jobs_[read->job];
    const int rank = read->rank;
    const bool first = ranks.try_emplace(rank, *std::move(read)).second;
    if (!first) passed_over_->push_back(what);
  }
  // What was named cannot be read.
  void add_error(Status error) { errors_.push_back(std::move(error)); }
  // What was named and cannot be read is passed over too, where there is something else.
  Result<Jobs*> jobs() {
    if (jobs_.empty() && !errors_.empty()) return errors_.front();
    for (const Status& error : std::exchange(errors_, {})) passed_over_->push_back(error.text());
    return &jobs_;
  }

 private:
  std::vector<std::string>* passed_over_;
  std::vector<Status> errors_;
  std::set<std::pair<dev_t, ino_t>> seen_;
  Jobs jobs_;
};

void collect(const RecordingSearch& search, Collected* collected) {
  if (search.paths.empty())
    for (const std::string& path : recordings_of_this_user())
      collected->add(path, Collected::Named::not_at_all);
  for (const std::string& path : search.paths) {
    if (std::error_code error; !std::filesystem::is_directory(path, error)) {
      collected->add(path, Collected::Named::itself);
      continue;
    }
    const Result<std::vector<std::string>> files = recordings_in(path);
    if (!files) {
      collected->add_error(files.status());
      continue;
    }
    for (const std::string& file : *files) collected->add(file, Collected::Named::its_folder);
  }
}

// Numbers alone look alike.
std::string described(uint64_t job, const std::map<int, RankRecording>& ranks) {
  constexpr uint64_t kNsPerS = 1'000'000'000;
  int running = 0;
  for (const auto& [rank, recording] : ranks) running += recording.runs();
  const RankRecording& first = ranks.begin()->second;
  return fmt::format("{:016x} ({} of {} ranks here, {} running; rank {} on {} since {})", job,
                     ranks.size(), first.size, running, first.rank, first.host,
                     utc_minute(static_cast<int64_t>(first.realtime_ns / kNsPerS)));
}

Result<uint64_t> job_of_process(int64_t pid) {
  Status unread;
  for (const std::string& path : recordings_of(std::to_string(pid))) {
    const Result<RankRecording> read = read_recording(path);
    if (read) return read->job;
    unread = read.status();
  }
  if (!unread.ok()) return unread;
  if (access(fmt::format("/proc/{}/fd", pid).c_str(), R_OK) != 0)
    return invalid(fmt::format("process {}: {}", pid,
                               errno == EACCES ? "it is another user's; ask as that one, or as root"
                                               : "there is none; a rank that is gone is found by "
                                                 "--job, or by its file"));
  return invalid(fmt::format("process {} is no rank of a job that records what it does", pid));
}

// Which of the jobs is meant. Where nothing says so, and several are there, the one that runs.
Result<uint64_t> choose(const RecordingSearch& search, const Jobs& jobs) {
  if (search.pid) return job_of_process(*search.pid);
  std::string all;
  std::vector<uint64_t> running;
  for (const auto& [job, ranks] : jobs) {
    all += "\n  " + described(job, ranks);
    for (const auto& [rank, recording] : ranks)
      if (recording.runs() && (running.empty() || running.back() != job)) running.push_back(job);
  }
  if (search.job) {
    if (jobs.contains(*search.job)) return *search.job;
    return invalid(fmt::format("there is no recording of job {:016x}{}", *search.job,
                               all.empty() ? "" : "; there are those of:" + all));
  }
  if (jobs.empty())
    return invalid(search.paths.empty()
                       ? "no job of this user records here: name a folder of recordings "
                         "(SENNIT_TRACE), or run this where its ranks run"
                       : "there is no recording of a rank in " +
                             fmt::format("{}", fmt::join(search.paths, ", ")));
  if (jobs.size() == 1) return jobs.begin()->first;
  if (running.size() == 1) return running.front();
  return invalid("there are recordings of several jobs: choose one by --job" + all);
}

}  // namespace

Result<RankRecording> read_recording(const std::string& path) {
  Result<std::unique_ptr<RecordingFile>> opened = RecordingFile::open(path);
  if (!opened) return opened.status();
  RecordingFile& file = **opened;
  const RecordingHeader& header = file.header();
  RankRecording read;
  read.path = path;
  read.job = header.job;
  read.rank = header.rank;
  read.size = header.size;
  read.pid = header.pid;
  read.host.assign(header.host, strnlen(header.host, sizeof header.host));
  read.realtime_ns = header.realtime_ns;
  read.monotonic_ns = header.monotonic_ns;
  read.clock = header.clock;
  read.state = state_of(file.fd(), header);
  read.as_of_ns = header.dumped_ns;
  read.copied = header.dumped_ns != 0;
  struct stat info {};
  if (read.state == RankState::running && read.as_of_ns == 0 && fstat(file.fd(), &info) == 0)
    if (const int64_t pid = process_of(path, info, read.pid); pid != 0) {
      const std::string process = fmt::format("/proc/{}", pid);
      read.pid = pid;
      read.process = process_state(process);
      // Before its events are read: what it does meanwhile must not seem long ago.
      if (has_our_clock(process)) read.as_of_ns = now_ns();
    }
  Result<RecordingFile::Events> events = file.events_from(0);
  if (!events) return events.status();
  read.recorded = events->next;
  read.events = std::move(events->events);
  read.notes = file.notes();
  read.watched = file.was_watched();
  read.pauses = file.pauses();
  read.cores_between = file.cores_between();
  return read;
}

Result<JobRecording> read_job(const RecordingSearch& search,
                              std::vector<std::string>* passed_over) {
  Collected collected(passed_over);
  collect(search, &collected);
  const Result<Jobs*> jobs = collected.jobs();
  if (!jobs) return jobs.status();
  const Result<uint64_t> chosen = choose(search, **jobs);
  if (!chosen) return chosen.status();
  JobRecording job;
  job.job = *chosen;
  CommunicatorNumbers numbers(&job);
  for (auto& [rank, recording] : (**jobs)[*chosen]) {
    job.size = std::max(job.size, recording.size);
    numbers.apply(&recording);
    job.take_notes(recording);
    job.ranks.push_back(std::move(recording));
  }
  job.index();
  return job;
}

}  // namespace sennit::diagnose
