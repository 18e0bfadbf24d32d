// order_test.cpp: the trainer waits for what it needs, and for what it is about to write
// over. With a device that is as late as its contract allows, and with transfers that are, every
// mesh and every ZeRO gives the bits that it gives with prompt ones.
#include "tests/support/trials.hpp"
#include "tests/trainer/device/late_device.hpp"
#include "tests/trainer/parallel/late_transfers.hpp"
#include "tests/trainer/ranks.hpp"

namespace sennit::trainer {
namespace {

using sennit_test::kSanitized;  // there many ranks take minutes, and have no code that few have not

Result<std::unique_ptr<Device>> open_late_device() {
  Result<std::unique_ptr<Device>> prompt = open_device("cpu", 1);
  if (!prompt) return prompt;
  return std::unique_ptr<Device>(std::make_unique<LateDevice>(*std::move(prompt)));
}
const Beneath kLateDevice{.device = open_late_device};
const Beneath kLateTransfers{.adopt = LateCommunicator::adopt};
const Beneath kBothLate{.device = open_late_device, .adopt = LateCommunicator::adopt};

TrainerOptions tiny(const MeshShape& mesh, int zero) {
  TrainerOptions options;
  LlamaConfig& model = options.model;
  model.layers = 2;
  model.hidden = 16;
  model.ffn = 16;
  model.heads = 4;
  model.kv_heads = 2;
  model.head_size = 4;
  model.vocabulary = 32;
  options.batch = {.sequences = 4, .micro = 1, .length = 16};
  options.bucket_bytes = 0;
  options.mesh = mesh;
  options.zero = zero;
  return options;
}

// What a job comes to know: of its state at the start and at the end, and of what it calculates
// between.
struct After {
  std::vector<double> losses;
  std::vector<float> logits;
  Tensors first, masters, moments, gradients;
  bool operator==(const After&) const = default;
};

// One rank's: a step, and the gradients that a second one would have.
After train_rank(Trainer& trainer, std::span<const int32_t> tokens, int64_t sequences) {
  After own;
  Update update;
  update.adamw.learning_rate = 1e-2f;
  update.clip = 1;
  const Result<StepResult> step = trainer.step(tokens, update);
  EXPECT_TRUE(step.ok()) << step.status().text();
  const Result<Evaluation> held_out = trainer.evaluate(tokens, sequences);
  EXPECT_TRUE(held_out.ok()) << held_out.status().text();
  const Result<double> alone = trainer.rehearse(tokens);
  EXPECT_TRUE(alone.ok()) << alone.status().text();
  const Result<std::vector<float>> logits = trainer.next_logits(tokens.first(5));
  EXPECT_TRUE(logits.ok()) << logits.status().text();
  const Result<StepResult> second = trainer.gradients(tokens);
  EXPECT_TRUE(second.ok()) << second.status().text();
  if (!step || !held_out || !alone || !logits || !second) return own;
  own.losses = {step->loss, step->gradient_norm, held_out->loss, second->loss,
                second->gradient_norm};
  own.logits = *logits;
  return own;
}

// `start`: the weights to begin with, where they are not to be the seed's.
After train(const TrainerOptions& options, const Beneath& beneath, const Tensors& start = {}) {
  After after;
  std::mutex mutex;
  const std::vector<int32_t> batch = random_batch(options, 3);
  const auto look = [&](Trainer& trainer, State state, Tensors* tensors) {
    const std::lock_guard lock(mutex);
    put_together(trainer.parameters().pieces(state), tensors);
  };
  const auto rank = [&](Trainer& trainer) {
    if (!start.empty()) {
      take_apart(start, trainer.parameters().pieces_to_load(State::master));
      trainer.parameters().publish();
    }
    look(trainer, State::master, &after.first);
    const After own = train_rank(trainer, share_of(batch, trainer.mesh()),
                                 options.batch.sequences / options.mesh.data);
    look(trainer, State::master, &after.masters);
    look(trainer, State::second_moment, &after.moments);
    look(trainer, State::gradient, &after.gradients);
    const std::lock_guard lock(mutex);
    after.losses = own.losses;
    after.logits = own.logits;
  };
  run_ranks(options, rank, beneath);
  return after;
}

struct Setting {
  MeshShape mesh;
  int zero;
};
// ZeRO is for ranks that hold the same weights: 48 settings have such, 4 have none.
std::vector<Setting> settings(int most_ranks) {
  std::vector<Setting> all;
  for (int which = 0; which < 16; which++) {
    const MeshShape mesh{.data = 1 + which / 8 % 2,
                         .context = 1 + which / 4 % 2,
                         .pipeline = 1 + which / 2 % 2,
                         .tensor = 1 + which % 2};
    if (mesh.ranks() > most_ranks) continue;
    for (int zero = 0; zero <= (mesh.data * mesh.context > 1 ? 3 : 0); zero++)
      all.push_back({mesh, zero});
  }
  return all;
}

TEST(TrainerOrder, LatenessChangesNoBitOnAnyMesh) {
  std::vector<std::string> with_device, with_transfers;  // settings that came out otherwise
  const std::vector<Setting> all = settings(kSanitized ? 2 : 16);
  for (const Setting& setting : all) {
    const std::string name = setting.mesh.text() + ", zero " + std::to_string(setting.zero);
    SCOPED_TRACE(name);
    const TrainerOptions options = tiny(setting.mesh, setting.zero);
    const After prompt = train(options, {});
    ASSERT_FALSE(prompt.losses.empty());
    if (!(train(options, kLateDevice) == prompt)) with_device.push_back(name);
    // Its paths have been gone already, and 16 ranks are many.
    if (setting.mesh.ranks() < 16 && !(train(options, kLateTransfers) == prompt))
      with_transfers.push_back(name);
  }
  EXPECT_TRUE(with_device.empty())
      << with_device.size() << " of " << all.size() << ": " << testing::PrintToString(with_device);
  EXPECT_TRUE(with_transfers.empty())
      << with_transfers.size() << ": " << testing::PrintToString(with_transfers);
}

// The same on the paths that those have not: bf16 weights beside f32 masters, weights that the host
// filled in, a tied table, interleaved stages, recompute, and waiting for each transfer at once.
TEST(TrainerOrder, LatenessChangesNoBitOfLoadedWeightsInBf16) {
  for (const bool overlap : kSanitized ? std::vector{true} : std::vector{true, false})
    for (const auto& [mesh, zero] :
         {Setting{{.data = 2, .tensor = 2}, 2},
          Setting{{.data = 2, .pipeline = 2, .stage_chunks = 2}, 1},
          Setting{{.data = 2, .pipeline = 2}, 0}, Setting{{.context = 2, .tensor = 2}, 3}}) {
      SCOPED_TRACE(mesh.text() + ", zero " + std::to_string(zero) +
                   (overlap ? "" : ", without overlap"));
      TrainerOptions options = tiny(mesh, zero);
      options.model.layers = 4;
      options.model.tied = options.recompute = true;
      options.type = overlap ? Type::bf16 : Type::f32;
      options.overlap = overlap;
      options.seed = 2;
      const Tensors start = train(options, {}).masters;
      options.seed = 1;
      const After prompt = train(options, {}, start);
      ASSERT_FALSE(prompt.losses.empty());
      EXPECT_TRUE(prompt.first == start);
      EXPECT_TRUE(train(options, kLateDevice, start) == prompt) << "with a late device";
      EXPECT_TRUE(train(options, kLateTransfers, start) == prompt) << "with late transfers";
      EXPECT_TRUE(train(options, kBothLate, start) == prompt) << "with both";
    }
}

}  // namespace
}  // namespace sennit::trainer
