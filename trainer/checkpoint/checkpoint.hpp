// checkpoint.hpp: a run's state on disk: written behind the run's back, whole or not at all, and
// read by any mesh.
//
// Every rank hands over pieces: boxes of named global tensors, wherever they lie in its memory.
// They are copied (the only part that the run waits for), and a thread writes them into one
// safetensors file a rank in a hidden folder; when all ranks' files are durable, rank 0 writes the
// manifest (global shapes, boxes, checksums, training state) and renames the folder to step-N. So a
// folder step-N is always complete. Loading intersects the boxes that are wanted with those on
// disk. The folder is one that all ranks see.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "base/status.hpp"
#include "trainer/device/device.hpp"

namespace sennit::trainer {

// Names: a parameter has Hugging Face's ("model.layers.0.self_attn.q_proj.weight") and holds the
// f32 master; its moments have these prefixes before it.
inline constexpr const char* kFirstMoment = "optimizer.first_moment.";
inline constexpr const char* kSecondMoment = "optimizer.second_moment.";

using Sizes = std::vector<int64_t>;

// A box of a global tensor in this rank's memory. Element (i, j, ...) of the box lies at data + i *
// stride[0] + j * stride[1] + ... elements; no strides: dense, row-major. A box without elements is
// allowed.
struct TensorPiece {
  std::string name;
  Type type = Type::f32;
  Sizes shape;           // of the whole tensor
  Sizes offset, extent;  // of the box in it; as many as shape
  Sizes stride = {};     // in elements, or empty
  void* data = nullptr;  // read by save(), written by load()
  // The same box lies on `replicas` ranks with the same bits, and this is number `replica` of them:
  // each writes a part of it, so that every byte is written once. Loading looks at neither.
  int replica = 0, replicas = 1;
};

// Elements [first, first + count) of a box in row-major order, as boxes: at most 2 * dimensions -
// 1, each dense at its place of `data`, where element `first` lies. For ZeRO, which cuts parameters
// anywhere.
std::vector<TensorPiece> pieces_of_range(const TensorPiece& box, int64_t first, int64_t count,
                                         void* data);

// How a run saves. All ranks give the same but for `rank` and what the functions do, and all or
// none give `agree`. `attempt` is not empty and has neither '/' nor '.'.
struct CheckpointOptions {
  std::string folder = {};  // of the run: step-N are made in it
  int rank = 0, ranks = 1;  // of the run
  // the same on all ranks, another in every run: names the hidden folders
  std::string attempt = {};
  int keep_last = 3;      // 0: all
  bool keep_best = true;  // by held-out loss, beside the last ones
  int copy_threads = 2;
  // So long rank 0 waits for the other ranks' files after its own, beside the time over which their
  // writing may be spread.
  double patience_s = 300;
  // Asked while it does, on the writing thread: what the run failed with. A rank that died writes
  // no file.
  std::function<Status()> run_status = {};
  // Called on the writing thread of every rank with what became of its file; comes back when all
  // ranks have called it, with the same answer on all: ok only where all were. None: the ranks
  // agree through files in the hidden folder.
  std::function<Status(const Status& mine)> agree = {};
};

// What became of one save that went well, as its rank saw it.
struct SaveReport {
  int64_t step = 0;
  std::string folder;
  uint64_t bytes = 0;           // this rank's
  double snapshot_seconds = 0;  // the run stood still
  double write_seconds = 0;     // of this rank's file, until it was durable; without the pauses
  double paused_seconds = 0;    // between its pieces
  double commit_seconds = 0;    // from then on: other ranks, manifest, rename
  bool best = false;            // the lowest held-out loss so far (rank 0 knows)
};

// One rank's part in a run's saves; every rank has one. One save is under way at a time, and what
// it failed with is given once: by the next wait(), or by the next save(), which then saves
// nothing. One thread uses a writer. Memory: one copy of this rank's share, kept for the next save.
class CheckpointWriter {
 public:
  // Makes the folder; rank 0 removes what killed runs left half written.
  static Result<std::unique_ptr<CheckpointWriter>> open(const CheckpointOptions& options);
  // finishes this rank's file, and waits for no other rank: call wait() to commit
  ~CheckpointWriter();

