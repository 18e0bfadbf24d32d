// plan.cpp: see trainer/run/plan.hpp.
#include "trainer/run/plan.hpp"

#include <algorithm>

namespace sennit::trainer {
namespace {

using forecast::Axis;
using Calls = std::vector<forecast::Traffic>;

// What the formulas of a step share.
struct Amounts {
  explicit Amounts(const TrainerOptions& o)
      : width(static_cast<double>(bytes_of(o.type))),
        micro(static_cast<double>(o.batch.micro_batches(o.mesh))),
        rows(static_cast<double>(o.batch.micro * o.batch.length) / o.mesh.context),
        layers(static_cast<double>(o.model.layers) / o.mesh.pipeline),
        hidden(static_cast<double>(o.model.hidden)),
        again(o.recompute ? 1 : 0) {}
  double width;   // bytes of an activation or weight
  double micro;   // micro-batches of a step
  double rows;    // tokens of a micro-batch on a context-parallel rank
  double layers;  // of a pipeline stage
  double hidden;  // elements of a token
  double again;   // forward passes that recomputing adds
};

void add_tensor_calls(const TrainerOptions& options, const Amounts& s, Calls* calls) {
  if (options.mesh.tensor <= 1) return;
  // embedding and output layer: one of them on a stage
  const double of_ends = options.mesh.pipeline == 1 ? 2 : 1;
  const double bytes = s.rows * s.hidden * s.width;
  const double times = s.micro * (s.layers * (4 + 2 * s.again) + of_ends);
  calls->push_back({Axis::tensor, "tp", "all_gather", "activations", bytes, times, false});
  calls->push_back({Axis::tensor, "tp", "reduce_scatter", "activations", bytes, times, false});
}

void add_context_calls(const TrainerOptions& options, const Amounts& s, Calls* calls) {
  const MeshShape& mesh = options.mesh;
  const LlamaConfig& model = options.model;
  if (mesh.context <= 1) return;
  const auto kv = static_cast<double>(2 * model.kv_heads * model.head_size) / mesh.tensor;
  const double all = s.rows * mesh.context * kv;
  calls->push_back({Axis::context, "cp", "all_gather", "keys, values", all * s.width,
                    s.micro * s.layers * (2 + s.again), true});
  const double once_more = static_cast<double>(mesh.context) / (mesh.context - 1);  // home again
  calls->push_back({Axis::context, "cp", "reduce_scatter", "their gradients", all * 4 * once_more,
                    s.micro * s.layers, true});
}

void add_pipeline_calls(const TrainerOptions& options, const Amounts& s, Calls* calls) {
  const MeshShape& mesh = options.mesh;
  if (mesh.pipeline <= 1) return;
  const double bytes = s.rows / mesh.tensor * s.hidden * s.width;
  const double times = s.micro * mesh.stage_chunks;
  calls->push_back({Axis::pipeline, "pp", "send_recv", "activations", bytes, times, true});
  calls->push_back({Axis::pipeline, "pp", "send_recv", "their gradients", bytes, times, true});
}

// Parameters of the stage that has most of them. The ends are the embedding, the output layer and
// its norm.
struct Held {
  double all = 0, ends = 0;
  double last = 0;  // an embedding, see Parameters
};
Held most_held(const TrainerOptions& options) {
  Held most;
  for (int p = 0; p < options.mesh.pipeline; p++) {
    Coordinates at;
    at.pipeline = p;
    const ParameterLayout layout = make_layout(options.model, options.mesh, at, 0);
    const auto all = static_cast<double>(layout.elements());
    if (all <= most.all) continue;
    most = {all, all, 0};
    if (const int unit = layout.embedding.unit; unit >= 0)
      if (const Unit& embedding = layout.units[static_cast<size_t>(unit)]; !embedding.tied_copies)
        most.last = static_cast<double>(embedding.size);
    for (const auto& chunk : layout.chunks)
      for (const LayerPlaces& layer : chunk)
        for (const int unit : {layer.attention.unit, layer.ffn.unit})  // each of its own here
          most.ends -= static_cast<double>(layout.units[static_cast<size_t>(unit)].size);
  }
  return most;
}

void add_data_calls(const TrainerOptions& options, const Amounts& s, Calls* calls) {
  const MeshShape& mesh = options.mesh;
  if (mesh.data * mesh.context <= 1) return;
  const Held held = most_held(options);
  const std::string groups = mesh.context == 1 ? "dp" : mesh.data == 1 ? "cp" : "dp x cp";
  const double reductions = options.zero >= 2 ? s.micro : 1;
  if (options.zero == 0) {
    calls->push_back(
        {Axis::data, groups, "all_reduce", "gradients, f32", (held.all - held.last) * 4, 1, true});
    if (held.last > 0)
      for (const char* const half : {"reduce_scatter", "all_gather"})
        calls->push_back({Axis::data, groups, half, "embedding's, f32", held.last * 4, 1, true});
  } else {
    calls->push_back(
        {Axis::data, groups, "reduce_scatter", "gradients, f32", held.all * 4, reductions, true});
  }
  if (options.zero == 1 || options.zero == 2)
    calls->push_back({Axis::data, groups, "all_gather", "weights", held.all * s.width, 1, true});
  if (options.zero != 3) return;
  // forward and backward; the ends' once, but for a tied table, which is both
  const double of_ends = options.model.tied && mesh.pipeline == 1 ? 2 : 1;
  calls->push_back({Axis::data, groups, "all_gather", "layers' weights",
                    (held.all - held.ends) * s.width, 2 * s.micro, true});
  if (held.ends > 0)
    calls->push_back({Axis::data, groups, "all_gather", "ends' weights", held.ends * s.width,
                      of_ends * s.micro, true});
}

}  // namespace

forecast::Mesh planner_mesh(const MeshShape& mesh) {
  forecast::Mesh planned;
  planned.sizes = {mesh.tensor, mesh.context, mesh.pipeline, mesh.data};
  return planned;
}

std::vector<forecast::Traffic> planned_traffic(const TrainerOptions& options) {
  const Amounts amounts(options);
  Calls calls;
  add_tensor_calls(options, amounts, &calls);
  add_context_calls(options, amounts, &calls);
  add_pipeline_calls(options, amounts, &calls);
  add_data_calls(options, amounts, &calls);
  return calls;
}

StepPlan plan_step(const TrainerOptions& options, const forecast::MeshLayout& layout,
                   double flops_per_s_of_rank) {
  StepPlan plan;
  const BatchShape& batch = options.batch;
  const double flops = static_cast<double>(batch.sequences * batch.length) *
                       options.model.flops_per_token(batch.length);
  // Operations done again with recompute: the forward pass, a third of what counts.
  plan.compute_s = flops * (options.recompute ? 4.0 / 3 : 1) / options.mesh.ranks() /
                   (kEfficiency * flops_per_s_of_rank);
  plan.bubble_s =
      plan.compute_s * (options.mesh.pipeline - 1) /
      static_cast<double>(options.mesh.stage_chunks * batch.micro_batches(options.mesh));
  for (const forecast::Traffic& call : planned_traffic(options)) {
    const double seconds = least_time(call, layout).seconds * call.times;
    (call.hidden && options.overlap ? plan.hidden_s : plan.waited_s) += seconds;
  }
  const double too_much = std::max(0.0, plan.hidden_s - plan.compute_s);
  plan.hidden_s -= too_much;
  plan.waited_s += too_much;
  return plan;
}

}  // namespace sennit::trainer
