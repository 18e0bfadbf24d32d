// mesh.hpp: which rank does what: tensor, context, pipeline and data parallelism as groups of
// ranks.
//
// Ranks are taken in the fabric's order (neighbours in it are near in the network), and coordinates
// count up tensor first, then context, pipeline, data: the dimension that communicates most lies
// where the network is fastest. Position = ((data * pipeline_size + pipeline) * context_size +
// context) * tensor_size + tensor. `stage_chunks`: parts of the model on each pipeline rank
// (interleaving); part c of rank p is the (c * pipeline_size + p)-th from the input.
#pragma once

#include <memory>
#include <string>

#include "trainer/base/llama_config.hpp"
#include "trainer/parallel/communication.hpp"

namespace sennit::trainer {

// Ranks in each dimension.
struct MeshShape {
  int data = 1, context = 1, pipeline = 1, tensor = 1;
  int stage_chunks = 1;
  int ranks() const { return data * context * pipeline * tensor; }
  int stages() const { return pipeline * stage_chunks; }
  std::string text() const;  // "dp 2 x pp 2 x cp 1 x tp 2"
};

// The batch of a step, in sequences; each data-parallel rank works through its share in
// micro-batches.
struct BatchShape {
  int64_t sequences = 1, micro = 1, length = 0;
  int64_t micro_batches(const MeshShape& mesh) const { return sequences / mesh.data / micro; }
};

// What does not divide, and what would.
Status check_mesh(const MeshShape& mesh, const BatchShape& batch, const LlamaConfig& model,
                  int ranks);

// A rank's number in each dimension, from 0.
struct Coordinates {
  int data = 0, context = 0, pipeline = 0, tensor = 0;
};
// position: below mesh.ranks(), in the mesh's order.
Coordinates coordinates_of(const MeshShape& mesh, int position);

// This rank's place and groups. A group of one communicates nothing.
struct Mesh {
  MeshShape shape;
  Coordinates at;
  int position = 0;
  std::unique_ptr<Communicator> job;      // all ranks, as started
  std::unique_ptr<Communicator> world;    // all ranks, in mesh order: rank == position
  std::unique_ptr<Communicator> tensor;   // same data, context, pipeline
  std::unique_ptr<Communicator> context;  // by context
  // By (data, context): hold the same parameters. Twice, so that weights need not queue behind
  // gradients.
  std::unique_ptr<Communicator> replica, replica_weights;
  // by pipeline: activations, and their gradients
  std::unique_ptr<Communicator> forwards, backwards;
  // the first and the last stage of a pipeline; nothing elsewhere
  std::unique_ptr<Communicator> ends;

  bool first_stage(int chunk) const { return at.pipeline == 0 && chunk == 0; }
  bool last_stage(int chunk) const {
    return at.pipeline == shape.pipeline - 1 && chunk == shape.stage_chunks - 1;
  }
  int stage(int chunk) const { return chunk * shape.pipeline + at.pipeline; }
};

// Collective. `job` connects all ranks; the mesh must have as many.
Result<Mesh> make_mesh(const MeshShape& shape, std::unique_ptr<Communicator> job);

}  // namespace sennit::trainer
