// cost.hpp: from a step's time to days, GPU hours, energy and money, without and with failures.
//
// Interruptions come at a rate for each GPU and hour. A cycle of one checkpoint every `interval`
// loses the checkpoint's own time; an interruption loses the restart and, on the average, half a
// cycle of work. The interval that loses least is sqrt(2 * checkpoint time * mean time between
// interruptions) (Young 1974). Pure.
#pragma once

#include "forecast/step.hpp"

namespace sennit::forecast {

inline constexpr double kSecondsPerMinute = 60, kSecondsPerHour = 3600, kSecondsPerDay = 86400;
inline constexpr double kHoursPerDay = 24, kDaysPerYear = 365;

// Llama 3's section 3.3.4: 419 unexpected interruptions in 54 days on 16,384 GPUs.
inline constexpr double kInterruptionsPerGpuHour = 419.0 / (54.0 * kHoursPerDay * 16384);

// Under which circumstances the job runs: failures, storage, power, prices, people.
struct Operation {
  double interruptions_per_gpu_hour = kInterruptionsPerGpuHour;
  double restart_s = 600;             // until training goes on: assumed
  double storage_bytes_per_s = 2e12;  // Llama 3's section 3.3.1, sustained
  double interval_s = 0;              // between checkpoints; 0: the best
  double watts_per_gpu = 0;           // 0: the table's, of a server's share if known
  double pue = 1.08;  // power usage effectiveness: Meta's in 2023 (sustainability report of 2024)
  double usd_per_gpu_hour = 0;  // 0: unknown
  double people = 0, usd_per_person_year = 0;
};

// What the whole job takes and costs; 0: not known.
struct Cost {
  double steps = 0;
  double days = 0;    // nothing ever fails
  double mtbf_s = 0;  // mean time between interruptions of the job
  double checkpoint_bytes = 0, checkpoint_s = 0, interval_s = 0;
  double effective = 0;       // the share of time that is training
  double days_effective = 0;  // with failures; everything below is of this
  double interruptions = 0;
  double gpu_hours = 0;
  double watts_per_gpu = 0;
  bool chip_only = false;  // watts are the accelerator's alone
  double kwh = 0;
  double usd_gpus = 0, usd_staff = 0;
};
Cost cost_of(const Job& job, const StepTime& step, const Operation& operation);

// The days that `flops` take at so many operations/s on each GPU.
inline double days_for(double flops, double gpus, double flops_per_s) {
  return flops / gpus / flops_per_s / kSecondsPerDay;
}

}  // namespace sennit::forecast
