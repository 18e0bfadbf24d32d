// resume.cpp: see trainer/run/resume.hpp.
#include "trainer/run/resume.hpp"

#include <filesystem>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "trainer/checkpoint/keep.hpp"
#include "trainer/parallel/all_ranks.hpp"

namespace sennit::trainer {
namespace {

namespace fs = std::filesystem;

struct Choice {
  // in the checkpoint folder; empty: the folder that `resume` names, or none at all
  std::string name;
  std::string checksum;
  bool none() const { return checksum.empty(); }
  std::string folder(const TrainConfig& config) const {
    return name.empty() ? config.resume : config.checkpoint_dir + "/" + name;
  }
};

Result<Choice> choose(const TrainConfig& config) {
  Choice choice;
  if (config.resume == "no") return choice;
  if (config.resume == "yes") {
    if (config.checkpoint_dir.empty()) return choice;
    const Result<std::optional<std::string>> newest = newest_checkpoint(config.checkpoint_dir);
    // The folder cannot be listed, and so nothing of it be set aside.
    if (!newest && newest.status().kind() == SENNIT_OUT_OF_RESOURCES) return newest.status();
    if (!newest)
      return Status(
          newest.status().kind(),
          fmt::format(
              "{}; --resume no sets them aside and begins anew; or name another --checkpoint-dir",
              newest.status().text()));
    if (!*newest) return choice;
    choice.name = fs::path(**newest).filename().string();
  }
  const Result<Checkpoint> checkpoint = Checkpoint::open(choice.folder(config));
  if (!checkpoint && checkpoint.status().kind() == SENNIT_NOT_FOUND)
    return checkpoint.status().with_context(
        "--resume takes yes, no or a checkpoint's folder, step-N");
  if (!checkpoint) return checkpoint.status();
  choice.checksum = checkpoint->checksum();
  return choice;
}

Status hear(Communicator& job, Choice* choice) {
  SENNIT_RETURN_IF_ERROR(tell_all(&choice->name, 0, job));
  return tell_all(&choice->checksum, 0, job);
}

// The checkpoint as this rank sees it, if it is rank 0's and this run can go on from it.
Result<Checkpoint> open_chosen(const std::string& folder, const Choice& choice,
                               const LlamaConfig& model) {
  Result<Checkpoint> checkpoint = Checkpoint::open(folder);
  if (!checkpoint) return checkpoint.status().with_context("cannot read what rank 0 goes on from");
  if (checkpoint->checksum() != choice.checksum)
    return invalid(fmt::format(
        "{} is another checkpoint here (of step {}) than rank 0 sees under this name; all "
        "ranks must see the same folder, on a file system that all hosts share",
        folder, checkpoint->step()));
  if (checkpoint->model() != model.to_json())
    return invalid(fmt::format(
        "{} is of another model; give the model it was made with, or another --checkpoint-dir, "
        "or --resume no",
        folder));
  const nlohmann::json& state = checkpoint->state();
  if (!state.is_object() || !state.contains("loader") ||
      !state.value("evaluations_without_better", nlohmann::json()).is_number_integer())
    return invalid(
        fmt::format("{}: its training state was not written by this sennit train; its weights can "
                    "be exported, and --resume no begins anew",
                    folder));
  return checkpoint;
}

std::string parent_of(std::string folder) {
  while (folder.size() > 1 && folder.back() == '/') folder.pop_back();
  const fs::path parent = fs::path(folder).parent_path();
  return parent.empty() ? "." : parent.string();
}

// The checkpoint itself, where `folder` is a link to it.
std::string real_folder(const std::string& folder) {
  std::error_code error;
  const fs::path real = fs::canonical(folder, error);
  return error ? folder : real.string();
}

// What to do about a checkpoint with damaged tensors.
std::string advice(const std::string& folder, int64_t step) {
  std::string older = whole_checkpoint_before(parent_of(folder), step);
  if (older.empty()) older = whole_checkpoint_before(parent_of(real_folder(folder)), step);
  if (older.empty()) return "no older checkpoint is whole; --resume no begins anew";
  return fmt::format("{0} is whole: --resume {0} goes on from it", older);
}

// The newest step of the checkpoint folder that belongs to what this run goes on from.
int64_t last_step_kept(const TrainConfig& config, const std::string& folder, int64_t step) {
  const auto lies_there = [&](const std::string& name) {
    // without an answer they count as apart: more is set aside, nothing is lost
    std::error_code error;
    return fs::equivalent(parent_of(name), config.checkpoint_dir, error);
  };
  if (folder.empty()) return -1;
  return lies_there(folder) || lies_there(real_folder(folder)) ? step : -1;
}

}  // namespace

nlohmann::json state_of(const Resumed& run, const nlohmann::json& loader_position) {
  nlohmann::json state = {{"loader", loader_position},
                          {"seconds", run.seconds},
                          {"evaluations_without_better", run.evaluations_without_better}};
  state["best"] = std::isfinite(run.best) ? nlohmann::json(run.best) : nlohmann::json();
  return state;
}

Status resume_run(const TrainConfig& config, const LlamaConfig& model, Communicator& job,
                  std::span<const TensorPiece> pieces, Loader& loader, Resumed* resumed) {
  const bool speaks = job.rank() == 0;
  const Result<Choice> chosen = speaks ? choose(config) : Choice();
  SENNIT_RETURN_IF_ERROR(one_answer(chosen.status(), job));
  Choice choice = *chosen;
  SENNIT_RETURN_IF_ERROR(hear(job, &choice));
  const std::string folder = choice.none() ? "" : choice.folder(config);
  if (!choice.none()) {
    const Result<Checkpoint> checkpoint = open_chosen(folder, choice, model);
    SENNIT_RETURN_IF_ERROR(one_answer(checkpoint.status(), job));
    const Status loaded = one_answer(checkpoint->load(pieces), job);
    if (!loaded.ok())
      return speaks ? Status(loaded.kind(), fmt::format("{}; {}", loaded.text(),
                                                        advice(folder, checkpoint->step())))
                    : loaded;
    const nlohmann::json& state = checkpoint->state();
    SENNIT_RETURN_IF_ERROR(one_answer(loader.restore(state["loader"]).with_context(folder), job));
    resumed->folder = folder;
    resumed->step = checkpoint->step();
    const nlohmann::json best = state.value("best", nlohmann::json());
    resumed->best = best.is_number() ? best.get<double>() : INFINITY;
    resumed->evaluations_without_better = state["evaluations_without_better"].get<int64_t>();
    if (speaks) fmt::print("goes on after step {}, from {}\n", resumed->step, folder);
    // Older checkpoints do not say it: then time counts from here.
    const nlohmann::json seconds = state.value("seconds", nlohmann::json());
    resumed->seconds = seconds.is_number() ? seconds.get<double>() : 0;
    if (!seconds.is_number() && config.seconds > 0 && speaks)
      fmt::print("{} does not say how long its run has taken: --seconds counts from here\n",
                 folder);
  }
  if (config.checkpoint_dir.empty()) return {};
  Status own;
  if (speaks) {
    const Result<std::optional<SetAside>> aside =
        set_aside_after(config.checkpoint_dir, last_step_kept(config, folder, resumed->step));
    own = aside.status();
    if (own.ok() && *aside)
      fmt::print("set aside in {}: {} checkpoints that this run does not go on from\n",
                 (*aside)->folder, (*aside)->checkpoints);
  }
  return one_answer(own, job);
}

}  // namespace sennit::trainer
