// pipeline_schedule.cpp: see trainer/parallel/pipeline_schedule.hpp.
#include "trainer/parallel/pipeline_schedule.hpp"

#include <algorithm>

namespace sennit::trainer {
namespace {

// Chunks of micro-batches that go forward before the first goes backward, but for one.
int64_t warm_up_of(const MeshShape& mesh, int rank, int64_t total) {
  const int64_t stages = mesh.pipeline, chunks = mesh.stage_chunks, behind = stages - rank - 1;
  return std::min(total, chunks == 1 ? behind : 2 * behind + (chunks - 1) * stages);
}

}  // namespace

std::vector<Action> pipeline_schedule(const MeshShape& mesh, int rank, int64_t micro_batches) {
  const int64_t stages = mesh.pipeline, chunks = mesh.stage_chunks;
  const int64_t total = micro_batches * chunks;
  // With chunks, rounds of `stages` micro-batches go through all chunks, one after the other.
  const auto action = [&](bool forward, int64_t k) {
    const int64_t in_round = k % (stages * chunks);
    int64_t chunk = in_round / stages;
    if (!forward) chunk = chunks - 1 - chunk;
    const int64_t micro = chunks == 1 ? k : k / (stages * chunks) * stages + in_round % stages;
    return Action{forward, chunks == 1 ? 0 : static_cast<int>(chunk), micro};
  };
  const int64_t warm_up = warm_up_of(mesh, rank, total);
  std::vector<Action> schedule;
  for (int64_t k = 0; k < warm_up; k++) schedule.push_back(action(true, k));
  for (int64_t k = warm_up; k < total; k++) {
    schedule.push_back(action(true, k));
    schedule.push_back(action(false, k - warm_up));
  }
  for (int64_t k = total - warm_up; k < total; k++) schedule.push_back(action(false, k));
  return schedule;
}

int64_t most_in_flight(const MeshShape& mesh, int pipeline_rank, int64_t micro_batches) {
  const int64_t total = micro_batches * mesh.stage_chunks;
  return std::min(total, warm_up_of(mesh, pipeline_rank, total) + 1);
}

}  // namespace sennit::trainer
