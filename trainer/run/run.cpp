// run.cpp: see trainer/run/run.hpp.
#include "trainer/run/run.hpp"

#include <algorithm>
#include <cstring>
#include <random>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "trainer/base/energy.hpp"
#include "trainer/base/files.hpp"
#include "trainer/base/local_ranks.hpp"
#include "trainer/base/stop_signal.hpp"
#include "trainer/checkpoint/checkpoint.hpp"
#include "trainer/checkpoint/keep.hpp"
#include "trainer/data/loader.hpp"
#include "trainer/data/tokenizer.hpp"
#include "trainer/device/cpu/matrix_peak.hpp"
#include "trainer/parallel/all_ranks.hpp"
#include "trainer/run/memory.hpp"
#include "trainer/run/report/log.hpp"
#include "trainer/run/resume.hpp"

namespace sennit::trainer {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point then) {
  return std::chrono::duration<double>(Clock::now() - then).count();
}

class TrainingRun {
 public:
  TrainingRun(const TrainConfig& config, Traffic* traffic) : config_(config), traffic_(traffic) {}

  Status prepare(std::unique_ptr<Communicator> job);
  Status train();
  // after train() failed: all ranks stand at the same step
  bool can_finish() const { return not_finite_; }
  Status finish();
  int stopped_by() const { return stopped_by_; }  // a signal, or 0

 private:
  Status look_at_settings();
  Status open_loaders();
  Status open_checkpoints(Communicator& job);
  Status step();
  Update next_update() const;
  std::string done_already() const;
  Status evaluate_if_due(bool last, StepRecord* record, bool* save_now);
  Status stop_before(const Status& fault, const nlohmann::json& place);
  Status finite_state();
  Status held_out_loss(double* loss);
  Status save_finite_state();
  Status save(const nlohmann::json& place);
  Status report_saves();
  Status finish_saves();
  StepRecord record_of(const StepResult& result, double data_wait_s, double seconds);
  Status agree(double* values, size_t count) const;  // the largest of all ranks'
  Status measure_peak();
  bool speaks() const { return rank_ == 0; }
  // Of `seconds`, gone: the same on all ranks, as of the last step.
  double time_share() const { return config_.seconds > 0 ? resumed_.seconds / config_.seconds : 0; }
  bool out_of_time() const { return time_share() >= 1; }
  bool out_of_patience() const {
    return config_.patience > 0 && resumed_.evaluations_without_better >= config_.patience;
  }

  const TrainConfig& config_;
  Traffic* traffic_;
  int rank_ = 0, ranks_ = 1;
  std::shared_ptr<const Dataset> data_;
  LlamaConfig model_;
  TrainerOptions options_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Trainer> trainer_;
  std::unique_ptr<Loader> loader_, held_out_;
  FolderLock lock_;  // rank 0's; longer than the writer
  std::unique_ptr<CheckpointWriter> writer_;
  std::optional<TrainLog> log_;
  int64_t step_ = 0, saved_step_ = -1;   // done
  Resumed resumed_;                      // best, patience and seconds are kept up to date in it
  std::optional<double> held_out_loss_;  // where it was measured after step_
  bool not_finite_ = false;
  int stopped_by_ = 0;
  std::string ended_;             // why, where not as the settings have it
  double step_s_ = 0;             // of the last step
  double peak_flops_ = 0;         // of all ranks together
  std::optional<double> joules_;  // of this host, at the step before; where all ranks are on it
  Clock::time_point began_ = Clock::now();
  double seconds_before_ = 0;  // of the run, before it went on here
};

Status TrainingRun::agree(double* values, size_t count) const {
  trainer_->world().all_reduce(values, count, Element::f64, Reduction::max).wait();
  return traffic_->status();
}

Status TrainingRun::look_at_settings() {
  Result<std::shared_ptr<const Dataset>> data = Dataset::open(config_.data);
  if (!data) return data.status();
  data_ = *std::move(data);
  Result<LlamaConfig> model = model_of(config_, data_->vocabulary());
  if (!model) return model.status();
  model_ = *std::move(model);
  options_ = trainer_options(config_, model_, ranks_);
  SENNIT_RETURN_IF_ERROR(check_mesh(options_.mesh, options_.batch, model_, ranks_));
  SENNIT_RETURN_IF_ERROR(check_memory(options_, available_memory()));
  if (!config_.checkpoint_dir.empty())
    SENNIT_RETURN_IF_ERROR(make_writable(config_.checkpoint_dir));
  if (speaks() && !config_.report_dir.empty())
    SENNIT_RETURN_IF_ERROR(make_writable(config_.report_dir));
  return {};
}

