// memory.hpp: what a GPU of the busiest pipeline stage holds while it trains, part by part, and
// what would make a job fit that does not.
//
// Weights bf16, gradients and Adam's moments and master copies fp32. Activations are those of bf16
// training with sequence parallelism and an attention that keeps no scores; as many chunks of
// layers are in flight as the interleaved schedule (Narayanan et al., arXiv 2104.04473) needs on
// the first stage. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "forecast/step.hpp"

namespace sennit::forecast {

// Bytes that the GPU of the busiest pipeline stage holds.
struct Memory {
  double weights = 0, gradients = 0, first_moment = 0, second_moment = 0, masters = 0,
         activations = 0;
  // one layer's gathered activations, the logits, and with --zero 3 two layers' weights
  double buffers = 0;
  double runtime = 0;  // what the accelerator's own libraries take: assumed
  int layers_in_flight = 0;
  double total() const {
    return weights + gradients + first_moment + second_moment + masters + activations + buffers +
           runtime;
  }
  // In bytes, largest last; names as people say them.
  std::vector<std::pair<const char*, double>> parts() const;
};
Memory memory_of(const Job& job);

// A change of the job that makes it fit.
struct Remedy {
  std::string change;  // "--recompute full"
  double bytes = 0;    // then
};
std::vector<Remedy> remedies(const Job& job);
// What is to be said beside another mesh, for which one layer a chunk was taken.
std::string_view without_interleave(const Job& job);
bool fits(const Job& job);
// Ok, or which part is the largest, by how much all is too much, and what would make it fit.
Status check_memory(const Job& job);

}  // namespace sennit::forecast
