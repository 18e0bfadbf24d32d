// mesh_test.cpp: any mesh computes what one rank computes: the loss and every gradient, in
// f32. A tensor's largest difference must stay below kTolerance times its largest gradient (sums in
// another order); where the order is the same the bits must be.
#include "tests/support/trials.hpp"
#include "tests/trainer/ranks.hpp"

namespace sennit::trainer {
namespace {

constexpr double kTolerance = 2e-5;
using sennit_test::kSanitized;  // there many ranks take minutes, and have no code that few have not

TrainerOptions tiny() {
  TrainerOptions options;
  LlamaConfig& model = options.model;
  model.layers = 8;
  model.hidden = 32;
  model.ffn = 48;
  model.heads = 16;
  model.kv_heads = 8;
  model.head_size = 4;
  model.vocabulary = 64;
  options.batch = {.sequences = 8, .micro = 2, .length = 32};
  options.bucket_bytes = 1 << 16;
  return options;
}

// Largest difference of any tensor, as a share of that tensor's largest value; and which.
std::pair<double, std::string> difference(const Tensors& a, const Tensors& b) {
  std::pair<double, std::string> worst;
  EXPECT_EQ(a.size(), b.size());
  for (const auto& [name, of_a] : a) {
    const auto found = b.find(name);
    if (found == b.end()) return {1, name + " is missing"};
    double largest = 1e-30, apart = 0;
    for (size_t i = 0; i < of_a.size(); i++) {
      largest = std::max(largest, std::abs(static_cast<double>(of_a[i])));
      const double d =
          std::abs(static_cast<double>(of_a[i]) - static_cast<double>(found->second[i]));
      apart = d <= apart ? apart : d;  // NaN counts as apart
      if (std::isnan(d)) return {1, name + " has elements that no rank holds"};
    }
    if (apart / largest > worst.first) worst = {apart / largest, name};
  }
  return worst;
}

std::vector<MeshShape> meshes_of(int ranks) {
  std::vector<MeshShape> meshes;
  for (int tp = 1; tp <= ranks; tp *= 2)
    for (int cp = 1; cp * tp <= ranks; cp *= 2)
      for (int pp = 1; pp * cp * tp <= ranks; pp *= 2)
        meshes.push_back(
            {.data = ranks / (tp * cp * pp), .context = cp, .pipeline = pp, .tensor = tp});
  return meshes;
}

class EveryMesh : public testing::TestWithParam<int> {};

TEST_P(EveryMesh, GivesOneRanksGradients) {
  for (const bool tied : {false, true}) {
    if (tied && kSanitized) continue;
    TrainerOptions options = tiny();
    options.model.tied = tied;
    const std::vector<int32_t> batch = random_batch(options, 7);
    const Outcome one = gradients_of(options, batch);
    int number = 0;
    for (const MeshShape& mesh : meshes_of(GetParam())) {
      // a tied table is special on pipelines
      if (tied && mesh.pipeline == 1 && GetParam() == 8) continue;
      options.mesh = mesh;
      options.batch.micro = mesh.data == 8 ? 1 : 2;
      // Zero 0 and, in turn, one of the others.
      const bool shared = mesh.data * mesh.context > 1;
      for (const int zero : shared && !tied && !kSanitized ? std::vector{0, 1 + number % 3}
                                                           : std::vector{number % 4}) {
        options.zero = zero;
        SCOPED_TRACE(mesh.text() + (tied ? ", tied" : "") + ", zero " + std::to_string(zero));
        const Outcome many = gradients_of(options, batch);
        EXPECT_NEAR(many.loss, one.loss, 1e-6 * one.loss);
        EXPECT_NEAR(many.norm, one.norm, 1e-6 * one.norm);
        const auto [apart, where] = difference(one.gradients, many.gradients);
        EXPECT_LT(apart, kTolerance) << where;
        if (mesh.pipeline == mesh.ranks() && !tied) {
          EXPECT_TRUE(many.gradients == one.gradients);
        }
        if (HasFailure()) return;
      }
      number++;
    }
  }
}
const int kRanks[] = {2, 4, 8};
INSTANTIATE_TEST_SUITE_P(Ranks, EveryMesh,
                         testing::ValuesIn(kRanks, kRanks + (kSanitized ? 2 : 3)));

// Same sums in the same order: the same bits as one rank without chunks.
TEST(TrainerMesh, InterleavedPipelinesGiveOneRanksBits) {
  TrainerOptions options = tiny();
  const std::vector<int32_t> batch = random_batch(options, 8);
  const Outcome one = gradients_of(options, batch);
  for (const auto& [pipeline, chunks] : {std::pair{2, 2}, {2, 4}, {4, 2}, {8, 1}}) {
    options.mesh.pipeline = pipeline;
    options.mesh.stage_chunks = chunks;
    SCOPED_TRACE(options.mesh.text());
    const Outcome many = gradients_of(options, batch);
    EXPECT_EQ(many.loss, one.loss);
    EXPECT_TRUE(many.gradients == one.gradients);
  }
}

struct After {
  std::vector<double> losses;
  Tensors masters, moments;
  bool operator==(const After&) const = default;
};
// Three steps of AdamW; where `in_turns` the second one without overlap, and its computing once
// more alone.
After three_steps(const TrainerOptions& options, bool in_turns = false) {
  After after;
  std::mutex mutex;
  run_ranks(options, [&](Trainer& trainer) {
    std::vector<double> losses;
    for (int64_t step = 1; step <= 3; step++) {
      Update update;
      update.adamw.learning_rate = 1e-3f;
      update.adamw.weight_decay = 0.1f;
      update.adamw.step = step;
      update.clip = 1;
      const std::vector<int32_t> batch = random_batch(options, static_cast<uint64_t>(step));
      if (in_turns) trainer.set_overlap(step != 2);
      const Result<StepResult> result = trainer.step(share_of(batch, trainer.mesh()), update);
      ASSERT_TRUE(result.ok()) << result.status().text();
      losses.push_back(result->loss);
      if (in_turns && step == 2) {
        const Result<double> alone = trainer.rehearse(share_of(batch, trainer.mesh()));
        ASSERT_TRUE(alone.ok()) << alone.status().text();
      }
    }
    const std::lock_guard lock(mutex);
    after.losses = losses;
    put_together(trainer.parameters().pieces(State::master), &after.masters);
    put_together(trainer.parameters().pieces(State::second_moment), &after.moments);
  });
  return after;
}

const MeshShape kMixed[] = {{.data = 2},
                            {.data = 2, .context = 2, .pipeline = 2},
                            {.data = 2, .tensor = 2},
                            {.data = 2, .pipeline = 2, .tensor = 2, .stage_chunks = 2},
                            {.context = 2, .tensor = 2}};

TEST(TrainerMesh, StepsAgreeWithOneRanksOnEveryZero) {
  TrainerOptions options = tiny();
  options.model.tied = true;
  const After one = three_steps(options);
  for (const MeshShape& mesh : kMixed)
    for (int zero = kSanitized ? 3 : 0; zero <= 3; zero++) {
      options.mesh = mesh;
      options.zero = zero;
      SCOPED_TRACE(mesh.text() + ", zero " + std::to_string(zero));
      const After many = three_steps(options);
      ASSERT_EQ(many.losses.size(), 3);
      for (size_t i = 0; i < 3; i++)
        EXPECT_NEAR(many.losses[i], one.losses[i], 3e-6 * one.losses[i]);
      // AdamW divides by the root of the second moment: where a gradient is near 0 its sign
      // decides.
      const auto [apart, where] = difference(one.masters, many.masters);
      EXPECT_LT(apart, 2e-2) << where;
      const auto [moments_apart, moment] = difference(one.moments, many.moments);
      EXPECT_LT(moments_apart, 1e-3) << moment;
    }
}

TEST(TrainerMesh, OverlapAndRecomputeChangeNoBit) {
  const MeshShape few[] = {{.data = 2, .tensor = 2}, {.data = 2, .pipeline = 2}};
  for (const Type type : {Type::f32, Type::bf16})
    for (const MeshShape& mesh : kSanitized ? std::span<const MeshShape>(few) : kMixed) {
      if (kSanitized && type == Type::bf16) continue;
      TrainerOptions options = tiny();
      options.type = type;
      options.mesh = mesh;
      options.zero = type == Type::f32 ? 3 : 1;
      SCOPED_TRACE(mesh.text());
      const After plain = three_steps(options);
      ASSERT_EQ(plain.losses.size(), 3);
      EXPECT_TRUE(three_steps(options, true) == plain) << "with and without overlap in turns";
      options.overlap = false;
      EXPECT_TRUE(three_steps(options) == plain) << "without overlap";
      options.overlap = true;
      options.recompute = true;
      EXPECT_TRUE(three_steps(options) == plain) << "with recompute";
    }
}

// Zero 1 to 3 reduce-scatter a bucket, so its size says who owns which element and in which order
// it is summed: there the setting has no effect where one order is promised, and all units are half
// layers.
TEST(TrainerMesh, BucketSizesChangeNoBitWhereSumsAreReproducible) {
  ASSERT_EQ(setenv("SENNIT_REPRODUCIBLE", "1", 1), 0);
  for (const Type type : {Type::f32, Type::bf16}) {
    TrainerOptions options = tiny();
    options.mesh.data = 4;
    options.type = type;
    options.bucket_bytes = 0;
    const After by_layer = three_steps(options);
    ASSERT_EQ(by_layer.losses.size(), 3);
    options.bucket_bytes = 1 << 30;
    const After at_once = three_steps(options);
    // The global norm is summed by unit, in f64: the clipped gradient is the same f32.
    EXPECT_EQ(by_layer.losses, at_once.losses);
    EXPECT_TRUE(by_layer.masters == at_once.masters);
    EXPECT_EQ(options.unit_bytes(), 1 << 30);
    for (options.zero = 1; options.zero <= 3; options.zero++) EXPECT_EQ(options.unit_bytes(), 0);
  }
  unsetenv("SENNIT_REPRODUCIBLE");
}

// And where no order is promised, the setting has its effect with every zero: the sums are the same
// ones.
TEST(TrainerMesh, BucketSizesChangeTheOrderOfSumsAlone) {
  for (const Type type : {Type::f32, Type::bf16})
    for (const int zero : {1, 3}) {
      TrainerOptions options = tiny();
      options.mesh.data = 4;
      options.type = type;
      options.zero = zero;
      SCOPED_TRACE("zero " + std::to_string(zero));
      const std::vector<int32_t> batch = random_batch(options, 9);
      options.bucket_bytes = 0;
      const Outcome by_layer = gradients_of(options, batch);
      options.bucket_bytes = 1 << 30;
      EXPECT_EQ(options.unit_bytes(), 1 << 30);
      const Outcome at_once = gradients_of(options, batch);
      EXPECT_NEAR(by_layer.loss, at_once.loss, 1e-6 * by_layer.loss);
      const auto [apart, where] = difference(by_layer.gradients, at_once.gradients);
      EXPECT_LT(apart, kTolerance) << where;
    }
}

// Buckets are filled from the end, as the backward pass completes them; whatever their size, they
// are all parameters, in the order of use.
TEST(TrainerMesh, TheLastReductionIsTheSmallOne) {
  const TrainerOptions options = tiny();
  const auto half_bytes = [&](bool ffn) {
    return (ffn ? 3 * options.model.ffn : 2 * 24 * options.model.head_size) * options.model.hidden *
           4;
  };
  int64_t elements = 0;
  for (const int64_t bucket :
       {int64_t{0}, half_bytes(true), half_bytes(true) + half_bytes(false) - 1, int64_t{1} << 16,
        int64_t{1} << 30}) {
    const ParameterLayout layout = make_layout(options.model, options.mesh, {}, bucket);
    int unit = layout.embedding.unit;
    int64_t boxes = 0;
    for (const LayerPlaces& layer : layout.chunks[0])
      for (const LayerPlaces::Half& half : {layer.attention, layer.ffn}) {
        EXPECT_EQ(half.unit, unit + half.first);
        unit = half.unit;
      }
    for (size_t u = 0; u < layout.units.size(); u++)
      for (const ParameterBox& box : layout.units[u].boxes) boxes += box.elements;
    EXPECT_EQ(layout.units.size(), static_cast<size_t>(unit) + 2);  // and the output layer's
    if (elements == 0) elements = boxes;
    EXPECT_EQ(boxes, elements);
    for (size_t u = 2; u + 1 < layout.units.size(); u++) {
      EXPECT_GE(layout.units[u].size * 4, bucket);
      if (bucket <= half_bytes(false)) continue;  // a half by itself may be larger
      EXPECT_LE(layout.units[1].size, layout.units[u].size)
          << "bucket " << bucket << ", unit " << u;
    }
  }
}

TEST(TrainerMesh, SaysWhatDoesNotDivide) {
  TrainerOptions options = tiny();
  options.batch.micro = 1;
  const auto text = [&](MeshShape mesh, BatchShape batch, int ranks) {
    return check_mesh(mesh, batch, options.model, ranks).text();
  };
  EXPECT_EQ(text({.tensor = 16}, options.batch, 16),
            "--tp 16 does not divide the key/value heads, which are not replicated, (8); these do: "
            "1, 2, 4, 8");
  EXPECT_EQ(text({.pipeline = 3}, options.batch, 3),
            "--pp times --stage-chunks 3 does not divide the layers (8); these do: 1, 2, 4, 8");
  EXPECT_EQ(text({.context = 3}, options.batch, 3),
            "two times --cp 6 does not divide the sequence (32); these do: 1, 2, 4, 8, 16, 32");
  EXPECT_EQ(text({.data = 3}, options.batch, 3),
            "--dp times --micro-batch 3 does not divide the batch (in sequences) (8); these do: 1, "
            "2, 4, 8");
  EXPECT_EQ(text({.data = 2}, options.batch, 3),
            "the mesh dp 2 x pp 1 x cp 1 x tp 1 has 2 ranks, but there are 3");
}

}  // namespace
}  // namespace sennit::trainer
