// trainer.cpp: see trainer/run/trainer.hpp.
#include "trainer/run/trainer.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <new>

#include <fmt/core.h>

namespace sennit::trainer {
namespace {
constexpr size_t kTextBytes = 256;  // of a message that one rank tells all
}

int64_t TrainerOptions::unit_bytes() const {
  const char* const reproducible = std::getenv("SENNIT_REPRODUCIBLE");
  return zero > 0 && reproducible && std::string_view(reproducible) == "1" ? 0 : bucket_bytes;
}

Trainer::Trainer(const TrainerOptions& options, Device& device, Traffic* traffic)
    : options_(options), device_(device), traffic_(traffic), pool_(device) {
  traffic_->set_overlap(options.overlap);
  traffic_->set_device(&device);
}

Trainer::~Trainer() {
  traffic_->finish();
  traffic_->set_device(nullptr);
}

Result<std::unique_ptr<Trainer>> Trainer::create(const TrainerOptions& options, Device& device,
                                                 std::unique_ptr<Communicator> job,
                                                 Traffic* traffic) {
  SENNIT_RETURN_IF_ERROR(check_mesh(options.mesh, options.batch, options.model, job->size()));
  std::unique_ptr<Trainer> trainer(new Trainer(options, device, traffic));
  Result<Mesh> mesh = make_mesh(options.mesh, std::move(job));
  if (!mesh) return mesh.status();
  trainer->mesh_ = *std::move(mesh);
  SENNIT_RETURN_IF_ERROR(trainer->run([&] {
    const Status prepared = trainer->prepare();
    if (!prepared.ok()) trainer->traffic_->fail(prepared);
  }));
  return trainer;
}

Status Trainer::prepare() {
  Result<std::unique_ptr<Parameters>> parameters = Parameters::create(
      make_layout(options_.model, options_.mesh, mesh_.at, options_.unit_bytes()), mesh_, device_,
      pool_, options_.type, options_.zero, options_.seed);
  if (!parameters) return parameters.status();
  parameters_ = *std::move(parameters);
  environment_.reset(new Environment{device_,
                                     pool_,
                                     mesh_,
                                     *parameters_,
                                     options_.model,
                                     options_.type,
                                     {},
                                     nullptr,
                                     nullptr,
                                     {},
                                     {}});
  std::vector<float> cosines, sines;
  rotary_tables(options_.model, options_.batch.length, &cosines, &sines);
  cosines_ = pool_.take_f32(static_cast<int64_t>(cosines.size()));
  sines_ = pool_.take_f32(static_cast<int64_t>(sines.size()));
  device_.upload(cosines_->data, cosines.data(), cosines.size() * 4);
  device_.upload(sines_->data, sines.data(), sines.size() * 4);
  environment_->cosines = cosines_->f32();
  environment_->sines = sines_->f32();
  set_tokens(*environment_, options_.batch.micro, options_.batch.length);
  pipeline_ = std::make_unique<Pipeline>(*environment_, options_.recompute);
  return {};
}

Status Trainer::run(const std::function<void()>& work) {
  if (traffic_->failed()) return traffic_->status();
  try {
    work();
  } catch (const std::bad_alloc&) {
    traffic_->fail(pool_.failure().ok() ? Status(SENNIT_OUT_OF_RESOURCES,
                                                 "the process has no memory left for the model")
                                        : pool_.failure());
  }
  return traffic_->status();
}

Status Trainer::sum_over_ranks(double* values, size_t count) {
  mesh_.world->all_reduce(values, count, Element::f64).wait();
  return traffic_->status();
}

Result<StepResult> Trainer::gradients(std::span<const int32_t> tokens) {
  const auto began = std::chrono::steady_clock::now();
  (void)traffic_->take();  // what was sent outside of steps is none of this one's
  const BatchShape& batch = options_.batch;
  StepResult result;
  steps_++;
  double sums[2] = {};  // loss, squared norm of gradients
  SENNIT_RETURN_IF_ERROR(run([&] {
    const auto targets = static_cast<double>(batch.sequences * batch.length);
    set_tokens(*environment_, batch.micro, batch.length);
    parameters_->clear_gradients();
    sums[0] = pipeline_->train(tokens, batch.micro_batches(options_.mesh),
                               static_cast<float>(1 / targets));
    if (mesh_.at.tensor != 0) sums[0] = 0;  // the same on all tensor ranks
    sums[0] /= targets;
    parameters_->finish_gradients();
    sums[1] = parameters_->squared_norm();
    (void)sum_over_ranks(sums, 2);
  }));
  result.loss = sums[0];
  result.gradient_norm = std::sqrt(sums[1]);
  if (!std::isfinite(result.loss) || !std::isfinite(result.gradient_norm)) {
    Status status;
    SENNIT_RETURN_IF_ERROR(run([&] { status = not_finite(tokens, result.loss); }));
    return status;
  }
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  result.traffic = traffic_->take();
  return result;
}

Result<StepResult> Trainer::step(std::span<const int32_t> tokens, const Update& update) {
  const auto began = std::chrono::steady_clock::now();
  steps_ = update.adamw.step - 1;  // a run that goes on counts from its first beginning
  Result<StepResult> result = gradients(tokens);
  if (!result) return result;
  const auto updating = std::chrono::steady_clock::now();
  SENNIT_RETURN_IF_ERROR(run([&] {
    AdamW adamw = update.adamw;
    adamw.gradient_scale = 1;
    if (update.clip > 0 && result->gradient_norm > static_cast<double>(update.clip))
      adamw.gradient_scale =
          static_cast<float>(static_cast<double>(update.clip) / result->gradient_norm);
    parameters_->update(adamw);
    device_.synchronize();
  }));
  const Traffic::Times after = traffic_->take();
  result->update_s =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - updating).count() -
      after.exposed_s;
  result->traffic.comm_s += after.comm_s;
  result->traffic.exposed_s += after.exposed_s;
  result->traffic.bytes += after.bytes;
  result->seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  return result;
}

