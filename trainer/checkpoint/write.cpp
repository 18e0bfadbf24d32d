// write.cpp: the writing side of trainer/checkpoint/checkpoint.hpp.
//
//   .step-00000042.ATTEMPT.7/      hidden, of save number 7 of this run
//     rank-00000.safetensors       each rank's, made durable
//     rank-00000.json              each rank's note, written after it, or "rank-00000.failed"
//     manifest.json                by rank 0, once the boxes of all notes tile every tensor
//   step-00000042/                 by renaming that: so it is complete whenever it has this name
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <thread>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "trainer/base/checksum.hpp"
#include "trainer/base/files.hpp"
#include "trainer/base/start_thread.hpp"
#include "trainer/checkpoint/checkpoint.hpp"
#include "trainer/checkpoint/keep.hpp"
#include "trainer/checkpoint/pace.hpp"
#include "trainer/checkpoint/snapshot.hpp"

namespace sennit::trainer {
namespace {

using Json = nlohmann::json;
using Clock = std::chrono::steady_clock;
double since(Clock::time_point began) {
  return std::chrono::duration<double>(Clock::now() - began).count();
}

std::string note_name(int rank, const char* kind) {
  return fmt::format("rank-{:05d}.{}", rank, kind);
}

struct Save {
  std::string hidden, final;
  int64_t step = 0;
  std::optional<double> held_out_loss;
  Json state;
  std::string model, tokenizer;
  double spread_s = 0;
};

}  // namespace

struct CheckpointWriter::State {
  CheckpointOptions options;
  Snapshot snapshot;
  Pace pace;
  double spread_s = 0;
  int64_t saves = 0;
  std::thread thread;
  std::atomic<bool> writing{false}, abandoned{false};
  Status status;
  std::optional<SaveReport> report;

  // This rank's file and note.
  Status write_mine(const Save& save) {
    if (::mkdir(save.hidden.c_str(), 0755) != 0 && errno != EEXIST)
      return file_error(save.hidden, "made");
    const std::string name = rank_file_name(options.rank);
    const std::string file = save.hidden + "/" + name;
    Manifest note;
    if (pace.spread()) {
      SENNIT_RETURN_IF_ERROR(
          write_directly(file, snapshot.buffer(), snapshot.bytes(), [&](size_t so_far) {
            snapshot.sum_up_to(so_far);
            pace.wrote(so_far);
          }));
      note = snapshot.note(save.step, name);
    } else {
      const auto sum = [&] { note = snapshot.note(save.step, name); };
      Result<std::thread> beside = start_thread("checksums", sum);
      const Status written = write_directly(file, snapshot.buffer(), snapshot.bytes());
      if (beside) beside->join();
      if (!written.ok()) return written;
      if (!beside) sum();
    }
    return write_file_durably(save.hidden + "/" + note_name(options.rank, "json"), note.to_text());
  }

  // Rank 0, without `agree`: until every rank has left its note, or one has failed.
  Status await_notes(const Save& save) const {
    const auto began = Clock::now();
    // The others may take as long over theirs, however soon this rank's small file is there.
    const double patience_s = options.patience_s + save.spread_s;
    for (int rank = 1; rank < options.ranks;) {
      const std::string failed = save.hidden + "/" + note_name(rank, "failed");
      if (::access((save.hidden + "/" + note_name(rank, "json")).c_str(), F_OK) == 0) {
        rank++;
      } else if (::access(failed.c_str(), F_OK) == 0) {
        const Result<std::string> why = read_file(failed);
        return {SENNIT_PEER_FAILED,
                fmt::format("rank {}: {}", rank,
                            why.ok() && why->empty()
                                ? "cannot write its part, nor why: the disk may be full"
                            : why.ok() ? *why
                                       : why.status().text())};
      } else if (const Status run = options.run_status ? options.run_status() : Status();
                 !run.ok()) {
        return run;
      } else if (abandoned) {
        return {SENNIT_ABORTED,
                fmt::format("the run ended while rank {} was still to write", rank)};
      } else if (since(began) > patience_s) {
        return {SENNIT_TIMED_OUT, fmt::format("rank {} wrote nothing into {} within {} s", rank,
                                              save.hidden, patience_s)};
      } else {
        std::this_thread::sleep_for(std::chrono::milliseconds(since(began) < 1 ? 1 : 20));
      }
    }
    return {};
  }

  Status commit(const Save& save) {
    Manifest manifest;
    manifest.step = save.step;
    manifest.held_out_loss = save.held_out_loss;
    manifest.state = save.state;
    manifest.model = save.model;
    for (int rank = 0; rank < options.ranks; rank++) {
      const std::string file = save.hidden + "/" + note_name(rank, "json");
      const Result<Json> json = read_sealed(file);
      if (!json) return json.status();
      const Result<Manifest> note = parse_manifest(*json, file);
      if (!note) return note.status();
      if (note->step != save.step)
        return invalid(fmt::format("rank {} saved step {}", rank, note->step));
      SENNIT_RETURN_IF_ERROR(manifest.add(*note));
    }
    SENNIT_RETURN_IF_ERROR(manifest.check_tiling());
    if (!save.tokenizer.empty()) {
      const std::string& model = save.tokenizer;
      SENNIT_RETURN_IF_ERROR(write_file_durably(save.hidden + "/" + kCheckpointTokenizer, model));
      manifest.tokenizer_checksum = checksum_text(model.data(), model.size());
    }
    SENNIT_RETURN_IF_ERROR(
        write_file_durably(save.hidden + "/" + kManifestName, manifest.to_text()));
    for (int rank = 0; rank < options.ranks; rank++)
      ::unlink((save.hidden + "/" + note_name(rank, "json")).c_str());
    SENNIT_RETURN_IF_ERROR(sync_folder(save.hidden));
    SENNIT_RETURN_IF_ERROR(put_in_place(save.hidden, save.final));
    return sync_folder(options.folder);
  }

