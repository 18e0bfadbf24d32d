// loader.cpp: see trainer/data/loader.hpp.
#include "trainer/data/loader.hpp"

#include <algorithm>
#include <chrono>
#include <deque>
#include <thread>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "base/arithmetic.hpp"
#include "base/mutex.hpp"
#include "base/text/json.hpp"
#include "trainer/base/start_thread.hpp"

namespace sennit::trainer {

uint64_t permuted(uint64_t index, uint64_t n, uint64_t seed, uint64_t epoch) {
  if (n < 2) return 0;
  int half = 1;  // bits of a half
  while (2 * half < 64 && (uint64_t{1} << (2 * half)) < n) half++;
  const uint64_t mask = (uint64_t{1} << half) - 1;
  const uint64_t key = mix(0, mix(0, seed) ^ epoch);
  do {
    uint64_t left = index >> half, right = index & mask;
    for (uint64_t round = 0; round < 6; round++) {
      const uint64_t next = left ^ (mix(0, right ^ mix(key, round)) & mask);
      left = right;
      right = next;
    }
    index = left << half | right;
  } while (index >= n);  // the walk stays on one cycle of a permutation, which comes back below n
  return index;
}

struct Loader::State {
  std::shared_ptr<const Dataset> data;
  LoaderOptions options;
  int64_t samples = 0;
  int64_t place = 0;  // of the next sample that next() gives, counted from the start of the run

  Mutex mutex;
  Condition changed;
  std::deque<Batch> ready SENNIT_GUARDED_BY(mutex);
  bool stop SENNIT_GUARDED_BY(mutex) = false;
  std::thread thread;

  int64_t sample_at(int64_t at) const {
    if (options.split == Split::held_out) return at;
    const auto n = static_cast<uint64_t>(samples), where = static_cast<uint64_t>(at);
    return static_cast<int64_t>(permuted(where % n, n, options.seed, where / n));
  }

  // The batch whose first sample, of all ranks, is the one at `at`.
  Batch read(int64_t at) const {
    Batch batch;
    batch.sequences = options.batch / options.ranks;
    batch.row = options.length + 1;
    batch.tokens.assign(static_cast<size_t>(batch.sequences * batch.row), -1);
    const int64_t first = at + batch.sequences * options.rank;
    for (int64_t i = 0; i < batch.sequences; i++) {
      if (options.split == Split::held_out && first + i >= samples) break;
      data->read(options.split, sample_at(first + i) * options.length,
                 std::span(batch.tokens)
                     .subspan(static_cast<size_t>(i * batch.row), static_cast<size_t>(batch.row)));
      batch.present++;
    }
    return batch;
  }

  int64_t after(int64_t at) const {
    at += options.batch;
    return options.split == Split::held_out && at >= samples ? 0 : at;
  }

  void read_ahead(int64_t at) {
    for (;;) {
      {
        MutexLock lock(mutex);
        while (!stop && ready.size() >= static_cast<size_t>(options.ahead)) changed.wait(lock);
        if (stop) return;
      }
      Batch batch = read(at);
      at = after(at);
      const MutexLock lock(mutex);
      ready.push_back(std::move(batch));
      changed.notify_all();
    }
  }

  Status start() {
    {
      const MutexLock lock(mutex);
      stop = false;
    }
    Result<std::thread> reader =
        start_thread("reading batches ahead", [this, at = place] { read_ahead(at); });
    if (!reader) return reader.status();
    thread = *std::move(reader);
    return {};
  }

  void finish() {
    {
      const MutexLock lock(mutex);
      stop = true;
      changed.notify_all();
    }
    if (thread.joinable()) thread.join();
    const MutexLock lock(mutex);
    ready.clear();
  }
};

Loader::Loader() : state_(std::make_unique<State>()) {}
Loader::~Loader() { state_->finish(); }

Result<std::unique_ptr<Loader>> Loader::open(std::shared_ptr<const Dataset> data,
                                             const LoaderOptions& options) {
  if (options.length < 1 || options.batch < 1)
    return invalid(fmt::format("a batch of {} sequences of {} tokens: both must be at least 1",
                               options.batch, options.length));
  SENNIT_CHECK(options.ranks > 0 && options.rank >= 0 && options.rank < options.ranks &&
               options.ahead > 0);
  if (options.batch % options.ranks != 0)
    return invalid(
        fmt::format("a batch of {} sequences cannot be dealt to {} data-parallel ranks equally",
                    options.batch, options.ranks));
  std::unique_ptr<Loader> loader(new Loader);
  State& state = *loader->state_;
  state.samples = data->samples(options.split, options.length);
  if (state.samples < 1)
    return invalid(
        fmt::format("the {} part has {} tokens, too few for one sequence of {} and its last target",
                    options.split == Split::training ? "training" : "held-out",
                    data->tokens(options.split), options.length));
  state.data = std::move(data);
  state.options = options;
  SENNIT_RETURN_IF_ERROR(state.start());
  return loader;
}

Batch Loader::next() {
  const auto began = std::chrono::steady_clock::now();
  MutexLock lock(state_->mutex);
  while (state_->ready.empty()) state_->changed.wait(lock);
  Batch batch = std::move(state_->ready.front());
  state_->ready.pop_front();
  state_->changed.notify_all();
  state_->place = state_->after(state_->place);
  batch.wait_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  return batch;
}

int64_t Loader::batches_of_a_pass() const {
  return (state_->samples + state_->options.batch - 1) / state_->options.batch;
}

double Loader::epoch() const {
  return static_cast<double>(state_->place) / static_cast<double>(state_->samples);
}

nlohmann::json Loader::position() const {
  return {{"sample", state_->place},
          {"seed", state_->options.seed},
          {"length", state_->options.length},
          {"corpus", state_->data->fingerprint()}};
}

Status Loader::restore(const nlohmann::json& position) {
  const LoaderOptions& options = state_->options;
  const auto sample = position.is_object() ? position.find("sample") : position.end();
  if (sample == position.end() || !sample->is_number_integer() || *sample < 0)
    return invalid("the saved position in the data is no position");
  const std::pair<const char*, nlohmann::json> same[] = {
      {"corpus", state_->data->fingerprint()}, {"seed", options.seed}, {"length", options.length}};
  for (const auto& [key, value] : same)
    if (!position.contains(key) || position[key] != value)
      return invalid(fmt::format(
          "the saved position in the data is of {} {}, and this run has {}: it could "
          "not go on at the sample where the other stopped",
          key, json_to_text(position.value(key, nlohmann::json())), json_to_text(value)));
  state_->finish();
  state_->place = *sample;
  return state_->start();
}

}  // namespace sennit::trainer