Status TrainingRun::prepare(std::unique_ptr<Communicator> started) {
  rank_ = started->rank();
  ranks_ = started->size();
  SENNIT_RETURN_IF_ERROR(one_answer(look_at_settings(), *started));
  Result<std::unique_ptr<Device>> device =
      open_device(config_.device, threads_of_a_rank(static_cast<int>(config_.threads)));
  SENNIT_RETURN_IF_ERROR(one_answer(device.status(), *started));
  device_ = *std::move(device);
  Result<std::unique_ptr<Trainer>> trainer =
      Trainer::create(options_, *device_, std::move(started), traffic_);
  if (!trainer) return trainer.status();
  trainer_ = *std::move(trainer);
  Communicator& job = *trainer_->mesh().job;
  SENNIT_RETURN_IF_ERROR(one_answer(open_loaders(), job));
  if (!config_.checkpoint_dir.empty()) SENNIT_RETURN_IF_ERROR(open_checkpoints(job));
  SENNIT_RETURN_IF_ERROR(resume_run(
      config_, model_, job, trainer_->parameters().pieces_of_all(true), *loader_, &resumed_));
  if (!resumed_.folder.empty()) trainer_->parameters().publish();
  step_ = resumed_.step;
  if (!resumed_.folder.empty()) saved_step_ = step_;
  seconds_before_ = resumed_.seconds;
  SENNIT_RETURN_IF_ERROR(measure_peak());
  Status own;
  if (speaks()) {
    Result<TrainLog> log = TrainLog::open(config_.report_dir, step_);
    own = log.status();
    if (log) log_ = *std::move(log);
  }
  SENNIT_RETURN_IF_ERROR(one_answer(own, job));
  if (speaks()) {
    fmt::print("{:.1f}M parameters, {}, {}, zero {}, {} sequences of {} tokens a step, {}\n",
               static_cast<double>(model_.parameters()) / 1e6, options_.mesh.text(),
               config_.precision, options_.zero, config_.batch, config_.sequence, config_.backend);
    const MemoryParts memory = memory_of(options_);
    fmt::print("memory a rank: {} ({})\n", bytes_text(memory.total()), memory.text());
    fmt::print("matrix products of all ranks together, measured: {:.3g} FLOP/s\n", peak_flops_);
    std::fflush(stdout);
  }
  return {};
}

Status TrainingRun::open_checkpoints(Communicator& job) {
  CheckpointOptions options;
  options.folder = config_.checkpoint_dir;
  options.rank = rank_;
  options.ranks = ranks_;
  options.keep_last = static_cast<int>(config_.keep_last);
  options.run_status = [&job] { return job.job_status(); };
  options.attempt =
      fmt::format("{:016x}", std::random_device()() | uint64_t{std::random_device()()} << 32);
  SENNIT_RETURN_IF_ERROR(tell_all(&options.attempt, 0, job));
  Status own;
  if (speaks()) {
    Result<FolderLock> lock = FolderLock::take(options.folder, options.attempt);
    own = lock.status();
    if (lock) lock_ = *std::move(lock);
  }
  SENNIT_RETURN_IF_ERROR(one_answer(own, job));
  if (!speaks()) own = see_lock(options.folder, options.attempt);
  SENNIT_RETURN_IF_ERROR(one_answer(own, job));
  Result<std::unique_ptr<CheckpointWriter>> writer = CheckpointWriter::open(options);
  own = writer.status();
  if (writer) {
    writer_ = *std::move(writer);
    own = writer_->prepare(trainer_->parameters().pieces_of_all(false));
  }
  return one_answer(own, job);
}

// All ranks at once, as they will compute.
Status TrainingRun::measure_peak() {
  double nothing = 0;
  SENNIT_RETURN_IF_ERROR(agree(&nothing, 1));
  const int threads = threads_of_a_rank(static_cast<int>(config_.threads));
  peak_flops_ = rank_peak(measure_matrix_peak(options_.type, threads), ranks_on_this_host(),
                          cores_of_this_host(), true);
  trainer_->world().all_reduce(&peak_flops_, 1, Element::f64).wait();
  if (speaks() && ranks_on_this_host() == ranks_) joules_ = energy_joules();
  return traffic_->status();
}

