// recording_group.hpp: a replica group of several ranks, of which there is but this one, and what
// works on it: the parameters of a small model.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "trainer/model/parameter_shards.hpp"

namespace sennit::trainer {

// Rank 0 of `size`. Each transfer is noted and done at once. Nothing comes of the other ranks, so
// memory stays as it was.
class RecordingGroup final : public Communicator {
 public:
  RecordingGroup(int size, Traffic* traffic) : Communicator(0, size, traffic) {}
  Result<int> fabric_position() override { return 0; }
  Result<std::unique_ptr<Communicator>> split(int, int) override { return invalid("not here"); }
  void abort() override {}
  // Transfers since it was last called, by their first letters: "all-reduce" is 'a',
  // "reduce-scatter" 'r', "gather" 'g'.
  std::string take() { return std::exchange(noted_, ""); }

 protected:
  Started start_all_reduce(void*, size_t, Element, Reduction) override { return note('a'); }
  Started start_reduce_scatter(const void*, void*, size_t, Element) override { return note('r'); }
  Started start_all_gather(const void*, void*, size_t, Element) override { return note('g'); }
  Started start_broadcast(void*, size_t, int) override { return note('b'); }
  Started start_send(const void*, size_t, Element, int) override { return note('s'); }
  Started start_receive(void*, size_t, Element, int) override { return note('r'); }

 private:
  class Done final : public Work {
   public:
    Result<bool> test() override { return true; }
    Status wait() override { return {}; }
  };
  Started note(char what) {
    noted_ += what;
    return std::shared_ptr<Work>(std::make_shared<Done>());
  }
  std::string noted_;
};

// Two data ranks, of which this is the first. Transfers of gradients and of weights are noted by a
// group each. shards() makes parameters whose units are half a layer each.
class RecordedParameters : public testing::Test {
 protected:
  static constexpr int kRanks = 2;

  void SetUp() override {
    Result<std::unique_ptr<Device>> opened = open_device("cpu", 1);
    ASSERT_TRUE(opened.ok()) << opened.status().text();
    device_ = *std::move(opened);
    pool_ = std::make_unique<Pool>(*device_);
    mesh_.shape.data = kRanks;
    mesh_.world = std::make_unique<RecordingGroup>(kRanks, &traffic_);
    mesh_.tensor = std::make_unique<RecordingGroup>(1, &traffic_);
    auto replica = std::make_unique<RecordingGroup>(kRanks, &traffic_);
    auto weights = std::make_unique<RecordingGroup>(kRanks, &traffic_);
    gradients_group_ = replica.get();
    weights_group_ = weights.get();
    mesh_.replica = std::move(replica);
    mesh_.replica_weights = std::move(weights);
  }
  std::unique_ptr<ParameterShards> shards(int zero, int64_t layers = 3) {
    LlamaConfig model;
    model.hidden = model.ffn = 16;
    model.layers = layers;
    model.heads = model.kv_heads = 2;
    model.head_size = 8;
    model.vocabulary = 32;
    auto made = ParameterShards::create(make_layout(model, mesh_.shape, mesh_.at, 0), kRanks, 0,
                                        *device_, Type::f32, zero);
    SENNIT_CHECK(made.ok());
    return *std::move(made);
  }

  Traffic traffic_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Pool> pool_;
  Mesh mesh_;
  RecordingGroup* gradients_group_ = nullptr;
  RecordingGroup* weights_group_ = nullptr;
};

}  // namespace sennit::trainer
