// parameter_layout.cpp: see trainer/model/parameter_layout.hpp.
#include "trainer/model/parameter_layout.hpp"

#include <cmath>
#include <numbers>

#include <fmt/core.h>

#include "base/arithmetic.hpp"

namespace sennit::trainer {
namespace {

constexpr int64_t kAlignment = 16;  // elements: 64 bytes of f32
int64_t rounded_up(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

class Builder {
 public:
  Builder(const LlamaConfig& model, const MeshShape& mesh, const Coordinates& at)
      : model_(model),
        parts_(mesh.tensor),
        part_(at.tensor),
        padding_(int64_t{mesh.data} * mesh.context * kAlignment) {}

  void open(std::string name) { unit_.name = std::move(name); }
  bool is_open() const { return !unit_.boxes.empty(); }
  int number() const { return static_cast<int>(layout.units.size()); }
  int64_t size() const { return unit_.size; }
  void close() {
    if (!is_open()) return;
    unit_.size = rounded_up(unit_.size, padding_);
    layout.units.push_back(std::exchange(unit_, Unit()));
  }

  // Norms are aligned, so that runs of them are one sum over the tensor ranks.
  ParameterPlace norm(const std::string& name) {
    align();
    const ParameterPlace place = add({name, {model_.hidden}, {0}, {model_.hidden}});
    unit_.boxes.back().whole = true;
    unit_.boxes.back().deviation = 0;
    unit_.tensor_sums.emplace_back(place.first, model_.hidden);
    return place;
  }
  // [outputs, inputs], cut by outputs.
  ParameterPlace by_rows(const std::string& name, int64_t outputs, int64_t inputs) {
    return add(
        {name, {outputs, inputs}, {outputs / parts_ * part_, 0}, {outputs / parts_, inputs}});
  }
  ParameterPlace by_columns(const std::string& name, int64_t outputs, int64_t inputs,
                            float deviation) {
    const ParameterPlace place =
        add({name, {outputs, inputs}, {0, inputs / parts_ * part_}, {outputs, inputs / parts_}});
    unit_.boxes.back().deviation = deviation;
    return place;
  }
  void align() { unit_.size = rounded_up(unit_.size, kAlignment); }
  Unit& unit() { return unit_; }

  ParameterLayout layout;

 private:
  ParameterPlace add(ParameterBox box) {
    box.first = unit_.size;
    box.elements = 1;
    for (const int64_t n : box.extent) box.elements *= n;
    unit_.size += box.elements;
    unit_.boxes.push_back(std::move(box));
    return {number(), unit_.boxes.back().first};
  }
  const LlamaConfig& model_;
  int64_t parts_, part_, padding_;
  Unit unit_;
};

// Projections into the residual start smaller, so that its variance does not grow with the depth.
float into_residual(const LlamaConfig& model) {
  return 0.02f / std::sqrt(2.0f * static_cast<float>(model.layers));
}

void add_attention(Builder& builder, const LlamaConfig& model, LayerPlaces& places) {
  const std::string name = fmt::format("model.layers.{}.", places.layer);
  const int64_t query = model.heads * model.head_size, key = model.kv_heads * model.head_size;
  places.attention_norm = builder.norm(name + "input_layernorm.weight");
  builder.align();
  places.qkv = builder.by_rows(name + "self_attn.q_proj.weight", query, model.hidden);
  builder.by_rows(name + "self_attn.k_proj.weight", key, model.hidden);
  builder.by_rows(name + "self_attn.v_proj.weight", key, model.hidden);
  builder.align();
  places.output = builder.by_columns(name + "self_attn.o_proj.weight", model.hidden, query,
                                     into_residual(model));
}

void add_ffn(Builder& builder, const LlamaConfig& model, LayerPlaces& places) {
  const std::string name = fmt::format("model.layers.{}.", places.layer);
  places.ffn_norm = builder.norm(name + "post_attention_layernorm.weight");
  builder.align();
  places.gate_up = builder.by_rows(name + "mlp.gate_proj.weight", model.ffn, model.hidden);
  builder.by_rows(name + "mlp.up_proj.weight", model.ffn, model.hidden);
  builder.align();
  places.down = builder.by_columns(name + "mlp.down_proj.weight", model.hidden, model.ffn,
                                   into_residual(model));
}

// The halves of a chunk's layers, in the order of their use: which of them begin a unit.
std::vector<bool> unit_starts(const LlamaConfig& model, const MeshShape& mesh, int layers,
                              int64_t bucket_bytes) {
  const int64_t attention = 2 * (model.heads + model.kv_heads) * model.head_size,
                ffn = 3 * model.ffn;
  std::vector<bool> starts(2 * static_cast<size_t>(layers));
  int64_t bytes = 0;
  for (size_t half = starts.size(); half-- > 0;) {
    bytes += (half % 2 == 0 ? attention : ffn) * model.hidden / mesh.tensor * 4;
    if (bytes < bucket_bytes) continue;
    starts[half] = true;
    bytes = 0;
  }
  starts[0] = true;
  return starts;
}

}  // namespace

int64_t ParameterLayout::elements() const {
  int64_t n = 0;
  for (const Unit& unit : units) n += unit.size;
  return n;
}

ParameterLayout make_layout(const LlamaConfig& model, const MeshShape& mesh, const Coordinates& at,
                            int64_t bucket_bytes) {
  Builder builder(model, mesh, at);
  ParameterLayout& layout = builder.layout;
  layout.heads = model.heads / mesh.tensor;
  layout.kv_heads = model.kv_heads / mesh.tensor;
  layout.ffn = model.ffn / mesh.tensor;
  layout.vocabulary = model.vocabulary / mesh.tensor;
  layout.first_token = layout.vocabulary * at.tensor;
  const bool first = at.pipeline == 0, last = at.pipeline == mesh.pipeline - 1;
  const bool copies = model.tied && mesh.pipeline > 1;

  if (first) {
    builder.open("embedding");
    layout.embedding = builder.by_rows("model.embed_tokens.weight", model.vocabulary, model.hidden);
    builder.unit().tied_copies = copies;
    builder.close();
  }
  const int layers = static_cast<int>(model.layers) / mesh.stages();
  layout.chunks.resize(static_cast<size_t>(mesh.stage_chunks));
  for (int chunk = 0; chunk < mesh.stage_chunks; chunk++) {
    std::vector<LayerPlaces>& places = layout.chunks[static_cast<size_t>(chunk)];
    places.resize(static_cast<size_t>(layers));
    const std::vector<bool> starts = unit_starts(model, mesh, layers, bucket_bytes);
    for (size_t half = 0; half < starts.size(); half++) {
      LayerPlaces& layer = places[half / 2];
      layer.layer = (chunk * mesh.pipeline + at.pipeline) * layers + static_cast<int>(half / 2);
      LayerPlaces::Half& own = half % 2 == 0 ? layer.attention : layer.ffn;
      own.unit = builder.number();
      own.first = starts[half];
      own.last = half + 1 == starts.size() || starts[half + 1];
      if (own.first)
        builder.open(
            fmt::format("layers from {}, {}", layer.layer, half % 2 == 0 ? "attention" : "ffn"));
      half % 2 == 0 ? add_attention(builder, model, layer) : add_ffn(builder, model, layer);
      if (own.last) builder.close();
    }
  }
  if (last) {
    builder.open("output");
    layout.final_norm = builder.norm("model.norm.weight");
    if (model.tied && !copies) {
      layout.output_layer = layout.embedding;
    } else if (copies) {
      builder.close();
      builder.open("tied table");
      layout.output_layer =
          builder.by_rows("model.embed_tokens.weight", model.vocabulary, model.hidden);
      builder.unit().boxes.back().second = true;
      builder.unit().tied_copies = true;
    } else {
      builder.align();
      layout.output_layer = builder.by_rows("lm_head.weight", model.vocabulary, model.hidden);
    }
    builder.close();
  }
  return std::move(layout);
}

Initializer::Initializer(uint64_t seed, const ParameterBox& box)
    : key_(mix(0, seed)), deviation_(box.deviation) {
  for (const char c : box.name)
    key_ = scrambled(key_ ^ static_cast<unsigned char>(c)) + kGoldenRatio;
}

float Initializer::operator()(uint64_t index) const {
  if (deviation_ == 0) return 1;
  // Box and Muller's transform of two counters' hashes.
  const uint64_t a = scrambled(key_ ^ scrambled(2 * index + 1)),
                 b = scrambled(key_ ^ scrambled(2 * index + 2));
  const double u = (static_cast<double>(a >> 11) + 1) * 0x1p-53,
               v = static_cast<double>(b >> 11) * 0x1p-53;
  return static_cast<float>(std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * v) *
                            static_cast<double>(deviation_));
}

void initialize(const ParameterBox& box, uint64_t seed, int64_t first, std::span<float> out) {
  const Initializer value(seed, box);
  const int64_t columns = box.extent.back(), whole_columns = box.shape.back();
  const int64_t row_offset = box.extent.size() > 1 ? box.offset[0] : 0;
  for (size_t i = 0; i < out.size(); i++) {
    const int64_t local = first + static_cast<int64_t>(i);
    const int64_t row = row_offset + local / columns, column = box.offset.back() + local % columns;
    out[i] = value(static_cast<uint64_t>(row * whole_columns + column));
  }
}

}  // namespace sennit::trainer
