// plan.cpp: see trainer/run/plan.hpp.
#include "trainer/run/plan.hpp"

#include <algorithm>

namespace sennit::trainer {

forecast::Mesh planner_mesh(const MeshShape& mesh) {
  forecast::Mesh planned;
  planned.sizes = {mesh.tensor, mesh.context, mesh.pipeline, mesh.data};
  return planned;
}

std::vector<forecast::Traffic> planned_traffic(const TrainerOptions& options) {
  using forecast::Axis;
  const MeshShape& mesh = options.mesh;
  const LlamaConfig& model = options.model;
  const auto width = static_cast<double>(bytes_of(options.type));
  const auto micro = static_cast<double>(options.batch.micro_batches(mesh));
  const double rows =
      static_cast<double>(options.batch.micro * options.batch.length) / mesh.context;
  const int64_t layers_here = model.layers / mesh.pipeline;
  const auto layers = static_cast<double>(layers_here);
  const auto hidden = static_cast<double>(model.hidden);
  const double again = options.recompute ? 1 : 0;
  std::vector<forecast::Traffic> calls;
  if (mesh.tensor > 1) {
    // embedding and output layer: one of them on a stage
    const double of_ends = mesh.pipeline == 1 ? 2 : 1;
    const double bytes = rows * hidden * width,
                 times = micro * (layers * (4 + 2 * again) + of_ends);
    calls.push_back({Axis::tensor, "tp", "all_gather", "activations", bytes, times, false});
    calls.push_back({Axis::tensor, "tp", "reduce_scatter", "activations", bytes, times, false});
  }
  if (mesh.context > 1) {
    const auto kv = static_cast<double>(2 * model.kv_heads * model.head_size) / mesh.tensor;
    const double all = rows * mesh.context * kv;
    calls.push_back({Axis::context, "cp", "all_gather", "keys, values", all * width,
                     micro * layers * (2 + again), true});
    const double once_more = static_cast<double>(mesh.context) / (mesh.context - 1);  // home again
    calls.push_back({Axis::context, "cp", "reduce_scatter", "their gradients", all * 4 * once_more,
                     micro * layers, true});
  }
  if (mesh.pipeline > 1) {
    const double bytes = rows / mesh.tensor * hidden * width, times = micro * mesh.stage_chunks;
    calls.push_back({Axis::pipeline, "pp", "send_recv", "activations", bytes, times, true});
    calls.push_back({Axis::pipeline, "pp", "send_recv", "their gradients", bytes, times, true});
  }
  if (mesh.data * mesh.context > 1) {
    // Of the stage that has most: the ends are the embedding, the output layer and its norm.
    double held = 0, ends = 0, last = 0;  // last: an embedding, see Parameters
    for (int p = 0; p < mesh.pipeline; p++) {
      Coordinates at;
      at.pipeline = p;
      const Layout layout = make_layout(model, mesh, at, 0);
      const auto all = static_cast<double>(layout.elements());
      if (all <= held) continue;
      held = ends = all;
      last = 0;
      if (const int unit = layout.embedding.unit; unit >= 0)
        if (const Unit& embedding = layout.units[static_cast<size_t>(unit)]; !embedding.tied_copies)
          last = static_cast<double>(embedding.size);
      for (const auto& chunk : layout.chunks)
        for (const LayerPlaces& layer : chunk)
          for (const int unit : {layer.attention.unit, layer.ffn.unit})  // each of its own here
            ends -= static_cast<double>(layout.units[static_cast<size_t>(unit)].size);
    }
    const std::string groups = mesh.context == 1 ? "dp" : mesh.data == 1 ? "cp" : "dp x cp";
    const double reductions = options.zero >= 2 ? micro : 1;
    if (options.zero == 0) {
      calls.push_back(
          {Axis::data, groups, "all_reduce", "gradients, f32", (held - last) * 4, 1, true});
      if (last > 0)
        for (const char* const half : {"reduce_scatter", "all_gather"})
          calls.push_back({Axis::data, groups, half, "embedding's, f32", last * 4, 1, true});
    } else {
      calls.push_back(
          {Axis::data, groups, "reduce_scatter", "gradients, f32", held * 4, reductions, true});
    }
    if (options.zero == 1 || options.zero == 2)
      calls.push_back({Axis::data, groups, "all_gather", "weights", held * width, 1, true});
    // forward and backward; the ends' once, but for a tied table, which is both
    if (options.zero == 3) {
      const double of_ends = model.tied && mesh.pipeline == 1 ? 2 : 1;
      calls.push_back({Axis::data, groups, "all_gather", "layers' weights", (held - ends) * width,
                       2 * micro, true});
      if (ends > 0)
        calls.push_back({Axis::data, groups, "all_gather", "ends' weights", ends * width,
                         of_ends * micro, true});
    }
  }
  return calls;
}

StepPlan plan_step(const TrainerOptions& options, const forecast::Layout& layout,
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
