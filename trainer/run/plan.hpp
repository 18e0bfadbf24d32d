// plan.hpp: what a run will put on the network, and about how long a step will take, before it
// runs.
//
// Bytes and calls are those of this trainer, of a rank of the busiest stage; the times of all
// groups of a dimension at once on a tier tree are bounds (forecast/network.hpp). A step's time:
// the operations at kEfficiency of the measured matrix peak, the pipeline's bubble, what cannot
// hide (tensor parallelism), and what hides only as long as there is something to compute. Pure.
#pragma once

#include <vector>

#include "forecast/step.hpp"
#include "trainer/run/trainer.hpp"

namespace sennit::trainer {

// of the matrix peak, assumed: what a model with all its parts reaches
inline constexpr double kEfficiency = 0.5;

// The trainer's mesh as the forecast's: the same sizes in the same order.
forecast::Mesh planner_mesh(const MeshShape& mesh);
// What a rank calls in a step, by dimension.
std::vector<forecast::Traffic> planned_traffic(const TrainerOptions& options);

// One step, in seconds: what is added up, and what is not seen.
struct StepPlan {
  double compute_s = 0, bubble_s = 0, waited_s = 0;
  double hidden_s = 0;  // of communication, beside computing
  double total_s() const { return compute_s + bubble_s + waited_s; }
};
// layout: of planner_mesh() on the network. flops_per_s_of_rank: the matrix peak.
StepPlan plan_step(const TrainerOptions& options, const forecast::MeshLayout& layout,
                   double flops_per_s_of_rank);

}  // namespace sennit::trainer
