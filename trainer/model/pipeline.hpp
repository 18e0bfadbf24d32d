// pipeline.hpp: this rank's chunks of layers at work: a step's micro-batches forward and backward
// in the schedule's order, with activations and their gradients passed between stages.
//
// What a stage receives is asked for one action ahead; what it sends leaves while it computes on.
// Each unit of parameters is acquired before its layers, with the next one named, so that ZeRO-3
// gathers it meanwhile. Gradients are added up in the order of the micro-batches. Memory:
// trainer/device/pool.hpp; how many micro-batches are in flight:
// trainer/parallel/pipeline_schedule.hpp.
#pragma once

#include <deque>
#include <map>
#include <span>

#include "trainer/model/block.hpp"
#include "trainer/model/embedding_and_head.hpp"
#include "trainer/parallel/pipeline_schedule.hpp"

namespace sennit::trainer {

// The environment is used for as long as this lives; set_tokens() has said the micro-batches' shape
// before each call. All ranks of the mesh make the same calls.
class Pipeline {
 public:
  Pipeline(Environment& environment, bool recompute) : e_(environment), recompute_(recompute) {}

  // tokens: [micro_batches * batch, length + 1] of this data rank, all of the same shape as
  // e.tokens. Gives the loss summed over this rank's targets (0 but on a last stage). Gradients are
  // of loss * scale.
  double train(std::span<const int32_t> tokens, int64_t micro_batches, float scale);
  // Forward alone.
  double evaluate(std::span<const int32_t> tokens, int64_t micro_batches);
  // Logits after position `at` of sequence 0, on ranks of the last stage that hold it; empty on
  // others.
  std::vector<float> logits(std::span<const int32_t> tokens, int64_t at);

 private:
  struct InFlight {
    std::vector<Kept> layers;
    PooledMatrix tokens, targets;  // int32; where the stage needs them
    PooledMatrix dx;               // of the chunk's output, made by the head
  };
  // A stage's inputs of one kind (activations or gradients), in the order of its actions: so many
  // in all.
  struct Inbox {
    Communicator* from = nullptr;
    int peer = 0;
    size_t expected = 0, posted = 0, taken = 0;
    std::deque<std::pair<PooledMatrix, Transfer>> coming;
  };
  PooledMatrix forward_chunk(int chunk, int64_t micro_batch, std::span<const int32_t> tokens,
                             InFlight* flight, bool keep);
  double run_head(Matrix x, InFlight* flight, bool gradient, float scale);
  void backward_chunk(int chunk, InFlight flight, PooledMatrix dy, bool last);
  PooledMatrix run_layers(int chunk, PooledMatrix x, InFlight* flight, bool keep);
  void post(Inbox& inbox);
  PooledMatrix take(Inbox& inbox);
  void send(Communicator& to, int peer, PooledMatrix buffer);
  void drop_sent();
  void finish_sends();
  PooledMatrix rows_of_tokens(std::span<const int32_t> tokens, int64_t micro_batch, int shift);
  void hold(std::pair<int, int> units, int next);

  static constexpr std::pair<int, int> kNone{-1, -1};

  Environment& e_;
  bool recompute_;
  std::pair<int, int> held_ = kNone;  // units of the layer at work
  Inbox activations_, gradients_;
  std::deque<std::pair<PooledMatrix, Transfer>> sent_;
};

}  // namespace sennit::trainer
