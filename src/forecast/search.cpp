// search.cpp: see forecast/search.hpp.
#include "forecast/search.hpp"

#include <algorithm>

#include <fmt/core.h>

#include "forecast/memory.hpp"

namespace sennit::forecast {
namespace {

constexpr int kLeastTokens = 2048, kMostTensor = 8, kMostContext = 256, kMostStages = 128;

}  // namespace

Result<Job> fastest_job(const Job& job, const GpuFabric& network, int gpus, const Search& search) {
  const std::vector<Places> places = placements(network.tree(), gpus);
  if (places.empty())
    return invalid(fmt::format("{} GPUs: the fabric has {}", gpus, network.tree().ranks()));
  std::vector<Job> candidates;
  Status off;  // of the first candidate that cannot be
  Job closest;
  double closest_bytes = 0, least_sequences = 0;
  for (int tensor = 1; tensor <= std::min(search.ranks_per_host, kMostTensor); tensor *= 2)
    for (int context = 1; context <= kMostContext; context *= 2)
      for (int stages = 1; stages <= kMostStages; stages *= 2) {
        if ((search.tensor > 0 && tensor != search.tensor) ||
            gpus % (tensor * context * stages) != 0 ||
            (context > 1 && job.sequence / context < kLeastTokens))
          continue;
        Job candidate = job;
        candidate.interleave = 0;
        candidate.mesh = Mesh();
        candidate.mesh.sizes = {tensor, context, stages, gpus / (tensor * context * stages)};
        if (search.batch > 0)
          candidate.batch = search.batch;
        else
          candidate.share_out(search.sequences);
        if (const Status status = check(candidate); !status.ok()) {
          if (off.ok()) off = status;
          continue;
        }
        if (const double bytes = memory_of(candidate).total(); !fits(candidate)) {
          if (closest_bytes == 0 || bytes < closest_bytes) {
            closest_bytes = bytes;
            closest = candidate;
          }
          continue;
        }
        const double sequences =
            static_cast<double>(candidate.batch) * candidate.mesh.size(Axis::data);
        if (least_sequences == 0 || sequences < least_sequences) least_sequences = sequences;
        candidates.push_back(std::move(candidate));
      }
  const Job* best = nullptr;
  double best_rate = 0;
  for (const Job& candidate : candidates) {
    const double sequences = static_cast<double>(candidate.batch) * candidate.mesh.size(Axis::data);
    if (search.batch == 0 && sequences > std::max(1.1 * search.sequences, least_sequences))
      continue;
    const double rate =
        step_time(candidate, lay_out(candidate.mesh, network, places[0].positions)).tokens_per_s;
    if (rate > best_rate) {
      best_rate = rate;
      best = &candidate;
    }
  }
  if (!best && closest_bytes > 0) return check_memory(closest);
  if (!best && !off.ok()) return off;
  if (!best) return invalid(fmt::format("found no mesh of {} GPUs: give one with --mesh", gpus));
  return *best;
}

}  // namespace sennit::forecast
