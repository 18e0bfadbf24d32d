// cases.hpp: what the tests of checkpoints share: meshes that cut tensors at random, and
// values that every element can be recomputed from.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <nlohmann/json.hpp>

#include "tests/support/test_folder.hpp"
#include "trainer/base/files.hpp"
#include "trainer/checkpoint/checkpoint.hpp"
#include "trainer/checkpoint/manifest.hpp"
#include "trainer/checkpoint/safetensors.hpp"
#include "trainer/checkpoint/tensor_box.hpp"

namespace sennit::trainer {

// A whole tensor of a run, which no rank need hold. Its name is not empty.
struct GlobalTensor {
  std::string name;
  Type type = Type::f32;
  Sizes shape;
};

// The bits of element `index` of a tensor at a step.
inline uint32_t bits_of(const GlobalTensor& tensor, int64_t index, int64_t step) {
  uint64_t x = static_cast<uint64_t>(index) * 0x9e3779b97f4a7c15 +
               tensor.name.size() * 0xbf58476d1ce4e5b9 + static_cast<uint8_t>(tensor.name.back()) +
               static_cast<uint64_t>(step) * 0xd1342543de82ef95;
  x ^= x >> 32;
  return static_cast<uint32_t>(x * 0x2545f4914f6cdd1d >> (tensor.type == Type::f32 ? 32 : 48));
}

// A piece with memory of its own, with gaps between rows where it is asked for them.
struct OwnedPiece {
  TensorPiece piece;
  std::shared_ptr<std::vector<char>> memory;
};

// Memory for a box, filled with 0x5a. With a `random` one piece in two has gaps in it, of up to two
// elements in each dimension.
inline OwnedPiece own(const GlobalTensor& tensor, const Box& box, std::mt19937* random) {
  OwnedPiece owned;
  owned.piece = {.name = tensor.name,
                 .type = tensor.type,
                 .shape = tensor.shape,
                 .offset = box.offset,
                 .extent = box.extent,
                 .stride = {}};
  int64_t elements = box.elements();
  if (random && !box.extent.empty() && (*random)() % 2) {
    Sizes stride(box.extent.size(), 1);
    for (size_t d = stride.size(); d-- > 0;)
      stride[d] = (d + 1 < stride.size() ? stride[d + 1] * box.extent[d + 1] : 1) +
                  static_cast<int64_t>((*random)() % 3);
    elements = stride[0] * box.extent[0];
    owned.piece.stride = stride;
  }
  owned.memory = std::make_shared<std::vector<char>>(
      static_cast<size_t>(elements) * bytes_of(tensor.type), '\x5a');
  owned.piece.data = owned.memory->data();
  return owned;
}

// Calls visit(place in memory, index in the whole tensor) for every element of a piece.
template <typename Visit>
void each_element(const TensorPiece& piece, Visit visit) {
  const Sizes whole = dense_strides(piece.shape);
  const Sizes stride = piece.stride.empty() ? dense_strides(piece.extent) : piece.stride;
  const int64_t elements = Box{piece.offset, piece.extent}.elements();
  const Sizes own_stride = dense_strides(piece.extent);
  if (piece.extent == piece.shape && stride == whole) {  // all of it: no arithmetic
    for (int64_t i = 0; i < elements; i++)
      visit(static_cast<char*>(piece.data) + i * static_cast<int64_t>(bytes_of(piece.type)), i);
    return;
  }
  for (int64_t i = 0; i < elements; i++) {
    int64_t index = 0, place = 0, rest = i;
    for (size_t d = 0; d < whole.size(); d++) {
      const int64_t at = rest / own_stride[d];
      rest %= own_stride[d];
      index += (piece.offset[d] + at) * whole[d];
      place += at * stride[d];
    }
    visit(static_cast<char*>(piece.data) + place * static_cast<int64_t>(bytes_of(piece.type)),
          index);
  }
}

// Gives every element of a piece its value at a step.
inline void fill(const GlobalTensor& tensor, const TensorPiece& piece, int64_t step) {
  each_element(piece, [&](char* place, int64_t index) {
    const uint32_t bits = bits_of(tensor, index, step);
    std::memcpy(place, &bits, bytes_of(piece.type));
  });
}

// How many elements of a piece have another value than theirs at a step.
inline int64_t wrong_elements(const GlobalTensor& tensor, const TensorPiece& piece, int64_t step) {
  int64_t wrong = 0;
  each_element(piece, [&](const char* place, int64_t index) {
    const uint32_t bits = bits_of(tensor, index, step);
    wrong += std::memcmp(place, &bits, bytes_of(piece.type)) != 0;
  });
  return wrong;
}

// All of a tensor of this shape.
inline Box whole_box(const Sizes& shape) { return {Sizes(shape.size(), 0), shape}; }

// As saving and loading take them; their memory stays that of `owned`.
inline std::vector<TensorPiece> pieces_of(const std::vector<OwnedPiece>& owned) {
  std::vector<TensorPiece> pieces;
  for (const OwnedPiece& one : owned) pieces.push_back(one.piece);
  return pieces;
}

// All tensors whole, on one rank.
inline std::vector<OwnedPiece> own_all(const std::vector<GlobalTensor>& tensors, int64_t step) {
  std::vector<OwnedPiece> owned;
  for (const GlobalTensor& tensor : tensors) {
    owned.push_back(own(tensor, whole_box(tensor.shape), nullptr));
    fill(tensor, owned.back().piece, step);
  }
  return owned;
}

// Every element of every tensor is what it was at the checkpoint's step.
inline void expect_whole(const Checkpoint& checkpoint, const std::vector<GlobalTensor>& tensors) {
  for (const GlobalTensor& tensor : tensors) {
    const OwnedPiece owned = own(tensor, whole_box(tensor.shape), nullptr);
    const Status status = checkpoint.load({&owned.piece, 1});
    ASSERT_TRUE(status.ok()) << status.text();
    EXPECT_EQ(wrong_elements(tensor, owned.piece, checkpoint.step()), 0) << tensor.name;
  }
  EXPECT_EQ(checkpoint.verify([](const std::string& what) { ADD_FAILURE() << what; }), 0);
}

// Saves all ranks' pieces, one thread a rank, and gives the writers' answers.
inline std::vector<Result<std::optional<SaveReport>>> save_all(
    const std::string& folder, int64_t step, std::optional<double> loss,
    const std::vector<std::vector<TensorPiece>>& ranks, CheckpointOptions options = {}) {
  std::vector<Result<std::optional<SaveReport>>> answers(ranks.size(),
                                                         Status(SENNIT_INTERNAL, "not run"));
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < ranks.size(); rank++)
    threads.emplace_back([&, rank] {
      CheckpointOptions mine = options;
      mine.folder = folder;
      mine.rank = static_cast<int>(rank);
      mine.ranks = static_cast<int>(ranks.size());
      if (mine.attempt.empty()) mine.attempt = "test";
      const auto writer = CheckpointWriter::open(mine);
      const Status status = !writer.ok() ? writer.status()
                                         : (*writer)->save(step, loss, {{"step", step}},
                                                           "{\"a\": 1}", "", ranks[rank]);
      answers[rank] = status.ok() ? (*writer)->wait() : Result<std::optional<SaveReport>>(status);
    });
  for (std::thread& thread : threads) thread.join();
  return answers;
}

}  // namespace sennit::trainer
