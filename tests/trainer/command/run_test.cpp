// run_test.cpp: `sennit train` stops and goes on: with the same losses as a run that did
// not stop, also after kill -9; from one checkpoint on all ranks or not at all; and no checkpoint
// is lost to another run.
//
// ctest not-under-tsan: it runs a command, whose threads others try
// ctest runs: sennit_command sennit_trainer_command
#include "tests/trainer/command/train_command.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <random>
#include <thread>

#include "sennit/sennit.h"
#include "tests/trainer/checkpoint/cases.hpp"
#include "trainer/base/stop_signal.hpp"
#include "trainer/checkpoint/keep.hpp"
#include "trainer/data/loader.hpp"
#include "trainer/data/shards.hpp"
#include "trainer/device/cpu/cpu_device.hpp"
#include "trainer/run/run.hpp"

namespace sennit::trainer {
namespace {

using sennit_test::Outcome;
namespace fs = std::filesystem;

bool has(const Outcome& outcome, const std::string& words) {
  return outcome.output.find(words) != std::string::npos;
}

class TrainerRun : public TrainCommand {
 protected:
  // A finished run that saved into NAME.
  void run_of(const std::string& name, const std::string& options = "--steps 3", int every = 1) {
    const Outcome outcome = run(fmt::format("--save-every {} --keep-last 0 --checkpoint-dir {} {}",
                                            every, folder_ / name, options));
    ASSERT_EQ(outcome.status, 0) << outcome.output;
  }
  // A run that saves into "saved" and reports into "report", where a finished one was before.
  Outcome run_on(const std::string& mesh, const std::string& options) {
    for (const char* const name : {"saved", "report"}) fs::remove_all(folder_ / name);
    run_of("saved", mesh);
    return run(fmt::format("{} --checkpoint-dir {} --report-dir {} {}", options, folder_ / "saved",
                           folder_ / "report", mesh));
  }
  // The names in a folder that are not hidden.
  std::string shown(const std::string& folder) const {
    std::string names;
    for (const std::string& name : names_in(folder))
      if (name[0] != '.') names += name + " ";
    return names;
  }
  std::string step(const std::string& name, int64_t number) const {
    return folder_ / name + "/" + step_folder_name(number);
  }
};

TEST_F(TrainerRun, GoesOnAsIfItHadNotStopped) {
  for (const char* const mesh : {"", "--local 2 --zero 1"}) {
    SCOPED_TRACE(mesh);
    const std::string settings =
        fmt::format("--steps 6 --evaluate-every 2 --evaluate-batches 1 {}", mesh);
    run_of("through", fmt::format("{} --report-dir {}", settings, folder_ / "report"));
    const std::vector<double> through = losses(folder_ / "report");
    ASSERT_EQ(through.size(), 6u);
    fs::create_directories(folder_ / "stopped");
    fs::copy(step("through", 3), step("stopped", 3), fs::copy_options::recursive);
    const Outcome resumed = run(fmt::format("{} --checkpoint-dir {} --report-dir {}", settings,
                                            folder_ / "stopped", folder_ / "report"));
    ASSERT_EQ(resumed.status, 0) << resumed.output;
    EXPECT_TRUE(has(resumed, "goes on after step 3, from " + step("stopped", 3))) << resumed.output;
    EXPECT_EQ(resumed.output.find("step     3 "), std::string::npos) << resumed.output;
    EXPECT_EQ(losses(folder_ / "report"), through);
    // Also where nothing is saved: the folder is named.
    const Outcome named = run(fmt::format("{} --resume {} --report-dir {}", settings,
                                          step("through", 4), folder_ / "other_report"));
    ASSERT_EQ(named.status, 0) << named.output;
    EXPECT_EQ(losses(folder_ / "other_report"),
              std::vector<double>(through.begin() + 4, through.end()));
    for (const char* const name : {"through", "stopped", "report", "other_report"})
      fs::remove_all(folder_ / name);
  }
}

TEST_F(TrainerRun, GoesOnAfterKillsAtAnyMoment) {
  const std::string settings = "--steps 24";
  ASSERT_EQ(run(fmt::format("{} --report-dir {}", settings, folder_ / "through")).status, 0);
  std::mt19937 random(7);
  const auto newest_step = [&] {
    const auto names = names_in(folder_ / "saved");
    return names.empty() ? 0 : step_of(names.back()).value_or(0);
  };
  const std::string command =
      train(fmt::format("{} --save-every 1 --checkpoint-dir {} --report-dir {}", settings,
                        folder_ / "saved", folder_ / "report"));
  for (int round = 0; round < 6 && newest_step() < 24; round++) {
    SCOPED_TRACE(fmt::format("round {}", round));
    const int64_t before = newest_step();
    Behind killed(command, folder_ / "output");
    const auto enough = std::min<int64_t>(24, before + 1 + static_cast<int64_t>(random() % 3));
    ASSERT_TRUE(killed.await([&] { return newest_step() >= enough; }))
        << *read_file(folder_ / "output");
    usleep(random() % 10'000);
    killed.signal(SIGKILL);
    const int status = killed.wait();
    ASSERT_TRUE(status == 128 + SIGKILL || status == 0) << status << *read_file(folder_ / "output");
  }
  const Outcome last = sennit_test::sh(command);
  ASSERT_EQ(last.status, 0) << last.output;
  EXPECT_TRUE(has(last, "goes on after step ")) << last.output;
  EXPECT_EQ(losses(folder_ / "report"), losses(folder_ / "through"));
}

TEST_F(TrainerRun, NeitherABeginningNorAnOlderStepCostsNewerCheckpoints) {
  run_of("saved", "--steps 5 --seed 1");
  const std::string into =
      fmt::format("--save-every 1 --keep-last 2 --checkpoint-dir {}", folder_ / "saved");
  const Outcome older = run(fmt::format("{} --steps 4 --resume {}", into, step("saved", 2)));
  ASSERT_EQ(older.status, 0) << older.output;
  EXPECT_TRUE(has(older, fmt::format("set aside in {}/set-aside-1: 3 ", folder_ / "saved")))
      << older.output;
  EXPECT_EQ(shown(folder_ / "saved/set-aside-1"), "step-00000003 step-00000004 step-00000005 ");
  EXPECT_EQ(shown(folder_ / "saved"), "set-aside-1 step-00000003 step-00000004 ");
  const Outcome anew = run(into + " --steps 2 --resume no --seed 2");
  ASSERT_EQ(anew.status, 0) << anew.output;
  EXPECT_EQ(shown(folder_ / "saved/set-aside-2"), "step-00000003 step-00000004 ");
  EXPECT_EQ(shown(folder_ / "saved"), "set-aside-1 set-aside-2 step-00000001 step-00000002 ");
  const Outcome on = run(into + " --steps 3 --seed 2");  // the seed says whose they are
  ASSERT_EQ(on.status, 0) << on.output;
  EXPECT_TRUE(has(on, "goes on after step 2, from " + step("saved", 2))) << on.output;
  // What came from another folder has nothing to do with what lies here.
  const Outcome elsewhere = run(
      fmt::format("{} --steps 5 --resume {}/set-aside-1/step-00000004", into, folder_ / "saved"));
  ASSERT_EQ(elsewhere.status, 0) << elsewhere.output;
  EXPECT_EQ(shown(folder_ / "saved/set-aside-3"), "step-00000002 step-00000003 ");
  EXPECT_EQ(shown(folder_ / "saved"), "set-aside-1 set-aside-2 set-aside-3 step-00000005 ");
}

TEST_F(TrainerRun, ALinkToACheckpointIsThatCheckpoint) {
  run_of("saved");
  const std::string into =
      fmt::format("--save-every 1 --keep-last 0 --checkpoint-dir {}", folder_ / "saved");
  fs::create_directory_symlink(step("saved", 2), folder_ / "good");
  const Outcome linked = run(fmt::format("{} --steps 3 --resume {}", into, folder_ / "good"));
  ASSERT_EQ(linked.status, 0) << linked.output;
  EXPECT_EQ(shown(folder_ / "saved/set-aside-1"), "step-00000003 ");
  EXPECT_EQ(shown(folder_ / "saved"), "set-aside-1 step-00000001 step-00000002 step-00000003 ");
  // One that was moved elsewhere and has a link in its place.
  fs::rename(step("saved", 3), folder_ / "moved");
  fs::create_directory_symlink(folder_ / "moved", step("saved", 3));
  const Outcome moved = run(into + " --steps 4");
  ASSERT_EQ(moved.status, 0) << moved.output;
  EXPECT_TRUE(has(moved, "goes on after step 3,")) << moved.output;
  EXPECT_EQ(shown(folder_ / "saved"),
            "set-aside-1 step-00000001 step-00000002 step-00000003 step-00000004 ");
  // The advice is where the checkpoint lies, and not where the link does.
  const std::string damaged = step("saved", 2) + "/rank-00000.safetensors";
  change_byte(damaged, static_cast<int64_t>(fs::file_size(damaged)) - 1, 1);
  const Outcome off = run(fmt::format("{} --steps 5 --resume {}", into, folder_ / "good"));
  EXPECT_EQ(off.status, 2) << off.output;
  EXPECT_TRUE(has(off, "step-00000001 is whole: --resume ")) << off.output;
}

TEST_F(TrainerRun, DamageStopsTheRunAndSaysWhatToDo) {
  run_of("saved");
  const std::string into = fmt::format("--steps 4 --checkpoint-dir {}", folder_ / "saved");
  const std::string newest = step("saved", 3) + "/rank-00000.safetensors";
  const auto size = static_cast<int64_t>(fs::file_size(newest));
  change_byte(newest, size - 1, 1);
  const Outcome flipped = run(into);
  EXPECT_EQ(flipped.status, 2) << flipped.output;
  EXPECT_TRUE(has(flipped, "is damaged")) << flipped.output;
  EXPECT_TRUE(
      has(flipped, fmt::format("{0} is whole: --resume {0} goes on from it", step("saved", 2))))
      << flipped.output;
  const Outcome older = run(fmt::format("{} --resume {}", into, step("saved", 2)));
  EXPECT_EQ(older.status, 0) << older.output;
  // None opens.
  for (const int64_t number : {1, 2, 4})
    fs::resize_file(step("saved", number) + "/manifest.json", 100);
  const std::string before = shown(folder_ / "saved");
  const Outcome none = run(into);
  EXPECT_EQ(none.status, 2) << none.output;
  EXPECT_TRUE(has(none, "none of its 3 checkpoints opens")) << none.output;
  EXPECT_TRUE(has(none, "--resume no sets them aside and begins anew")) << none.output;
  EXPECT_EQ(shown(folder_ / "saved"), before);
  EXPECT_EQ(run(into + " --resume no").status, 0);
}

TEST_F(TrainerRun, OneRunAtATimeHasAFolder) {
  const std::string into = fmt::format("--checkpoint-dir {}", folder_ / "saved");
  Behind first(train(into + " --steps 1000000 --save-every 1"), folder_ / "output");
  ASSERT_TRUE(first.await([&] { return !shown(folder_ / "saved").empty(); }))
      << *read_file(folder_ / "output");
  const Outcome second = run(into);
  EXPECT_EQ(second.status, 2) << second.output;
  EXPECT_TRUE(
      has(second, folder_ / "saved" + ": another run saves its checkpoints there (process "))
      << second.output;
  first.signal(SIGKILL);
  EXPECT_EQ(first.wait(), 128 + SIGKILL);
  const Outcome third = run(into + " --steps 1");
  EXPECT_EQ(third.status, 0) << third.output;
}

// The time that `--seconds` has left goes into the checkpoint: the learning rate goes on where it
// was.
TEST_F(TrainerRun, TimeBeforeAResumeCounts) {
  const auto go = [&](const std::string& options) {
    return run(fmt::format(
        "--steps 1000000 --log-every 100000 --checkpoint-dir {0}/saved --report-dir {0}/report "
        "--learning-rate 3e-3 --least-learning-rate 1e-4 {1}",
        folder_.path(), options));
  };
  const Outcome first = go("--seconds 1");
  ASSERT_EQ(first.status, 0) << first.output;
  const int64_t end = records(folder_ / "report").back().step;
  EXPECT_LT(records(folder_ / "report").back().learning_rate, 3e-4);
  const Outcome over = go("--seconds 1");
  EXPECT_EQ(over.status, 0) << over.output;
  EXPECT_TRUE(has(over, "already: nothing to train with --seconds 1\n")) << over.output;
  EXPECT_EQ(records(folder_ / "report").back().step, end);
  const Result<nlohmann::json> sealed = read_sealed(step("saved", end) + "/manifest.json");
  ASSERT_TRUE(sealed.ok()) << sealed.status().text();
  Result<Manifest> manifest = parse_manifest(*sealed, "manifest.json");
  ASSERT_TRUE(manifest.ok()) << manifest.status().text();
  const double taken = manifest->state["seconds"].get<double>();
  EXPECT_GE(taken, 1);
  const auto first_after = [&](const std::string& options) {
    fs::remove_all(folder_ / "report");
    const Outcome on = go(fmt::format("--resume {} {}", step("saved", end), options));
    EXPECT_EQ(on.status, 0) << on.output;
    EXPECT_FALSE(records(folder_ / "report").empty()) << on.output;
    return std::pair(records(folder_ / "report").front(), on);
  };
  const double seconds = taken + 0.5;
  TrainConfig config;
  config.steps = 1000000;
  config.warm_up_steps = 1;
  config.learning_rate = 3e-3;
  config.least_learning_rate = 1e-4;
  EXPECT_NEAR(first_after(fmt::format("--seconds {}", seconds)).first.learning_rate,
              static_cast<double>(config.learning_rate_at(end + 1, taken / seconds)), 1e-7);
  // Of an older checkpoint, which does not say it, time counts from the resume.
  manifest->state.erase("seconds");
  ASSERT_TRUE(write_file_durably(step("saved", end) + "/manifest.json", manifest->to_text()).ok());
  const auto [record, older] = first_after("--seconds 0.5");
  EXPECT_TRUE(has(older, " does not say how long its run has taken: --seconds counts from here\n"))
      << older.output;
  EXPECT_GT(record.learning_rate, 2.9e-3);
}

// One of the folder's checkpoints, or nothing.
std::optional<Checkpoint> open_step(const std::string& folder) {
  Result<Checkpoint> checkpoint = Checkpoint::open(folder);
  return checkpoint.ok() ? std::optional(*std::move(checkpoint)) : std::nullopt;
}

TEST_F(TrainerRun, ASignalEndsARunAfterItsStepWithCheckpointAndPage) {
  for (const auto& [mesh, signal] :
       {std::pair{"", SIGTERM}, {"--local 2 --zero 1", SIGINT}, {"", SIGINT}}) {
    SCOPED_TRACE(fmt::format("{} {}", mesh, signal));
    for (const char* const name : {"saved", "report"}) fs::remove_all(folder_ / name);
    Behind stopped(train(fmt::format("--steps 1000000 --checkpoint-dir {} --report-dir {} {}",
                                     folder_ / "saved", folder_ / "report", mesh)),
                   folder_ / "output");
    ASSERT_TRUE(stopped.await([&] { return records(folder_ / "report").size() >= 3; }))
        << *read_file(folder_ / "output");
    stopped.signal(signal);
    EXPECT_EQ(stopped.wait(), 128 + signal) << *read_file(folder_ / "output");
    const std::vector<StepRecord> done = records(folder_ / "report");
    EXPECT_EQ(shown(folder_ / "saved"), step_folder_name(done.back().step) + " ");
    EXPECT_TRUE(open_step(step("saved", done.back().step)));
    EXPECT_TRUE(fs::exists(folder_ / "report/report.html"));
    const Outcome on = run(fmt::format("--steps {} --checkpoint-dir {} {}", done.back().step + 1,
                                       folder_ / "saved", mesh));
    EXPECT_EQ(on.status, 0) << on.output;
    EXPECT_TRUE(has(on, fmt::format("goes on after step {},", done.back().step))) << on.output;
  }
}

TEST_F(TrainerRun, ASecondSignalEndsAProcessAtOnce) {
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGINT, SIG_DFL);
    const StopSignals signals;
    raise(SIGTERM);
    if (StopSignals::first() != SIGTERM) _exit(2);
    usleep(1'100'000);  // within a second it counts as the same
    raise(SIGINT);
    _exit(3);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGINT) << status;
}

TEST_F(TrainerRun, WhatIsNotFiniteCostsNoStepBeforeIt) {
  for (const char* const mesh : {"", "--local 2 --zero 1"}) {
    SCOPED_TRACE(mesh);
    // Weights as large as this are finite; their products are not.
    const Outcome broken =
        run_on(mesh, "--steps 9 --learning-rate 1e18 --least-learning-rate 1e18");
    EXPECT_EQ(broken.status, 1) << broken.output;
    EXPECT_TRUE(has(broken, "sennit train: step 5: the loss is ")) << broken.output;
    EXPECT_TRUE(has(broken, "the first tensor that is not finite is ")) << broken.output;
    EXPECT_TRUE(has(broken, "; the state after step 4 is saved\n")) << broken.output;
    EXPECT_TRUE(fs::exists(folder_ / "report/report.html"));
    const auto saved = open_step(step("saved", 4)), before = open_step(step("saved", 3));
    ASSERT_TRUE(saved && before);
    // Its place is before the batch that was not learned from: one step after the checkpoint's
    // before it.
    const auto first = [](const Checkpoint& c) {
      return c.state()["loader"].value("sample", int64_t{-1});
    };
    EXPECT_EQ(first(*saved), first(*before) + 8);
  }
}

// Loss and gradient are finite, and the rate too: what it moves the weights by is not.
TEST_F(TrainerRun, AnUpdateThatOverflowsCostsNoCheckpoint) {
  for (const char* const mesh : {"", "--local 2 --zero 1"}) {
    SCOPED_TRACE(mesh);
    const Outcome broken =
        run_on(mesh, "--steps 4 --learning-rate 3e38 --least-learning-rate 3e38 --keep-last 1");
    EXPECT_EQ(broken.status, 1) << broken.output;
    EXPECT_TRUE(has(broken, "sennit train: the state after step 4 is not finite, and not saved\n"))
        << broken.output;
    EXPECT_TRUE(fs::exists(folder_ / "report/report.html"));
    EXPECT_EQ(shown(folder_ / "saved"), "step-00000001 step-00000002 step-00000003 ");
  }
}

// The disk takes no checkpoint any more: what was not finite is said all the same.
TEST_F(TrainerRun, NothingIsCalledSavedThatIsNot) {
  for (const char* const mesh : {"", "--local 2 --zero 1"}) {
    SCOPED_TRACE(mesh);
    fs::remove_all(folder_ / "saved");
    run_of("saved", mesh);
    const Outcome broken = sennit_test::sh(
        "trap '' XFSZ; ulimit -f 100; " +
        train(fmt::format("--steps 9 --learning-rate 1e18 --least-learning-rate 1e18 "
                          "--checkpoint-dir {} {}",
                          folder_ / "saved", mesh)));
    EXPECT_EQ(broken.status, 1) << broken.output;
    EXPECT_TRUE(has(broken, "sennit train: step 5: the loss is ")) << broken.output;
    EXPECT_TRUE(has(broken, "; the state after step 4 cannot be saved: checkpoint of step 4: "))
        << broken.output;
    EXPECT_FALSE(has(broken, "is saved")) << broken.output;
    EXPECT_EQ(shown(folder_ / "saved"), "step-00000001 step-00000002 step-00000003 ");
  }
}

TEST_F(TrainerRun, ACheckpointHasTheLossThatWasMeasuredAtItsStep) {
  run_of("saved", fmt::format("--steps 7 --evaluate-every 3 --report-dir {}", folder_ / "report"),
         2);
  double best = INFINITY;
  for (const StepRecord& record : records(folder_ / "report")) {
    const auto saved = open_step(step("saved", record.step));
    const bool better = record.held_out && *record.held_out < best;
    if (better) best = *record.held_out;
    EXPECT_EQ(saved.has_value(), better || record.step % 2 == 0 || record.step == 7) << record.step;
    if (saved) {
      EXPECT_EQ(saved->held_out_loss(), record.held_out) << record.step;
    }
  }
  EXPECT_TRUE(open_step(step("saved", 3)));  // the first measured is the best so far
}

// Ranks as threads, each with settings of its own, as hosts may have folders of their own.
std::vector<Status> run_with(const std::vector<TrainConfig>& configs) {
  std::vector<sennit_comm_t> handles(configs.size());
  EXPECT_EQ(sennit_comm_init_local(handles.data(), static_cast<int>(handles.size()), nullptr),
            SENNIT_OK);
  std::vector<Status> answers(configs.size());
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < configs.size(); rank++)
    threads.emplace_back([&, rank] {
      Traffic traffic;
      Result<std::unique_ptr<Communicator>> job = adopt_sennit(handles[rank], &traffic);
      ASSERT_TRUE(job.ok()) << job.status().text();
      answers[rank] = run_training(configs[rank], *std::move(job), &traffic).status();
    });
  for (std::thread& thread : threads) thread.join();
  return answers;
}

