// forecast_test.cpp: the training model against published runs: Llama 3's table 4, its operations
// and days, its memory; loads of process groups against the formula for concurrent groups; what is
// refused.
//
// ctest not-under-tsan: it has one thread
#include <gtest/gtest.h>

#include <cmath>
#include <ctime>

#include <fmt/core.h>

#include "concurrent/concurrent.hpp"
#include "cost/rates.hpp"
#include "forecast/cost.hpp"
#include "forecast/curve.hpp"
#include "forecast/hardware.hpp"
#include "forecast/memory.hpp"
#include "forecast/search.hpp"
#include "forecast/step.hpp"
#include "tests/support/trials.hpp"
#include "topology/source.hpp"

namespace {

using namespace sennit;            // NOLINT: tests of this namespace
using namespace sennit::forecast;  // NOLINT

struct Row {
  const char* mesh;
  int sequence, batch;
  double mfu_percent;
};
// "The Llama 3 Herd of Models", table 4. MFU there must count attention: at 128K tokens that adds
// 67% to 6N, so the third row's 380 TFLOP/s of 6N alone would be 634 in all, half again what the
// other rows reach.
constexpr Row kTable4[] = {{"tp8,pp16,dp64", 8192, 32, 43},
                           {"tp8,pp16,dp128", 8192, 16, 41},
                           {"tp8,cp16,pp16,dp8", 131072, 16, 38}};

Job job_of(const Row& row) {
  Job job;
  job.model = *find_model("llama3-405b");
  job.gpu = *find_accelerator("h100");
  job.mesh = *parse_mesh(row.mesh);
  job.sequence = row.sequence;
  job.batch = row.batch;
  return job;
}

const TierTree& meta24k() {
  static const TierTree tree = *synthetic_tree("meta24k");
  return tree;
}

StepTime step_of(const Job& job, const TierTree& tree = meta24k()) {
  const GpuFabric network(tree, job.gpu.scale_up_bytes_per_s.value);
  const std::vector<Places> places = placements(tree, job.mesh.gpus());
  return step_time(job, lay_out(job.mesh, network, places[0].positions));
}

TEST(Forecast, MfuOfLlama3sTable4WithOneSetOfConstants) {
  for (const Row& row : kTable4) {
    Job job = job_of(row);
    ASSERT_TRUE(check(job).ok()) << check(job).text();
    const StepTime step = step_of(job);
    EXPECT_NEAR(step.mfu * 100, row.mfu_percent, 2) << row.mesh;
    fmt::print(
        "{:<18} MFU {:.1f}%, published {}%; step {:.2f} s: matmul {:.2f} attention {:.2f} "
        "elementwise {:.2f} "
        "tp {:.2f} "
        "cp {:.2f} bubble {:.2f} pp {:.2f} dp {:.2f} ({:.2f} hidden) optimizer {:.3f}\n",
        row.mesh, step.mfu * 100, row.mfu_percent, step.total, step.matmul, step.attention,
        step.elementwise, step.tensor, step.context, step.bubble, step.pipeline, step.data,
        step.data_hidden, step.optimizer);
    for (size_t i = 0; i < job.constants.all().size(); i++) {
      std::string moves;
      for (const double factor : {0.9, 1.1}) {
        Job moved = job;
        moved.constants.all()[i]->value *= factor;
        const double by = (step_of(moved).mfu - step.mfu) * 100;
        moves += fmt::format(" {:+.2f}", by);
        EXPECT_LE(std::abs(by), 0.1 * step.mfu * 100 + 1e-9)
            << "MFU cannot move more than the constant";
        EXPECT_EQ(by > 0, factor > 1) << "every constant is an efficiency";
      }
      fmt::print("  {:<10} {:.2f} -10% / +10%: MFU{} points\n", job.constants.all()[i]->name,
                 job.constants.all()[i]->value, moves);
    }
  }
}

// The published runs were on RoCE. The reference cluster declares what is assumed of GPUs there, so
// without its latencies the forecast is the same.
TEST(Forecast, UndeclaredLatenciesComeFromTheKindOfWire) {
  const std::string undeclared =
      "pods=8x192x2;ranks=8;nic=400GB/s;oversubscription=1,7;local=500GB/s";
  const TierTree roce = *synthetic_tree(undeclared + ";wire=roce"),
                 ethernet = *synthetic_tree(undeclared + ";wire=ethernet");
  EXPECT_EQ(assumed_latencies(meta24k()), "");
  EXPECT_EQ(assumed_latencies(roce), "3.4us within a host, 14us over RDMA");
  EXPECT_EQ(assumed_latencies(ethernet), "3.4us within a host, 30us over sockets");
  EXPECT_EQ(assumed_latencies(*synthetic_tree(undeclared + ";wire=roce;latency=2us")),
            "3.4us within a host");
  for (const Row& row : kTable4) {
    const Job job = job_of(row);
    EXPECT_DOUBLE_EQ(step_of(job, roce).total, step_of(job).total) << row.mesh;
    EXPECT_GT(step_of(job, ethernet).total, step_of(job).total) << row.mesh;
    EXPECT_NEAR(step_of(job, ethernet).mfu * 100, row.mfu_percent, 2) << row.mesh;
  }
}

TEST(Forecast, AMessageCostsWhatThePlannerTakesForIt) {
  const Mesh mesh = *parse_mesh("tp8,pp16,dp128");
  const GpuFabric network(meta24k(), 450e9);
  const std::vector<int> positions = placements(meta24k(), mesh.gpus())[0].positions;
  const CostModel cost = gpu_cost();
  for (const auto& [axis, ns] : {std::pair(Axis::tensor, 3'400 + cost.shared_memory_post_ns),
                                 {Axis::pipeline, 14'000 + cost.post_ns},
                                 {Axis::data, 14'000 + cost.post_ns}})
    EXPECT_DOUBLE_EQ(network.message_s(groups_of(mesh, {axis}), positions),
                     static_cast<double>(ns) * 1e-9);
}

TEST(Forecast, OperationsAndDaysOfLlama3) {
  const Model model = *find_model("llama3-405b");
  EXPECT_NEAR(model.parameters(), 405.9e9, 0.1e9);
  EXPECT_NEAR(find_model("llama3-70b")->parameters(), 70.6e9, 0.1e9);
  EXPECT_NEAR(find_model("llama3-8b")->parameters(), 8.03e9, 0.01e9);
  const double operations = model.parameter_flops_per_token() * 15.6e12;
  EXPECT_NEAR(operations, 3.8e25, 0.01e25);
  EXPECT_NEAR(days_for(operations, 16000, 400e12), 69, 0.5);
  const double share = model.attention_flops_per_token(131072) / model.parameter_flops_per_token();
  EXPECT_NEAR(share, 0.67, 0.005) << "causal; the full square is twice that";
}

TEST(Forecast, FailuresOfLlama3) {
  const Job job = job_of(kTable4[1]);
  const StepTime step = step_of(job);
  const Cost cost = cost_of(job, step, {});
  EXPECT_NEAR(cost.mtbf_s / 3600, 3.09, 0.01);
  EXPECT_GT(cost.effective, 0.9) << "the paper: over 90%";
  EXPECT_LT(cost.effective, 0.97);
  EXPECT_NEAR(cost.days_effective * cost.effective, cost.days, 1e-9 * cost.days);
  EXPECT_NEAR(cost.days, cost.steps * step.total / 86400, 1e-9 * cost.days);
  for (const double factor : {0.5, 2.0}) {  // no other interval loses less
    Operation other;
    other.interval_s = cost.interval_s * factor;
    EXPECT_LT(cost_of(job, step, other).effective, cost.effective) << factor;
  }
  Operation never;
  never.interruptions_per_gpu_hour = 0;
  EXPECT_EQ(cost_of(job, step, never).days_effective, cost.days);
  EXPECT_NEAR(cost.kwh, cost.gpu_hours * 1.275 * 1.08, 1e-6 * cost.kwh);
}

TEST(Forecast, MemoryOfLlama3FitsAsThePaperRanIt) {
  for (const Row& row : kTable4)
    EXPECT_TRUE(check_memory(job_of(row)).ok()) << check_memory(job_of(row)).text();
  const Memory memory = memory_of(job_of(kTable4[1]));
  // 8 layers of 126 on 8 tensor ranks; Adam's state is cut into 128.
  const double held = 8 * find_model("llama3-405b")->layer_parameters() / 8;
  EXPECT_DOUBLE_EQ(memory.weights, 2 * held);
  EXPECT_DOUBLE_EQ(memory.gradients, 4 * held);
  EXPECT_DOUBLE_EQ(memory.first_moment, 4 * held / 128);
  EXPECT_EQ(memory.layers_in_flight, 128) << "all 16 microbatches through 8 chunks";
}

TEST(Forecast, SaysWhatWouldMakeAJobFit) {
  Job job = job_of(kTable4[1]);
  job.recompute = Recompute::none;
  const Status status = check_memory(job);
  ASSERT_FALSE(status.ok());
  for (const char* word :
       {"llama3-405b", "more than the 80.0 GB", "activations", "--recompute cheap"})
    EXPECT_NE(status.text().find(word), std::string::npos) << status.text();
  for (const Remedy& remedy : remedies(job))
    EXPECT_LE(remedy.bytes, job.gpu.memory_bytes.value) << remedy.change;
}

// facts: max[(1 - 1/d), s1 s2 (1 - m/d)/m] M/B for d ranks of which m are in a pod, one on each
// host.
TEST(Forecast, ConcurrentGroupsMeetTheirFormula) {
  const GpuFabric network(meta24k(), 450e9);
  struct Case {
    const char* mesh;
    double members, per_pod;
  };
  // Pipelines of so many hosts lie inside, and pods are full: a pod that the job fills in part
  // takes in more.
  constexpr Case kCases[] = {{"tp8,pp16,dp96", 96, 24}, {"tp8,pp32,dp96", 96, 12},
                             {"tp8,pp64,dp48", 48, 6},  {"tp8,pp192,dp16", 16, 2},
                             {"tp8,pp192,dp8", 8, 2},   {"tp8,pp384,dp8", 8, 1},
                             {"tp8,pp384,dp4", 4, 1}};
  for (const Case& c : kCases) {
    const Mesh mesh = *parse_mesh(c.mesh);
    const std::vector<int> positions = placements(meta24k(), mesh.gpus())[0].positions;
    const SetBound bound =
        network.bound(network.gather_load(groups_of(mesh, {Axis::data}), positions), 1, 1);
    const double expected =
        std::max(1 - 1 / c.members, 7 * (1 - c.per_pod / c.members) / c.per_pod) / 50e9;
    EXPECT_NEAR(bound.seconds, expected, expected * 1e-3) << c.mesh;
    // And what set_bound() says, which takes groups apart in another way.
    ConcurrentCall call;
    call.request.collective = Collective::all_gather;
    call.request.type = DataType::uint8;
    call.request.count = 1'000'000;
    for (const std::vector<int>& group : groups_of(mesh, {Axis::data})) {
      call.groups.emplace_back();
      for (const int gpu : group) call.groups.back().push_back(positions[static_cast<size_t>(gpu)]);
    }
    const Bound set = set_bound(meta24k(), {&call, 1});
    ASSERT_TRUE(set.known) << set.why;
    EXPECT_NEAR(static_cast<double>(set.time_ns) * 1e-9, bound.seconds * 1e6 * c.members,
                bound.seconds * 1e4)
        << c.mesh;
  }
}

TEST(Forecast, PlacementsAndGroupsCoverEveryGpuOnce) {
  const std::vector<Places> places = placements(meta24k(), 16384);
  ASSERT_EQ(places.size(), 2u);
  EXPECT_EQ(places[1].name, "even");
  std::vector<int> in_pod(8, 0);
  for (const int position : places[1].positions) in_pod[static_cast<size_t>(position / 3072)]++;
  for (const int gpus : in_pod) EXPECT_EQ(gpus, 2048);
  const Mesh mesh = *parse_mesh("dp4,tp2,cp2,pp3");
  EXPECT_EQ(mesh.gpus(), 48);
  EXPECT_EQ(mesh.to_text(), "dp4,tp2,cp2,pp3");
  EXPECT_EQ(orders_of(mesh).size(), 24u);
  EXPECT_EQ(groups_of(mesh, {Axis::tensor})[0], (std::vector<int>{0, 4}));
  for (const std::vector<Axis>& axes :
       {std::vector<Axis>{Axis::tensor}, {Axis::data, Axis::context}, {Axis::pipeline}}) {
    std::vector<int> seen(48, 0);
    for (const std::vector<int>& group : groups_of(mesh, axes))
      for (const int gpu : group) seen[static_cast<size_t>(gpu)]++;
    for (const int times : seen) EXPECT_EQ(times, 1);
  }
}

TEST(Forecast, FindsTheFastestMeshThatFits) {
  Job job = job_of(kTable4[2]);
  const GpuFabric network(meta24k(), 450e9);
  const Result<Job> found = fastest_job(job, network, 16384, {128, 0, 0, 8});
  ASSERT_TRUE(found.ok()) << found.status().text();
  EXPECT_TRUE(check_memory(*found).ok());
  EXPECT_EQ(found->mesh.gpus(), 16384);
  EXPECT_GE(step_of(*found).tokens_per_s, step_of(job).tokens_per_s);
  job.gpu.memory_bytes.value = 10e9;
  const Result<Job> none = fastest_job(job, network, 128, {128, 0, 0, 8});
  ASSERT_FALSE(none.ok());
  EXPECT_NE(none.status().text().find("does not fit"), std::string::npos) << none.status().text();
}

TEST(Forecast, ASearchSaysWhyNoMeshIsPossible) {
  Job job = job_of(kTable4[1]);
  job.microbatch = 2;
  const GpuFabric network(meta24k(), 450e9);
  const Result<Job> none = fastest_job(job, network, 16384, {0, 3, 0, 8});
  ASSERT_FALSE(none.ok());
  EXPECT_NE(none.status().text().find("--microbatch 2: does not divide the 3 sequences"),
            std::string::npos)
      << none.status().text();
}

TEST(Forecast, SequencesAreSharedOutInWholeMicrobatchesAndWithinTheLimit) {
  Job job;
  job.microbatch = 3;
  job.mesh = *parse_mesh("dp4");
  job.share_out(40);
  EXPECT_EQ(job.batch, 9);
  job.share_out(1);
  EXPECT_EQ(job.batch, 3);
  job.share_out(1e14);  // a batch of 1e8 on many GPUs, to be done by few
  EXPECT_EQ(job.batch, kMostBatch / 3 * 3);
}

// Of 32 layers on 32 stages the best is two on most and none on the last, whose output layer weighs
// as much as 2.4.
TEST(Forecast, AStageMayHoldTheOutputLayerAlone) {
  Job job = job_of(kTable4[1]);
  job.model = *find_model("llama3-8b");
  job.mesh = *parse_mesh("tp8,pp32,dp2");
  ASSERT_TRUE(check(job).ok()) << check(job).text();
  EXPECT_EQ(busiest_stage(job).layers, 0);
  const StepTime step = step_of(job);
  EXPECT_EQ(step.tensor, 0);
  EXPECT_GT(step.matmul, 0);
  EXPECT_TRUE(std::isfinite(step.total)) << step.total;
  EXPECT_TRUE(step.mfu > 0 && step.mfu < 1) << step.mfu;
}

TEST(Forecast, AFabricOfOneHostIsOneHost) {
  const TierTree tree = *synthetic_tree("hosts=1;ranks=8;nic=50GB/s");
  EXPECT_EQ(shape_of(tree).ranks_per_host, 8);
  EXPECT_TRUE(curve(job_of(kTable4[1]), {}, tree, 128).empty()) << "of what, nobody said";
  const GpuFabric network(tree, 450e9);
  Job job = job_of(kTable4[1]);
  job.model = *find_model("llama3-8b");
  job.sequence = 131072;
  job.recompute = Recompute::full;
  job.microbatch = 2;
  const Result<Job> found = fastest_job(job, network, 8, {2, 0, 0, shape_of(tree).ranks_per_host});
  ASSERT_TRUE(found.ok()) << found.status().text();
  EXPECT_GT(found->mesh.size(Axis::tensor), 1) << found->mesh.to_text();
}

// As many as half a minute's work would be where every turn looks at every group.
TEST(Forecast, ManyHostsOnOneSwitchAreSharedOutAtOnce) {
  constexpr int kHosts = 1 << 18;
  constexpr std::clock_t kMostClocks = (sennit_test::kSanitized ? 60 : 10) * CLOCKS_PER_SEC;
  const TierTree tree = TierTree::flat(kHosts);
  const std::clock_t begin = std::clock();
  EXPECT_EQ(placements(tree, kHosts - 1).size(), 1u) << "packed is even there";
  EXPECT_LT(std::clock() - begin, kMostClocks);
}

TEST(Forecast, CurveOfTheReferenceCluster) {
  if (sennit_test::kSanitized) GTEST_SKIP() << "takes minutes under a sanitizer";
  const std::vector<CurvePoint> points = curve(job_of(kTable4[1]), {}, meta24k(), 128);
  ASSERT_EQ(points.size(), 9u);
  EXPECT_EQ(points.front().gpus, 512);
  EXPECT_EQ(points.back().gpus, 98304);
  for (const CurvePoint& point : points) {
    ASSERT_TRUE(point.fits) << point.gpus;
    ASSERT_EQ(point.fabrics.size(), 3u);
    EXPECT_EQ(point.mesh.gpus(), point.gpus);
    for (size_t i = 1; i < point.fabrics.size(); i++) {
      EXPECT_GE(point.fabrics[i].step.total, point.fabrics[i - 1].step.total * (1 - 1e-9))
          << point.gpus;
      EXPECT_LE(point.fabrics[i].parts.cables, point.fabrics[i - 1].parts.cables);
    }
  }
  // 8 pods full, 7:1: 1,536 racks; 3,072 + 439 ports on 28 switches a pod; 8 * 439 ports on 28
  // more.
  const Shape shape = shape_of(meta24k());
  const Parts parts = parts_of(shape, 24576, 7, 128);
  EXPECT_EQ(parts.switches, 1536 + 8 * 28 + 28);
  EXPECT_EQ(parts.cables, 24576 + 24576 + 8 * 439);
  const Shape wired = shape_of(*synthetic_tree("pods=2x2x2;ranks=8;nic=400GB/s;wire=roce"));
  EXPECT_EQ(wired.wire, Wire::roce) << "what the other sizes' latencies come from";
  EXPECT_EQ(wired.latency_ns, 0u);
}

TEST(Forecast, ReadsModelsFromFiles) {
  const char* const json =
      R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "intermediate_size": 14336,
    "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8,
    "vocab_size": 128256, "rope_scaling": null, "tie_word_embeddings": false})";
  const Result<Model> model = parse_model(json, "config.json");
  ASSERT_TRUE(model.ok()) << model.status().text();
  EXPECT_EQ(model->parameters(), find_model("llama3-8b")->parameters());
  EXPECT_EQ(model->name, "config.json");
  const std::pair<const char*, const char*> wrong[] = {
      {"{\"hidden_size\": 4096}", "no num_hidden_layers"},
      {"{\"hidden_size\": ", "config.json"},
      {"{\"num_local_experts\": 8, \"hidden_size\": 4096}", "mixtures of experts"},
      {R"({"hidden_size": 64, "hidden_size": 8, "num_hidden_layers": 2})", "twice"},
      {R"({"hidden_size": 64, "num_hidden_layers": 20000})", "from 1 to 10000"},
      {R"({"hidden_size": 64, "num_hidden_layers": 2, "intermediate_size": 8,
        "num_attention_heads": 7, "vocab_size": 10})",
       "7 does not divide hidden_size 64"},
      {R"({"hidden_size": 64, "num_hidden_layers": 2, "intermediate_size": 8,
        "num_attention_heads": 7, "vocab_size": 10, "head_dim": null})",
       "7 does not divide hidden_size 64"},
      {R"({"hidden_size": -1, "num_hidden_layers": 2, "intermediate_size": 8,
        "num_attention_heads": 2})",
       "-1"}};
  for (const auto& [text, word] : wrong) {
    const Result<Model> refused = parse_model(text, "config.json");
    ASSERT_FALSE(refused.ok()) << text;
    EXPECT_NE(refused.status().text().find(word), std::string::npos) << refused.status().text();
  }
}

TEST(Hardware, EveryFigureHasASource) {
  EXPECT_EQ(accelerators().size(), 8u);
  for (const Accelerator& a : accelerators()) {
    for (const Figure& figure :
         {a.fp32, a.tf32, a.bf16, a.fp16, a.fp8, a.int8, a.memory_bytes, a.memory_bytes_per_s,
          a.scale_up_bytes_per_s, a.nic_bytes_per_s, a.watts, a.server_watts})
      EXPECT_EQ(figure.known(), figure.source[0] != '\0') << a.name;
    EXPECT_TRUE(a.bf16.known() && a.memory_bytes.known() && a.watts.known()) << a.name;
    EXPECT_TRUE(!a.fp8.known() || std::abs(a.fp8.value / a.bf16.value - 2) < 0.03)
        << a.name << ": dense?";
  }
  EXPECT_NEAR(find_accelerator("H100")->bf16.value, 989e12, 1e12);
  EXPECT_FALSE(find_accelerator("h1000").ok());
}

}  // namespace
