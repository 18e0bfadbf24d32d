// recording_test.cpp: a rank's recording: what is in it while it is written and after its process
// was killed, when its file goes, and files that are no recordings.
// ctest not-under-tsan: it has one thread
#include "record/recording.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <regex>
#include <string>

#include <fmt/core.h>
#include <gtest/gtest.h>

#include "base/clock.hpp"
#include "diagnose/dump.hpp"
#include "diagnose/recorded/recordings.hpp"
#include "record/notes.hpp"
#include "tests/support/eventually.hpp"
#include "tests/support/process.hpp"
#include "tests/support/test_folder.hpp"

namespace {
bool g_without_locks = false;
}  // namespace

// In place of the system's: where the test says so, that of a file system that has no locks.
extern "C" __attribute__((visibility("default"))) int flock(int fd, int how) noexcept {
  if (!g_without_locks) return static_cast<int>(syscall(SYS_flock, fd, how));
  errno = ENOSYS;
  return -1;
}

namespace sennit {
namespace {

using diagnose::dump_recording;
using diagnose::JobRecording;
using diagnose::RankRecording;
using diagnose::RankState;
using diagnose::read_job;
using diagnose::read_recording;
using diagnose::RecordingSearch;
using sennit_test::eventually;
using sennit_test::Process;

TraceEvent numbered(uint32_t number) {
  TraceEvent event;
  event.seq = number;
  event.posted_ns = number;
  return event;
}

std::vector<uint32_t> numbers(const RankRecording& recording) {
  std::vector<uint32_t> all;
  for (const TraceEvent& event : recording.events) all.push_back(event.seq);
  return all;
}

class RecordingFile : public testing::Test {
 protected:
  std::unique_ptr<Recording> open(int rank = 3, size_t events = 8) const {
    return Recording::open({kJob, rank, 4, "host7"}, folder_.path(), events);
  }
  static constexpr uint64_t kJob = 0xabcdef;
  trainer::TestFolder folder_;
};

TEST_F(RecordingFile, IsReadWhileItIsWritten) {
  const std::unique_ptr<Recording> recording = open();
  for (uint32_t i = 0; i < 5; i++) recording->record(numbered(i));
  recording->note(encode(CommunicatorNote{7, {0, 1, 3}}));
  const Result<RankRecording> read = read_recording(recording->path());
  ASSERT_TRUE(read.ok()) << read.status().text();
  EXPECT_EQ(numbers(*read), (std::vector<uint32_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ(read->job, kJob);
  EXPECT_EQ(read->rank, 3);
  EXPECT_EQ(read->size, 4);
  EXPECT_EQ(read->host, "host7");
  EXPECT_EQ(read->pid, getpid());
  EXPECT_EQ(read->state, RankState::running);
  ASSERT_EQ(read->notes.size(), 1u);
  EXPECT_EQ(std::get<CommunicatorNote>(read->notes[0]), (CommunicatorNote{7, {0, 1, 3}}));
  struct stat info {};
  ASSERT_EQ(stat(recording->path().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u) << "others could read it";
}

TEST_F(RecordingFile, KeepsTheLatestPauses) {
  const std::unique_ptr<Recording> recording = open();
  EXPECT_TRUE(read_recording(recording->path())->pauses.empty());
  constexpr uint64_t kPauses = RecordingHeader::kPauses + 6;
  for (uint64_t n = 0; n < kPauses; n++) recording->pause({100 * n, 100 * n + 10});
  const std::vector<Pause> read = read_recording(recording->path())->pauses;
  ASSERT_EQ(read.size(), RecordingHeader::kPauses - 1) << "the oldest may be half overwritten";
  EXPECT_EQ(read.front(), (Pause{700, 710}));
  EXPECT_EQ(read.back(), (Pause{100 * (kPauses - 1), 100 * (kPauses - 1) + 10}));
  EXPECT_EQ(paused_ns(read, 705, 925), 5u + 10 + 10);
  const trainer::TestFolder copies;
  ASSERT_TRUE(diagnose::dump_recording(recording->path(), copies.path()).ok());
  const std::string copy = copies / std::filesystem::path(recording->path()).filename().string();
  EXPECT_EQ(read_recording(copy)->pauses, read);
}

// The slot that is written next may be half written, so it is left out.
TEST_F(RecordingFile, KeepsTheNewest) {
  const std::unique_ptr<Recording> recording = open();
  for (uint32_t i = 0; i < 100; i++) recording->record(numbered(i));
  const Result<RankRecording> read = read_recording(recording->path());
  ASSERT_TRUE(read.ok()) << read.status().text();
  EXPECT_EQ(numbers(*read), (std::vector<uint32_t>{93, 94, 95, 96, 97, 98, 99}));
  EXPECT_EQ(read->recorded, 100u);
}

TEST_F(RecordingFile, OutlivesItsProcess) {
  Process rank([this](const Process::Voice& voice) {
    const std::unique_ptr<Recording> recording = open();
    recording->record(numbered(42));
    recording->note(encode(FailureNote{1, 2, "it went wrong"}));
    voice.say(recording->path());
    pause();
  });
  const std::string path = rank.read_some();
  ASSERT_FALSE(path.empty());
  EXPECT_EQ(read_recording(path)->state, RankState::running);
  rank.signal(SIGSTOP);
  EXPECT_TRUE(eventually([&] { return read_recording(path)->process == 'T'; }));
  rank.stop();
  const Result<RankRecording> read = read_recording(path);
  ASSERT_TRUE(read.ok()) << read.status().text();
  EXPECT_EQ(read->state, RankState::gone);
  EXPECT_EQ(numbers(*read), (std::vector<uint32_t>{42}));
  ASSERT_EQ(read->notes.size(), 1u);
  EXPECT_EQ(std::get<FailureNote>(read->notes[0]).text, "it went wrong");
}

TEST_F(RecordingFile, StaysInTheUsersFolder) {
  std::unique_ptr<Recording> recording = open();
  const std::string path = recording->path();
  recording->end(true);
  recording.reset();
  const Result<RankRecording> read = read_recording(path);
  ASSERT_TRUE(read.ok()) << read.status().text();
  EXPECT_EQ(read->state, RankState::ended);
}

// The table of connections is written in its place, before and behind other notes.
TEST_F(RecordingFile, HasTheLatestOfConnectionsAndTheClock) {
  const std::unique_ptr<Recording> recording = open();
  const auto table = [&]() -> std::vector<int> {
    std::vector<int> peers;
    const RankRecording read = *read_recording(recording->path());
    for (const Note& note : read.notes)
      if (const auto* const connections = std::get_if<ConnectionsNote>(&note))
        for (const ConnectionRecord& record : connections->records)
          peers.push_back(record.latest.peer);
    return peers;
  };
  EXPECT_TRUE(table().empty());
  EXPECT_FALSE(read_recording(recording->path())->clock.known());
  recording->note(encode(CommunicatorNote{7, {0, 1, 3}}));
  const uintmax_t size = std::filesystem::file_size(recording->path());
  std::vector<ConnectionRecord> records(2);
  records[0].latest.peer = 2;
  records[1].latest.peer = 0;
  for (int i = 0; i < 100; i++) recording->connections(records);
  EXPECT_EQ(table(), (std::vector<int>{2, 0}));
  recording->note(encode(CommunicatorNote{8, {0, 3}}));
  records.resize(1);
  records[0].latest.peer = 1;
  recording->connections(records);
  EXPECT_EQ(table(), std::vector<int>{1});
  records.resize(99, records[0]);
  recording->connections(records);
  EXPECT_EQ(table().size(), 3u) << "one for each other rank";
  EXPECT_LT(std::filesystem::file_size(recording->path()), size + 100) << "it grows by notes alone";
  recording->clock({-77, 12, 345, 0});
  const RankRecording read = *read_recording(recording->path());
  EXPECT_EQ(read.notes.size(), 3u) << "the others are there as well";
  EXPECT_TRUE(read.clock.known());
  EXPECT_EQ(read.clock.ahead_ns, -77);
  EXPECT_EQ(read.clock.error_ns, 12u);
  // So has a copy.
  const trainer::TestFolder copies;
  ASSERT_TRUE(dump_recording(recording->path(), copies.path()).ok());
  const RankRecording copy =
      *read_recording(copies / std::filesystem::path(recording->path()).filename().string());
  EXPECT_EQ(copy.notes, read.notes);
  EXPECT_TRUE(copy.clock.known());
  EXPECT_EQ(copy.clock.measured_ns, 345u);
}

// Jobs that make communicators again and again leave room for the plans of calls, and those of any
// number of plans for what went wrong.
TEST_F(RecordingFile, NotesOfOneKindTakeNoRoomFromOthers) {
  const std::unique_ptr<Recording> recording = open();
  constexpr size_t kMany = 3 * Recording::kMostCommunicatorBytes / 2;
  const std::vector<std::byte> comm = encode(CommunicatorNote{7, std::vector<int>(100'000)});
  for (size_t bytes = 0; bytes < kMany; bytes += comm.size())
    recording->note(comm, Recording::NoteKind::communicator);
  PlanNote plan;
  plan.request.counts.resize(10'000);
  const std::vector<std::byte> planned = encode(plan);
  for (size_t bytes = 0; bytes < 2 * Recording::kMostPlanBytes; bytes += planned.size())
    recording->note(planned, Recording::NoteKind::plan);
  recording->note(encode(FailureNote{7, 1, "rank 3 died"}));
  size_t comms = 0, plans = 0, failures = 0;
  const RankRecording read = *read_recording(recording->path());
  for (const Note& note : read.notes) {
    comms += std::holds_alternative<CommunicatorNote>(note);
    plans += std::holds_alternative<PlanNote>(note);
    failures += std::holds_alternative<FailureNote>(note);
  }
  EXPECT_EQ(comms, Recording::kMostCommunicatorBytes / comm.size());
  EXPECT_EQ(plans, Recording::kMostPlanBytes / planned.size());
  EXPECT_EQ(failures, 1u);
}

// In /dev/shm.
class SharedMemory : public testing::Test {
 protected:
  static std::unique_ptr<Recording> open(uint64_t job, size_t events = 8) {
    return Recording::open({job, 0, 1, "here"}, "", events);
  }
  // Whether this machine lets us.
  void SetUp() override {
    if (open(job_)->path().empty()) GTEST_SKIP() << "SKIPPED: no room in " << kRecordingFolder;
    std::filesystem::remove(path());
  }
  void TearDown() override { std::filesystem::remove(path()); }
  std::string path(uint64_t job = 0) const {
    return fmt::format("{}/sennit-trace-{}-{:016x}-0", kRecordingFolder, getuid(),
                       job == 0 ? job_ : job);
  }
  const uint64_t job_ = (static_cast<uint64_t>(getpid()) << 32) | 0x5e5510;
};

TEST_F(SharedMemory, IsLeftOnlyByRanksThatEndBadly) {
  std::unique_ptr<Recording> well = open(job_);
  EXPECT_TRUE(std::filesystem::exists(path()));
  well->end(true);
  EXPECT_FALSE(std::filesystem::exists(path()));
  std::unique_ptr<Recording> badly = open(job_);
  badly->trouble();
  badly->end(true);
  EXPECT_TRUE(std::filesystem::exists(path()));
}

// By exit(), without leaving the job, as many programs do.
TEST_F(SharedMemory, IsGoneWithAProcessThatExits) {
  Process rank([this](const Process::Voice& voice) {
    const Recording* const recording = open(job_).release();  // never destroyed
    voice.say(std::filesystem::exists(recording->path()) ? "there" : "not there");
    std::exit(0);
  });
  EXPECT_EQ(rank.outcome(), "there");
  EXPECT_FALSE(std::filesystem::exists(path()));
}

TEST_F(SharedMemory, StaysWhereAProcessExitsWithAnError) {
  Process rank([this] {
    open(job_).release();
    std::exit(3);
    return "";
  });
  EXPECT_TRUE(eventually([&] { return rank.out() < 0; }, [&] { rank.listen(); }));
  EXPECT_TRUE(std::filesystem::exists(path()));
}

TEST_F(SharedMemory, AForkedChildTakesNothingAway) {
  const std::unique_ptr<Recording> recording = open(job_);
  Process child([&] {
    recording->end(true);
    return "done";
  });
  EXPECT_EQ(child.outcome(), "done");
  EXPECT_TRUE(std::filesystem::exists(path()));
  EXPECT_EQ(read_recording(path())->state, RankState::running);
}

TEST_F(SharedMemory, WhatRanksLeftIsTakenAwayAfterAnHour) {
  std::unique_ptr<Recording> left = open(job_);
  left.reset();  // as though its process were gone
  ASSERT_TRUE(std::filesystem::exists(path()));
  const uint64_t next = job_ + 1;
  std::unique_ptr<Recording> later = open(next);
  EXPECT_TRUE(std::filesystem::exists(path())) << "it is young";
  later->end(true);
  const timespec old[2] = {{time(nullptr) - 2 * 3600, 0}, {time(nullptr) - 2 * 3600, 0}};
  ASSERT_EQ(utimensat(AT_FDCWD, path().c_str(), old, 0), 0);
  later = open(next);
  EXPECT_FALSE(std::filesystem::exists(path()));
  // What it wrote last counts, and not when its file was made.
  std::unique_ptr<Recording> busy = open(job_);
  TraceEvent event;
  event.posted_ns = now_ns();
  busy->record(event);
  busy.reset();
  ASSERT_EQ(utimensat(AT_FDCWD, path().c_str(), old, 0), 0);
  open(next + 1)->end(true);
  EXPECT_TRUE(std::filesystem::exists(path()));
  std::filesystem::remove(path());
  // One that is open is not taken away, however old.
  ASSERT_EQ(utimensat(AT_FDCWD, path(next).c_str(), old, 0), 0);
  open(job_)->end(true);
  EXPECT_TRUE(std::filesystem::exists(path(next)));
  later->end(true);
}

TEST(Recording, GoesOnWithoutAFile) {
  for (const char* folder : {"0", "/nowhere/at/all"}) {
    const std::unique_ptr<Recording> recording = Recording::open({1, 0, 1, "here"}, folder, 8);
    EXPECT_EQ(recording->path(), "");
    recording->record(numbered(1));
    recording->note(encode(FailureNote{1, 2, "nobody reads it"}));
    recording->end(false);
    EXPECT_EQ(recording->recorded(), 1u);
  }
}

// As where the file system is full, which a limit of the process's looks like.
TEST_F(RecordingFile, WhyThereIsNoneIsSaid) {
  Process rank([this] {
    const rlimit one_page{RecordingHeader::kBytes, RecordingHeader::kBytes};
    testing::internal::CaptureStderr();
    setrlimit(RLIMIT_FSIZE, &one_page);
    const bool none = open()->path().empty();
    return (none ? "none: " : "there: ") + testing::internal::GetCapturedStderr();
  });
  const std::string said = rank.outcome();
  EXPECT_EQ(said.find("none: "), 0u) << said;
  EXPECT_NE(said.find("can be kept there: File too large"), std::string::npos) << said;
}

TEST_F(RecordingFile, WhereThereAreNoLocksNoRankRuns) {
  const std::unique_ptr<Recording> recording = open();
  EXPECT_EQ(read_recording(recording->path())->state, RankState::running);
  g_without_locks = true;
  EXPECT_EQ(read_recording(recording->path())->state, RankState::gone);
  g_without_locks = false;
}

// ---- files that are none ----

TEST_F(RecordingFile, ErrorsNameTheFileAndWhatIsWrong) {
  const auto error = [](const std::string& path) { return read_recording(path).status().text(); };
  EXPECT_NE(error(folder_ / "none").find("No such file"), std::string::npos);
  std::ofstream(folder_ / "text") << std::string(10000, 'x');
  EXPECT_EQ(error(folder_ / "text"), folder_ / "text" + " is no recording of a rank");
  std::ofstream(folder_ / "short") << "short";
  EXPECT_EQ(error(folder_ / "short"), folder_ / "short" + " is no recording of a rank");
  EXPECT_EQ(error(folder_.path()), folder_.path() + " is no recording of a rank");

  std::unique_ptr<Recording> recording = open();
  recording->record(numbered(1));
  const std::string path = recording->path();
  recording.reset();
  std::filesystem::copy_file(path, folder_ / "other");
  trainer::change_byte(folder_ / "other", offsetof(RecordingHeader, version), 1);
  EXPECT_NE(error(folder_ / "other").find("is of version 2 of the format, this program reads"),
            std::string::npos)
      << error(folder_ / "other");
  std::filesystem::copy_file(path, folder_ / "cut");
  std::filesystem::resize_file(folder_ / "cut", RecordingHeader::kBytes + 100);
  EXPECT_NE(error(folder_ / "cut").find("is cut off"), std::string::npos);
  std::filesystem::copy_file(path, folder_ / "damaged");
  trainer::change_byte(folder_ / "damaged", offsetof(RecordingHeader, events), 3);
  EXPECT_NE(error(folder_ / "damaged").find("is damaged"), std::string::npos);
  std::filesystem::copy_file(path, folder_ / "huge");
  trainer::change_byte(folder_ / "huge", offsetof(RecordingHeader, size) + 3, 0x7f);
  EXPECT_NE(error(folder_ / "huge").find("is damaged"), std::string::npos);
}

// A file of a terabyte takes no more memory than the notes that a rank may have written.
TEST_F(RecordingFile, OfAFileThatSeemsEndlessTheNotesAreRead) {
  const std::unique_ptr<Recording> recording = open();
  recording->note(encode(FailureNote{1, 2, "it went wrong"}));
  std::filesystem::resize_file(recording->path(), uintmax_t{1} << 40);
  const Result<RankRecording> read = read_recording(recording->path());
  ASSERT_TRUE(read.ok()) << read.status().text();
  ASSERT_EQ(read->notes.size(), 1u);
  EXPECT_EQ(std::get<FailureNote>(read->notes[0]).text, "it went wrong");
}

// As of a rank that runs a newer library.
TEST_F(RecordingFile, WhyThatOfAProcessIsNotReadIsSaid) {
  const std::unique_ptr<Recording> recording = open();
  trainer::change_byte(recording->path(), offsetof(RecordingHeader, version), 1);
  std::vector<std::string> passed_over;
  const Status status = read_job({{}, {}, getpid()}, &passed_over).status();
  EXPECT_NE(status.text().find("is of version 2 of the format"), std::string::npos)
      << status.text();
}

// Whatever one byte is, it is read, or refused.
TEST_F(RecordingFile, WithAnyByteDamagedIsReadOrRefused) {
  std::unique_ptr<Recording> recording = open();
  for (uint32_t i = 0; i < 20; i++) recording->record(numbered(i));
  recording->note(encode(CommunicatorNote{1, {0, 1, 2, 3}}));
  recording->note(encode(FabricNote{"host a", {{"a", -1, ""}, {"b", 0, "nic"}}}));
  const std::string path = recording->path();
  recording.reset();
  std::vector<std::string> passed_over;
  const auto bytes = static_cast<int64_t>(std::filesystem::file_size(path));
  for (int64_t at = 0; at < bytes; at++) {
    if (at == 256) at = RecordingHeader::kBytes;  // the header's fields, then events and notes
    trainer::change_byte(path, at, 0x55);
    static_cast<void>(read_job({{path}, {}, {}}, &passed_over));
    trainer::change_byte(path, at, -0x55);
  }
  EXPECT_TRUE(read_job({{path}, {}, {}}, &passed_over).ok());
}

// ---- the files of a job ----

TEST_F(RecordingFile, OfAJobAreFoundTogether) {
  std::unique_ptr<Recording> first = open(0), second = open(2);
  first->note(encode(FabricNote{"", {{"host7", -1, ""}}}));
  second->note(encode(CommunicatorNote{1, {0, 1, 2, 3}}));
  std::ofstream(folder_ / "sennit-trace-0-junk-1") << "junk";
  std::vector<std::string> passed_over;
  const Result<JobRecording> job = read_job({{folder_.path()}, {}, {}}, &passed_over);
  ASSERT_TRUE(job.ok()) << job.status().text();
  EXPECT_EQ(job->job, kJob);
  EXPECT_EQ(job->ranks.size(), 2u);
  EXPECT_EQ(job->missing, (std::vector<int>{1, 3}));
  EXPECT_EQ(job->communicators.at(1).size(), 4u);
  ASSERT_EQ(passed_over.size(), 1u);
  EXPECT_NE(passed_over[0].find("junk-1 is no recording"), std::string::npos);
}

// Others' numbers, as of a container's processes, say nothing to who asks here.
TEST_F(RecordingFile, AProcessIsKnownByItsNumberHere) {
  const std::unique_ptr<Recording> its = open(0);
  const int64_t of_its_own = 2;
  std::fstream file(its->path(), std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(offsetof(RecordingHeader, pid)));
  file.write(reinterpret_cast<const char*>(&of_its_own), sizeof of_its_own);
  file.close();
  EXPECT_EQ(read_recording(its->path())->pid, of_its_own);
  std::vector<std::string> passed_over;
  const Result<JobRecording> job = read_job({{}, {}, getpid()}, &passed_over);
  ASSERT_TRUE(job.ok()) << job.status().text();
  EXPECT_EQ(job->find(0)->pid, getpid());
}

// Between finding and reading them processes end: of those nothing is said.
TEST_F(RecordingFile, WhatIsGoneBeforeItIsReadIsNotPassedOver) {
  const std::string gone =
      fmt::format("{}/{}0-gone-{}", kRecordingFolder, kRecordingName, getpid());
  std::filesystem::create_symlink("/nowhere/at/all", gone);
  const std::unique_ptr<Recording> its = open(0);
  std::vector<std::string> passed_over;
  EXPECT_TRUE(read_job({{}, {}, getpid()}, &passed_over).ok());
  std::filesystem::remove(gone);
  for (const std::string& text : passed_over) EXPECT_EQ(text.find(gone), std::string::npos) << text;
}

TEST_F(RecordingFile, OfSeveralJobsAreToldApart) {
  std::vector<std::string> passed_over;
  const auto error = [&](const RecordingSearch& search) {
    return read_job(search, &passed_over).status().text();
  };
  EXPECT_NE(error({{folder_.path()}, {}, {}}).find("there is no recording of a rank in"),
            std::string::npos);
  std::unique_ptr<Recording> one = Recording::open({0x11, 0, 1, "a"}, folder_.path(), 8);
  std::unique_ptr<Recording> other = Recording::open({0x22, 0, 2, "b"}, folder_.path(), 8);
  const std::string several = error({{folder_.path()}, {}, {}});
  EXPECT_TRUE(std::regex_search(
      several, std::regex("choose one by --job\n"
                          "  0000000000000011 \\(1 of 1 ranks here, 1 running; rank 0 on a since "
                          "\\d+-\\d+-\\d+ \\d+:\\d+ UTC\\)\n"
                          "  0000000000000022 \\(1 of 2 ranks here, 1 running; rank 0 on b ")))
      << several;
  EXPECT_NE(error({{folder_.path()}, 0x33, {}}).find("no recording of job 0000000000000033"),
            std::string::npos);
  EXPECT_EQ(read_job({{folder_.path()}, 0x22, {}}, &passed_over)->size, 2);
  one.reset();  // one that runs is meant rather than one that does not
  EXPECT_EQ(read_job({{folder_.path()}, {}, {}}, &passed_over)->job, 0x22u);
  EXPECT_NE(error({{}, {}, 1 << 30}).find("there is none"), std::string::npos);
}

}  // namespace
}  // namespace sennit