TEST_F(TrainerRun, AllRanksGoOnFromTheSameCheckpointOrNone) {
  run_of("a", "--seed 1");
  run_of("b", "--seed 2");
  std::vector<TrainConfig> configs(2);
  for (TrainConfig& config : configs)
    ASSERT_TRUE(read_train_config(folder_ / "config.json", &config).ok());
  configs[0].checkpoint_dir = folder_ / "a";
  configs[1].checkpoint_dir = folder_ / "b";
  const std::string before = shown(folder_ / "a");
  const auto refused = [&](const std::string& words) {
    const std::vector<Status> answers = run_with(configs);
    EXPECT_EQ(answers[0].kind(), answers[1].kind());
    EXPECT_TRUE(answers[0].text().starts_with("rank 1 (")) << answers[0].text();
    EXPECT_NE(answers[0].text().find(words), std::string::npos) << answers[0].text();
    EXPECT_EQ(answers[1].text(), "");  // rank 0 speaks
    EXPECT_FALSE(answers[1].ok());
    EXPECT_EQ(shown(folder_ / "a"), before);
  };
  refused(folder_ / "b" + " is not the folder that rank 0 sees");
  // The same folder by its lock, but for what lies in it.
  fs::remove(folder_ / "b/.lock");
  fs::create_symlink(folder_ / "a/.lock", folder_ / "b/.lock");
  refused(step("b", 3) + " is another checkpoint here");
  fs::remove(step("b", 3) + "/rank-00000.safetensors");
  refused(step("b", 3) + "/rank-00000.safetensors: cannot be read");
  fs::remove_all(step("b", 3));  // as where one host has fewer: rank 1 must not go on from step 2
  refused(step("b", 3) + "/manifest.json: cannot be read");
  configs[0].checkpoint_dir = configs[1].checkpoint_dir = "";
  configs[0].resume = step("a", 2);
  configs[1].resume = step("b", 2);
  refused(step("b", 2) + " is another checkpoint here");
}

