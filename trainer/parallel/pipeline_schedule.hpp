// pipeline_schedule.hpp: in which order a pipeline rank works through its micro-batches: 1F1B
// (arXiv 1806.03377, 2006.09503), and interleaved where a rank has several chunks of layers (arXiv
// 2104.04473, section 2.2).
//
// Pure. A rank has at most pipeline - rank micro-batches in flight, interleaved at most
// 2 (pipeline - rank - 1) + (chunks - 1) pipeline + 1 chunks of them.
#pragma once

#include <cstdint>
#include <vector>

#include "trainer/parallel/mesh.hpp"

namespace sennit::trainer {

// One chunk of layers on one micro-batch.
struct Action {
  bool forward = true;  // else backward
  int chunk = 0;
  int64_t micro_batch = 0;
  bool operator==(const Action&) const = default;
};
// All actions of a pipeline rank in a step, in their order. With several chunks micro_batches is a
// multiple of the pipeline's size (check_mesh).
std::vector<Action> pipeline_schedule(const MeshShape& mesh, int pipeline_rank,
                                      int64_t micro_batches);
// The most chunks of micro-batches that are in flight at once in that order, without making it.
int64_t most_in_flight(const MeshShape& mesh, int pipeline_rank, int64_t micro_batches);

}  // namespace sennit::trainer
