// `sennit checkpoint`: what can be done with a checkpoint without a run.
//
//   sennit checkpoint verify run/step-00000100            every checksum; 1 where one is off
//   sennit checkpoint export run/step-00000100 model/     for Hugging Face's transformers
//   sennit checkpoint bench --size 1G --folder /scratch   save and load, beside the disk alone
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "command/commands.hpp"
#include "trainer/base/direct_write.hpp"
#include "trainer/base/files.hpp"
#include "trainer/checkpoint/checkpoint.hpp"
#include "trainer/checkpoint/manifest.hpp"

namespace sennit {
namespace {

using namespace trainer;  // NOLINT: this file is the command itself
using Clock = std::chrono::steady_clock;
double since(Clock::time_point began) {
  return std::chrono::duration<double>(Clock::now() - began).count();
}

int fail(const Status& status, int exit_code) {
  fmt::print(stderr, "sennit checkpoint: {}\n", status.text());
  return status.kind() == SENNIT_OUT_OF_RESOURCES ? 3 : exit_code;
}

// A checkpoint that is there: what is wrong with it is a fault found, not a call that is off.
bool is_checkpoint(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  const fs::path folder = fs::absolute(path, ignored).lexically_normal();
  const fs::path name = folder.has_filename() ? folder.filename() : folder.parent_path().filename();
  return fs::exists(folder / "manifest.json", ignored) ||
         (fs::is_directory(folder, ignored) && name.string().starts_with("step-"));
}

// Whether a run's folder has a newer checkpoint than this one: one that does not open.
bool newer_is_damaged(const std::string& run, int64_t step) {
  const std::vector<std::string> names = names_in(run);
  return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
    const std::optional<int64_t> other = step_of(name);
    return other && *other > step;
  });
}

// The checkpoint at a path: itself, or the newest of a run's folder. exit_code: of an error.
Result<Checkpoint> open_any(const std::string& path, int* exit_code) {
  *exit_code = is_checkpoint(path) ? 1 : 2;
  if (*exit_code == 2) {
    const Result<std::optional<std::string>> newest = newest_checkpoint(path);
    if (!newest) {  // there are some, and all are damaged, or nobody can tell
      *exit_code = 1;
      return newest.status();
    }
    if (*newest) {
      fmt::print("newest: {}\n", **newest);
      *exit_code = 1;
      return Checkpoint::open(**newest);
    }
  }
  return Checkpoint::open(path);
}

int verify(const std::string& path) {
  const auto began = Clock::now();
  int exit_code = 0;
  const Result<Checkpoint> checkpoint = open_any(path, &exit_code);
  if (!checkpoint) return fail(checkpoint.status(), exit_code);
  uint64_t bytes = 0;
  for (const Checkpoint::Tensor& tensor : checkpoint->tensors()) {
    uint64_t elements = 1;
    for (const int64_t extent : tensor.shape) elements *= static_cast<uint64_t>(extent);
    bytes += elements * bytes_of(tensor.type);
  }
  const int64_t faults =
      checkpoint->verify([](const std::string& what) { fmt::print("{}\n", what); });
  fmt::print("step {}, {} tensors, {:.1f} MB: {} (in {:.2f} s)\n", checkpoint->step(),
             checkpoint->tensors().size(), static_cast<double>(bytes) / 1e6,
             faults == 0
                 ? "every checksum is right"
                 : fmt::format("{} {} off", faults, faults == 1 ? "checksum is" : "checksums are"),
             since(began));
  const bool passed_over = !is_checkpoint(path) && newer_is_damaged(path, checkpoint->step());
  return faults == 0 && !passed_over ? 0 : 1;
}

int export_to(const std::string& path, const std::string& folder, Type type, uint64_t shard_bytes) {
  int exit_code = 0;
  const Result<Checkpoint> checkpoint = open_any(path, &exit_code);
  if (!checkpoint) return fail(checkpoint.status(), exit_code);
  const bool was_there = std::filesystem::exists(folder);
  if (const Status status = make_writable(folder); !status.ok()) return fail(status, 2);
  if (const Status status = export_checkpoint(*checkpoint, folder, type, shard_bytes);
      !status.ok()) {
    std::error_code ignored;
    if (!was_there) std::filesystem::remove(folder, ignored);  // where it is empty
    return fail(status, 1);
  }
  fmt::print("{}: step {} for transformers, in {}\n", folder, checkpoint->step(),
             type == Type::f32 ? "float32" : "bfloat16");
  return 0;
}

