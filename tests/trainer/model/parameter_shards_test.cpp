// parameter_shards_test.cpp: what the ranks of a replica group keep of every unit: owned parts tile
// it, bytes are those that the header promises, and pieces for checkpoints tile every tensor.
// ctest not-under-tsan: it has one thread
#include <map>

#include <gtest/gtest.h>

#include "trainer/checkpoint/tensor_box.hpp"
#include "trainer/model/parameter_shards.hpp"

namespace sennit::trainer {
namespace {

constexpr int kShards = 4;

ParameterLayout layout() {
  LlamaConfig model;
  model.hidden = 32;
  model.ffn = 48;
  model.layers = 3;
  model.heads = 4;
  model.kv_heads = 2;
  model.head_size = 8;
  model.vocabulary = 100;
  MeshShape mesh;
  mesh.data = kShards;
  return make_layout(model, mesh, Coordinates(), 0);
}

class ParameterShardsTest : public testing::Test {
 protected:
  void SetUp() override {
    Result<std::unique_ptr<Device>> opened = open_device("cpu", 1);
    ASSERT_TRUE(opened.ok()) << opened.status().text();
    device_ = *std::move(opened);
  }
  std::unique_ptr<ParameterShards> make(int shard, Type type, int zero, int shards = kShards) {
    auto made = ParameterShards::create(layout(), shards, shard, *device_, type, zero);
    SENNIT_CHECK(made.ok());
    return *std::move(made);
  }
  std::unique_ptr<Device> device_;
};

TEST_F(ParameterShardsTest, HoldAsManyBytesAsTheHeaderPromises) {
  // {of all elements, of the own part's}, for zero 0 to 3
  const std::map<Type, std::vector<std::pair<int, int>>> promised = {
      {Type::bf16, {{18, 0}, {6, 12}, {2, 16}, {0, 18}}},
      {Type::f32, {{16, 0}, {8, 8}, {4, 12}, {0, 16}}}};
  int64_t elements = 0;
  for (const Unit& unit : layout().units) elements += unit.size;
  for (const auto& [type, bytes] : promised)
    for (int zero = 0; zero <= 3; zero++) {
      const auto [all, own] = bytes[static_cast<size_t>(zero)];
      EXPECT_EQ(static_cast<int64_t>(make(1, type, zero)->bytes()),
                all * elements + own * elements / kShards)
          << "zero " << zero;
    }
}

TEST_F(ParameterShardsTest, OwnedPartsTileEveryUnit) {
  for (int zero = 0; zero <= 3; zero++) {
    std::vector<int64_t> next(layout().units.size());
    for (int shard = 0; shard < kShards; shard++) {
      const auto shards = make(shard, Type::bf16, zero);
      for (size_t u = 0; u < shards->units(); u++) {
        const ElementRange owned = shards->owned(u), kept = shards->kept(u);
        EXPECT_EQ(owned.first, next[u]);
        next[u] = owned.first + owned.count;
        EXPECT_EQ(kept.count, zero == 0 ? shards->size(u) : owned.count);
        EXPECT_EQ(kept.first, zero == 0 ? 0 : owned.first);
      }
    }
    for (size_t u = 0; u < next.size(); u++) EXPECT_EQ(next[u], layout().units[u].size);
  }
}

TEST_F(ParameterShardsTest, AGroupOfOneKeepsAllThere) {
  const auto shards = make(0, Type::f32, 3, 1);
  EXPECT_EQ(shards->zero(), 0);
  for (size_t u = 0; u < shards->units(); u++) EXPECT_EQ(shards->kept(u).count, shards->size(u));
}

// In f32 the masters are the weights; in bf16 an element's weight lies where its master says.
TEST_F(ParameterShardsTest, WeightsLieAsTheirMastersDo) {
  for (const Type type : {Type::f32, Type::bf16})
    for (int zero = 0; zero <= 3; zero++) {
      const auto shards = make(2, type, zero);
      for (size_t u = 0; u < shards->units(); u++) {
        const ElementRange kept = shards->kept(u);
        const int64_t last = kept.first + kept.count - 1;
        EXPECT_EQ(static_cast<char*>(shards->weight_at(u, last)) -
                      static_cast<char*>(shards->weight_at(u, kept.first)),
                  (kept.count - 1) * static_cast<int64_t>(bytes_of(type)));
        EXPECT_EQ(type == Type::f32,
                  shards->weight_at(u, last) == shards->at(State::master, u, last));
        if (const void* whole = (*shards)[u].weights) {
          EXPECT_EQ(shards->weight_at(u, last),
                    static_cast<const char*>(whole) + static_cast<size_t>(last) * bytes_of(type));
        }
      }
    }
}

TEST_F(ParameterShardsTest, PiecesTileEveryTensor) {
  for (int zero = 0; zero <= 3; zero++)
    for (const State state : {State::master, State::second_moment, State::gradient}) {
      std::map<std::string, std::vector<int>> seen;  // how often each element of a tensor is owned
      for (int shard = 0; shard < kShards; shard++)
        for (const TensorPiece& piece :
             pieces_of(*make(shard, Type::bf16, zero), state, true, 0, 1)) {
          const Sizes strides = dense_strides(piece.shape), own = dense_strides(piece.extent);
          std::vector<int>& times = seen[piece.name];
          times.resize(static_cast<size_t>(Box{Sizes(piece.shape.size()), piece.shape}.elements()));
          for (int64_t i = 0; i < Box{piece.offset, piece.extent}.elements(); i++) {
            int64_t at = 0, rest = i;
            for (size_t d = 0; d < own.size(); d++) {
              at += (piece.offset[d] + rest / own[d]) * strides[d];
              rest %= own[d];
            }
            times[static_cast<size_t>(at)]++;
          }
        }
      size_t boxes = 0;
      for (const Unit& unit : layout().units) boxes += unit.boxes.size();
      EXPECT_EQ(seen.size(), boxes);
      for (const auto& [name, times] : seen)
        EXPECT_EQ(times, std::vector<int>(times.size(), 1)) << name << ", zero " << zero;
    }
}

}  // namespace
}  // namespace sennit::trainer
