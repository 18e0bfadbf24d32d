// report.cpp: the end of a run, on the screen and as a page. It is report_run() of
// trainer/run/run.hpp.
#include <cmath>
#include <functional>
#include <utility>

#include <fmt/core.h>

#include "base/median.hpp"
#include "trainer/run/memory.hpp"
#include "trainer/run/report/curve.hpp"
#include "trainer/run/run.hpp"

namespace sennit::trainer {
namespace {

using Value = std::function<std::optional<double>(const StepRecord&)>;

// Over all steps but the first, which finds everything cold; of a single step, its own.
std::optional<double> median(const std::vector<StepRecord>& records, const Value& value) {
  std::vector<double> values;
  for (size_t i = records.size() > 1 ? 1 : 0; i < records.size(); i++)
    if (const std::optional<double> one = value(records[i])) values.push_back(*one);
  if (values.empty()) return {};
  return sennit::median(std::move(values));
}

std::string throughput(const std::vector<StepRecord>& records) {
  using R = StepRecord;
  std::string text = fmt::format("{:.0f} tokens/s", median(records, [](const R& r) {
                                                      return std::optional(r.tokens_per_s);
                                                    }).value_or(0));
  if (const auto mfu = median(records, [](const R& r) { return r.mfu_measured; }))
    text += fmt::format(", MFU {:.1f}% of the measured matrix peak", 100 * *mfu);
  if (const auto mfu = median(records, [](const R& r) { return r.mfu_nominal; }))
    text += fmt::format(", {:.1f}% of the nominal one", 100 * *mfu);
  if (const auto joules = median(records, [](const R& r) { return r.tokens_per_joule; }))
    text += fmt::format(", {:.1f} tokens a joule", *joules);
  return text + (records.size() > 1 ? " (medians of all steps but the first)" : "");
}

}  // namespace

Status report_run(const TrainLog& log, const TrainConfig& config, const TrainerOptions& options,
                  const std::string& sample, const std::string& ended) {
  const std::vector<StepRecord>& records = log.records();
  const LlamaConfig& model = options.model;
  const MemoryParts memory = memory_of(options);
  const std::string operations = fmt::format(
      "{:.3g} FLOP: 6 a parameter (a look-up counts none) + 6 layers sequence heads head_size of "
      "causal attention",
      model.flops_per_token(config.sequence));
  std::vector<std::pair<std::string, std::string>> facts = {
      {"parameters", fmt::format("{:.1f} million", static_cast<double>(model.parameters()) / 1e6)},
      {"mesh",
       fmt::format("{}, zero {}, {} backend", options.mesh.text(), options.zero, config.backend)},
      {"step", fmt::format("{} sequences of {} tokens, {}", config.batch, config.sequence,
                           config.precision)}};
  if (!records.empty()) {
    const StepRecord& last = records.back();
    const double chance = std::log(static_cast<double>(model.vocabulary));
    const std::string speed = throughput(records);
    fmt::print("\n{}", loss_curve(records));
    fmt::print("loss {:.4f} after {} steps: {:.0f}% of ln(vocabulary) = {:.3f}\n", last.loss,
               last.step, 100 * last.loss / chance, chance);
    fmt::print("{}; a token {}\n", speed, operations);
    facts.emplace_back("loss", fmt::format("{:.4f} after {} steps ({:.0f}% of ln(vocabulary))",
                                           last.loss, last.step, 100 * last.loss / chance));
    facts.emplace_back("throughput", speed);
  }
  facts.emplace_back("a token", operations);
  facts.emplace_back("memory of a rank",
                     fmt::format("{}: {}", bytes_text(memory.total()), memory.text()));
  if (const std::optional<OverlapFigures> overlap = OverlapFigures::of(records)) {
    fmt::print("overlap: {}\n", overlap->text());
    facts.emplace_back("overlap", overlap->text());
  }
  if (!ended.empty()) facts.emplace_back("ended", ended);
  return log.write_page(facts, sample);
}

}  // namespace sennit::trainer
