// step.cpp: see forecast/step.hpp.
#include "forecast/step.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include <fmt/core.h>

namespace sennit::forecast {
namespace {

constexpr double kGradientBytes = 4;
// Read and written for each parameter by Adam: gradient 4, moments 2 * 8, master 8, weight 2.
constexpr double kOptimizerBytes = 30;

// Of one layer on one microbatch, forward and backward.
struct LayerTime {
  double matmul = 0, attention = 0, elementwise = 0, tensor = 0, context = 0;
  double total() const { return matmul + attention + elementwise + tensor + context; }
};

// Bytes that a layer's elementwise operations read and write for a token, forward and twice as much
// backward, over all tensor ranks: two norms and residuals (5 widths each), rotations of queries
// and keys, the gate (2 in, 1 out); what is computed again comes on top.
double elementwise_bytes(const Model& m, Recompute recompute) {
  const double forward = 10.0 * m.width + 2 * (m.query_width() + m.kv_width()) + 3.0 * m.ffn;
  const double norms_and_gate = 4.0 * m.width + 3.0 * m.ffn;
  const double again = recompute == Recompute::full    ? forward
                       : recompute == Recompute::cheap ? norms_and_gate
                                                       : 0;
  return (3 * forward + again) * kActivationBytes;
}

LayerTime layer_time(const Job& job, const std::vector<Traffic>& calls, const MeshLayout& layout) {
  const Constants& c = job.constants;
  const Model& m = job.model;
  const double tokens = job.tokens_per_microbatch(), tensor = job.mesh.size(Axis::tensor);
  const double peak = job.gpu.bf16.value;
  const bool again = job.recompute == Recompute::full;
  LayerTime time;
  time.matmul = (again ? 8 : 6) * m.layer_parameters() * tokens / tensor / (peak * c.matmul.value);
  const double counted = m.attention_flops_per_token(job.sequence) / m.layers * tokens / tensor;
  time.attention = counted * (again ? 4.5 : 3.5) / 3 / (peak * c.attention.value);
  time.elementwise = elementwise_bytes(m, job.recompute) * tokens / tensor /
                     (job.gpu.memory_bytes_per_s.value * c.memory.value);
  const double layers = static_cast<double>(busiest_stage(job).layers) * job.microbatches();
  for (const Traffic& call : calls) {
    // A stage that holds the output layer alone makes none.
    if (call.hidden || call.times == 0) continue;
    const double seconds = seconds_of(call, layout, c) * call.times / layers;
    if (call.axis == Axis::tensor) time.tensor += seconds;
    if (call.axis == Axis::context) time.context += seconds;
  }
  return time;
}

}  // namespace

std::string_view name(Recompute recompute) {
  constexpr std::string_view kNames[] = {"none", "cheap", "full"};
  return kNames[static_cast<size_t>(recompute)];
}

void Job::share_out(double sequences) {
  const double even = std::round(sequences / mesh.size(Axis::data) / microbatch);
  batch = static_cast<int>(std::clamp<double>(even, 1, std::max(1, kMostBatch / microbatch))) *
          microbatch;
}

Status check(const Job& job) {
  const auto size = [&](Axis axis) { return job.mesh.size(axis); };
  const int tensor = size(Axis::tensor), context = size(Axis::context),
            stages = size(Axis::pipeline);
  if (!job.gpu.bf16.known())
    return invalid(fmt::format("the table knows no bf16 peak of {}", job.gpu.name));
  if (job.model.heads % tensor != 0)
    return invalid(
        fmt::format("tp{}: does not divide the model's {} heads", tensor, job.model.heads));
  if (stages > job.model.layers)
    return invalid(fmt::format("pp{}: the model has only {} layers", stages, job.model.layers));
  if (job.sequence % (context * (context > 1 ? 2 : 1)) != 0)
    return invalid(fmt::format("cp{}: does not cut a sequence of {} into {} equal pieces", context,
                               job.sequence, 2 * context));
  if (job.batch < 1 || job.batch % job.microbatch != 0)
    return invalid(fmt::format(
        "--microbatch {}: does not divide the {} sequences that each data-parallel group has a "
        "step",
        job.microbatch, job.batch));
  const int layers = busiest_stage(job).most_layers;
  if (job.interleave > 0 && (stages == 1 || layers % job.interleave != 0))
    return invalid(stages == 1
                       ? "--interleave: there is no pipeline to interleave"
                       : fmt::format("--interleave {}: does not divide the {} layers of a stage",
                                     job.interleave, layers));
  return {};
}

Stage busiest_stage(const Job& job) {
  const Model& m = job.model;
  const int stages = job.mesh.size(Axis::pipeline);
  const double output = m.embedding_parameters() / m.layer_parameters();  // in layers
  Stage stage;
  if (stages == 1) {
    stage.layers = stage.most_layers = m.layers;
    stage.outputs = 1;
    stage.parameters = m.parameters();
    return stage;
  }
  double best = 0;
  int last = 0, others = 0;
  for (int k = 0; k <= m.layers - (stages - 1); k++) {  // layers of the last stage
    const int most = (m.layers - k + stages - 2) / (stages - 1);
    const double busy = std::max<double>(most, k + output);
    if (k == 0 || busy <= best) {
      best = busy;
      last = k;
      others = most;
    }
  }
  // takes what is left over
  const int first = std::max(0, m.layers - last - (stages - 2) * others);
  stage.layers = stage.most_layers = std::max(others, last);
  stage.outputs = last + output > others ? 1 : 0;
  if (stage.outputs > 0) stage.layers = last;
  stage.chunks = job.interleave > 0 ? job.interleave : std::max(1, stage.most_layers);
  stage.parameters = std::max({others * m.layer_parameters(),
                               last * m.layer_parameters() + m.embedding_parameters(),
                               first * m.layer_parameters() + m.embedding_parameters()});
  return stage;
}

std::vector<Traffic> traffic(const Job& job) {
  const auto size = [&](Axis axis) { return static_cast<double>(job.mesh.size(axis)); };
  const Stage stage = busiest_stage(job);
  const double tokens = job.tokens_per_microbatch(), m = job.microbatches();
  const double layers = stage.layers * m;
  const bool again = job.recompute == Recompute::full;
  std::vector<Traffic> calls;
  if (size(Axis::tensor) > 1) {
    const double bytes = tokens * job.model.width * kActivationBytes;
    calls.push_back({Axis::tensor, "tp", "all_gather", "activations", bytes,
                     (again ? 6.0 : 4.0) * layers, false});
    calls.push_back({Axis::tensor, "tp", "reduce_scatter", "activations", bytes,
                     (again ? 6.0 : 4.0) * layers, false});
    calls.push_back(
        {Axis::tensor, "tp", "all_gather", "activations, again", bytes, 2 * layers, true});
  }
  if (size(Axis::context) > 1) {
    const double bytes = static_cast<double>(job.microbatch) * job.sequence * 2 *
                         job.model.kv_width() * kActivationBytes / size(Axis::tensor);
    calls.push_back({Axis::context, "cp", "all_gather", "keys, values", bytes, 2 * layers, false});
    calls.push_back(
        {Axis::context, "cp", "reduce_scatter", "their gradients", bytes, layers, false});
  }
  if (size(Axis::pipeline) > 1) {
    const double bytes = tokens * job.model.width * kActivationBytes / size(Axis::tensor);
    calls.push_back(
        {Axis::pipeline, "pp", "send_recv", "activations", bytes, stage.chunks * m, true});
    calls.push_back(
        {Axis::pipeline, "pp", "send_recv", "their gradients", bytes, stage.chunks * m, true});
  }
  if (size(Axis::data) * size(Axis::context) > 1) {
    const double held = stage.parameters / size(Axis::tensor);
    const std::string groups = size(Axis::context) == 1 ? "dp"
                               : size(Axis::data) == 1  ? "cp"
                                                        : "dp x cp";
    if (job.zero == 0) {
      calls.push_back(
          {Axis::data, groups, "all_reduce", "gradients, fp32", held * kGradientBytes, 1, true});
    } else {
      calls.push_back({Axis::data, groups, "all_gather", "weights, bf16", held * kWeightBytes,
                       job.zero == 3 ? 2 * m : 1, true});
      calls.push_back({Axis::data, groups, "reduce_scatter", "gradients, fp32",
                       held * kGradientBytes, job.zero >= 2 ? m : 1, true});
    }
  }
  return calls;
}

MeshLayout lay_out(const Mesh& mesh, const GpuFabric& network, const std::vector<int>& positions) {
  MeshLayout layout;
  layout.network = &network;
  for (const Axis axis : {Axis::tensor, Axis::context, Axis::pipeline, Axis::data}) {
    MeshLayout::Dimension& dimension = layout.of[static_cast<size_t>(axis)];
    dimension.groups =
        groups_of(mesh, axis == Axis::data ? std::vector<Axis>{Axis::data, Axis::context}
                                           : std::vector<Axis>{axis});
    const size_t members = dimension.groups[0].size();
    dimension.load = axis == Axis::pipeline ? network.ring_load(dimension.groups, positions)
                                            : network.gather_load(dimension.groups, positions);
    const int messages = axis == Axis::pipeline ? 1 : std::bit_width(members - 1);
    dimension.messages_s =
        members > 1 ? messages * network.message_s(dimension.groups, positions) : 0;
  }
  return layout;
}

namespace {

SetBound time_at(const Traffic& call, const MeshLayout& layout, double within_host,
                 double between_hosts) {
  const MeshLayout::Dimension& dimension = layout.of[static_cast<size_t>(call.axis)];
  const GpuFabric& network = *layout.network;
  if (call.collective == "reduce_scatter") {  // the gather run backwards
    const Load reverse{dimension.load.out, dimension.load.in};
    return network.bound(reverse, call.bytes, call.bytes, within_host, between_hosts);
  }
  if (call.collective == "all_reduce") {  // both, one after the other
    Load both = dimension.load;
    for (size_t g = 0; g < both.in.size(); g++) both.in[g] = both.out[g] = both.in[g] + both.out[g];
    return network.bound(both, call.bytes, call.bytes, within_host, between_hosts);
  }
  return network.bound(dimension.load, call.bytes, call.bytes, within_host, between_hosts);
}

}  // namespace

double seconds_of(const Traffic& call, const MeshLayout& layout, const Constants& constants) {
  return time_at(call, layout, constants.scale_up.value, constants.network.value).seconds +
         layout.of[static_cast<size_t>(call.axis)].messages_s;
}

SetBound least_time(const Traffic& call, const MeshLayout& layout) {
  return time_at(call, layout, 1, 1);
}

StepTime step_time(const Job& job, const MeshLayout& layout) {
  const Stage stage = busiest_stage(job);
  const std::vector<Traffic> calls = traffic(job);
  const LayerTime layer = layer_time(job, calls, layout);
  const double m = job.microbatches(), p = job.mesh.size(Axis::pipeline), v = stage.chunks;
  const double layers = m * stage.layers;
  StepTime step;
  const double output = stage.outputs * layer.matmul * job.model.embedding_parameters() /
                        job.model.layer_parameters();
  step.matmul = layers * layer.matmul + m * output;
  step.attention = layers * layer.attention;
  step.elementwise = layers * layer.elementwise;
  step.tensor = layers * layer.tensor;
  step.context = layers * layer.context;
  const double work = stage.layers * layer.total() + output;  // of one microbatch
  step.bubble = work * ((std::max(m, p) * v + std::min(m, p) - 1) / v - m);
  const double pieces = std::max<double>(v, stage.layers);  // weights are gathered by layer
  const double beside = std::min(m, p) * work;              // the first microbatches, or the last
  double data = 0;
  for (const Traffic& call : calls) {
    const double seconds = seconds_of(call, layout, job.constants);
    const bool forward = call.of == "activations" || call.collective == "all_gather";
    const double share = forward ? 1.0 / 3 : 2.0 / 3;  // of the work
    if (call.axis == Axis::pipeline) {
      step.pipeline += (p - 1) * seconds + m * v * std::max(0.0, seconds - share * work / v);
    } else if (call.axis == Axis::data) {
      const double all = seconds * call.times;
      // Called for every microbatch: beside all of the work. Weights for the backward pass are
      // gathered as well.
      const double room =
          call.times > 1 ? m * work * (job.zero == 3 && forward ? 1 : share) : share * beside;
      data += all;
      step.data += seconds / pieces + std::max(0.0, all - seconds / pieces - room);
    }
  }
  step.data_hidden = data - step.data;
  const double shards =
      job.zero == 0 ? 1 : job.mesh.size(Axis::data) * job.mesh.size(Axis::context);
  step.optimizer = stage.parameters / job.mesh.size(Axis::tensor) / shards * kOptimizerBytes /
                   (job.gpu.memory_bytes_per_s.value * job.constants.memory.value);
  step.total = step.matmul + step.attention + step.elementwise + step.tensor + step.context +
               step.bubble + step.pipeline + step.data + step.optimizer;
  step.flops = job.flops_per_step();
  step.mfu = step.flops / step.total / job.mesh.gpus() / job.gpu.bf16.value;
  step.tokens_per_s = job.tokens_per_step() / step.total;
  return step;
}

}  // namespace sennit::forecast