// What one rank cannot sample with is said once; the others do not wait for it.
TEST_F(TrainerRun, ATokenizerThatOneRankCannotReadIsSaidOnce) {
  std::vector<TrainConfig> configs(2);
  for (TrainConfig& config : configs) {
    ASSERT_TRUE(read_train_config(folder_ / "config.json", &config).ok());
    config.steps = 1;
    config.sample_tokens = 2;
  }
  const auto data = Dataset::open(configs[0].data);
  ASSERT_TRUE(data.ok()) << data.status().text();
  configs[1].data = folder_ / "other";
  auto writer = ShardWriter::open(configs[1].data, (*data)->vocabulary(), 1 << 20);
  ASSERT_TRUE(writer.ok()) << writer.status().text();
  ASSERT_TRUE((*writer)->add(Split::training, std::vector<int32_t>(1000, 3), 1000).ok());
  ASSERT_TRUE((*writer)->finish("no tokenizer", nlohmann::json::object()).ok());
  const std::vector<Status> answers = run_with(configs);
  EXPECT_TRUE(answers[0].text().starts_with("rank 1 (")) << answers[0].text();
  EXPECT_NE(answers[0].text().find("other/tokenizer.model: is no tokenizer"), std::string::npos)
      << answers[0].text();
  EXPECT_FALSE(answers[1].ok());
  EXPECT_EQ(answers[1].text(), "");
}

