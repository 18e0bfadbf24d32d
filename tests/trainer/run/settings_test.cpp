// settings_test.cpp: what is settled before a run: settings, learning rates, the pipeline's
// order, memory, traffic; and the page that it leaves.
//
// ctest not-under-tsan: others try its threads as well
#include <filesystem>
#include <fstream>
#include <set>

#include <fmt/core.h>

#include "tests/support/test_folder.hpp"
#include "tests/support/trials.hpp"
#include "tests/trainer/ranks.hpp"
#include "trainer/base/energy.hpp"
#include "trainer/device/cpu/matrix_peak.hpp"
#include "trainer/run/config.hpp"
#include "trainer/run/memory.hpp"
#include "trainer/run/plan.hpp"
#include "trainer/run/report/log.hpp"

namespace sennit::trainer {
namespace {

TEST(TrainerSettings, ReadsAFileAndTheCommandLine) {
  TrainConfig config;
  const Status status = parse_train_config(
      R"({"model": {"hidden_size": 8}, "tp": 2, "learning_rate": 1e-2, "recompute": true, "data": "d"})",
      "c.json", &config);
  ASSERT_TRUE(status.ok()) << status.text();
  EXPECT_EQ(config.tp, 2);
  EXPECT_EQ(config.learning_rate, 1e-2);
  EXPECT_TRUE(config.recompute);
  EXPECT_EQ(config.data, "d");
  for (const Setting& setting : train_settings()) {
    if (setting.option() != "--micro-batch") continue;
    EXPECT_TRUE(set_from_text(setting, "4", &config).ok());
  }
  EXPECT_EQ(config.micro_batch, 4);
}

TEST(TrainerSettings, SaysWhatIsOff) {
  const auto error = [](const char* text) {
    TrainConfig config;
    const Status status = parse_train_config(text, "c.json", &config);
    return status.ok() ? check_train_config(config).text() : status.text();
  };
  EXPECT_EQ(error("[1]"), "c.json: not a JSON object of settings");
  EXPECT_EQ(error(R"({"mikro_batch": 1})"),
            "c.json: there is no setting \"mikro_batch\"; the nearest is \"micro_batch\"");
  EXPECT_EQ(error(R"({"steps": "many"})"), "c.json: steps is \"many\"; it must be a whole number");
  EXPECT_EQ(error(R"({"model": {}, "data": "d", "precision": "fp8"})"),
            "--precision fp8: expected bf16 or f32");
  EXPECT_EQ(error(R"({"model": {}, "data": "d", "device": "abacus"})"),
            "--device abacus: there is no such device; there are: cpu");
  EXPECT_EQ(error(R"({"model": {}, "data": "d", "zero": 4})"), "--zero 4: expected 0, 1, 2 or 3");
  EXPECT_EQ(error(R"({"model": {}})"),
            "no data: name a folder that sennit tokenize wrote with --data");
  EXPECT_EQ(error(R"({"model": {}, "data": "d", "clip": -1})"), "--clip -1: it must be 0 or more");
}

// Nothing wraps around to a number that would do.
TEST(TrainerSettings, RefusesCountsThatNoRunHas) {
  const auto error = [](const char* settings) {
    TrainConfig config;
    const Status status = parse_train_config(
        fmt::format(R"({{"model": {{}}, "data": "d", {}}})", settings), "c.json", &config);
    return status.ok() ? check_train_config(config).text() : status.text();
  };
  for (const char* key : {"dp", "tp", "pp", "cp", "stage_chunks"}) {
    const std::string text = error(fmt::format("\"{}\": 4294967297", key).c_str());
    EXPECT_NE(text.find("4294967297: it must be 1048576 or less"), text.npos)
        << key << ": " << text;
  }
  EXPECT_EQ(error(R"("tp": 1048576)"), "");
  EXPECT_EQ(error(R"("tp": 65536, "dp": 65536)"),
            "--dp 65536 --tp 65536 --pp 1 --cp 1: more than 1048576 ranks");
  EXPECT_EQ(error(R"("pp": 65536, "stage_chunks": 65536)"),
            "--pp 65536 --stage-chunks 65536: more than 1048576 parts of a model");
  EXPECT_EQ(error(R"("threads": 4294967297)"), "--threads 4294967297: it must be 1024 or less");
  EXPECT_EQ(error(R"("sequence": 2147483647, "batch": 2147483647)"),
            "--batch 2147483647 --sequence 2147483647: more than 1099511627776 tokens a step");
  EXPECT_EQ(error(R"("seed": 9223372036854775807)"), "");
}

// All ranks of a host together are its cores, whatever each asks for.
TEST(TrainerSettings, RanksShareTheCoresOfTheirHost) {
  EXPECT_EQ(share_of_cores(2, 1, 2), 1);
  EXPECT_EQ(share_of_cores(8, 1, 2), 1);  // its own threads take turns
  EXPECT_EQ(share_of_cores(1, 2, 2), 1);
  EXPECT_EQ(share_of_cores(1, 4, 2), 0.5);
  EXPECT_EQ(share_of_cores(4, 4, 2), 0.25);
  EXPECT_EQ(share_of_cores(2, 3, 8), 1);
  const MatrixPeak measured = {100, 60, 1};
  EXPECT_EQ(rank_peak(measured, 2, 2, true), 100);  // undisturbed: the fastest
  EXPECT_EQ(rank_peak(measured, 4, 2, true), 60);   // disturbed: all that was done
  EXPECT_EQ(rank_peak(measured, 4, 2, false), 50);  // one alone, for four that will take turns
  const MatrixPeak real = measure_matrix_peak(Type::f32, 1);
  EXPECT_GT(real.sustained_flops_per_s, 0);
  EXPECT_LE(real.sustained_flops_per_s, real.flops_per_s);
}

TEST(TrainerSettings, WarmsUpAndFollowsACosine) {
  TrainConfig config;
  config.learning_rate = 1;
  config.least_learning_rate = 0.1;
  config.warm_up_steps = 10;
  config.steps = 110;
  EXPECT_FLOAT_EQ(config.learning_rate_at(1, 0), 0.1f);
  EXPECT_FLOAT_EQ(config.learning_rate_at(10, 0), 1);
  EXPECT_FLOAT_EQ(config.learning_rate_at(60, 0), 0.55f);
  EXPECT_FLOAT_EQ(config.learning_rate_at(110, 0), 0.1f);
  EXPECT_FLOAT_EQ(config.learning_rate_at(20, 1), 0.1f);  // out of time
}

// Every rank does each part of each micro-batch once forward and then once backward, and no more
// are in flight than the schedules promise; all ranks together come to an end.
TEST(TrainerSettings, PipelinesEndAndKeepFewInFlight) {
  for (const auto& [pipeline, chunks, micro] :
       {std::tuple{1, 1, 3}, {2, 1, 1}, {4, 1, 8}, {4, 1, 2}, {2, 2, 4}, {4, 3, 8}, {8, 2, 16}}) {
    MeshShape mesh;
    mesh.pipeline = pipeline;
    mesh.stage_chunks = chunks;
    SCOPED_TRACE(mesh.text());
    std::vector<std::vector<Action>> schedules;
    for (int rank = 0; rank < pipeline; rank++) {
      schedules.push_back(pipeline_schedule(mesh, rank, micro));
      EXPECT_EQ(schedules.back().size(), static_cast<size_t>(2 * chunks * micro));
      int now = 0, most = 0;
      for (const Action& action : schedules.back())
        most = std::max(most, now += action.forward ? 1 : -1);
      EXPECT_LE(most, chunks == 1 ? pipeline - rank
                                  : 2 * (pipeline - rank - 1) + (chunks - 1) * pipeline + 1);
    }
    // Run them: an action waits for that of the stage before (forward) or behind (backward).
    std::set<std::tuple<bool, int, int64_t>> done;
    std::vector<size_t> at(static_cast<size_t>(pipeline), 0);
    for (bool moved = true; moved;) {
      moved = false;
      for (int rank = 0; rank < pipeline; rank++) {
        size_t& next = at[static_cast<size_t>(rank)];
        const std::vector<Action>& schedule = schedules[static_cast<size_t>(rank)];
        if (next == schedule.size()) continue;
        const auto& [forward, chunk, m] = schedule[next];
        const int stage = chunk * pipeline + rank, last = pipeline * chunks - 1;
        const bool ready = forward ? stage == 0 || done.contains({true, stage - 1, m})
                                   : done.contains({true, stage, m}) &&
                                         (stage == last || done.contains({false, stage + 1, m}));
        if (!ready) continue;
        EXPECT_TRUE(done.insert({forward, stage, m}).second);
        next++;
        moved = true;
      }
    }
    EXPECT_EQ(done.size(), static_cast<size_t>(2 * pipeline * chunks * micro));
  }
}

TrainerOptions sizable() {
  TrainerOptions options;
  LlamaConfig& model = options.model;
  model.layers = 4;
  model.hidden = 128;
  model.ffn = 320;
  model.heads = 8;
  model.kv_heads = 4;
  model.head_size = 16;
  model.vocabulary = 512;
  options.batch = {.sequences = 4, .micro = 1, .length = 128};
  options.bucket_bytes = 0;
  return options;
}

TEST(TrainerSettings, EstimatesTheMemoryThatIsTaken) {
  for (const MeshShape& mesh : {MeshShape{}, MeshShape{.data = 2}, MeshShape{.context = 2},
                                MeshShape{.tensor = 2}, MeshShape{.pipeline = 2}})
    for (const int zero : {0, 3})
      for (const bool recompute : {false, true}) {
        if (sennit_test::kSanitized && recompute == (zero == 0)) continue;
        TrainerOptions options = sizable();
        options.mesh = mesh;
        options.zero = zero;
        options.recompute = recompute;
        options.type = Type::bf16;
        const auto estimate = static_cast<double>(memory_of(options).total());
        std::mutex mutex;
        double most = 0;
        run_ranks(options, [&](Trainer& trainer) {
          const auto batch = random_batch(options, 1);
          ASSERT_TRUE(trainer.step(share_of(batch, trainer.mesh()), {}).ok());
          const std::lock_guard lock(mutex);
          most = std::max(
              most, static_cast<double>(trainer.parameters().bytes() + trainer.activation_bytes()));
        });
        EXPECT_GT(estimate, 0.75 * most)
            << mesh.text() << ", zero " << zero << ", recompute " << recompute;
        EXPECT_LT(estimate, 1.35 * most)
            << mesh.text() << ", zero " << zero << ", recompute " << recompute;
      }
}

TEST(TrainerSettings, RefusesWhatDoesNotFitAndSaysWhatWould) {
  TrainerOptions options = sizable();
  options.batch.micro = 2;
  const MemoryParts memory = memory_of(options);
  EXPECT_TRUE(check_memory(options, memory.total()).ok());
  const Status status = check_memory(options, memory.total() - 1);
  EXPECT_EQ(status.kind(), SENNIT_OUT_OF_RESOURCES);
  for (const char* const word :
       {"weights", "gradients", "moments", "activations", "--recompute true", "--micro-batch 1"})
    EXPECT_NE(status.text().find(word), std::string::npos) << status.text();
}

// Only what helps is advised, and together where none does alone.
TEST(TrainerSettings, AdvisesWhatFits) {
  TrainerOptions options = sizable();
  options.batch.micro = 2;
  const auto with = [&](bool recompute, int64_t micro) {
    TrainerOptions changed = options;
    changed.recompute = recompute;
    changed.batch.micro = micro;
    return memory_of(changed).total();
  };
  const uint64_t both = with(true, 1), one = std::min(with(true, 2), with(false, 1));
  ASSERT_LT(both, one);
  const std::string together = check_memory(options, one - 1).text();
  EXPECT_NE(
      together.find("it fits with --recompute true --micro-batch 1 (" + bytes_text(both) + ")"),
      together.npos)
      << together;
  // one rank has nobody to share with
  EXPECT_EQ(together.find("--zero"), together.npos) << together;
  const std::string none = check_memory(options, both - 1).text();
  EXPECT_NE(none.find("with --recompute true --micro-batch 1 it still needs " + bytes_text(both) +
                      ": take more ranks"),
            none.npos)
      << none;
  EXPECT_EQ(none.find("fits"), none.npos) << none;
}

// What is sent outside of steps (start-up, evaluation, agreements) is no part of a step.
TEST(TrainerSettings, AStepCountsItsOwnTrafficAlone) {
  TrainerOptions options = sizable();
  options.mesh.tensor = 2;
  run_ranks(options, [&](Trainer& trainer) {
    const auto batch = random_batch(options, 1);
    std::vector<double> others(1 << 16);
    const auto send_others = [&] {
      trainer.world().all_reduce(others.data(), others.size(), Element::f64).wait();
      ASSERT_TRUE(trainer.evaluate(batch, options.batch.sequences).ok());
    };
    const Result<StepResult> first = trainer.step(batch, {});
    ASSERT_TRUE(first.ok()) << first.status().text();
    send_others();
    const Result<StepResult> second = trainer.step(batch, {});
    ASSERT_TRUE(second.ok()) << second.status().text();
    EXPECT_GT(first->traffic.bytes, 0u);
    EXPECT_EQ(first->traffic.bytes, second->traffic.bytes);
    EXPECT_LE(second->traffic.comm_s, second->seconds);
  });
}

// What the plan says is sent is what is handed to the communication library.
TEST(TrainerSettings, PlansTheBytesThatAreSent) {
  for (const MeshShape& mesh :
       {MeshShape{.data = 4}, MeshShape{.tensor = 4}, MeshShape{.data = 2, .tensor = 2}})
    for (int zero = 0; zero <= 3; zero += sennit_test::kSanitized ? 3 : 1) {
      TrainerOptions options = sizable();
      options.mesh = mesh;
      options.zero = zero;
      options.batch.sequences = 8;
      double planned = 0;
      for (const forecast::Traffic& call : planned_traffic(options))
        planned += call.bytes * call.times;
      run_ranks(options, [&](Trainer& trainer) {
        const auto batch = random_batch(options, 1);
        Result<StepResult> result = trainer.step(share_of(batch, trainer.mesh()), {});
        ASSERT_TRUE(result.ok());
        // the first has filled its pools
        result = trainer.step(share_of(batch, trainer.mesh()), {});
        ASSERT_TRUE(result.ok());
        // Beside it: sums of norms' gradients and of the loss.
        EXPECT_NEAR(static_cast<double>(result->traffic.bytes), planned, 0.05 * planned)
            << mesh.text() << ", zero " << zero;
      });
    }
}

TEST(TrainerSettings, AStepSaysWhatItHidAndWhatItsBoundIs) {
  StepRecord record;
  record.seconds = 1.0;
  record.comm_s = 0.5;
  record.exposed_s = 0.1;
  record.data_wait_s = 0.1;
  EXPECT_DOUBLE_EQ(record.bound_s(), 0.8);  // 0.8 s of computing
  EXPECT_NEAR(record.hidden().value(), 0.8, 1e-12);
  record.comm_s = 0.9;  // more than computing: at most that can be hidden, and it is
  EXPECT_DOUBLE_EQ(record.bound_s(), 0.9);
  EXPECT_NEAR(record.hidden().value(), 1.0, 1e-12);
  record.overlap = false;
  EXPECT_EQ(record.hidden(), std::nullopt);
  EXPECT_FALSE(StepRecord::from_json(record.to_json())->overlap);
  record = {};
  record.seconds = 1;
  EXPECT_EQ(record.hidden(), std::nullopt);  // nothing was sent
}

// Two steps with and two without in turns, and computing alone behind them, as `measure_overlap`
// makes them.
TEST(TrainerSettings, HoldsStepsWithOverlapAgainstThoseWithout) {
  std::vector<StepRecord> records(12);
  for (size_t i = 0; i < records.size(); i++) {
    StepRecord& record = records[i];
    record.overlap = i % 4 < 2;
    record.comm_s = 0.4;
    record.exposed_s = record.overlap ? 0.1 : 0.4;
    record.seconds = record.overlap ? 1.1 : 1.4;
    if (i % 4 == 3) record.alone_s = 1.0;
    if (i % 2 == 0 || i < 4) record.seconds += 5;  // not to be looked at
  }
  EXPECT_EQ(StepRecord::from_json(records[3].to_json())->alone_s, 1.0);
  EXPECT_EQ(StepRecord::from_json(records[4].to_json())->alone_s, std::nullopt);
  const std::optional<OverlapFigures> figures = OverlapFigures::of(records);
  ASSERT_TRUE(figures);
  EXPECT_NEAR(figures->bound_s(), 1.0, 1e-12);
  EXPECT_NEAR(figures->transfers_s, 0.4, 1e-12);
  EXPECT_NEAR(figures->hidden().value_or(0), 0.75, 1e-12);
  EXPECT_NE(figures->text().find("75%"), std::string::npos) << figures->text();
  OverlapFigures nothing = *figures;
  nothing.computing_s = nothing.without_s + 0.1;  // each is measured by itself
  EXPECT_FALSE(nothing.hidden());
  EXPECT_NE(nothing.text().find("hardly anything"), std::string::npos) << nothing.text();
  records.resize(6);
  EXPECT_FALSE(OverlapFigures::of(records));
}

TEST(TrainerSettings, ReadsTheCountersOfAllPackages) {
  const TestFolder folder;
  EXPECT_EQ(energy_joules(folder.path()), std::nullopt);
  const auto count = [&](int package, const char* microjoules) {
    const std::string name = folder / ("intel-rapl:" + std::to_string(package));
    std::filesystem::create_directories(name);
    std::ofstream(name + "/energy_uj") << microjoules << "\n";
  };
  count(0, "1500000");
  EXPECT_EQ(energy_joules(folder.path()), 1.5);
  count(1, "262143328850");
  count(3, "1");  // not behind another one
  EXPECT_DOUBLE_EQ(energy_joules(folder.path()).value_or(0), 1.5 + 262143.328850);
}

// A run that was killed behind its checkpoint and goes on from that.
TEST(TrainerSettings, AResumedRunKeepsTheLinesBeforeItsCheckpoint) {
  const std::string folder = testing::TempDir() + "/sennit-log-" + std::to_string(getpid());
  const auto record = [](int64_t step, double loss) {
    StepRecord r;
    r.step = step;
    r.loss = loss;
    r.comm_s = 0.25;
    if (step % 2 == 0) r.held_out = loss + 1;
    return r;
  };
  {
    Result<TrainLog> log = TrainLog::open(folder, 0);
    ASSERT_TRUE(log.ok()) << log.status().text();
    for (int64_t step = 1; step <= 5; step++) log->add(record(step, 9), false);
  }
  // killed while it wrote
  std::ofstream(folder + "/steps.jsonl", std::ios::app) << "{\"step\": 6, \"lo";
  Result<TrainLog> log = TrainLog::open(folder, 3);
  ASSERT_TRUE(log.ok()) << log.status().text();
  log->add(record(4, 7), false);
  ASSERT_EQ(log->records().size(), 4u);
  EXPECT_EQ(log->records()[1].held_out, 10);
  EXPECT_EQ(log->records()[2].held_out, std::nullopt);
  EXPECT_EQ(log->records()[2].comm_s, 0.25);
  std::ifstream file(folder + "/steps.jsonl");
  std::vector<double> losses;
  for (std::string line; std::getline(file, line);)
    losses.push_back(StepRecord::from_json(line)->loss);
  EXPECT_EQ(losses, (std::vector<double>{9, 9, 9, 7}));
  std::filesystem::remove_all(folder);
}

TEST(TrainerSettings, TwoRunsDoNotReportIntoOneFolder) {
  const TestFolder folder;
  Result<TrainLog> first = TrainLog::open(folder.path(), 0);
  ASSERT_TRUE(first.ok()) << first.status().text();
  const std::string refused = TrainLog::open(folder.path(), 0).status().text();
  EXPECT_NE(refused.find("another run reports there"), std::string::npos) << refused;
  {
    const TrainLog ended = *std::move(first);
    EXPECT_FALSE(TrainLog::open(folder.path(), 0).ok()) << "it moved, and goes on";
  }
  EXPECT_TRUE(TrainLog::open(folder.path(), 0).ok());
}

TEST(TrainerSettings, AFullDiskCostsNoLineFromBefore) {
  const TestFolder folder;
  const std::string file = folder / "steps.jsonl",
                    lines = "{\"loss\":3.0,\"step\":1}\n{\"loss\":2.5,\"step\":2}\n";
  std::ofstream(file) << lines;
  // what is written beside it finds no room
  std::filesystem::create_symlink("/dev/full", file + ".part");
  const Result<TrainLog> log = TrainLog::open(folder.path(), 2);
  EXPECT_EQ(log.status().kind(), SENNIT_OUT_OF_RESOURCES) << log.status().text();
  std::ifstream after(file);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(after), {}), lines);
}

TEST(TrainerSettings, ThePageShowsCurvesAndEscapesText) {
  std::vector<StepRecord> records(3);
  for (size_t i = 0; i < 3; i++) {
    records[i].step = static_cast<int64_t>(i) + 1;
    records[i].loss = 4 - static_cast<double>(i);
    records[i].seconds = 0.5;
  }
  records[2].held_out = 2.5;
  const std::string page = train_page(records, {{"mesh", "dp 2 & tp 2"}}, "if (a < b) <script>");
  EXPECT_NE(page.find("dp 2 &amp; tp 2"), page.npos);
  EXPECT_NE(page.find("if (a &lt; b) &lt;script&gt;"), page.npos);
  EXPECT_EQ(page.find("<script"), page.npos);
  EXPECT_EQ(page.find("http"), page.npos);  // nothing is fetched
  EXPECT_NE(page.find("held out"), page.npos);
  EXPECT_NE(records[2].line().find("held out 2.5000"), std::string::npos);
  EXPECT_NE(records[2].to_json().find("\"held_out\":2.5"), std::string::npos);
}

}  // namespace
}  // namespace sennit::trainer
