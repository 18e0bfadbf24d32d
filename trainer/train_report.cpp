// train_report.cpp: the end of a run, on the screen and as a page: see report_run() of train_run.hpp.
#include <cmath>

#include <fmt/format.h>

#include "train_curve.hpp"
#include "train_memory.hpp"
#include "train_run.hpp"

namespace sennit::trainer {

Status report_run(const TrainLog& log, const TrainConfig& config, const TrainerOptions& options,
                  const std::string& sample) {
  if (log.records().empty()) return {};
  const StepRecord& last = log.records().back();
  const LlamaConfig& model = options.model;
  const MemoryParts memory = memory_of(options);
  const double chance = std::log(static_cast<double>(model.vocabulary));
  fmt::print("\n{}", loss_curve(log.records()));
  fmt::print("loss {:.4f} after {} steps: {:.0f}% of ln(vocabulary) = {:.3f}\n", last.loss, last.step,
             100 * last.loss / chance, chance);
  const std::optional<OverlapFigures> overlap = OverlapFigures::of(log.records());
  if (overlap) fmt::print("overlap: {}\n", overlap->text());
  std::vector<std::pair<std::string, std::string>> facts = {
      {"parameters", fmt::format("{:.1f} million", static_cast<double>(model.parameters()) / 1e6)},
      {"mesh", fmt::format("{}, zero {}, {} backend", options.mesh.text(), options.zero, config.backend)},
      {"step", fmt::format("{} sequences of {} tokens, {}", config.batch, config.sequence, config.precision)},
      {"loss", fmt::format("{:.4f} after {} steps ({:.0f}% of ln(vocabulary))", last.loss, last.step,
                           100 * last.loss / chance)},
      {"memory of a rank", memory.text()}};
  if (overlap) facts.emplace_back("overlap", overlap->text());
  return log.write_page(facts, sample);
}

}  // namespace sennit::trainer
