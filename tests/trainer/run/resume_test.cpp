// resume_test.cpp: a run that stops and goes on has the same bits as one that did not stop;
// on another mesh it goes on from the same bits.
#include <filesystem>

#include <nlohmann/json.hpp>

#include "tests/trainer/ranks.hpp"

namespace sennit::trainer {
namespace {

class TrainerResume : public testing::Test {
 protected:
  void SetUp() override {
    LlamaConfig& model = options_.model;
    model.layers = 4;
    model.hidden = 32;
    model.ffn = 48;
    model.heads = 8;
    model.kv_heads = 4;
    model.head_size = 8;
    model.vocabulary = 64;
    model.tied = true;
    options_.batch = {.sequences = 8, .micro = 1, .length = 32};
    options_.type = Type::bf16;
    folder_ = testing::TempDir() + "trainer_resume_" + std::to_string(getpid());
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  // Steps [first, last] and then everything that a checkpoint holds. Loads `from` before, saves
  // after `save`.
  Tensors run(const TrainerOptions& options, int64_t first, int64_t last, const std::string& from,
              int64_t save) {
    Tensors state;
    std::mutex mutex;
    run_ranks(options, [&](Trainer& trainer) {
      if (!from.empty()) {
        const Result<Checkpoint> checkpoint = Checkpoint::open(from);
        ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().text();
        const Status loaded = checkpoint->load(trainer.parameters().pieces_of_all(true));
        ASSERT_TRUE(loaded.ok()) << loaded.text();
        trainer.parameters().publish();
      }
      CheckpointOptions writing;
      writing.folder = folder_;
      writing.rank = trainer.mesh().job->rank();
      writing.ranks = options.mesh.ranks();
      writing.attempt = "0123456789abcdef";
      Result<std::unique_ptr<CheckpointWriter>> writer = CheckpointWriter::open(writing);
      ASSERT_TRUE(writer.ok()) << writer.status().text();
      for (int64_t step = first; step <= last; step++) {
        Update update;
        update.adamw.learning_rate = 1e-3f;
        update.adamw.step = step;
        update.clip = 1;
        const std::vector<int32_t> batch = random_batch(options, static_cast<uint64_t>(step));
        const Result<StepResult> result = trainer.step(share_of(batch, trainer.mesh()), update);
        ASSERT_TRUE(result.ok()) << result.status().text();
        if (step != save) continue;
        const Status saved =
            (*writer)->save(step, std::nullopt, nlohmann::json::object(), options.model.to_json(),
                            "", trainer.parameters().pieces_of_all(false));
        ASSERT_TRUE(saved.ok()) << saved.text();
      }
      const Result<std::optional<SaveReport>> report = (*writer)->wait();
      ASSERT_TRUE(report.ok()) << report.status().text();
      const std::lock_guard lock(mutex);
      put_together(trainer.parameters().pieces_of_all(false), &state);
    });
    return state;
  }

  TrainerOptions options_;
  std::string folder_;
};

TEST_F(TrainerResume, GoesOnWithTheSameBits) {
  for (int zero = 0; zero <= 3; zero++) {
    SCOPED_TRACE(zero);
    options_.mesh = {.data = 2, .pipeline = 2};
    options_.zero = zero;
    const Tensors through = run(options_, 1, 5, "", 3);
    const Tensors resumed = run(options_, 4, 5, folder_ + "/step-00000003", 0);
    EXPECT_TRUE(through == resumed);
    std::filesystem::remove_all(folder_);
  }
}

TEST_F(TrainerResume, AnyMeshLoadsWhatAnyOtherSaved) {
  options_.mesh = {.data = 2, .tensor = 2};
  options_.zero = 2;
  const Tensors saved = run(options_, 1, 2, "", 2);
  for (const auto& [mesh, zero] : {std::pair{MeshShape{}, 0},
                                   {MeshShape{.data = 4}, 3},
                                   {MeshShape{.context = 2, .pipeline = 2}, 1},
                                   {MeshShape{.pipeline = 2, .tensor = 4}, 0},
                                   {MeshShape{.pipeline = 2, .stage_chunks = 2}, 0}}) {
    options_.mesh = mesh;
    options_.zero = zero;
    SCOPED_TRACE(mesh.text());
    EXPECT_TRUE(run(options_, 1, 0, folder_ + "/step-00000002", 0) == saved);
  }
}

}  // namespace
}  // namespace sennit::trainer
