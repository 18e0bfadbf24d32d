// job.hpp: what the ranks of one job recorded, put together.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "record/event.hpp"
#include "record/measured_clock.hpp"
#include "record/notes.hpp"
#include "record/pause.hpp"

namespace sennit::diagnose {

// How a rank was when its file was read, or when it was asked.
enum class RankState : uint8_t {
  running,  // its process lives
  ended,    // it has left the job
  gone,     // it was killed, or ended without leaving
  silent    // it was asked what it does, and does not answer
};

// One rank's file.
struct RankRecording {
  std::string path;
  uint64_t job = 0;
  int rank = 0, size = 0;
  // While it runs here as this process sees it, else as its own PID namespace has it.
  int64_t pid = 0;
  std::string host;
  uint64_t realtime_ns = 0, monotonic_ns = 0;  // of one moment
  // By its host's CLOCK_MONOTONIC, the moment that this is of: when the copy was made or, of a rank
  // that runs on this host, when it was read. 0: not known. Real time would not tell, as it is set
  // anew now and then, and differs from host to host.
  uint64_t as_of_ns = 0;
  MeasuredClock clock;  // as the control plane measured it last; maybe not known
  RankState state = RankState::gone;
  char process = 0;       // while it runs here: its state by proc(5), 'T' is stopped; 0: not known
  bool copied = false;    // it is a copy, in which nothing changes any more
  uint64_t recorded = 0;  // events ever; those before the ones kept are overwritten
  std::vector<TraceEvent> events;  // oldest first
  std::vector<Note> notes;
  bool watched = false;       // it is known when its process did not run:
  std::vector<Pause> pauses;  // the latest times
  // How much of the cores it asked for lately while it was in no call; nothing: not known.
  std::optional<double> cores_between;

  // As it is read: a copy is of a moment that is over.
  bool runs() const { return state == RankState::running && !copied; }
};

// The files of one job put together.
struct JobRecording {
  uint64_t job = 0;
  int size = 0;
  std::vector<RankRecording> ranks;  // by rank, those that there are
  std::vector<int> missing;          // ranks without a file
  std::string fabric;                // its text; empty: rank 0's file is not there, or has none
  std::vector<Placement> placements;
  // By communicator, as world ranks. All groups of a split have one number: where there are
  // several, all but the first get numbers that no communicator has, also in events and notes, and
  // `numbers` has those that the ranks know them by.
  std::map<uint32_t, std::vector<int>> communicators;
  std::map<uint32_t, uint32_t> numbers;
  std::map<std::pair<uint32_t, uint64_t>, PlanNote> plans;  // by communicator and hash
  std::vector<std::pair<int, FailureNote>> failures;        // by rank
  std::vector<std::pair<int, VerdictNote>> verdicts;        // by rank, each one's in its order
  std::vector<int> index_of_rank;                           // into `ranks`; -1: missing

  // The number that its ranks know it by, also of its group's channel.
  uint32_t known_as(uint32_t comm) const;
  // As world ranks, also of a group's channel; empty: nobody noted them.
  std::vector<int> members_of(uint32_t comm) const;
  // "communicator 3", or "communicator 3 of ranks 4-7" where there are several of that number.
  std::string comm_name(uint32_t comm) const;
  // What the rank noted, but for its communicators (communicator_numbers.hpp), whose numbers in
  // `from` are this job's.
  void take_notes(const RankRecording& from);
  void index();                               // once `size` and `ranks` are filled
  const RankRecording* find(int rank) const;  // null: missing
  // What was told last of that while the job ran, and was not withdrawn; null: nothing. By what is
  // told of some of the same ranks or links, by calls of the same communicator, what was told of
  // them before is over.
  const VerdictNote* last_told(VerdictAbout about) const;
};

}  // namespace sennit::diagnose
