// config.cpp: see trainer/run/config.hpp.
#include "trainer/run/config.hpp"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <numbers>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "base/text/json.hpp"
#include "trainer/base/json_text.hpp"

namespace sennit::trainer {
namespace {

using Json = nlohmann::json;

const Setting kSettings[] = {
    {"data", &TrainConfig::data, "folder that sennit tokenize wrote"},
    {"steps", &TrainConfig::steps, "updates in all, those before a resume counted"},
    {"seconds", &TrainConfig::seconds,
     "stop after so long in all, the time before a resume counted; 0: after `steps`"},
    {"dp", &TrainConfig::dp, "data-parallel ranks; 0: all that tp, pp and cp leave"},
    {"tp", &TrainConfig::tp, "tensor-parallel ranks, with sequence parallelism"},
    {"pp", &TrainConfig::pp, "pipeline stages"},
    {"cp", &TrainConfig::cp, "context-parallel ranks"},
    {"stage_chunks", &TrainConfig::stage_chunks,
     "parts of the model on each stage; above 1: interleaved"},
    {"zero", &TrainConfig::zero,
     "0 to 3: what is sharded: nothing, optimiser, gradients too, weights too"},
    {"sequence", &TrainConfig::sequence, "tokens"},
    {"batch", &TrainConfig::batch, "sequences a step, of all ranks together"},
    {"micro_batch", &TrainConfig::micro_batch, "sequences at a time; gradients are summed up"},
    {"precision", &TrainConfig::precision, "bf16 (with f32 masters and gradients) or f32"},
    {"recompute", &TrainConfig::recompute, "keep a layer's input alone and compute the rest again"},
    {"overlap", &TrainConfig::overlap, "communicate while computing"},
    {"measure_overlap", &TrainConfig::measure_overlap,
     "two steps of four without, every fourth's computing once more alone, and at the end what "
     "overlap "
     "hides; the same bits"},
    {"bucket_bytes", &TrainConfig::bucket_bytes,
     "least gradients in one reduction; half a layer with zero 1 to 3 where SENNIT_REPRODUCIBLE is "
     "1"},
    {"backend", &TrainConfig::backend, "sennit, or mpi: Open MPI's own collectives"},
    {"device", &TrainConfig::device, "what computes, such as cpu"},
    {"learning_rate", &TrainConfig::learning_rate, "at the end of the warm-up"},
    {"least_learning_rate", &TrainConfig::least_learning_rate, "at the last step"},
    {"warm_up_steps", &TrainConfig::warm_up_steps, "with a learning rate that rises from 0"},
    {"weight_decay", &TrainConfig::weight_decay, "of all but the norms"},
    {"beta1", &TrainConfig::beta1, "AdamW's"},
    {"beta2", &TrainConfig::beta2, "AdamW's"},
    {"epsilon", &TrainConfig::epsilon, "AdamW's, above 0"},
    {"clip", &TrainConfig::clip, "largest global norm of the gradient; 0: any"},
    {"seed", &TrainConfig::seed, "of the first weights and the order of samples"},
    {"evaluate_every", &TrainConfig::evaluate_every,
     "steps between losses on held-out text; 0: never"},
    {"evaluate_batches", &TrainConfig::evaluate_batches, "of a pass over held-out text; 0: all"},
    {"patience", &TrainConfig::patience,
     "stop after so many held-out losses without a better one; 0: never"},
    {"checkpoint_dir", &TrainConfig::checkpoint_dir,
     "folder of the run's checkpoints; empty: none"},
    {"save_every", &TrainConfig::save_every,
     "steps between checkpoints, and at each best held-out loss; 0: the last step alone, be it the "
     "best or "
     "not"},
    {"keep_last", &TrainConfig::keep_last, "checkpoints, beside the best; 0: all"},
    {"resume", &TrainConfig::resume,
     "yes: from the newest checkpoint, if any; no; or a checkpoint's folder"},
    {"threads", &TrainConfig::threads,
     "of each rank's computing; 0: its share of its host's cores that it may run on"},
    {"log_every", &TrainConfig::log_every, "steps between lines on the screen"},
    {"report_dir", &TrainConfig::report_dir, "folder for steps.jsonl and report.html; empty: none"},
    {"nominal_tflops", &TrainConfig::nominal_tflops,
     "a rank's peak on paper, for a second MFU; 0: unknown"},
    {"prompt", &TrainConfig::prompt, "what the sampled text begins with"},
    {"sample_tokens", &TrainConfig::sample_tokens, "to sample at the end"},
    {"temperature", &TrainConfig::temperature, "of sampling; 0: the likeliest token"},
};

// Insertions, deletions and changes of a letter that make one word the other.
size_t distance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); j++) row[j] = j;
  for (size_t i = 1; i <= a.size(); i++) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); j++) {
      const size_t changed = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({changed, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

std::string nearest_key(const std::string& key) {
  std::string nearest = "model";
  for (const Setting& setting : kSettings)
    if (distance(key, setting.key) < distance(key, nearest)) nearest = setting.key;
  return nearest;
}

// Of a pipe, too.
Result<std::string> contents(const std::string& file) {
  std::error_code ignored;
  if (std::filesystem::is_directory(file, ignored))
    return invalid(fmt::format("{}: is a folder", file));
  errno = 0;
  std::ifstream in(file);
  if (!in)
    return Status(SENNIT_NOT_FOUND,
                  fmt::format("{}: cannot be read: {}", file, std::strerror(errno)));
  return std::string(std::istreambuf_iterator<char>(in), {});
}

Status set_from_json(const Setting& setting, const Json& value, TrainConfig* config) {
  const auto wrong = [&](const char* kind) {
    return invalid(fmt::format("{} is {}; it must be {}", setting.key, json_to_text(value), kind));
  };
  if (const auto* whole = std::get_if<int64_t TrainConfig::*>(&setting.field)) {
    if (!value.is_number_integer()) return wrong("a whole number");
    if (value.is_number_unsigned() && value.get<uint64_t>() > INT64_MAX) return wrong("below 2^63");
    config->** whole = value.get<int64_t>();
  } else if (const auto* number = std::get_if<double TrainConfig::*>(&setting.field)) {
    if (!value.is_number()) return wrong("a number");
    config->** number = value.get<double>();
  } else if (const auto* flag = std::get_if<bool TrainConfig::*>(&setting.field)) {
    if (!value.is_boolean()) return wrong("true or false");
    config->** flag = value.get<bool>();
  } else {
    if (!value.is_string()) return wrong("text");
    config->*std::get<std::string TrainConfig::*>(setting.field) = value.get<std::string>();
  }
  return {};
}

}  // namespace

std::span<const Setting> train_settings() { return kSettings; }

std::string Setting::option() const {
  std::string text = key;
  std::replace(text.begin(), text.end(), '_', '-');
  return "--" + text;
}

MeshShape TrainConfig::mesh(int ranks) const {
  MeshShape shape;
  shape.tensor = static_cast<int>(tp);
  shape.pipeline = static_cast<int>(pp);
  shape.context = static_cast<int>(cp);
  shape.stage_chunks = static_cast<int>(stage_chunks);
  const int64_t others = std::max<int64_t>(1, tp * pp * cp);
  shape.data = static_cast<int>(dp > 0 ? dp : std::max<int64_t>(1, ranks / others));
  return shape;
}

float TrainConfig::learning_rate_at(int64_t step, double time_share) const {
  if (step <= warm_up_steps)
    return static_cast<float>(learning_rate * static_cast<double>(step) /
                              static_cast<double>(warm_up_steps));
  const double left = static_cast<double>(std::max<int64_t>(1, steps - warm_up_steps));
  const double share =
      std::min(1.0, std::max(time_share, static_cast<double>(step - warm_up_steps) / left));
  return static_cast<float>(least_learning_rate + (learning_rate - least_learning_rate) * 0.5 *
                                                      (1 + std::cos(std::numbers::pi * share)));
}

Status set_from_text(const Setting& setting, const std::string& text, TrainConfig* config) {
  const bool is_text = std::holds_alternative<std::string TrainConfig::*>(setting.field);
  Json value = is_text ? Json(text) : parse_json(text);
  if (value.is_discarded()) value = text;  // of the wrong kind then, as it would be in the file
  return set_from_json(setting, value, config).with_context(setting.option());
}

Status parse_train_config(const std::string& text, const std::string& file, TrainConfig* config) {
  const Result<Json> json = parse_json_object(text, file, "settings");
  if (!json) return json.status();
  for (const auto& [key, value] : json->items()) {
    if (key == "model") {
      if (value.is_string()) {
        const std::string name = value.get<std::string>();
        const size_t slash = file.rfind('/');
        const bool beside = slash != file.npos && !name.starts_with('/');
        const std::string of_model = beside ? file.substr(0, slash + 1) + name : name;
        const Result<std::string> read = contents(of_model);
        const Result<Json> model = read ? parse_json_object(*read, of_model, "a model's config")
                                        : Result<Json>(read.status());
        if (!model) return model.status().with_context(fmt::format("{}: model", file));
        config->model = json_to_text(*model);
      } else if (value.is_object()) {
        config->model = json_to_text(value);
      } else {
        return invalid(fmt::format("{}: model is neither an object nor a file's name", file));
      }
      continue;
    }
    const auto setting =
        std::find_if(std::begin(kSettings), std::end(kSettings),
                     [&wanted = key](const Setting& s) { return wanted == s.key; });
    if (setting == std::end(kSettings))
      return invalid(fmt::format("{}: there is no setting \"{}\"; the nearest is \"{}\"", file, key,
                                 nearest_key(key)));
    SENNIT_RETURN_IF_ERROR(set_from_json(*setting, value, config).with_context(file));
  }
  return {};
}

Status read_train_config(const std::string& file, TrainConfig* config) {
  const Result<std::string> text = contents(file);
  if (!text) return text.status();
  return parse_train_config(*text, file, config);
}

namespace {

// Each number by itself: not below its least, and so small that no count or product overflows.
Status check_bounds(const TrainConfig& c) {
  const auto at_least = [](const char* option, double value, double least) -> Status {
    if (value >= least && std::isfinite(value)) return {};
    return invalid(fmt::format("{} {}: it must be {} or more", option, value, least));
  };
  constexpr int64_t TrainConfig::*kFromOne[] = {
      &TrainConfig::tp,           &TrainConfig::pp,       &TrainConfig::cp,
      &TrainConfig::stage_chunks, &TrainConfig::sequence, &TrainConfig::batch,
      &TrainConfig::micro_batch,  &TrainConfig::steps,    &TrainConfig::log_every};
  for (const Setting& setting : kSettings) {
    if (const auto* whole = std::get_if<int64_t TrainConfig::*>(&setting.field)) {
      const double least =
          std::find(std::begin(kFromOne), std::end(kFromOne), *whole) != std::end(kFromOne);
      SENNIT_RETURN_IF_ERROR(
          at_least(setting.option().c_str(), static_cast<double>(c.**whole), least));
    }
    if (const auto* number = std::get_if<double TrainConfig::*>(&setting.field))
      SENNIT_RETURN_IF_ERROR(at_least(setting.option().c_str(), c.**number, 0));
  }
  constexpr int64_t kMostRanks = int64_t{1} << 20, kMostThreads = 1024;
  for (const Setting& setting : kSettings) {
    const auto* whole = std::get_if<int64_t TrainConfig::*>(&setting.field);
    if (!whole || *whole == &TrainConfig::seed || *whole == &TrainConfig::bucket_bytes) continue;
    const bool of_mesh = *whole == &TrainConfig::dp || *whole == &TrainConfig::tp ||
                         *whole == &TrainConfig::pp || *whole == &TrainConfig::cp ||
                         *whole == &TrainConfig::stage_chunks;
    const int64_t most = of_mesh                           ? kMostRanks
                         : *whole == &TrainConfig::threads ? kMostThreads
                                                           : INT32_MAX;
    if (c.**whole > most)
      return invalid(
          fmt::format("{} {}: it must be {} or less", setting.option(), c.**whole, most));
  }
  return {};
}

// Numbers together.
Status check_products(const TrainConfig& c) {
  constexpr int64_t kMostRanks = int64_t{1} << 20, kMostTokens = int64_t{1} << 40;
  const auto too_many = [](std::initializer_list<int64_t> factors) {
    int64_t product = 1;
    for (const int64_t factor : factors)
      if ((product *= std::max<int64_t>(1, factor)) > kMostRanks) return true;
    return false;
  };
  if (too_many({c.dp, c.tp, c.pp, c.cp}))
    return invalid(fmt::format("--dp {} --tp {} --pp {} --cp {}: more than {} ranks", c.dp, c.tp,
                               c.pp, c.cp, kMostRanks));
  if (too_many({c.pp, c.stage_chunks}))
    return invalid(fmt::format("--pp {} --stage-chunks {}: more than {} parts of a model", c.pp,
                               c.stage_chunks, kMostRanks));
  if (c.batch * c.sequence > kMostTokens)
    return invalid(fmt::format("--batch {} --sequence {}: more than {} tokens a step", c.batch,
                               c.sequence, kMostTokens));
  return {};
}

// As the optimiser has them, in f32: a rate beyond it, a beta that is rounded to 1, or an epsilon
// of 0 beside a gradient of 0, makes weights that are no numbers. A clip of 0 is no limit.
Status check_adamw(const TrainConfig& c) {
  constexpr double kMost = std::numeric_limits<float>::max();
  for (const auto& [option, value] : {std::pair("--learning-rate", c.learning_rate),
                                      {"--least-learning-rate", c.least_learning_rate},
                                      {"--weight-decay", c.weight_decay},
                                      {"--epsilon", c.epsilon},
                                      {"--clip", c.clip}})
    if (value > kMost)
      return invalid(
          fmt::format("{} {}: it must be {:.2g} or less, as f32 has it", option, value, kMost));
  if (c.clip > 0 && static_cast<float>(c.clip) <= 0)
    return invalid(fmt::format("--clip {}: rounded to f32 it is 0, which is no limit", c.clip));
  if (static_cast<float>(c.beta1) >= 1 || static_cast<float>(c.beta2) >= 1)
    return invalid(fmt::format("--beta1 {} --beta2 {}: both must be below 1, also rounded to f32",
                               c.beta1, c.beta2));
  if (static_cast<float>(c.epsilon) <= 0)
    return invalid(fmt::format("--epsilon {}: it must be above 0, also rounded to f32", c.epsilon));
  return {};
}

}  // namespace

Status check_train_config(const TrainConfig& c) {
  if (c.precision != "bf16" && c.precision != "f32")
    return invalid(fmt::format("--precision {}: expected bf16 or f32", c.precision));
  if (c.backend != "sennit" && c.backend != "mpi")
    return invalid(fmt::format("--backend {}: expected sennit or mpi", c.backend));
  SENNIT_RETURN_IF_ERROR(check_device(c.device));
  if (c.zero < 0 || c.zero > 3)
    return invalid(fmt::format("--zero {}: expected 0, 1, 2 or 3", c.zero));
  if (c.model.empty())
    return invalid(
        "no model: the settings' file needs \"model\", a Hugging Face config or its file");
  if (c.data.empty())
    return invalid("no data: name a folder that sennit tokenize wrote with --data");
  SENNIT_RETURN_IF_ERROR(check_bounds(c));
  SENNIT_RETURN_IF_ERROR(check_products(c));
  if (c.save_every > 0 && c.checkpoint_dir.empty())
    return invalid(
        fmt::format("--save-every {}: there is no --checkpoint-dir to save into", c.save_every));
  if (c.patience > 0 && c.evaluate_every == 0)
    return invalid(fmt::format(
        "--patience {} counts losses on held-out text, and --evaluate-every 0 measures none",
        c.patience));
  if (c.resume.empty()) return invalid("--resume: expected yes, no or a checkpoint's folder");
  return check_adamw(c);
}

Result<LlamaConfig> model_of(const TrainConfig& config, int64_t vocabulary) {
  Json json = parse_json(config.model);
  if (json.is_object() && !json.contains("vocab_size")) json["vocab_size"] = vocabulary;
  Result<LlamaConfig> model = parse_llama_config(json_to_text(json), "model");
  if (model && model->vocabulary < vocabulary)
    return invalid(fmt::format("the model's vocab_size is {}, but the data's tokens go up to {}",
                               model->vocabulary, vocabulary - 1));
  return model;
}

TrainerOptions trainer_options(const TrainConfig& config, const LlamaConfig& model, int ranks) {
  TrainerOptions options;
  options.model = model;
  options.mesh = config.mesh(ranks);
  options.batch = config.batch_shape();
  options.type = config.type();
  options.zero = static_cast<int>(config.zero);
  options.recompute = config.recompute;
  options.overlap = config.overlap;
  options.bucket_bytes = config.bucket_bytes;
  options.seed = static_cast<uint64_t>(config.seed);
  options.saves = !config.checkpoint_dir.empty();
  return options;
}

}  // namespace sennit::trainer
