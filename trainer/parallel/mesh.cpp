// mesh.cpp: see trainer/parallel/mesh.hpp.
#include "trainer/parallel/mesh.hpp"

#include <fmt/core.h>

namespace sennit::trainer {
namespace {

Status must_divide(const char* option, int64_t by, const char* what, int64_t number) {
  if (by > 0 && number % by == 0) return {};
  std::string fits;
  for (int64_t d = 1; d <= std::min<int64_t>(number, 64); d++)
    if (number % d == 0) fits += fmt::format("{}{}", fits.empty() ? "" : ", ", d);
  return invalid(
      fmt::format("{} {} does not divide {} ({}); these do: {}", option, by, what, number, fits));
}

}  // namespace

std::string MeshShape::text() const {
  std::string text = fmt::format("dp {} x pp {} x cp {} x tp {}", data, pipeline, context, tensor);
  if (stage_chunks > 1) text += fmt::format(", {} chunks a stage", stage_chunks);
  return text;
}

Status check_mesh(const MeshShape& mesh, const BatchShape& batch, const LlamaConfig& model,
                  int ranks) {
  for (const auto& [name, size] : {std::pair<const char*, int>{"--dp", mesh.data},
                                   {"--tp", mesh.tensor},
                                   {"--pp", mesh.pipeline},
                                   {"--cp", mesh.context},
                                   {"--stage-chunks", mesh.stage_chunks}})
    if (size < 1) return invalid(fmt::format("{} {}: it must be 1 or more", name, size));
  if (mesh.ranks() != ranks)
    return invalid(fmt::format("the mesh {} has {} ranks, but there are {}", mesh.text(),
                               mesh.ranks(), ranks));
  SENNIT_RETURN_IF_ERROR(must_divide("--tp", mesh.tensor, "the query heads", model.heads));
  SENNIT_RETURN_IF_ERROR(must_divide(
      "--tp", mesh.tensor, "the key/value heads, which are not replicated,", model.kv_heads));
  SENNIT_RETURN_IF_ERROR(must_divide("--tp", mesh.tensor, "the feed-forward width", model.ffn));
  if (const Status fault = must_divide("--tp", mesh.tensor, "the vocabulary", model.vocabulary);
      !fault.ok())
    return invalid(fmt::format("{}; the model's vocab_size may be larger than the data's: {}",
                               fault.text(), (model.vocabulary / mesh.tensor + 1) * mesh.tensor));
  SENNIT_RETURN_IF_ERROR(
      must_divide("--pp times --stage-chunks", mesh.stages(), "the layers", model.layers));
  if (batch.length < 1 || batch.length > model.positions)
    return invalid(fmt::format("--sequence {}: the model has 1 to {} positions", batch.length,
                               model.positions));
  if (mesh.context > 1)
    SENNIT_RETURN_IF_ERROR(
        must_divide("two times --cp", 2 * mesh.context, "the sequence", batch.length));
  if (batch.sequences < 1 || batch.micro < 1)
    return invalid(fmt::format("--batch {} --micro-batch {}: both must be 1 or more",
                               batch.sequences, batch.micro));
  SENNIT_RETURN_IF_ERROR(must_divide("--dp times --micro-batch", mesh.data * batch.micro,
                                     "the batch (in sequences)", batch.sequences));
  SENNIT_RETURN_IF_ERROR(must_divide("--tp", mesh.tensor,
                                     "the tokens of a micro-batch on a context rank",
                                     batch.micro * batch.length / mesh.context));
  if (mesh.stage_chunks > 1) {
    if (mesh.pipeline == 1) return invalid("--stage-chunks needs a pipeline: --pp 2 or more");
    SENNIT_RETURN_IF_ERROR(
        must_divide("--pp", mesh.pipeline,
                    "the micro-batches of a step, which interleaving takes in rounds of that many,",
                    batch.micro_batches(mesh)));
  }
  return {};
}

Coordinates coordinates_of(const MeshShape& mesh, int position) {
  Coordinates at;
  at.tensor = position % mesh.tensor;
  position /= mesh.tensor;
  at.context = position % mesh.context;
  position /= mesh.context;
  at.pipeline = position % mesh.pipeline;
  at.data = position / mesh.pipeline;
  return at;
}

Result<Mesh> make_mesh(const MeshShape& shape, std::unique_ptr<Communicator> job) {
  Mesh mesh;
  mesh.shape = shape;
  const Result<int> position = job->fabric_position();
  if (!position) return position.status();
  mesh.position = *position;
  mesh.at = coordinates_of(shape, mesh.position);
  const Coordinates& at = mesh.at;
  const auto number = [&](bool data, bool pipeline, bool context, bool tensor) {
    int n = 0;
    if (data) n = at.data;
    if (pipeline) n = n * shape.pipeline + at.pipeline;
    if (context) n = n * shape.context + at.context;
    if (tensor) n = n * shape.tensor + at.tensor;
    return n;
  };
  const auto split = [&](std::unique_ptr<Communicator>* group, int color, int key) -> Status {
    Result<std::unique_ptr<Communicator>> part = job->split(color, key);
    if (!part) return part.status();
    *group = *std::move(part);
    return {};
  };
  SENNIT_RETURN_IF_ERROR(split(&mesh.world, 0, mesh.position));
  SENNIT_RETURN_IF_ERROR(split(&mesh.tensor, number(true, true, true, false), at.tensor));
  SENNIT_RETURN_IF_ERROR(split(&mesh.context, number(true, true, false, true), at.context));
  for (std::unique_ptr<Communicator>* group : {&mesh.replica, &mesh.replica_weights})
    SENNIT_RETURN_IF_ERROR(
        split(group, number(false, true, false, true), number(true, false, true, false)));
  SENNIT_RETURN_IF_ERROR(split(&mesh.forwards, number(true, false, true, true), at.pipeline));
  SENNIT_RETURN_IF_ERROR(split(&mesh.backwards, number(true, false, true, true), at.pipeline));
  // Stages between the ends form groups of their own that nobody uses.
  const bool end = at.pipeline == 0 || at.pipeline == shape.pipeline - 1;
  const int middle = end ? 0 : at.pipeline;
  SENNIT_RETURN_IF_ERROR(
      split(&mesh.ends, number(true, false, true, true) * shape.pipeline + middle, at.pipeline));
  mesh.job = std::move(job);
  return mesh;
}

}  // namespace sennit::trainer
