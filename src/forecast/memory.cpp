// memory.cpp: see forecast/memory.hpp.
#include "forecast/memory.hpp"

#include <algorithm>

#include <fmt/core.h>

namespace sennit::forecast {
namespace {

constexpr double kRuntimeBytes = 2e9;
constexpr double kFloatBytes = 4;

// Values kept of one layer for one token, over all tensor ranks.
double kept_values(const Model& m, Recompute recompute) {
  if (recompute == Recompute::full) return m.width;
  // The layer's input, queries, keys, values, what attention gives, the second half's input, both
  // of the gate's.
  const double needed = 2.0 * m.width + 2 * m.query_width() + 2 * m.kv_width() + 2.0 * m.ffn;
  // What the two norms and the gate give can be computed again from these.
  return recompute == Recompute::cheap ? needed : needed + 2.0 * m.width + m.ffn;
}

int layers_in_flight(const Job& job) {
  const Stage stage = busiest_stage(job);
  const int m = job.microbatches(), p = job.mesh.size(Axis::pipeline), v = stage.chunks;
  if (p == 1) return stage.layers;
  const int64_t chunks = v > 1 ? int64_t{v - 1} * p + 2 * (p - 1) + 1 : p;
  return static_cast<int>(std::min<int64_t>(chunks, int64_t{m} * v) * stage.most_layers / v);
}

std::string gigabytes(double bytes) { return fmt::format("{:.1f} GB", bytes / 1e9); }

}  // namespace

std::string_view without_interleave(const Job& job) {
  return job.interleave > 0 ? " without --interleave" : "";
}

std::vector<std::pair<const char*, double>> Memory::parts() const {
  return {{"weights, bf16", weights},
          {"gradients, fp32", gradients},
          {"Adam's first moment, fp32", first_moment},
          {"Adam's second moment, fp32", second_moment},
          {"master weights, fp32", masters},
          {"activations, bf16", activations},
          {"buffers", buffers},
          {"runtime (assumed)", runtime}};
}

Memory memory_of(const Job& job) {
  const Model& m = job.model;
  const double tensor = job.mesh.size(Axis::tensor), tokens = job.tokens_per_microbatch();
  const double shards = job.mesh.size(Axis::data) * job.mesh.size(Axis::context);
  const double held = busiest_stage(job).parameters / tensor;
  Memory memory;
  memory.weights = held * kWeightBytes / (job.zero >= 3 ? shards : 1);
  memory.gradients = held * kFloatBytes / (job.zero >= 2 ? shards : 1);
  memory.first_moment = memory.second_moment = memory.masters =
      held * kFloatBytes / (job.zero >= 1 ? shards : 1);
  memory.layers_in_flight = layers_in_flight(job);
  memory.activations =
      memory.layers_in_flight * kept_values(m, job.recompute) * kActivationBytes * tokens / tensor;
  if (job.recompute == Recompute::full)  // and all of the one layer that is computed again
    memory.activations += kept_values(m, Recompute::none) * kActivationBytes * tokens / tensor;
  memory.buffers = 2 * tokens * m.width * kActivationBytes +
                   tokens * m.vocabulary / tensor * (kActivationBytes + kFloatBytes);
  const double layer = m.layer_parameters() / tensor;
  if (job.zero >= 3) memory.buffers += 2 * layer * kWeightBytes;
  if (job.zero >= 2) memory.buffers += layer * kFloatBytes;
  memory.runtime = kRuntimeBytes;
  return memory;
}

std::vector<Remedy> remedies(const Job& job) {
  std::vector<Remedy> found;
  const auto consider = [&](const Job& changed, const std::string& change) {
    if (!check(changed).ok() || changed.batch < 1) return;
    const double bytes = memory_of(changed).total();
    if (bytes <= changed.gpu.memory_bytes.value) found.push_back({change, bytes});
  };
  for (const Recompute recompute : {Recompute::cheap, Recompute::full})
    if (recompute > job.recompute) {
      Job changed = job;
      changed.recompute = recompute;
      consider(changed, fmt::format("--recompute {}", name(recompute)));
    }
  for (int zero = job.zero + 1; zero <= 3; zero++) {
    Job changed = job;
    changed.zero = zero;
    consider(changed, fmt::format("--zero {}", zero));
    changed.recompute = Recompute::full;
    if (job.recompute != Recompute::full)
      consider(changed, fmt::format("--zero {} --recompute full", zero));
  }
  if (job.microbatch > 1) {
    Job changed = job;
    changed.microbatch = 1;
    consider(changed, "--microbatch 1");
  }
  // More GPUs to a copy of the model, from the data-parallel dimension.
  for (const Axis axis : {Axis::tensor, Axis::pipeline, Axis::context})
    for (const int factor : {2, 4, 8}) {
      Job changed = job;
      int& data = changed.mesh.sizes[static_cast<size_t>(Axis::data)];
      int& more = changed.mesh.sizes[static_cast<size_t>(axis)];
      if (data % factor != 0 || (axis == Axis::tensor && more * factor > 8)) continue;
      data /= factor;
      more *= factor;
      changed.batch *= factor;
      changed.interleave = 0;
      const size_t before = found.size();
      consider(changed, fmt::format("--mesh {} --batch {}{}", changed.mesh.to_text(), changed.batch,
                                    without_interleave(job)));
      if (found.size() > before) break;  // the least factor that does
    }
  if (found.size() > 5) found.resize(5);
  return found;
}

namespace {

// The least power of two of GPUs on which the job fits as it is asked for, or else with everything
// sharded and computed again; empty where none is enough.
std::string enough_gpus(const Job& job) {
  constexpr int kMostGpus = 1 << 17, kMostTensor = 8, kMostStages = 128;
  const double sequences = static_cast<double>(job.batch) * job.mesh.size(Axis::data);
  for (const bool frugal : {false, true}) {
    Job changed = job;
    changed.interleave = 0;
    if (frugal) {
      changed.zero = 3;
      changed.recompute = Recompute::full;
      changed.microbatch = 1;
    }
    for (int gpus = 2; gpus <= kMostGpus; gpus *= 2)
      for (int tensor = 1; tensor <= kMostTensor && gpus > job.mesh.gpus(); tensor *= 2)
        for (int stages = 1; stages <= kMostStages && gpus % (tensor * stages) == 0; stages *= 2) {
          changed.mesh = Mesh();
          changed.mesh.sizes = {tensor, 1, stages, gpus / (tensor * stages)};
          changed.share_out(sequences);
          if (!check(changed).ok() || !fits(changed)) continue;
          return fmt::format("{} GPUs would do, as in --gpus {} --mesh {} --batch {}{}{}", gpus,
                             gpus, changed.mesh.to_text(), changed.batch,
                             frugal ? " --zero 3 --recompute full --microbatch 1" : "",
                             without_interleave(job));
        }
  }
  return "";
}

}  // namespace

bool fits(const Job& job) { return memory_of(job).total() <= job.gpu.memory_bytes.value; }

Status check_memory(const Job& job) {
  const Memory memory = memory_of(job);
  const double excess = memory.total() - job.gpu.memory_bytes.value;
  if (excess <= 0) return {};
  const auto parts = memory.parts();
  const auto largest = std::max_element(
      parts.begin(), parts.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  std::string text = fmt::format(
      "{} does not fit: a GPU of the busiest stage needs {}, which is {} more than the {} of {}; "
      "the largest part is its {}: {}",
      job.model.name, gigabytes(memory.total()), gigabytes(excess),
      gigabytes(job.gpu.memory_bytes.value), job.gpu.full_name, largest->first,
      gigabytes(largest->second));
  const std::vector<Remedy> ways = remedies(job);
  if (ways.empty()) {
    const std::string more = enough_gpus(job);
    return invalid(text + "; no single change on these GPUs makes it fit: " +
                   (more.empty()
                        ? "use ones with more memory, or a smaller model or shorter sequences"
                        : more));
  }
  text += ". It would fit with";
  for (size_t i = 0; i < ways.size(); i++)
    text += fmt::format("{} {} ({})",
                        i == 0                 ? ""
                        : i + 1 == ways.size() ? ", or"
                                               : ",",
                        ways[i].change, gigabytes(ways[i].bytes));
  return invalid(text);
}

}  // namespace sennit::forecast