Status TrainingRun::open_loaders() {
  LoaderOptions options;
  options.seed = static_cast<uint64_t>(config_.seed);
  options.length = config_.sequence;
  options.batch = config_.batch;
  options.rank = trainer_->mesh().at.data;
  options.ranks = options_.mesh.data;
  Result<std::unique_ptr<Loader>> loader = Loader::open(data_, options);
  if (!loader) return loader.status();
  loader_ = *std::move(loader);
  if (data_->samples(Split::held_out, config_.sequence) == 0) {
    const std::string none =
        fmt::format("{}: its held-out part of {} tokens has not one sequence of {}", config_.data,
                    data_->tokens(Split::held_out), config_.sequence);
    if (config_.patience > 0) return invalid(none + ": --patience has no loss to go by");
    if (config_.evaluate_every > 0 && speaks()) fmt::print("{}: no held-out losses\n", none);
    return {};
  }
  options.split = Split::held_out;
  loader = Loader::open(data_, options);
  if (!loader) return loader.status();
  held_out_ = *std::move(loader);
  return {};
}

StepRecord TrainingRun::record_of(const StepResult& result, double data_wait_s, double seconds) {
  StepRecord record;
  record.step = step_;
  record.loss = result.loss;
  record.gradient_norm = result.gradient_norm;
  record.seconds = seconds;
  record.data_wait_s = data_wait_s;
  record.comm_s = result.traffic.comm_s;
  record.exposed_s = result.traffic.exposed_s;
  record.sent_bytes = static_cast<double>(result.traffic.bytes);
  const auto tokens = static_cast<double>(config_.batch * config_.sequence);
  record.tokens_per_s = tokens / seconds;
  const double flops = tokens * model_.flops_per_token(config_.sequence) / seconds;
  if (peak_flops_ > 0) record.mfu_measured = flops / peak_flops_;
  if (config_.nominal_tflops > 0)
    record.mfu_nominal = flops / ranks_ / (config_.nominal_tflops * 1e12);
  if (joules_) {
    const std::optional<double> now = energy_joules();
    if (now && *now > *joules_) record.tokens_per_joule = tokens / (*now - *joules_);
    joules_ = now;
  }
  return record;
}

Update TrainingRun::next_update() const {
  Update update;
  update.adamw.learning_rate = config_.learning_rate_at(step_ + 1, time_share());
  update.adamw.beta1 = static_cast<float>(config_.beta1);
  update.adamw.beta2 = static_cast<float>(config_.beta2);
  update.adamw.epsilon = static_cast<float>(config_.epsilon);
  update.adamw.weight_decay = static_cast<float>(config_.weight_decay);
  update.adamw.step = step_ + 1;
  update.clip = static_cast<float>(config_.clip);
  return update;
}

// The loss on held-out text where it is due. *save_now: it is the best, so it is to be kept.
Status TrainingRun::evaluate_if_due(bool last, StepRecord* record, bool* save_now) {
  if (!held_out_ || config_.evaluate_every <= 0) return {};
  if (step_ % config_.evaluate_every != 0 && !last) return {};
  double loss = 0;
  SENNIT_RETURN_IF_ERROR(held_out_loss(&loss));
  record->held_out = held_out_loss_ = loss;
  if (config_.save_every > 0 && loss < resumed_.best) *save_now = true;
  resumed_.evaluations_without_better =
      loss < resumed_.best ? 0 : resumed_.evaluations_without_better + 1;
  resumed_.best = std::min(resumed_.best, loss);
  return {};
}