Result<double> Trainer::rehearse(std::span<const int32_t> tokens) {
  traffic_->finish();
  traffic_->set_muted(true);
  const auto began = std::chrono::steady_clock::now();
  double seconds = 0;
  const Status status = run([&] {
    set_tokens(*environment_, options_.batch.micro, options_.batch.length);
    parameters_->clear_gradients();
    (void)pipeline_->train(tokens, options_.batch.micro_batches(options_.mesh), 1);
    parameters_->finish_gradients();
    (void)parameters_->squared_norm();
    seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  });
  traffic_->set_muted(false);
  SENNIT_RETURN_IF_ERROR(status);
  // weights that were not gathered here
  SENNIT_RETURN_IF_ERROR(run([&] { parameters_->publish(); }));
  return seconds;
}

Result<Evaluation> Trainer::evaluate(std::span<const int32_t> tokens, int64_t sequences) {
  double sums[2] = {};  // loss, targets
  SENNIT_RETURN_IF_ERROR(run([&] {
    const BatchShape& batch = options_.batch;
    set_tokens(*environment_, batch.micro, batch.length);
    sums[0] = pipeline_->evaluate(tokens, sequences / batch.micro);
    if (mesh_.at.tensor != 0) sums[0] = 0;
    if (mesh_.at.tensor == 0 && mesh_.at.pipeline == 0 && mesh_.at.context == 0)
      for (int64_t s = 0; s < sequences; s++) {
        const auto row = tokens.subspan(static_cast<size_t>(s * (batch.length + 1) + 1),
                                        static_cast<size_t>(batch.length));
        sums[1] += static_cast<double>(
            std::count_if(row.begin(), row.end(), [](int32_t token) { return token >= 0; }));
      }
    (void)sum_over_ranks(sums, 2);
  }));
  return Evaluation{sums[0], sums[1]};
}

Result<std::vector<float>> Trainer::next_logits(std::span<const int32_t> tokens) {
  const BatchShape& batch = options_.batch;
  const auto n = static_cast<int64_t>(tokens.size());
  if (n < 1 || n > batch.length)
    return invalid(fmt::format("{} tokens to go on from; 1 to {} are possible", n, batch.length));
  // Padded to a length that every rank gets the same share of; what follows is not seen (attention
  // is causal).
  const int64_t multiple = int64_t{2} * options_.mesh.context * options_.mesh.tensor;
  const int64_t length = std::min(batch.length, (n + multiple - 1) / multiple * multiple);
  std::vector<int32_t> rows(static_cast<size_t>(batch.micro * (length + 1)), -1);
  std::copy(tokens.begin(), tokens.end(), rows.begin());
  std::vector<float> logits;
  SENNIT_RETURN_IF_ERROR(run([&] {
    set_tokens(*environment_, batch.micro, length);
    logits = pipeline_->logits(rows, n - 1);
    // From the first rank that has them to all.
    double has = logits.empty() ? -1.0 * mesh_.shape.ranks() : -1.0 * mesh_.position;
    mesh_.world->all_reduce(&has, 1, Element::f64, Reduction::max).wait();
    logits.resize(static_cast<size_t>(options_.model.vocabulary));
    mesh_.world->broadcast(logits.data(), logits.size() * sizeof(float), static_cast<int>(-has))
        .wait();
  }));
  return logits;
}

// The forward pass again, with every tensor looked at: the weights are still those that it was
// computed with.
Status Trainer::not_finite(std::span<const int32_t> tokens, double loss) {
  std::string first = parameters_->first_not_finite(State::master);
  if (!first.empty()) first = "the weight " + first;
  environment_->watch = [&](const std::string& name, Matrix matrix) {
    if (!first.empty()) return;
    PooledMatrix f32 = pool_.take(Type::f32, matrix.rows, matrix.columns);
    device_.convert(f32, matrix);
    const auto n = static_cast<size_t>(matrix.rows * matrix.columns);
    if (!std::isfinite(device_.sum_of_squares(f32->f32(), n))) first = "the output of " + name;
  };
  (void)pipeline_->evaluate(tokens, options_.batch.micro_batches(options_.mesh));
  environment_->watch = nullptr;
  const bool forward = !first.empty();
  if (!forward) {
    first = parameters_->first_not_finite(State::gradient);
    if (!first.empty()) first = "the gradient of " + first;
  }
  // Of several ranks', the forward pass's of the earliest stage, which the others' may come from.
  const int ranks = mesh_.shape.ranks();
  const int order =
      ((forward ? 0 : mesh_.shape.pipeline) + mesh_.at.pipeline) * ranks + mesh_.position;
  double key = first.empty() ? -1e9 : -1.0 * order;
  mesh_.world->all_reduce(&key, 1, Element::f64, Reduction::max).wait();
  char text[kTextBytes] = {};
  const int teller = key > -1e9 ? static_cast<int>(-key) % ranks : 0;
  if (mesh_.position == teller)
    std::strncpy(
        text,
        fmt::format(
            "step {}: the loss is {}; on rank {} ({}) the first tensor that is not finite is {}",
            steps_, loss, mesh_.job->rank(), mesh_.shape.text(),
            first.empty() ? "none: it overflows in a sum" : first)
            .c_str(),
        kTextBytes - 1);
  mesh_.world->broadcast(text, kTextBytes, teller).wait();
  return {SENNIT_ABORTED, text};
}

}  // namespace sennit::trainer