  // Waits for the save before, copies the pieces, and returns. All ranks call it with the same
  // step, loss, state and model; pieces of one name agree in type and shape, and those of all ranks
  // together tile each tensor exactly, or the save fails. state: anything JSON that the run needs
  // to go on. model: LlamaConfig::to_json(), or any JSON; tokenizer: a model's bytes, which become
  // a file of the checkpoint, or empty.
  Status save(int64_t step, std::optional<double> held_out_loss, const nlohmann::json& state,
              const std::string& model, const std::string& tokenizer,
              std::span<const TensorPiece> pieces);
  // From the next save on: it is written in small pieces by a thread of the least priority, about a
  // twentieth of the time, but within so many seconds, or at once when wait() is called. 0, as at
  // first: at once.
  void spread_writing(double seconds);
  bool busy() const;  // a save is being written
  // Waits; what became of the last save. Once a save: then nothing, until the next. On ranks other
  // than 0 and without `agree`: of this rank's file only.
  Result<std::optional<SaveReport>> wait();

  // Takes and touches the memory of the copy, so that the first save stalls the run no longer than
  // the others.
  Status prepare(std::span<const TensorPiece> pieces);
  static uint64_t snapshot_bytes(std::span<const TensorPiece> pieces);

 private:
  CheckpointWriter();
  struct State;
  std::unique_ptr<State> state_;
};

// One complete checkpoint, opened: the manifest was read and checked; of the files, the sizes and
// headers.
class Checkpoint {
 public:
  static Result<Checkpoint> open(const std::string& folder);  // .../step-N
  Checkpoint(Checkpoint&&) noexcept;
  Checkpoint& operator=(Checkpoint&&) noexcept;
  ~Checkpoint();

  struct Tensor {
    std::string name;
    Type type;
    Sizes shape;
  };
  int64_t step() const;
  const std::string& checksum() const;  // of the manifest, and so of everything
  std::optional<double> held_out_loss() const;
  const nlohmann::json& state() const;
  const std::string& model() const;            // what save() was given
  std::string tokenizer_file() const;          // or empty
  const std::vector<Tensor>& tensors() const;  // by name
  // Fills the pieces' data, which may be boxes of any mesh. Every stored box that is touched is
  // checked against its checksum first. Errors: a tensor that is not there or has another shape or
  // type; bytes that are off, by file and tensor; the pieces' data is then undefined.
  Status load(std::span<const TensorPiece> pieces) const;
  // Every checksum; `wrong` is called for each file or tensor that is off. Gives the number of
  // them.
  int64_t verify(const std::function<void(const std::string&)>& wrong) const;

 private:
  Checkpoint();
  struct State;
  std::unique_ptr<State> state_;
};

// The newest step-N in a run's folder that opens; nothing where there is none. One that does not
// open (which no kill leaves behind) is passed over with a warning. Errors: there are some, and
// none opens (SENNIT_INVALID_ARGUMENT); the folder is there and cannot be listed
// (SENNIT_OUT_OF_RESOURCES).
Result<std::optional<std::string>> newest_checkpoint(const std::string& folder);
// The newest step-N before a step all of whose checksums are right, or nothing: reads all of it.
std::string whole_checkpoint_before(const std::string& folder, int64_t step);

// Writes the parameters under Hugging Face's names in `type`, with config.json and, where the
// checkpoint has one, tokenizer.model: a folder that `transformers` loads. As model.safetensors;
// where that would be more than shard_bytes, as model-0000x-of-0000y.safetensors with an index.
inline constexpr uint64_t kExportShardBytes = 5'000'000'000;
Status export_checkpoint(const Checkpoint& checkpoint, const std::string& folder, Type type,
                         uint64_t shard_bytes = kExportShardBytes);

}  // namespace sennit::trainer
