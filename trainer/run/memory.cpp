// memory.cpp: see trainer/run/memory.hpp.
#include "trainer/run/memory.hpp"

#include <algorithm>
#include <bit>
#include <cstdlib>

#include <fmt/core.h>

#include "base/process/memory_left.hpp"
#include "trainer/base/local_ranks.hpp"
#include "trainer/model/embedding_and_head.hpp"

namespace sennit::trainer {
namespace {

constexpr int kBatchesHeld = 6;  // of training and held-out text: two that wait, and one in use
constexpr double kMost = 1e18;   // bytes of a part; no more than that is worth telling apart

double number_of(int64_t n) { return static_cast<double>(n); }

// Micro-batches times layers that a pipeline rank keeps at once.
int64_t layers_in_flight(const TrainerOptions& options, int pipeline_rank) {
  return most_in_flight(options.mesh, pipeline_rank, options.batch.micro_batches(options.mesh)) *
         (options.model.layers / options.mesh.stages());
}

MemoryParts memory_at(const TrainerOptions& options, const Coordinates& at) {
  const MeshShape& mesh = options.mesh;
  const ParameterLayout layout = make_layout(options.model, mesh, at, options.unit_bytes());
  const int64_t shards = int64_t{mesh.data} * mesh.context;
  const int zero = shards == 1 ? 0 : options.zero;
  const int64_t all = layout.elements(), own = zero == 0 ? all : all / shards;
  const auto width = static_cast<int64_t>(bytes_of(options.type));
  int64_t widest = 0;
  for (const Unit& unit : layout.units) widest = std::max(widest, unit.size);

  // In doubles: exact for what any memory holds, and a batch that none holds does not wrap around.
  const double rows = number_of(options.batch.micro * options.batch.length / mesh.context);
  const double hidden = number_of(options.model.hidden),
               query = number_of(layout.heads * options.model.head_size),
               qkv = query + number_of(2 * layout.kv_heads * options.model.head_size),
               ffn = number_of(layout.ffn), heads = number_of(layout.heads), w = number_of(width);
  const double input = rows / mesh.tensor * hidden * w;
  const double kept =
      2 * input + rows * (2 * hidden + qkv + query + 3 * ffn) * w + rows * (heads + 2) * 4;
  const double flight = number_of(layers_in_flight(options, at.pipeline));
  const double backward = rows * (4 * hidden + 3 * ffn + query + qkv) * w;
  const double ring = mesh.context > 1 ? rows * (6 * (qkv - query) + 3 * query) * 4 : 0;
  const double logits =
      at.pipeline == mesh.pipeline - 1
          ? std::min(number_of(kLogitBytes), rows * number_of(layout.vocabulary) * w)
          : 0;
  const double tokens =
      number_of(options.batch.sequences / mesh.data) * number_of(options.batch.length + 1) * 4;

  MemoryParts memory;
  const auto add = [&](const char* name, double bytes) {
    if (bytes > 0) memory.parts.emplace_back(name, static_cast<uint64_t>(std::min(bytes, kMost)));
  };
  const auto add_whole = [&](const char* name, int64_t bytes) { add(name, number_of(bytes)); };
  add_whole("weights", (zero == 3 ? (width == 4 ? 0 : own) : all) * width);
  add_whole("gradients", (zero < 2 ? all : own) * 4);
  if (width != 4 || zero == 3) add_whole("masters", own * 4);
  add_whole("moments", own * 8);
  add("activations", options.recompute ? flight * input + kept : flight * kept);
  add("working buffers", backward + ring + logits);
  add_whole("units under way",
            (zero >= 2 ? 3 * widest * 4 : 0) + (zero == 3 ? 3 * widest * width : 0));
  if (options.saves) add_whole("copy to save", all / shards * 12);
  add("batches read ahead", kBatchesHeld * tokens);
  return memory;
}

}  // namespace

uint64_t MemoryParts::total() const {
  uint64_t sum = 0;
  for (const auto& [name, bytes] : parts) sum += bytes;
  return sum;
}

std::string bytes_text(uint64_t bytes) {
  const auto b = static_cast<double>(bytes);
  return bytes < 10'000'000 ? fmt::format("{:.2f} MB", b / 1e6)
         : b < 1e9          ? fmt::format("{:.0f} MB", b / 1e6)
                            : fmt::format("{:.1f} GB", b / 1e9);
}

std::string MemoryParts::text() const {
  std::string text;
  for (const auto& [name, bytes] : parts)
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, bytes_text(bytes));
  return text;
}

MemoryParts memory_of(const TrainerOptions& options) {
  MemoryParts most;
  for (int p = 0; p < options.mesh.pipeline; p++) {
    Coordinates at;
    at.pipeline = p;
    MemoryParts memory = memory_at(options, at);
    if (memory.total() > most.total()) most = std::move(memory);
  }
  return most;
}

uint64_t available_memory() {
  return memory_left_to_process(static_cast<uint64_t>(ranks_on_this_host())).bytes;
}

Status check_memory(const TrainerOptions& options, uint64_t available) {
  const MemoryParts memory = memory_of(options);
  if (memory.total() <= available) return {};
  struct Change {
    const char* text;
    bool possible;
    void (*make)(TrainerOptions*);
  };
  const Change changes[] = {
      {"--recompute true", !options.recompute, [](TrainerOptions* o) { o->recompute = true; }},
      {"--zero 3", options.zero < 3 && options.mesh.data * options.mesh.context > 1,
       [](TrainerOptions* o) { o->zero = 3; }},
      {"--micro-batch 1", options.batch.micro > 1, [](TrainerOptions* o) { o->batch.micro = 1; }}};
  // All sets of changes: those of the fewest that fit, and the one that needs least.
  std::string fitting, smallest;
  int fewest = 4;
  uint64_t least = memory.total();
  for (unsigned set = 1; set < 8; set++) {
    TrainerOptions changed = options;
    std::string text;
    bool possible = true;
    for (unsigned i = 0; i < 3; i++) {
      if ((set >> i & 1) == 0) continue;
      possible = possible && changes[i].possible;
      changes[i].make(&changed);
      text += fmt::format("{}{}", text.empty() ? "" : " ", changes[i].text);
    }
    if (!possible ||
        !check_mesh(changed.mesh, changed.batch, changed.model, changed.mesh.ranks()).ok())
      continue;
    const uint64_t then = memory_of(changed).total();
    if (then < least) {
      least = then;
      smallest = text;
    }
    if (then > available || std::popcount(set) > fewest) continue;
    if (std::popcount(set) < fewest) fitting.clear();
    fewest = std::popcount(set);
    fitting += fmt::format("{}{} ({})", fitting.empty() ? "" : ", or ", text, bytes_text(then));
  }
  std::string advice = "take more ranks (--tp, --pp), a smaller --batch or a smaller model";
  if (!fitting.empty())
    advice = "it fits with " + fitting;
  else if (!smallest.empty())
    advice = fmt::format("with {} it still needs {}: {}", smallest, bytes_text(least), advice);
  return {SENNIT_OUT_OF_RESOURCES,
          fmt::format("a rank needs {} ({}), and {} are there for it; {}",
                      bytes_text(memory.total()), memory.text(), bytes_text(available), advice)};
}

}  // namespace sennit::trainer