// Within oneDNN's kernels the stack pointer points elsewhere than to the stack: a handler that ran
// there wrote over the heap, and one in ten runs that were stopped ended in malloc's complaint
// instead of a checkpoint.
TEST(StopSignals, LeaveAloneWhatIsBeingMultiplied) {
  Result<std::unique_ptr<Device>> device = open_device("cpu", 1);
  ASSERT_TRUE(device.ok());
  constexpr int64_t kRows = 128, kColumns = 4096, kInner = 32;
  std::vector<float> a(kRows * kInner, 1), b(kColumns * kInner, 1), c(kRows * kColumns);
  std::vector<float> gradient(kColumns * kInner), back(kRows * kInner);
  const auto matrix = [](std::vector<float>& data, int64_t rows, int64_t columns) {
    return Matrix{data.data(), Type::f32, rows, columns, columns};
  };
  const StopSignals signals;
  const pthread_t self = pthread_self();
  std::atomic<bool> over = false;
  std::thread sender([&] {  // the same wish, told for most of a second
    for (const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(800);
         std::chrono::steady_clock::now() < end;) {
      pthread_kill(self, SIGTERM);
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    over = true;
  });
  while (!over) {
    std::fill(c.begin(), c.end(), 0.0f);
    (*device)->multiply(matrix(c, kRows, kColumns), matrix(a, kRows, kInner), false,
                        matrix(b, kColumns, kInner), true, false);
    (*device)->multiply(matrix(gradient, kColumns, kInner), matrix(c, kRows, kColumns), true,
                        matrix(a, kRows, kInner), false, false);
    (*device)->multiply(matrix(back, kRows, kInner), matrix(c, kRows, kColumns), false,
                        matrix(b, kColumns, kInner), false, false);
    ASSERT_TRUE(std::all_of(c.begin(), c.end(), [](float x) { return x == kInner; }));
  }
  sender.join();
  EXPECT_EQ(StopSignals::first(), SIGTERM);
}

}  // namespace
}  // namespace sennit::trainer
