// recordings.hpp: reads what ranks recorded (record/recording.hpp): the files of one job, of ranks
// that run, hang or are gone.
//
// A rank may go on writing while its file is read: events that it overwrites meanwhile are left
// out. Reading needs no help of the rank.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "diagnose/job.hpp"

namespace sennit::diagnose {

// Errors: no file, no recording, cut off, another version; the text names the file.
Result<RankRecording> read_recording(const std::string& path);

// Where recordings may be.
struct RecordingSearch {
  std::vector<std::string> paths;  // files, and folders of files; empty: this user's on this host
  std::optional<uint64_t> job;     // of this job alone
  std::optional<int64_t> pid;      // of the job that this process is a rank of
};
// Errors: nothing found, files of several jobs (which are listed, with what chooses one), and where
// nothing that was named can be read, what read_recording() says of the first. What cannot be read
// beside what can is told in `passed_over`; files in folders that are no recordings are not.
Result<JobRecording> read_job(const RecordingSearch& search, std::vector<std::string>* passed_over);

}  // namespace sennit::diagnose