Status TrainingRun::step() {
  const Clock::time_point began = Clock::now();
  const nlohmann::json place = loader_->position();
  const Batch batch = loader_->next();
  const Update update = next_update();
  const bool overlap = config_.overlap && !(config_.measure_overlap && step_ % 4 >= 2);
  trainer_->set_overlap(overlap);
  Result<StepResult> result = trainer_->step(batch.tokens, update);
  if (!result) return stop_before(result.status(), place);
  step_++;
  held_out_loss_.reset();
  double slowest[7] = {seconds_since(began),
                       result->traffic.comm_s,
                       result->traffic.exposed_s,
                       batch.wait_seconds,
                       static_cast<double>(result->traffic.bytes),
                       seconds_before_ + seconds_since(began_),
                       static_cast<double>(StopSignals::first())};
  SENNIT_RETURN_IF_ERROR(agree(slowest, 7));
  step_s_ = slowest[0];
  result->traffic.comm_s = slowest[1];
  result->traffic.exposed_s = slowest[2];
  result->traffic.bytes = static_cast<uint64_t>(slowest[4]);
  resumed_.seconds = slowest[5];
  StepRecord record = record_of(*result, slowest[3], slowest[0]);
  record.learning_rate = static_cast<double>(update.adamw.learning_rate);
  record.overlap = overlap;
  // After the last of the steps without overlap, so that it disturbs none that counts.
  if (config_.measure_overlap && step_ % 4 == 0) {
    const Result<double> alone = trainer_->rehearse(batch.tokens);
    if (!alone) return alone.status();
    double computing[2] = {*alone, result->update_s};
    SENNIT_RETURN_IF_ERROR(agree(computing, 2));
    record.alone_s = computing[0] + computing[1];
  }
  const bool last = step_ >= config_.steps || out_of_time();
  if (!last) stopped_by_ = static_cast<int>(slowest[6]);
  bool save_now =
      last || stopped_by_ != 0 || (config_.save_every > 0 && step_ % config_.save_every == 0);
  SENNIT_RETURN_IF_ERROR(evaluate_if_due(last, &record, &save_now));
  if (log_)
    log_->add(record, step_ % config_.log_every == 0 || last || record.held_out || step_ == 1);
  if (writer_ && save_now) return save_finite_state();
  return report_saves();
}

// Weights and optimiser. An update may overflow though its gradient does not.
Status TrainingRun::finite_state() {
  double broken = 0;
  for (const State state : {State::master, State::first_moment, State::second_moment})
    if (!trainer_->parameters().first_not_finite(state).empty()) broken = 1;
  SENNIT_RETURN_IF_ERROR(agree(&broken, 1));
  if (broken == 0) return {};
  not_finite_ = true;
  return {SENNIT_ABORTED,
          fmt::format("the state after step {} is not finite, and not saved", step_)};
}

// Where a loss or gradient is not finite, weights and optimiser are those of before the step: they
// are saved, at the place of the batch that was not learned from, if they are finite themselves.
Status TrainingRun::stop_before(const Status& fault, const nlohmann::json& place) {
  if (traffic_->failed()) return fault;
  not_finite_ = true;
  const Status finite = finite_state();
  if (traffic_->failed()) return finite;
  std::string what;
  if (!finite.ok()) {
    what = "; " + finite.text();
  } else if (writer_ && step_ > 0) {
    Status saved = one_answer(save(place), *trainer_->mesh().job);
    if (saved.ok()) saved = finish_saves();
    what = fmt::format("; the state after step {} {}", step_,
                       saved.ok() ? "is saved" : "cannot be saved: " + saved.text());
  }
  ended_ = fault.text() + what;
  return {fault.kind(), speaks() ? ended_ : ""};
}

Status TrainingRun::held_out_loss(double* loss) {
  Evaluation sum;
  const int64_t pass = held_out_->batches_of_a_pass();
  const int64_t batches =
      config_.evaluate_batches > 0 ? std::min(config_.evaluate_batches, pass) : pass;
  const nlohmann::json start = held_out_->position();
  for (int64_t b = 0; b < batches; b++) {
    const Batch batch = held_out_->next();
    const Result<Evaluation> one = trainer_->evaluate(batch.tokens, batch.sequences);
    if (!one) return one.status();
    sum.loss += one->loss;
    sum.targets += one->targets;
  }
  *loss = sum.targets > 0 ? sum.loss / sum.targets : 0;
  return batches < pass ? held_out_->restore(start) : Status();
}

// Not what no run can go on from: a checkpoint that is whole would make room for it.
Status TrainingRun::save_finite_state() {
  if (saved_step_ == step_) return {};
  const Status finite = finite_state();
  if (finite.ok()) return save(loader_->position());
  if (traffic_->failed()) return finite;
  ended_ = finite.text();
  return {finite.kind(), speaks() ? ended_ : ""};
}

Status TrainingRun::save(const nlohmann::json& place) {
  if (saved_step_ == step_) return {};
  SENNIT_RETURN_IF_ERROR(report_saves());
  const nlohmann::json state = state_of(resumed_, place);
  const std::vector<TensorPiece> pieces = trainer_->parameters().pieces_of_all(false);
  // Written by the middle of the time until the next save.
  writer_->spread_writing(0.5 * step_s_ * static_cast<double>(config_.save_every));
  SENNIT_RETURN_IF_ERROR(writer_->save(step_, held_out_loss_, state, model_.to_json(),
                                       data_->tokenizer_model(), pieces));
  saved_step_ = step_;
  return {};
}

