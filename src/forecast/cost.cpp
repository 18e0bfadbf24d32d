// cost.cpp: see forecast/cost.hpp.
#include "forecast/cost.hpp"

#include <algorithm>
#include <cmath>

namespace sennit::forecast {
namespace {

// a parameter: masters and both moments; weights follow from the masters
constexpr double kCheckpointBytes = 12;

}  // namespace

Cost cost_of(const Job& job, const StepTime& step, const Operation& operation) {
  const double gpus = job.mesh.gpus();
  Cost cost;
  cost.steps = std::ceil(job.tokens / job.tokens_per_step());
  cost.days = cost.steps * step.total / kSecondsPerDay;
  cost.checkpoint_bytes = job.model.parameters() * kCheckpointBytes;
  cost.checkpoint_s = cost.checkpoint_bytes / operation.storage_bytes_per_s;
  cost.effective = 1;
  if (operation.interruptions_per_gpu_hour > 0) {
    cost.mtbf_s = kSecondsPerHour / (operation.interruptions_per_gpu_hour * gpus);
    cost.interval_s = operation.interval_s > 0 ? operation.interval_s
                                               : std::sqrt(2 * cost.checkpoint_s * cost.mtbf_s);
    const double cycle = cost.interval_s + cost.checkpoint_s;
    cost.effective =
        cost.interval_s / cycle * cost.mtbf_s / (cost.mtbf_s + operation.restart_s + cycle / 2);
  }
  cost.days_effective = cost.days / cost.effective;
  if (cost.mtbf_s > 0) cost.interruptions = cost.days_effective * kSecondsPerDay / cost.mtbf_s;
  cost.gpu_hours = cost.days_effective * kHoursPerDay * gpus;
  cost.chip_only = operation.watts_per_gpu <= 0 && !job.gpu.server_watts.known();
  cost.watts_per_gpu = operation.watts_per_gpu > 0 ? operation.watts_per_gpu
                       : cost.chip_only            ? job.gpu.watts.value
                                                   : job.gpu.server_watts.value;
  cost.kwh = cost.gpu_hours * cost.watts_per_gpu / 1000 * operation.pue;
  cost.usd_gpus = cost.gpu_hours * operation.usd_per_gpu_hour;
  cost.usd_staff =
      operation.people * operation.usd_per_person_year * cost.days_effective / kDaysPerYear;
  return cost;
}

}  // namespace sennit::forecast
