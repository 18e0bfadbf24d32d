// file.hpp: the file of one rank's recording (record/recording.hpp), read once or again and again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "record/event.hpp"
#include "record/notes.hpp"
#include "record/pause.hpp"
#include "record/recording.hpp"

namespace sennit::diagnose {

// Its rank may go on writing meanwhile: what is read is copied by the kernel, and what was
// overwritten while it was read is left out. One thread at a time.
class RecordingFile {
 public:
  // Errors: no file, no recording, cut off, another version; the text names the file.
  static Result<std::unique_ptr<RecordingFile>> open(const std::string& path);
  ~RecordingFile();
  RecordingFile(const RecordingFile&) = delete;
  RecordingFile& operator=(const RecordingFile&) = delete;

  // As it was when the file was opened.
  const RecordingHeader& header() const { return *reinterpret_cast<const RecordingHeader*>(page_); }
  int fd() const { return fd_; }

  // Events in the order of their numbers, of which `first` is the first one's; the one after the
  // last has the number `next`.
  struct Events {
    std::vector<TraceEvent> events;
    uint64_t first = 0, next = 0;
  };
  // Those from this number on that are still there, at most the oldest `most`; what was overwritten
  // while it was read is missing. Errors: the file was cut off.
  Result<Events> events_from(uint64_t number, uint64_t most = Recording::kMostEvents);
  uint64_t recorded() const;  // events ever
  // When the process did not run: the latest times as the file was opened, oldest first.
  std::vector<Pause> pauses() const;
  // Cores that its process asked for lately while it was in no call; nothing: not known.
  std::optional<double> cores_between() const;
  // Whether somebody has looked for pauses at all.
  bool was_watched() const;
  // All that are there.
  std::vector<Note> notes() const;
  std::vector<std::byte> note_bytes() const;  // as they are in the file

 private:
  RecordingFile(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}
  Status check_header() const;

  const int fd_;
  const std::string path_;
  alignas(RecordingHeader) std::byte page_[RecordingHeader::kBytes] = {};
};

}  // namespace sennit::diagnose