// Says what became of the save before, once it is done.
Status TrainingRun::report_saves() {
  if (!writer_ || writer_->busy()) return {};
  const Result<std::optional<SaveReport>> report = writer_->wait();
  if (!report) return report.status();
  if (!*report || !speaks()) return {};
  const SaveReport& r = **report;
  fmt::print(
      "saved {}: {} a rank, stood still {:.0f} ms, written in {:.0f} ms ({:.0f} MB/s) and pauses "
      "of {:.0f} "
      "ms, complete {:.0f} ms later\n",
      r.folder, bytes_text(r.bytes), r.snapshot_seconds * 1e3, r.write_seconds * 1e3,
      static_cast<double>(r.bytes) / 1e6 / std::max(1e-9, r.write_seconds), r.paused_seconds * 1e3,
      r.commit_seconds * 1e3);
  std::fflush(stdout);
  return {};
}

// Waits for the save under way. Only then all ranks know what became of it.
Status TrainingRun::finish_saves() {
  const Result<std::optional<SaveReport>> report = writer_->wait();
  SENNIT_RETURN_IF_ERROR(one_answer(report.status(), *trainer_->mesh().job));
  if (*report && speaks()) fmt::print("saved {}\n", (*report)->folder);
  return {};
}

// Why there is nothing to train; "": there is.
std::string TrainingRun::done_already() const {
  if (step_ >= config_.steps)
    return fmt::format("step {} is reached already: nothing to train with --steps {}", step_,
                       config_.steps);
  if (out_of_time())
    return fmt::format("the run has taken {:.0f} s already: nothing to train with --seconds {}",
                       resumed_.seconds, config_.seconds);
  if (out_of_patience())
    return fmt::format(
        "the last {} held-out losses were no better already: nothing to train with --patience {}",
        resumed_.evaluations_without_better, config_.patience);
  return {};
}

Status TrainingRun::train() {
  const std::string done = done_already();
  if (!done.empty() && speaks()) fmt::print("{}\n", done);
  while (step_ < config_.steps && !out_of_time() && !out_of_patience() && stopped_by_ == 0) {
    SENNIT_RETURN_IF_ERROR(step());
    if (!out_of_patience()) continue;
    if (speaks()) fmt::print("no better held-out loss {} times: stopped\n", config_.patience);
    if (writer_) SENNIT_RETURN_IF_ERROR(save_finite_state());
  }
  if (stopped_by_ != 0)
    ended_ = fmt::format("stopped after step {}: {}", step_, strsignal(stopped_by_));
  if (stopped_by_ != 0 && speaks()) fmt::print("{}\n", ended_);
  return {};
}

Status TrainingRun::finish() {
  Communicator& job = *trainer_->mesh().job;
  if (writer_) SENNIT_RETURN_IF_ERROR(finish_saves());
  std::string sample;
  if (stopped_by_ == 0 && !not_finite_ && config_.sample_tokens > 0 &&
      !data_->tokenizer_file().empty()) {
    const auto tokenizer = Tokenizer::from_bytes(data_->tokenizer_model(), data_->tokenizer_file());
    SENNIT_RETURN_IF_ERROR(one_answer(tokenizer.status(), job));
    Result<std::string> text = sample_text(*trainer_, config_, **tokenizer);
    if (!text) return text.status();
    sample = *std::move(text);
    if (speaks()) fmt::print("\nsampled at temperature {}:\n{}\n", config_.temperature, sample);
  }
  Status own;
  if (log_) own = report_run(*log_, config_, options_, sample, ended_);
  return one_answer(own, job);  // and no rank is gone before rank 0 has written it
}

}  // namespace

Result<int> run_training(const TrainConfig& config, std::unique_ptr<Communicator> job,
                         Traffic* traffic) {
  const StopSignals signals;
  TrainingRun run(config, traffic);
  SENNIT_RETURN_IF_ERROR(run.prepare(std::move(job)));
  const Status trained = run.train();
  if (!trained.ok() && !run.can_finish()) {
    traffic->fail(trained);  // an error of this rank alone: the others must not wait for it
    return trained;
  }
  const Status finished = run.finish();
  if (!trained.ok()) return trained;
  if (!finished.ok()) return finished;
  return run.stopped_by();
}

}  // namespace sennit::trainer
