// parameter_layout.hpp: which parameters this rank holds, and where they lie in its flat buffers.
//
// Parameters come in units: what is gathered, reduced and updated as one. A unit is one flat
// buffer; a tensor in it is this rank's box of a global tensor of Hugging Face's name and shape:
// tensor parallelism cuts q, k, v, gate, up, the embedding and the output layer by rows (outputs),
// o and down by columns (inputs), and keeps the norms whole. q, k, v lie one after the other, as do
// gate and up: each is one matrix product.
//
// Halves of layers (attention; feed-forward) of one stage chunk share a unit until it has
// `bucket_bytes` of f32 gradients, counted from the chunk's end, as the backward pass completes
// them. So what is left over, the chunk's first unit, is the small one: nothing is left to compute
// behind its reduction.
//
// A tied table is one parameter: in the first unit where there is no pipeline, else on the first
// and the last stage, whose gradients are summed.
#pragma once

#include <string>
#include <vector>

#include "trainer/checkpoint/checkpoint.hpp"
#include "trainer/parallel/mesh.hpp"

namespace sennit::trainer {

// This rank's box of one parameter, as it lies in a unit: dense, row after row.
struct ParameterBox {
  std::string name;
  Sizes shape, offset, extent;  // of the whole tensor; this rank's box
  int64_t first = 0;            // element of the unit's buffer
  int64_t elements = 0;
  bool whole = false;       // the same on all tensor ranks: a norm
  bool second = false;      // another stage has it, too, and counts it: a tied table's copy
  float deviation = 0.02f;  // of the normal distribution it starts from; 0: ones
  bool decays() const { return deviation > 0; }
};

// What is gathered, reduced and updated as one.
struct Unit {
  std::string name;
  std::vector<ParameterBox> boxes;
  int64_t size = 0;  // elements, a multiple of the replica group's size times 16
  // Norms, which tensor ranks sum: runs of {first element, elements}.
  std::vector<std::pair<int64_t, int64_t>> tensor_sums;
  bool tied_copies = false;  // this unit is a tied table that two stages have
};

// Where a module's parameter lies.
struct ParameterPlace {
  int unit = -1;
  int64_t first = 0;
};
// Of one decoder layer.
struct LayerPlaces {
  int layer = 0;  // of the model
  ParameterPlace attention_norm, qkv, output, ffn_norm, gate_up, down;
  // A half's unit: whether the half is the first in it, and the last.
  struct Half {
    int unit = -1;
    bool first = false, last = false;
  };
  Half attention, ffn;
};

// All that one rank holds, and where a module finds its own in it.
struct ParameterLayout {
  std::vector<Unit> units;                                   // in the order of their use
  std::vector<std::vector<LayerPlaces>> chunks;              // by stage chunk
  ParameterPlace embedding, final_norm, output_layer;        // unit -1: another stage's
  int64_t heads = 0, kv_heads = 0, ffn = 0, vocabulary = 0;  // of this rank
  int64_t first_token = 0;                                   // of its part of the vocabulary

  int64_t elements() const;
};

// Pure. position's coordinates say what this rank holds. bucket_bytes 0: each half of a layer is a
// unit.
ParameterLayout make_layout(const LlamaConfig& model, const MeshShape& mesh, const Coordinates& at,
                            int64_t bucket_bytes);

// Element `index` of the tensor of this name as training starts: a function of (seed, name, index),
// so any mesh starts with the same bits.
class Initializer {
 public:
  Initializer(uint64_t seed, const ParameterBox& box);
  float operator()(uint64_t global_index) const;

 private:
  uint64_t key_;
  float deviation_;
};
// Values of the box's elements [first, first + out.size()), row-major in the box.
void initialize(const ParameterBox& box, uint64_t seed, int64_t first, std::span<float> out);

}  // namespace sennit::trainer
