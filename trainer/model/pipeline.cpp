// pipeline.cpp: see trainer/model/pipeline.hpp.
#include "trainer/model/pipeline.hpp"

#include <utility>

#include "base/index.hpp"

namespace sennit::trainer {

// ---- passing on ----

void Pipeline::post(Inbox& inbox) {
  while (inbox.posted < inbox.expected && inbox.posted < inbox.taken + 2) {
    PooledMatrix buffer = e_.take(e_.own_rows(), e_.model.hidden);
    Transfer transfer = inbox.from->receive(buffer->data, index(buffer->rows * buffer->columns),
                                            element_of(e_.type), inbox.peer);
    inbox.coming.emplace_back(std::move(buffer), std::move(transfer));
    inbox.posted++;
  }
}

PooledMatrix Pipeline::take(Inbox& inbox) {
  post(inbox);
  inbox.taken++;
  PooledMatrix buffer = std::move(inbox.coming.front().first);
  inbox.coming.front().second.wait();
  inbox.coming.pop_front();
  post(inbox);
  return buffer;
}

void Pipeline::send(Communicator& to, int peer, PooledMatrix buffer) {
  Transfer transfer =
      to.send(buffer->data, index(buffer->rows * buffer->columns), element_of(e_.type), peer);
  sent_.emplace_back(std::move(buffer), std::move(transfer));
}

void Pipeline::drop_sent() {
  e_.mesh.world->traffic().poll();
  while (!sent_.empty() && !sent_.front().second.under_way()) sent_.pop_front();
}

void Pipeline::finish_sends() {
  for (auto& [buffer, transfer] : sent_) transfer.wait();
  sent_.clear();
}

// ---- forward ----

PooledMatrix Pipeline::rows_of_tokens(std::span<const int32_t> tokens, int64_t micro_batch,
                                      int shift) {
  const TokenShape& shape = e_.tokens;
  std::vector<int32_t> rows(index(shape.rows()));
  lay_out_tokens(shape, e_.mesh.at.context,
                 tokens.data() + micro_batch * shape.batch * (shape.length + 1), shift,
                 rows.data());
  PooledMatrix buffer = e_.pool.take_f32(shape.rows());
  e_.device.upload(buffer->data, rows.data(), rows.size() * sizeof(int32_t));
  return buffer;
}

// Goes over to these units' weights; those that it has already stay. `next`: to be prefetched, or
// -1.
void Pipeline::hold(std::pair<int, int> units, int next) {
  const auto [first, second] = std::exchange(held_, units);
  if (units.first >= 0) e_.parameters.acquire(units.first, units.second);
  if (units.second >= 0) e_.parameters.acquire(units.second, next);
  if (first >= 0) e_.parameters.release(first);
  if (second >= 0) e_.parameters.release(second);
}

PooledMatrix Pipeline::run_layers(int chunk, PooledMatrix x, InFlight* flight, bool keep) {
  const std::vector<LayerPlaces>& layers = e_.parameters.layout().chunks[index(chunk)];
  // Units are numbered in the order of their use.
  const int last = layers.back().ffn.unit;
  const int behind = e_.mesh.last_stage(chunk) ? e_.parameters.layout().output_layer.unit : -1;
  flight->layers.resize(layers.size());
  for (size_t l = 0; l < layers.size(); l++) {
    const int unit = layers[l].ffn.unit;
    hold({layers[l].attention.unit, unit}, unit < last ? unit + 1 : behind);
    x = block_forward(e_, layers[l], std::move(x), recompute_, &flight->layers[l]);
    if (!keep) flight->layers[l] = Kept();
    drop_sent();
  }
  hold(kNone, -1);
  return x;
}

PooledMatrix Pipeline::forward_chunk(int chunk, int64_t micro_batch,
                                     std::span<const int32_t> tokens, InFlight* flight, bool keep) {
  const ParameterLayout& layout = e_.parameters.layout();
  PooledMatrix x;
  if (e_.mesh.first_stage(chunk)) {
    flight->tokens = rows_of_tokens(tokens, micro_batch, 0);
    e_.parameters.acquire(layout.embedding.unit, layout.chunks[index(chunk)].front().qkv.unit);
    x = embed_forward(e_, static_cast<const int32_t*>(flight->tokens->data));
    e_.parameters.release(layout.embedding.unit);
  } else {
    x = take(activations_);
  }
  x = run_layers(chunk, std::move(x), flight, keep);
  if (e_.mesh.last_stage(chunk)) {
    flight->targets = rows_of_tokens(tokens, micro_batch, 1);
    return x;
  }
  send(*e_.mesh.forwards, (e_.mesh.at.pipeline + 1) % e_.mesh.shape.pipeline, std::move(x));
  return {};
}

double Pipeline::run_head(Matrix x, InFlight* flight, bool gradient, float scale) {
  const ParameterLayout& layout = e_.parameters.layout();
  const int norm = layout.final_norm.unit, output = layout.output_layer.unit;
  e_.parameters.acquire(output, norm);
  // Behind the head's forward pass comes its chunk's backward pass.
  e_.parameters.acquire(norm, gradient ? layout.chunks.back().back().ffn.unit : -1);
  if (gradient) {
    e_.parameters.open_gradient(norm);
    if (output != norm) e_.parameters.open_gradient(output);
  }
  Head result = head(e_, x, static_cast<const int32_t*>(flight->targets->data), gradient, scale);
  flight->dx = std::move(result.dx);
  e_.parameters.release(norm);
  e_.parameters.release(output);
  return result.loss;
}

// ---- backward ----

void Pipeline::backward_chunk(int chunk, InFlight flight, PooledMatrix dy, bool last) {
  Parameters& parameters = e_.parameters;
  const ParameterLayout& layout = parameters.layout();
  const std::vector<LayerPlaces>& layers = layout.chunks[index(chunk)];
  if (e_.mesh.last_stage(chunk)) {
    // The head's gradients are complete since the forward pass, but for a tied table's.
    parameters.close_gradient(layout.final_norm.unit, last);
    const int output = layout.output_layer.unit;
    if (output != layout.final_norm.unit && output != layout.embedding.unit)
      parameters.close_gradient(output, last);
  }
  const int first = layers.front().attention.unit;
  for (size_t l = layers.size(); l-- > 0;) {
    const LayerPlaces::Half &attention = layers[l].attention, &ffn = layers[l].ffn;
    hold({ffn.unit, attention.unit}, attention.unit > first ? attention.unit - 1 : -1);
    if (ffn.last) parameters.open_gradient(ffn.unit);
    block_backward(e_, layers[l], dy, std::move(flight.layers[l]), [&] {
      if (ffn.first) parameters.close_gradient(ffn.unit, last);
      if (attention.last) parameters.open_gradient(attention.unit);
    });
    if (attention.first) parameters.close_gradient(attention.unit, last);
    drop_sent();
  }
  hold(kNone, -1);
  if (e_.mesh.first_stage(chunk)) {
    const int unit = layout.embedding.unit;
    if (unit != layout.output_layer.unit) parameters.open_gradient(unit);
    embed_backward(e_, static_cast<const int32_t*>(flight.tokens->data), dy);
    parameters.close_gradient(unit, last);
    return;
  }
  const int stages = e_.mesh.shape.pipeline;
  send(*e_.mesh.backwards, (e_.mesh.at.pipeline + stages - 1) % stages, std::move(dy));
}

double Pipeline::train(std::span<const int32_t> tokens, int64_t micro_batches, float scale) {
  const Mesh& mesh = e_.mesh;
  const int stages = mesh.shape.pipeline, rank = mesh.at.pipeline;
  const std::vector<Action> schedule = pipeline_schedule(mesh.shape, rank, micro_batches);
  activations_ = {mesh.forwards.get(), (rank + stages - 1) % stages, 0, 0, 0, {}};
  gradients_ = {mesh.backwards.get(), (rank + 1) % stages, 0, 0, 0, {}};
  for (const Action& action : schedule) {
    if (action.forward && !mesh.first_stage(action.chunk)) activations_.expected++;
    if (!action.forward && !mesh.last_stage(action.chunk)) gradients_.expected++;
  }
  std::map<std::pair<int, int64_t>, InFlight> in_flight;
  double loss = 0;
  for (const Action& action : schedule) {
    if (mesh.world->traffic().failed()) break;
    post(activations_);
    post(gradients_);
    InFlight& flight = in_flight[{action.chunk, action.micro_batch}];
    const bool last_stage = mesh.last_stage(action.chunk);
    if (action.forward) {
      const PooledMatrix x = forward_chunk(action.chunk, action.micro_batch, tokens, &flight, true);
      if (last_stage) loss += run_head(x, &flight, true, scale);
    } else {
      PooledMatrix dy = last_stage ? std::move(flight.dx) : take(gradients_);
      backward_chunk(action.chunk, std::move(flight), std::move(dy),
                     action.micro_batch == micro_batches - 1);
      in_flight.erase({action.chunk, action.micro_batch});
    }
  }
  finish_sends();
  return loss;
}

double Pipeline::evaluate(std::span<const int32_t> tokens, int64_t micro_batches) {
  const Mesh& mesh = e_.mesh;
  const int stages = mesh.shape.pipeline;
  activations_ = {mesh.forwards.get(), (mesh.at.pipeline + stages - 1) % stages, 0, 0, 0, {}};
  for (int64_t m = 0; m < micro_batches; m++)
    for (int chunk = 0; chunk < mesh.shape.stage_chunks; chunk++)
      if (!mesh.first_stage(chunk)) activations_.expected++;
  double loss = 0;
  for (int64_t m = 0; m < micro_batches; m++)
    for (int chunk = 0; chunk < mesh.shape.stage_chunks; chunk++) {
      InFlight flight;
      const PooledMatrix x = forward_chunk(chunk, m, tokens, &flight, false);
      if (mesh.last_stage(chunk)) loss += run_head(x, &flight, false, 0);
    }
  finish_sends();
  return loss;
}

std::vector<float> Pipeline::logits(std::span<const int32_t> tokens, int64_t at) {
  const Mesh& mesh = e_.mesh;
  const ParameterLayout& layout = e_.parameters.layout();
  const int stages = mesh.shape.pipeline;
  activations_ = {mesh.forwards.get(), (mesh.at.pipeline + stages - 1) % stages, 0, 0, 0, {}};
  for (int chunk = 0; chunk < mesh.shape.stage_chunks; chunk++)
    if (!mesh.first_stage(chunk)) activations_.expected++;
  std::vector<float> logits;
  for (int chunk = 0; chunk < mesh.shape.stage_chunks; chunk++) {
    InFlight flight;
    const PooledMatrix x = forward_chunk(chunk, 0, tokens, &flight, false);
    if (!mesh.last_stage(chunk)) continue;
    const int norm = layout.final_norm.unit, output = layout.output_layer.unit;
    e_.parameters.acquire(output, norm);
    e_.parameters.acquire(norm, -1);
    for (int half = 0; half < e_.tokens.halves(); half++) {
      const int64_t first = e_.tokens.chunk_of(mesh.at.context, half) * e_.tokens.chunk();
      if (at >= first && at < first + e_.tokens.chunk())
        logits = logits_of_row(e_, x, half * e_.tokens.batch * e_.tokens.chunk() + at - first);
    }
    e_.parameters.release(norm);
    e_.parameters.release(output);
  }
  finish_sends();
  return logits;
}

}  // namespace sennit::trainer
