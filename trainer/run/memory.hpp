// memory.hpp: what a rank of a run will hold, part by part, before any of it is allocated.
//
// Parameters are counted exactly, from the layout of the rank that has most; activations from what
// the model keeps (trainer/model/block.hpp) and the schedule's micro-batches in flight; further the
// working buffers of the widest layer, the copy that a checkpoint is written from, and the batches
// that are read ahead. Pure, but for what is free.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "trainer/run/trainer.hpp"

namespace sennit::trainer {

// What one rank holds, by part; those of 0 bytes are left out.
struct MemoryParts {
  std::vector<std::pair<std::string, uint64_t>> parts;  // name, bytes
  uint64_t total() const;
  std::string text() const;  // "weights 1.23 MB, gradients ..."
};
// Of the rank that needs most. The options must be ones that check_mesh() takes.
MemoryParts memory_of(const TrainerOptions& options);

// In decimal units: "1.23 MB", from 10 MB on "123 MB", from 1 GB on "12.3 GB".
std::string bytes_text(uint64_t bytes);
// What this process may take of what is free, shared by the ranks on this host; less where its
// address space has a limit.
uint64_t available_memory();
// Errors: too much, by part, and the fewest settings that would make it fit, or how little is
// possible.
Status check_memory(const TrainerOptions& options, uint64_t available);

}  // namespace sennit::trainer
