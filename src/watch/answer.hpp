// answer.hpp: what a rank answers when the coordinator asks what it does, as a call does not end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "diagnose/file.hpp"
#include "diagnose/hang/standing.hpp"
#include "record/notes.hpp"

namespace sennit::watch {

// What one rank does, and what its calls are about.
struct Answer {
  uint64_t question = 0;
  diagnose::Standing standing;
  // Of the calls that have not ended, and of the last: their communicators and plans, where these
  // have few members, or this rank is one of those that say it.
  std::vector<Note> notes;
};

// By the rank's own recording. `fabric`: its text form; placements by rank.
Answer answer_of(diagnose::RecordingFile& file, uint64_t question, const std::string& fabric,
                 const std::vector<Placement>& placements);

// Some kilobytes: the calls that have not ended and the last of each communicator, of what was sent
// the latest.
std::vector<std::byte> encode(const Answer& answer);
// Errors: what is no answer, or says what no rank of so many would.
Result<Answer> decode_answer(std::span<const std::byte> bytes, int ranks);

}  // namespace sennit::watch