  Status write(const Save& save) {
    const auto began = Clock::now();
    pace.begin(save.spread_s, snapshot.bytes());
    if (pace.spread()) yield_to_others();
    Status mine = write_mine(save);
    report->write_seconds = since(began) - pace.paused_seconds();
    report->paused_seconds = pace.paused_seconds();
    const auto written = Clock::now();
    Status together = mine;
    if (options.agree) {
      together = options.agree(mine);
    } else if (options.rank != 0 && !mine.ok()) {
      const std::string note = save.hidden + "/" + note_name(options.rank, "failed");
      // A full disk takes no words, but mostly still a name.
      if (!write_file_durably(note, mine.text()).ok()) ::close(::creat(note.c_str(), 0644));
    } else if (options.rank == 0 && mine.ok()) {
      together = await_notes(save);
    }
    if (options.rank == 0 && together.ok()) together = commit(save);
    report->commit_seconds = since(written);
    if (options.rank == 0 && together.ok()) {
      report->best = keep_chosen(options.folder, save.step, options.keep_last, options.keep_best);
    } else if (options.rank == 0) {
      std::error_code ignored;
      std::filesystem::remove_all(save.hidden, ignored);
    }
    return together.with_context(fmt::format("checkpoint of step {}", save.step));
  }
};

CheckpointWriter::CheckpointWriter() : state_(std::make_unique<State>()) {}

CheckpointWriter::~CheckpointWriter() {
  state_->abandoned = true;
  state_->pace.hurry();
  if (state_->thread.joinable()) state_->thread.join();
}

Result<std::unique_ptr<CheckpointWriter>> CheckpointWriter::open(const CheckpointOptions& options) {
  SENNIT_CHECK(options.rank >= 0 && options.rank < options.ranks);
  SENNIT_CHECK(!options.attempt.empty() &&
               options.attempt.find_first_of("/.") == std::string::npos);
  SENNIT_RETURN_IF_ERROR(make_folders(options.folder));
  if (options.rank == 0) remove_leftovers(options.folder, options.attempt);
  std::unique_ptr<CheckpointWriter> writer(new CheckpointWriter);
  writer->state_->options = options;
  return writer;
}

Status CheckpointWriter::prepare(std::span<const TensorPiece> pieces) {
  if (state_->thread.joinable()) state_->thread.join();
  SENNIT_RETURN_IF_ERROR(state_->snapshot.plan(pieces));
  state_->snapshot.touch();
  return {};
}

Status CheckpointWriter::save(int64_t step, std::optional<double> held_out_loss, const Json& state,
                              const std::string& model, const std::string& tokenizer,
                              std::span<const TensorPiece> pieces) {
  if (const auto before = wait(); !before.ok()) return before.status();
  State& own = *state_;
  const auto began = Clock::now();
  if (step < 0) return invalid(fmt::format("checkpoint of step {}: there is no such step", step));
  if (held_out_loss && !std::isfinite(*held_out_loss)) held_out_loss.reset();
  SENNIT_RETURN_IF_ERROR(own.snapshot.plan(pieces));
  own.snapshot.copy(own.options.copy_threads);
  Save save{.hidden = fmt::format("{}/.{}.{}.{}", own.options.folder, step_folder_name(step),
                                  own.options.attempt, own.saves++),
            .final = own.options.folder + "/" + step_folder_name(step),
            .step = step,
            .held_out_loss = held_out_loss,
            .state = state,
            .model = model,
            .tokenizer = tokenizer,
            .spread_s = own.spread_s};
  own.report = SaveReport{.step = step, .folder = save.final, .bytes = own.snapshot.bytes()};
  own.report->snapshot_seconds = since(began);
  own.pace.reset();
  own.writing = true;
  Result<std::thread> writer = start_thread("writing a checkpoint", [&own, save = std::move(save)] {
    own.status = own.write(save);
    own.writing = false;
  });
  if (writer) {
    own.thread = *std::move(writer);
    return {};
  }
  own.writing = false;
  own.report.reset();
  return writer.status().with_context(fmt::format("checkpoint of step {}", step));
}

bool CheckpointWriter::busy() const { return state_->writing; }

void CheckpointWriter::spread_writing(double seconds) { state_->spread_s = seconds; }

Result<std::optional<SaveReport>> CheckpointWriter::wait() {
  state_->pace.hurry();
  if (state_->thread.joinable()) state_->thread.join();
  const Status status = std::exchange(state_->status, Status());
  std::optional<SaveReport> report = std::exchange(state_->report, std::nullopt);
  if (!status.ok()) return status;
  return report;
}

uint64_t CheckpointWriter::snapshot_bytes(std::span<const TensorPiece> pieces) {
  uint64_t bytes = 0;
  for (const TensorPiece& piece : pieces)
    if (const auto box = replica_share(piece))
      bytes += static_cast<uint64_t>(box->elements()) * bytes_of(piece.type);
  return bytes;
}

}  // namespace sennit::trainer
