// ranks.hpp: a training job whose ranks are threads of the test, and what tests look at:
// the loss and every parameter's state, put together from all ranks' boxes.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#ifdef SENNIT_SANITIZED
#include <oneapi/dnnl/dnnl.h>
#endif

#include "sennit/sennit.h"
#include "trainer/run/trainer.hpp"

namespace sennit::trainer {

using Tensors = std::map<std::string, std::vector<float>>;

// Copies boxes into whole tensors. Elements that no box holds are NaN.
inline void put_together(const std::vector<TensorPiece>& pieces, Tensors* tensors) {
  for (const TensorPiece& piece : pieces) {
    std::vector<float>& whole = (*tensors)[piece.name];
    const int64_t columns = piece.shape.back(), rows = piece.shape.size() > 1 ? piece.shape[0] : 1;
    if (whole.empty()) whole.assign(static_cast<size_t>(rows * columns), std::nanf(""));
    const int64_t own_columns = piece.extent.back(),
                  own_rows = piece.extent.size() > 1 ? piece.extent[0] : 1;
    const int64_t row = piece.offset.size() > 1 ? piece.offset[0] : 0;
    const auto* const data = static_cast<const float*>(piece.data);
    for (int64_t r = 0; r < own_rows; r++)
      for (int64_t c = 0; c < own_columns; c++)
        whole[static_cast<size_t>((row + r) * columns + piece.offset.back() + c)] =
            data[r * own_columns + c];
  }
}

// The other way round: fills boxes.
inline void take_apart(const Tensors& tensors, const std::vector<TensorPiece>& pieces) {
  for (const TensorPiece& piece : pieces) {
    const auto found = tensors.find(piece.name);
    ASSERT_NE(found, tensors.end()) << piece.name;
    const int64_t columns = piece.shape.back();
    const int64_t own_columns = piece.extent.back(),
                  own_rows = piece.extent.size() > 1 ? piece.extent[0] : 1;
    const int64_t row = piece.offset.size() > 1 ? piece.offset[0] : 0;
    auto* const data = static_cast<float*>(piece.data);
    for (int64_t r = 0; r < own_rows; r++)
      for (int64_t c = 0; c < own_columns; c++)
        data[r * own_columns + c] =
            found->second[static_cast<size_t>((row + r) * columns + piece.offset.back() + c)];
  }
}

// This data rank's rows of a batch [sequences, length + 1].
inline std::span<const int32_t> share_of(const std::vector<int32_t>& batch, const Mesh& mesh) {
  const size_t own = batch.size() / static_cast<size_t>(mesh.shape.data);
  return std::span(batch).subspan(own * static_cast<size_t>(mesh.at.data), own);
}

// What a rank's trainer stands on.
struct Beneath {
  std::function<Result<std::unique_ptr<Device>>()> device = [] { return open_device("cpu", 1); };
  std::function<Result<std::unique_ptr<Communicator>>(sennit_comm_t, Traffic*)> adopt =
      adopt_sennit;
};

// Runs `rank` on a thread a rank, each with a trainer of these options. Failures are the test's.
inline void run_ranks(const TrainerOptions& options, const std::function<void(Trainer&)>& rank,
                      const Beneath& beneath = {}) {
  const int ranks = options.mesh.ranks();
#ifdef SENNIT_SANITIZED  // oneDNN's cache is shared by all threads, and its locks are not seen
  ASSERT_EQ(dnnl_set_primitive_cache_capacity(0), dnnl_success);
#endif
  std::vector<sennit_comm_t> handles(static_cast<size_t>(ranks));
  ASSERT_EQ(sennit_comm_init_local(handles.data(), ranks, nullptr), SENNIT_OK)
      << sennit_last_error();
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; r++)
    threads.emplace_back([&, handle = handles[static_cast<size_t>(r)]] {
      Traffic traffic;
      Result<std::unique_ptr<Communicator>> job = beneath.adopt(handle, &traffic);
      ASSERT_TRUE(job.ok()) << job.status().text();
      Result<std::unique_ptr<Device>> device = beneath.device();
      ASSERT_TRUE(device.ok()) << device.status().text();
      Result<std::unique_ptr<Trainer>> trainer =
          Trainer::create(options, **device, *std::move(job), &traffic);
      ASSERT_TRUE(trainer.ok()) << trainer.status().text();
      rank(**trainer);
      (*trainer)->world().all_reduce(&traffic, 0, Element::byte).wait();
    });
  for (std::thread& thread : threads) thread.join();
}

// What a batch does to a job: the loss, and every gradient.
struct Outcome {
  double loss = 0, norm = 0;
  Tensors gradients;
};
inline Outcome gradients_of(const TrainerOptions& options, const std::vector<int32_t>& batch) {
  Outcome outcome;
  std::mutex mutex;
  run_ranks(options, [&](Trainer& trainer) {
    const Result<StepResult> result = trainer.gradients(share_of(batch, trainer.mesh()));
    ASSERT_TRUE(result.ok()) << result.status().text();
    const std::lock_guard lock(mutex);
    outcome.loss = result->loss;
    outcome.norm = result->gradient_norm;
    put_together(trainer.parameters().pieces(State::gradient), &outcome.gradients);
  });
  return outcome;
}

// Of all data ranks, [sequences, length + 1], without a target that is left out.
inline std::vector<int32_t> random_batch(const TrainerOptions& options, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<int32_t> batch(
      static_cast<size_t>(options.batch.sequences * (options.batch.length + 1)));
  for (int32_t& token : batch)
    token = static_cast<int32_t>(random() % static_cast<uint64_t>(options.model.vocabulary));
  return batch;
}

}  // namespace sennit::trainer