struct BenchOptions {
  std::string folder = ".";
  uint64_t bytes = 1 << 30;
  int rounds = 5;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Saves, each followed by a raw write of as many bytes from memory in the same manner (O_DIRECT, 16
// MiB, fsync), so that both meet the disk in the same state.
Status bench(const BenchOptions& options) {
  const std::string folder = fmt::format("{}/.sennit-bench-{}", options.folder, ::getpid());
  const std::unique_ptr<const std::string, void (*)(const std::string*)> cleanup(
      &folder, [](const std::string* name) {
        std::error_code ignored;
        std::filesystem::remove_all(*name, ignored);
      });
  constexpr int64_t kTensors = 32, kColumns = 1024;
  const int64_t rows =
      std::max<int64_t>(1, static_cast<int64_t>(options.bytes) / (kTensors * kColumns * 4));
  std::vector<std::vector<float>> memory(kTensors);
  std::vector<TensorPiece> pieces;
  for (int64_t i = 0; i < kTensors; i++) {
    memory[static_cast<size_t>(i)].resize(static_cast<size_t>(rows * kColumns));
    for (size_t k = 0; k < memory[static_cast<size_t>(i)].size(); k++)
      memory[static_cast<size_t>(i)][k] = static_cast<float>(k * 31 % 1009);
    pieces.push_back({.name = fmt::format("tensor.{}", i),
                      .shape = {rows, kColumns},
                      .offset = {0, 0},
                      .extent = {rows, kColumns},
                      .stride = {},
                      .data = memory[static_cast<size_t>(i)].data()});
  }
  auto writer = CheckpointWriter::open({.folder = folder, .attempt = "bench", .keep_last = 1});
  if (!writer) return writer.status();
  SENNIT_RETURN_IF_ERROR((*writer)->prepare(pieces));
  const auto total = static_cast<size_t>(rows * kColumns * kTensors * 4);
  DirectBuffer raw;
  SENNIT_RETURN_IF_ERROR(raw.reserve(total));
  std::memset(raw.data(), 7, total);
  std::vector<double> snapshot, written, whole, plain, loaded;
  const double bytes = static_cast<double>(total);
  for (int round = 0; round < options.rounds; round++) {
    SENNIT_RETURN_IF_ERROR((*writer)->save(round, std::nullopt, {}, "{}", "", pieces));
    const auto report = (*writer)->wait();
    if (!report.ok()) return report.status();
    const auto plainly = Clock::now();
    SENNIT_RETURN_IF_ERROR(write_directly(folder + "/raw", raw, total));
    plain.push_back(bytes / since(plainly));
    std::filesystem::remove(folder + "/raw");
    snapshot.push_back(bytes / (*report)->snapshot_seconds);
    written.push_back(bytes / (*report)->write_seconds);
    whole.push_back(bytes / ((*report)->write_seconds + (*report)->commit_seconds));
    const auto checkpoint = Checkpoint::open((*report)->folder);
    if (!checkpoint) return checkpoint.status();
    const auto loading = Clock::now();
    SENNIT_RETURN_IF_ERROR(checkpoint->load(pieces));
    loaded.push_back(bytes / since(loading));
  }
  fmt::print("{:.1f} MB in {} tensors, median of {} rounds, MB/s:\n", bytes / 1e6, kTensors,
             options.rounds);
  fmt::print("  copy (the run waits)         {:8.0f}\n", median(snapshot) / 1e6);
  fmt::print("  file, checksums, durable     {:8.0f}   {:.0f}% of raw\n", median(written) / 1e6,
             100 * median(written) / median(plain));
  fmt::print("  the same and commit          {:8.0f}   {:.0f}% of raw\n", median(whole) / 1e6,
             100 * median(whole) / median(plain));
  fmt::print("  raw write, durable           {:8.0f}\n", median(plain) / 1e6);
  fmt::print("  load and check               {:8.0f}\n", median(loaded) / 1e6);
  return {};
}

}  // namespace

void add_checkpoint_command(CommandLine& line) {
  const Command command = line.command("checkpoint", "verify, export or time checkpoints of train");
  command.require_command();
  const auto path = std::make_shared<std::string>();
  const auto to = std::make_shared<std::string>(), type = std::make_shared<std::string>("bf16");
  const Command check =
      command.command("verify", "every checksum; exit status 1 where anything is off");
  check.option("checkpoint", *path, "a folder step-N, or a run's (its newest)").required();
  check.action([=] { return verify(*path); });
  const Command exporting =
      command.command("export", "a folder that Hugging Face's transformers loads");
  exporting.option("checkpoint", *path, "a folder step-N, or a run's (its newest)").required();
  exporting.option("folder", *to, "the folder to write").required();
  exporting.option("--type", *type, "of the parameters").one_of({"bf16", "f32"}).show_default();
  const auto shard = std::make_shared<uint64_t>(kExportShardBytes);
  exporting.option("--shard-size", *shard, "bytes of a file at most; above, several and an index")
      .size(Argument::Kilo::is_1000)
      .show_default();
  exporting.action(
      [=] { return export_to(*path, *to, *type == "f32" ? Type::f32 : Type::bf16, *shard); });
  const auto options = std::make_shared<BenchOptions>();
  const Command timing =
      command.command("bench", "save and load, beside a raw write to the same disk");
  timing.option("--folder", options->folder, "on the disk to time")
      .existing_folder()
      .show_default();
  timing.option("--size", options->bytes, "bytes").size(Argument::Kilo::is_1024).show_default();
  timing.option("--rounds", options->rounds).within(1, 1000).show_default();
  timing.action([=] {
    const Status status = bench(*options);
    return status.ok() ? 0 : fail(status, 2);
  });
}

}  // namespace sennit
