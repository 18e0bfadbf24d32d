// loader.hpp: batches of tokens out of the shards that `sennit tokenize` wrote.
//
// The tokens of a split (training or held out) are one stream; sample i is its tokens [i * length,
// (i + 1) * length], the last of which is only a target. Epoch e visits the samples in a
// permutation that is computed from (seed, e), not stored. One step takes `batch` samples, the next
// ones of that order; data-parallel rank r of d takes the r-th of d equal runs of them. So the
// order of samples does not depend on d, and the place where a run stands is one number.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "base/status.hpp"

namespace sennit::trainer {

enum class Split : uint8_t { training, held_out };

// The shards of one corpus, mapped into memory and only read, so any thread may use them. Opening
// checks sizes and headers, and the checksums of up to 1 GiB; verify() all checksums.
class Dataset {
 public:
  // folder: holds index.json. Errors: what is missing, cut short, or of another corpus, by file.
  static Result<std::shared_ptr<const Dataset>> open(const std::string& folder);
  ~Dataset();

  int64_t vocabulary() const;                          // of the tokenizer: ids are below it
  int64_t tokens(Split split) const;                   // of the whole stream
  int64_t samples(Split split, int64_t length) const;  // (tokens - 1) / length, or 0
  double bytes_per_token(Split split) const;           // of text: for bits per byte
  std::string tokenizer_file() const;                  // the sentencepiece model beside the shards
  // What it held when this was opened: a corpus that is made anew there may have another one.
  const std::string& tokenizer_model() const;
  const std::string& fingerprint() const;  // of everything above and all checksums
  // Tokens [first, first + out.size()) of the stream, which the caller has seen to be there.
  void read(Split split, int64_t first, std::span<int32_t> out) const;
  // Reads everything. Errors: the first shard whose checksum is off.
  Status verify() const;

 private:
  Dataset();
  struct State;
  std::unique_ptr<State> state_;
};

// Which samples a rank gets. All data-parallel ranks give the same but for `rank`.
struct LoaderOptions {
  Split split = Split::training;
  uint64_t seed = 0;
  int64_t length = 0;       // tokens a sequence, without the extra target
  int64_t batch = 0;        // sequences a step, of all data-parallel ranks together
  int rank = 0, ranks = 1;  // data-parallel; ranks divides batch
  int ahead = 2;            // batches that are read before they are asked for
};

// This rank's share of one step: `sequences` rows of length + 1 tokens. Rows from `present` on are
// no data (-1 everywhere, which embeds to zeros and is no target): only at the end of a pass over
// the held-out split.
struct Batch {
  std::vector<int32_t> tokens;
  int64_t sequences = 0, row = 0, present = 0;
  double wait_seconds = 0;  // that next() stood still for it: `data_wait`
};

// One rank's batches of one split. One thread uses it; a thread of its own reads ahead, so next()
// waits only where that is slower. It keeps the Dataset.
class Loader {
 public:
  // Errors: too few tokens for one sequence; ranks that do not divide the batch; no thread left.
  static Result<std::unique_ptr<Loader>> open(std::shared_ptr<const Dataset> data,
                                              const LoaderOptions& options);
  ~Loader();

  // Training: never ends; each epoch is another permutation. Held out: in order,
  // batches_of_a_pass() of them, then from the start again.
  Batch next();
  int64_t batches_of_a_pass() const;
  double epoch() const;  // passes over the split so far

  // Where the next batch begins. Restoring it on any number of ranks, with any `batch`, goes on at
  // exactly the next sample. Errors: of another corpus, seed or length.
  nlohmann::json position() const;
  Status restore(const nlohmann::json& position);

 private:
  Loader();
  struct State;
  std::unique_ptr<State> state_;
};

// Element `index` of the permutation of [0, n) that (seed, epoch) name: a Feistel network on the
// next power of four, walked until it lands below n. Constant memory; six rounds, and on average
// less than four times that.
uint64_t permuted(uint64_t index, uint64_t n, uint64_t seed, uint64_t epoch);

}  // namespace sennit::trainer
